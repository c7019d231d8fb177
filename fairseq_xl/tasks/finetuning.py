"""Fine-tuning of encoders in any language: classification, ranking, tagging and question answering."""

import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

import torch
from fairseq.dataclass import ChoiceEnum
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import metrics
from fairseq.tasks import register_task

from fairseq_xl.checkpoints.identity import head_of
from fairseq_xl.data.finetuning import FineTuningDataset
from fairseq_xl.data.text import TextEncoder
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.question_answering import NORMALIZATIONS
from fairseq_xl.finetuning.classification import Classification
from fairseq_xl.finetuning.question_answering import QuestionAnswering
from fairseq_xl.finetuning.ranking import Ranking
from fairseq_xl.finetuning.tagging import Tagging
from fairseq_xl.io.compressed import stored
from fairseq_xl.io.files import replacing
from fairseq_xl.models.encoder import XLEncoderModel
from fairseq_xl.tasks.base import XLTask, named_languages, run_config
from fairseq_xl.tasks.language_modules import LanguageModuleConfig, TaskLanguageModule, matching_parameters

logger = logging.getLogger(__name__)

SHORTEST = 8  # minimum --length of an input, in tokens
COLLAPSED = 98.0  # percent of the predictions in one class from which on the model is reported as collapsed


@dataclass
class FineTuningConfig(LanguageModuleConfig):
    """Options of every fine-tuning task of encoders."""

    task_files: Optional[str] = field(
        default=None,
        metadata={
            "help": "folder of SPLIT.LANGUAGE files, in the format of the task (recipes/README.md); several folders, "
            "separated by ':', are searched in order"
        },
    )
    train_langs: str = field(default="en", metadata={"help": "languages to train on, separated by commas"})
    eval_langs: str = field(default="en", metadata={"help": "languages of all other splits, separated by commas"})
    valid_langs: Optional[str] = field(
        default=None,
        metadata={"help": "languages of the split `valid`, separated by commas (default: --eval-langs)"},
    )
    length: int = field(
        default=256,
        metadata={
            "help": "maximum length of an input, in tokens; longer texts are truncated, sentences to tag and contexts "
            "of questions divided"
        },
    )
    examples_per_epoch: Optional[int] = field(
        default=None,
        metadata={
            "help": "random examples in each epoch (XLM: 20000; default: all, once)",
            "range": "1 or more",
        },
    )
    head_dropout: float = field(
        default=0.1, metadata={"help": "dropout in front of the task's output layer", "range": "probability"}
    )
    init_from: Optional[str] = field(
        default=None, metadata={"help": "fine-tune the encoder of this checkpoint, or of a published XLM-R or XLM"}
    )
    freeze: Optional[str] = field(
        default=None,
        metadata={
            "help": "freeze the parameters whose names match these patterns, separated by commas; 'language-module': "
            "the language module of an xl_monotrans_* model (Artetxe et al. 2020, section 2)"
        },
    )
    predictions_to: Optional[str] = field(
        default=None,
        metadata={"help": "folder for the predictions of fairseq-validate, a file for each split and language"},
    )


