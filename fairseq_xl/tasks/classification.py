"""Fine-tuning for classification of sentences and sentence pairs in any language."""

import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

import torch
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import metrics
from fairseq.tasks import register_task
from torch import nn

from fairseq_xl.criterions.classification import HEAD, class_scores
from fairseq_xl.data.classification import FIELDS, ClassificationDataset, check_labels, frame, read_examples
from fairseq_xl.data.text import TextEncoder
from fairseq_xl.errors import UserError
from fairseq_xl.io.compressed import stored
from fairseq_xl.io.files import replacing
from fairseq_xl.models.encoder import XLEncoderModel
from fairseq_xl.modules.initialization import init_weights
from fairseq_xl.tasks.base import XLTask, named_languages, run_config
from fairseq_xl.tasks.language_modules import LanguageModuleConfig, TaskLanguageModule, matching_parameters

logger = logging.getLogger(__name__)

SHORTEST = 8  # minimum --length of an input, in tokens
COLLAPSED = 98.0  # percent of the predictions in one class from which on the model is reported as collapsed


@dataclass
class XLClassificationConfig(LanguageModuleConfig):
    """Options of `xl_classification`."""

    task_files: Optional[str] = field(
        default=None,
        metadata={
            "help": "folder of SPLIT.LANGUAGE.tsv files: label TAB text, or label TAB text TAB text; several folders, "
            "separated by ':', are searched in order"
        },
    )
    train_langs: str = field(default="en", metadata={"help": "languages to train on, separated by commas"})
    eval_langs: str = field(default="en", metadata={"help": "languages of all other splits, separated by commas"})
    length: int = field(
        default=256,
        metadata={"help": "maximum length of an input, in tokens; the longer text of a pair is truncated first"},
    )
    examples_per_epoch: Optional[int] = field(
        default=None,
        metadata={
            "help": "random examples in each epoch (XLM: 20000; default: all, once)",
            "range": "1 or more",
        },
    )
    head_dropout: float = field(
        default=0.1, metadata={"help": "dropout in front of the classification layer", "range": "probability"}
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
        metadata={
            "help": "folder for the predictions of fairseq-validate: SPLIT.LANGUAGE.tsv, with line, label, prediction, "
            "probability"
        },
    )