class FineTuningTask(XLTask):
    """An encoder with the head of a task type: fine-tune and test in any languages."""

    #: the task type
    task_type = None

    def __init__(self, cfg, dictionary):
        super().__init__(cfg, dictionary)
        self.type = self.task_type(cfg, self.framing)
        self.predictions = {}  # split -> {index of the example: prediction}
        self.language_module = TaskLanguageModule(cfg, dictionary, self.folder())
        self.uses_pretrained_tokens = self.language_module.replacement is None
        owners = self.language_module.languages
        if cfg.lang or len(owners) == 1:
            self._work_on(cfg.lang or owners[0])
        named_languages("--train-langs", cfg.train_langs, dictionary)
        named_languages("--eval-langs", cfg.eval_langs, dictionary)
        if cfg.valid_langs is not None:
            named_languages("--valid-langs", cfg.valid_langs, dictionary)
        if cfg.length < SHORTEST:
            raise UserError(f"--length {cfg.length}: an input needs at least {SHORTEST} tokens")

    def _work_on(self, language):
        run = run_config(self.cfg)
        for options in (self.cfg, self.cfg if run is None else run.task):
            options.train_langs = options.eval_langs = language
            options.valid_langs = None

    # --- identity ----------------------------------------------------------------------------------------------

    def identity(self):
        """The identity that every checkpoint has, its head, and what the task type learned from the training files."""
        state = {name: getattr(self.type, name) for name in self.type.state}
        return super().identity() | self.language_module.identity() | {"head": self.type.name} | state

    def load_state_dict(self, state_dict):
        """Checks the checkpoint's identity and takes over what its task type learned."""
        super().load_state_dict(state_dict)
        found = state_dict["fairseq_xl"]
        self._check_head(found, state_dict.get("path", "the checkpoint"), "--init-from starts one from it")
        self.type.framing = self.framing
        self.language_module.restore(found)
        for name in self.type.state:
            setattr(self.type, name, found[name])

    def _check_head(self, found, path, advice):
        if head_of(found) != self.type.name:
            raise UserError(f"{path} has no head for {self.cfg._name}; {advice}")

    def check_fits(self, state, path):
        """Raises `UserError` unless a checkpoint to resume from has this run's head."""
        super().check_fits(state, path)
        found = state["task_state"]["fairseq_xl"]
        self.language_module.restore(found, resumes=True)
        self._check_head(found, path, "name it as --init-from to fine-tune its encoder")
        for name in self.type.state:
            ours = getattr(self.type, name)
            if found[name] != ours:
                raise UserError(f"{path} was trained on other files: its {name} are {found[name]}, here {ours}")

    # --- model -------------------------------------------------------------------------------------------------

    def metrics(self):
        """Names of the validation metrics: the task type's metrics, `loss`, and each metric by language."""
        names = list(self.type.metrics())
        languages = self._languages("valid")
        return [*names, "loss", *(f"{name}_{language}" for name in names for language in languages)]

    def build_model(self, cfg, from_checkpoint=False):
        """Builds the encoder and the head; a new run takes the encoder of --init-from."""
        self.check_architecture(cfg)
        self.learn()
        if self.cfg.length > cfg.max_positions:
            raise UserError(f"--length {self.cfg.length} is more than the model's --max-positions {cfg.max_positions}")
        self.language_module.prepare(cfg, self.cfg.init_from, from_checkpoint)
        model = super().build_model(cfg, from_checkpoint)
        self.language_module.attach(model, self.cfg.init_from, from_checkpoint)
        if not isinstance(model, XLEncoderModel):
            raise UserError(f"{self.cfg._name} needs {XLEncoderModel.described}")
        model.add_heads({self.type.name: self.type.head(cfg)})
        if self.cfg.freeze and not from_checkpoint:
            for name in matching_parameters(model, self.cfg.freeze.split(","), "--freeze"):
                model.get_parameter(name).requires_grad = False
        if self.cfg.init_from and self.needs_initial_weights(from_checkpoint):
            self.transfer_weights(model, {"encoder": self.cfg.init_from})
        return model

    @property
    def learned(self):
        """Whether the task type has learned its state, from the training files or a checkpoint."""
        return all(getattr(self.type, name) for name in self.type.state)

    def learn(self):
        """Lets the task type learn its state from the training files, unless a checkpoint has set it."""
        if not self.learned:
            self.type.learn(self._examples("train"))

    def adapt_pretrained(self, pretrained, model):
        """Removes the language module that the run does not use."""
        return self.language_module.adapt(pretrained, model)

    # --- data --------------------------------------------------------------------------------------------------

    def _languages(self, split):
        named = {"train": self.cfg.train_langs, "valid": self.cfg.valid_langs or self.cfg.eval_langs}
        return named.get(split, self.cfg.eval_langs).split(",")

    def _file(self, split, language):
        """Path of a split in the first folder that has it; if none has it, the path in the first folder."""
        if not self.cfg.task_files:
            raise UserError(f"--task-files: name a folder of files {self.type.files}")
        folders = [Path(folder) for folder in self.cfg.task_files.split(os.pathsep)]
        name = f"{split}.{language}.{self.type.suffix}"
        files = [stored(folder / name) for folder in folders]
        return next((file for file in files if file.is_file()), files[0])

    def _examples(self, split, languages=None):
        """All examples of a split by language."""
        languages = languages or self._languages(split)
        return [example for language in languages for example in self.type.read(self._file(split, language), language)]

    def _check_test_files(self):
        """Raises `UserError` before training for an error in a test file that exists."""
        languages = [language for language in self._languages("test") if self._file("test", language).is_file()]
        if languages:
            self.type.check(self._examples("test", languages))

    def load_dataset(self, split, combine=False, task_cfg=None, epoch=1, **kwargs):
        """Reads and encodes the files of a split in its languages."""
        examples = self._examples(split)
        self.type.check(examples)
        if split == "train":
            for example in examples:
                if not self.type.is_labeled(example):
                    raise UserError(f"{example.place}: training text without a label")
        encode = TextEncoder(self.folder() / "sentencepiece.model", self.dictionary)
        inputs = [self.type.inputs(example, encode) for example in examples]
        cut = sum(any(each.truncated for each in of_one) for of_one in inputs)
        if cut:
            logger.warning(
                "%s: %d of %d inputs have more than %d tokens (--length) and are truncated",
                split,
                cut,
                len(inputs),
                self.cfg.length,
            )
        if split == "train":
            examples, inputs = self.type.training_items(examples, inputs)
        self.datasets[split] = FineTuningDataset(
            split, examples, inputs, self.type.collate, self.dictionary, self.cfg.examples_per_epoch
        )
        if split == "train":
            self._check_test_files()

    def get_batch_iterator(self, dataset, max_tokens=None, **kwargs):
        """The iterator of fairseq; raises `UserError` for an example longer than --max-tokens."""
        longest = int(dataset.tokens.max())
        if max_tokens is not None and longest > max_tokens:
            raise UserError(f"{self.type.what} has {longest} tokens: raise --max-tokens {max_tokens} or lower --length")
        return super().get_batch_iterator(dataset, max_tokens=max_tokens, **kwargs)

    # --- validation --------------------------------------------------------------------------------------------

    def valid_step(self, sample, model, criterion):
        """Scores a batch; --predictions-to collects its predictions until the split is complete."""
        model.eval()
        with torch.no_grad():
            outputs = model(self.type.outputs, sample)
            loss, size, log = criterion.score(outputs, sample)
        predictions = self.predict(outputs, sample)
        if self.cfg.predictions_to:
            self._keep(sample, predictions)
        return loss, size, log | self.counted(sample, predictions)

    def predict(self, outputs, sample):
        """Predictions of the examples of a sample, from the outputs of the head."""
        dataset = self.datasets[sample["split"]]
        return self.type.predict(outputs, sample, [dataset.inputs[index] for index in sample["id"].tolist()])

    def counted(self, sample, predictions):
        """{"_STATISTIC XX": sum over the examples in language XX}, for all languages of the split."""
        examples = self.datasets[sample["split"]].examples
        names = ("examples", *self.type.statistics)
        languages = self._languages(sample["split"])
        sums = {f"_{name} {language}": 0.0 for language in languages for name in names}
        for index, prediction in zip(sample["id"].tolist(), predictions, strict=True):
            if self.type.is_labeled(examples[index]):
                for name, value in ({"examples": 1} | self.type.count(examples[index], prediction)).items():
                    sums[f"_{name} {examples[index].language}"] += float(value)
        return sums

    def reduce_metrics(self, logging_outputs, criterion):
        """Logs the metrics by language and their means over languages.

        In fairseq-validate, which calls no hook after validation, it also warns of collapse.
        """
        with metrics.aggregate() as found:
            super().reduce_metrics(logging_outputs, criterion)
            counted = [language for language in self.dictionary.languages if self._sums(found, language)]
            for name, function in self.type.metrics().items():
                for language in counted:
                    metrics.log_derived(f"{name}_{language}", self._metric(function, language))
                metrics.log_derived(name, self._mean(function))
        if "train" not in self.datasets:
            self._warn_of_collapse(found)

    def _sums(self, meters, language):
        """{statistic: sum} of a language in logged meters; None without examples."""
        names = ("examples", *self.type.statistics)
        sums = {name: meters[f"_{name} {language}"].sum for name in names if f"_{name} {language}" in meters}
        return {name: float(value) for name, value in sums.items()} if sums.get("examples") else None

    def _metric(self, function, language):
        def metric(meters):
            sums = self._sums(meters, language)
            return sums and round(function(sums), 2)

        return metric

    def _mean(self, function):
        def mean(meters):
            sums = filter(None, (self._sums(meters, language) for language in self.dictionary.languages))
            values = [round(function(of_one), 2) for of_one in sums]
            return round(sum(values) / len(values), 3) if values else None

        return mean

    def _keep(self, sample, predictions):
        if distributed_utils.get_data_parallel_world_size() > 1:
            raise UserError("--predictions-to works in one process only")
        split = sample["split"]
        kept = self.predictions.setdefault(split, {})
        kept.update(zip(sample["id"].tolist(), predictions))
        if len(kept) == len(self.datasets[split]):
            self._write(split, self.predictions.pop(split))

    def _write(self, split, predictions):
        rows = {language: [] for language in self._languages(split)}
        for index, example in enumerate(self.datasets[split].examples):
            rows[example.language].append((example, predictions[index]))
        folder = Path(self.cfg.predictions_to)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for language, of_one in rows.items():
                with replacing(folder / f"{split}.{language}.{self.type.suffix}") as file:
                    file.write(self.type.file_of(of_one).encode("utf-8"))
        except OSError as error:
            raise UserError(f"--predictions-to {folder}: {error.strerror}") from error

    def post_validate(self, model, stats, agg):
        """fairseq hook after each validation in training: warns of collapse."""
        self._warn_of_collapse(agg)

    def _warn_of_collapse(self, meters):
        """Warns of each language in which nearly all predictions are the same class."""
        for language in self.dictionary.languages:
            sums = self._sums(meters, language)
            for label, predicted, gold in self.type.shares(sums) if sums else ():
                if predicted >= COLLAPSED > gold:
                    logger.warning(
                        "the model has collapsed in %s: %.1f %% of its predictions are %r, which is right for %.1f %%; "
                        "a lower --lr, more warm-up or more updates may help",
                        language,
                        predicted,
                        label,
                        gold,
                    )