@register_task("xl_classification", dataclass=XLClassificationConfig)
class XLClassificationTask(XLTask):
    """Classification from the first token (Lample & Conneau 2019, section 4.1): fine-tune and test in any languages."""

    criterion = "xl_classification"

    def __init__(self, cfg, dictionary):
        super().__init__(cfg, dictionary)
        self.labels = None  # the classes in order, from the training files or the checkpoint
        self.sides = None  # 1: sentences, 2: pairs
        self.predictions = {}  # split -> {index of the example: (class, probability)}
        self.language_module = TaskLanguageModule(cfg, dictionary, self.folder())
        self.uses_pretrained_tokens = self.language_module.replacement is None
        owners = self.language_module.languages
        if cfg.lang or len(owners) == 1:
            self._work_on(cfg.lang or owners[0])
        named_languages("--train-langs", cfg.train_langs, dictionary)
        named_languages("--eval-langs", cfg.eval_langs, dictionary)
        if cfg.length < SHORTEST:
            raise UserError(f"--length {cfg.length}: an input needs at least {SHORTEST} tokens")

    def _work_on(self, language):
        run = run_config(self.cfg)
        for options in (self.cfg, self.cfg if run is None else run.task):
            options.train_langs = options.eval_langs = language

    # --- identity ----------------------------------------------------------------------------------------------

    def identity(self):
        """The identity that every checkpoint has, and the classes."""
        return super().identity() | self.language_module.identity() | {"labels": self.labels, "sides": self.sides}

    def load_state_dict(self, state_dict):
        """Checks the checkpoint's identity and takes over its classes."""
        super().load_state_dict(state_dict)
        if "labels" not in state_dict["fairseq_xl"]:
            path = state_dict.get("path", "the checkpoint")
            raise UserError(f"{path} has no classifier; --init-from starts one from it")
        self.language_module.restore(state_dict["fairseq_xl"])
        self.labels, self.sides = (state_dict["fairseq_xl"][name] for name in ("labels", "sides"))

    def check_fits(self, state, path):
        """Raises `UserError` unless a checkpoint to resume from has this run's classes."""
        super().check_fits(state, path)
        identity = state["task_state"]["fairseq_xl"]
        self.language_module.restore(identity, resumes=True)
        if "labels" not in identity:
            raise UserError(f"{path} has no classifier: name it as --init-from to fine-tune its encoder")
        for name, ours in (("labels", self.labels), ("sides", self.sides)):
            if identity[name] != ours:
                raise UserError(f"{path} was trained on other files: its {name} are {identity[name]}, here {ours}")

    # --- model -------------------------------------------------------------------------------------------------

    def metrics(self):
        """Names of the validation metrics: `accuracy`, `loss`, and the accuracy of each language."""
        return ["accuracy", "loss", *(f"accuracy_{language}" for language in self._languages("valid"))]

    def build_model(self, cfg, from_checkpoint=False):
        """Builds the encoder and the classifier; a new run takes the encoder of --init-from."""
        self.check_architecture(cfg)
        if self.labels is None:
            self.labels = sorted({example.label for example in self._examples("train")})
        if len(self.labels) < 2:
            raise UserError(f"{self.cfg.task_files}: the training files have one label only: {self.labels[0]!r}")
        if self.cfg.length > cfg.max_positions:
            raise UserError(f"--length {self.cfg.length} is more than the model's --max-positions {cfg.max_positions}")
        self.language_module.prepare(cfg, self.cfg.init_from, from_checkpoint)
        model = super().build_model(cfg, from_checkpoint)
        self.language_module.attach(model, self.cfg.init_from, from_checkpoint)
        if not isinstance(model, XLEncoderModel):
            raise UserError(f"xl_classification needs {XLEncoderModel.described}")
        layer = nn.Linear(cfg.embed_dim, len(self.labels))
        init_weights(layer, cfg.init_std)
        model.add_heads({HEAD: nn.Sequential(nn.Dropout(self.cfg.head_dropout), layer)})
        if self.cfg.freeze and not from_checkpoint:
            for name in matching_parameters(model, self.cfg.freeze.split(","), "--freeze"):
                model.get_parameter(name).requires_grad = False
        if self.cfg.init_from and self.needs_initial_weights(from_checkpoint):
            self.transfer_weights(model, {"encoder": self.cfg.init_from})
        return model

    def adapt_pretrained(self, pretrained, model):
        """Removes the language module that the run does not use."""
        return self.language_module.adapt(pretrained, model)

    # --- data --------------------------------------------------------------------------------------------------

    def _languages(self, split):
        return (self.cfg.train_langs if split == "train" else self.cfg.eval_langs).split(",")

    def _file(self, split, language):
        """Path of a split in the first folder that has it; if none has it, the path in the first folder."""
        if not self.cfg.task_files:
            raise UserError("--task-files: name a folder of SPLIT.LANGUAGE.tsv files")
        folders = [Path(folder) for folder in self.cfg.task_files.split(os.pathsep)]
        name = f"{split}.{language}.tsv"
        files = [stored(folder / name) for folder in folders]
        return next((file for file in files if file.is_file()), files[0])

    def _examples(self, split, languages=None):
        """All examples of a split by language; raises `UserError` unless all are sentences or all are pairs."""
        examples = []
        for language in languages or self._languages(split):
            examples += read_examples(self._file(split, language), language)
        self.sides = self.sides or len(examples[0].texts)
        for example in examples:
            if len(example.texts) != self.sides:
                raise UserError(
                    f"{example.file}: expected {FIELDS[self.sides]} as in the other files, "
                    f"found {len(example.texts) + 1} fields"
                )
        return examples

    def _check_test_files(self):
        """Raises `UserError` before training for an error in a test file that exists."""
        languages = [language for language in self._languages("test") if self._file("test", language).is_file()]
        if languages:
            check_labels(self._examples("test", languages), self.labels)

    def load_dataset(self, split, combine=False, task_cfg=None, epoch=1, **kwargs):
        """Reads and encodes the files of a split in its languages."""
        examples = self._examples(split)
        encode = TextEncoder(self.folder() / "sentencepiece.model", self.dictionary)
        encoded = [[encode(text, example.language) for text in example.texts] for example in examples]
        cut = sum(sum(map(len, sides)) + len(sides) > self.cfg.length for sides in encoded)  # a symbol before each side
        if cut:
            logger.warning(
                "%s: %d of %d inputs have more than %d tokens (--length) and are truncated",
                split,
                cut,
                len(encoded),
                self.cfg.length,
            )
        rows = [frame(sides, self.framing, self.cfg.length) for sides in encoded]
        self.datasets[split] = ClassificationDataset(
            split, examples, self.labels, rows, self.dictionary, self.cfg.examples_per_epoch
        )
        if split == "train":
            self._check_test_files()

    def get_batch_iterator(self, dataset, max_tokens=None, **kwargs):
        """The iterator of fairseq; raises `UserError` for an example longer than --max-tokens."""
        longest = int(dataset.sizes.max())
        if max_tokens is not None and longest > max_tokens:
            raise UserError(f"an input has {longest} tokens: raise --max-tokens {max_tokens} or lower --length")
        return super().get_batch_iterator(dataset, max_tokens=max_tokens, **kwargs)

    # --- validation --------------------------------------------------------------------------------------------

    def valid_step(self, sample, model, criterion):
        """Scores a batch; --predictions-to collects its predictions until the split is complete."""
        model.eval()
        with torch.no_grad():
            logits = model(class_scores, sample["batch"])
            result = criterion.score(logits, sample)
        if self.cfg.predictions_to:
            self._keep(sample, logits.float().softmax(-1))
        return result

    def _keep(self, sample, probabilities):
        if distributed_utils.get_data_parallel_world_size() > 1:
            raise UserError("--predictions-to works in one process only")
        split = sample["split"]
        kept = self.predictions.setdefault(split, {})
        best = probabilities.max(-1)
        kept.update(zip(sample["id"].tolist(), zip(best.indices.tolist(), best.values.tolist())))
        if len(kept) == len(self.datasets[split]):
            self._write(split, self.predictions.pop(split))

    def _write(self, split, predictions):
        lines = {language: [] for language in self._languages(split)}
        for index, example in enumerate(self.datasets[split].examples):
            predicted, probability = predictions[index]
            line = f"{example.line}\t{example.label}\t{self.labels[predicted]}\t{probability:.6f}\n"
            lines[example.language].append(line)
        folder = Path(self.cfg.predictions_to)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for language, rows in lines.items():
                with replacing(folder / f"{split}.{language}.tsv") as file:
                    file.write("".join(rows).encode("utf-8"))
        except OSError as error:
            raise UserError(f"--predictions-to {folder}: {error.strerror}") from error

    def reduce_metrics(self, logging_outputs, criterion):
        """Logs the metrics; in fairseq-validate, which calls no hook after validation, warns of collapse."""
        with metrics.aggregate() as found:
            super().reduce_metrics(logging_outputs, criterion)
        if "train" not in self.datasets:
            self._warn_of_collapse(found)

    def post_validate(self, model, stats, agg):
        """fairseq hook after each validation in training: warns of collapse."""
        self._warn_of_collapse(agg)

    def _warn_of_collapse(self, shares):
        """Warns of each language in which nearly all predictions are the same class."""
        for language in self.dictionary.languages:
            for number, label in enumerate(self.labels):
                names = [f"_{what}_{language}_{number}" for what in ("predicted", "gold")]
                predicted, gold = (shares[name].avg if name in shares else 0.0 for name in names)
                if predicted >= COLLAPSED > gold:
                    logger.warning(
                        "the model has collapsed in %s: %.1f %% of its predictions are %r, which is right for %.1f %%; "
                        "a lower --lr, more warm-up or more updates may help",
                        language,
                        predicted,
                        label,
                        gold,
                    )