@dataclass
class FirstTokenConfig(FineTuningConfig):
    """Options of tasks whose head reads the first token."""

    pooler: bool = field(
        default=False,
        metadata={
            "help": "BERT's linear layer and tanh before the output layer; its weights are those of next-sentence "
            "prediction if the checkpoint of --init-from has them"
        },
    )


@dataclass
class XLClassificationConfig(FirstTokenConfig):
    """Options of `xl_classification`."""


@register_task("xl_classification", dataclass=XLClassificationConfig)
class XLClassificationTask(FineTuningTask):
    """Classification from the first token (Lample & Conneau 2019, section 4.1)."""

    criterion, task_type = "xl_classification", Classification


@dataclass
class XLRankingConfig(FirstTokenConfig):
    """Options of `xl_ranking`."""


@register_task("xl_ranking", dataclass=XLRankingConfig)
class XLRankingTask(FineTuningTask):
    """Ranking of a query's texts by relevance (Liang et al. 2020, section 2.2)."""

    criterion, task_type = "xl_ranking", Ranking


@dataclass
class XLTaggingConfig(FineTuningConfig):
    """Options of `xl_tagging`."""


@register_task("xl_tagging", dataclass=XLTaggingConfig)
class XLTaggingTask(FineTuningTask):
    """Tagging of words: named entities, parts of speech (Liang et al. 2020, section 2.2)."""

    criterion, task_type = "xl_tagging", Tagging


@dataclass
class XLQuestionAnsweringConfig(FineTuningConfig):
    """Options of `xl_question_answering`."""

    question_length: int = field(
        default=64,
        metadata={"help": "maximum length of a question, in tokens; the rest is truncated", "range": "1 or more"},
    )
    stride: int = field(
        default=128,
        metadata={
            "help": "tokens between the starts of consecutive windows of a long context (doc_stride in BERT)",
            "range": "1 or more",
        },
    )
    answer_length: int = field(
        default=30, metadata={"help": "maximum length of a predicted answer, in tokens", "range": "1 or more"}
    )
    normalization: ChoiceEnum(NORMALIZATIONS) = field(
        default="squad",
        metadata={
            "help": "normalization of answers before comparison: squad (removes English articles) or mlqa (removes "
            "those of the language; characters are words in Chinese, Japanese and Thai)"
        },
    )


@register_task("xl_question_answering", dataclass=XLQuestionAnsweringConfig)
class XLQuestionAnsweringTask(FineTuningTask):
    """Extractive question answering (Liang et al. 2020, section 2.2; Luo et al. 2020, table 9)."""

    criterion, task_type = "xl_question_answering", QuestionAnswering
