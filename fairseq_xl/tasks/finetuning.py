"""Fine-tuning of encoders in any language: classification, ranking, tagging and question answering."""

import logging
import os
from collections import Counter, defaultdict
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Optional

import numpy as np
import torch
from fairseq.distributed import utils as distributed_utils
from fairseq.tasks import TASK_REGISTRY, register_task
from omegaconf import OmegaConf

from fairseq_xl.data.finetuning import FineTuningDataset
from fairseq_xl.data.inputs import text_fingerprint
from fairseq_xl.data.text import TextEncoder
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.evaluation.prediction_folders import Origin, check_replaceable, write_predictions
from fairseq_xl.evaluation.task_files import file_in
from fairseq_xl.finetuning import TASK_TYPES
from fairseq_xl.finetuning.base import camel_case
from fairseq_xl.finetuning.file_checks import count, warn_of_files
from fairseq_xl.io.compressed import without_suffix
from fairseq_xl.models.encoder import XLEncoderModel
from fairseq_xl.options import option
from fairseq_xl.tasks.base import XLTask, named_languages, run_config
from fairseq_xl.tasks.language_metrics import LanguageMetrics
from fairseq_xl.tasks.language_modules import LanguageModuleConfig, TaskLanguageModule, matching_parameters

logger = logging.getLogger(__name__)

SHORTEST = 8  # minimum --length of an input, in tokens
UNKNOWN = 0.1  # share of <unk> among the tokens of a language from which on there is a warning


@dataclass
class FineTuningConfig(LanguageModuleConfig):
    """Options of every fine-tuning task of encoders."""

    task_files: Optional[str] = option(
        None,
        "folder of SPLIT.LANGUAGE files, in the format of the task (recipes/README.md); several folders, "
        "separated by ':', are searched in order",
    )
    train_langs: str = option("en", "languages to train on, separated by commas")
    eval_langs: str = option("en", "languages of every split but `train`, separated by commas")
    valid_langs: Optional[str] = option(
        None, "languages of the split `valid`, separated by commas (default: --eval-langs)"
    )
    length: int = option(
        256,
        "maximum length of an input, in tokens; longer texts are truncated, sentences to tag and contexts "
        "of questions divided",
    )
    examples_per_epoch: Optional[int] = option(
        None,
        "number of examples drawn at random for each epoch; of question answering: windows (default: each "
        "example once; XLM: 20000)",
        range="1 or more",
    )
    head_dropout: float = option(0.1, "dropout in front of the task's output layer", range="probability")
    init_from: Optional[str] = option(
        None, "fine-tune the encoder of this checkpoint, or of published weights (XLM-R, XLM, BERT)"
    )
    freeze: Optional[str] = option(
        None,
        "freeze the parameters whose names match these patterns, separated by commas; 'language-module': "
        "the language module of an xl_monotrans_* model (Artetxe et al. 2020, section 2)",
    )
    predictions_to: Optional[str] = option(
        None, "folder for the predictions of fairseq-validate, a file for each split and language"
    )


class FineTuningTask(LanguageMetrics, XLTask):
    """An encoder with the head of a task type: fine-tune and test in any languages."""

    #: the task type
    task_type = None

    def __init__(self, cfg, dictionary):
        super().__init__(cfg, dictionary)
        self.type = self.make_type()
        self.training_examples = []  # those that the type has learned from, until their dataset is made
        self.loaded_state = None  # what the task type of the loaded checkpoints learned
        self.origin, self.prefixes = None, []  # of --predictions-to: the model, and prefixes of the names of its files
        self.training_files = []  # their counts, until the other files are compared with them
        self.predictions = {}  # split -> {index of the example: prediction}, where they are kept
        self.language_module = TaskLanguageModule(cfg, dictionary, self.folder())
        self.uses_pretrained_tokens = self.language_module.replacement is None
        owners = self.language_module.languages
        if cfg.lang or len(owners) == 1:
            self._use_only(cfg.lang or owners[0])
        named_languages("--train-langs", cfg.train_langs, dictionary)
        named_languages("--eval-langs", cfg.eval_langs, dictionary)
        if cfg.valid_langs is not None:
            named_languages("--valid-langs", cfg.valid_langs, dictionary)
        if cfg.length < SHORTEST:
            raise UserError(f"--length {cfg.length}: an input needs at least {SHORTEST} tokens")

    def make_type(self):
        """The `TaskType` of the task."""
        return self.task_type(self.cfg, self.framing)

    def _use_only(self, language):
        """Sets the languages of all splits to this one."""
        self.cfg.train_langs = self.cfg.eval_langs = language
        self.cfg.valid_langs = None

    def stored_options(self):
        """As of every task, and the languages, of which those of a language module may be the only ones."""
        languages = {name: self.cfg[name] for name in ("train_langs", "eval_langs", "valid_langs")}
        return super().stored_options() | languages | self.language_module.stored_options()

    # --- identity ----------------------------------------------------------------------------------------------

    def identity(self):
        """Returns the base identity with the head and the state of the task type."""
        own = {"head": self.type.name, "type_state": self.type.learned_state()}
        return super().identity() | self.language_module.identity() | own

    def load_state_dict(self, state_dict):
        """Checks a checkpoint's identity and takes over what its task type learned; those of an ensemble must agree."""
        super().load_state_dict(state_dict)
        found = state_dict["fairseq_xl"]
        path = state_dict.get("path", "the checkpoint")
        self._check_head(found, path)
        self.type.framing = self.framing
        self.language_module.restore(found)
        learned = found.get("type_state", {})
        if self.loaded_state not in (None, learned):
            raise UserError(f"{path} was trained on other files than the checkpoint before it: {quoted(learned)}")
        self.type.load_state(learned, path)
        self.loaded_state = learned
        if self.cfg.predictions_to and "path" in state_dict:
            self._set_origin(Origin.of_checkpoint(path, self.type.name))

    def begin_training(self):
        """Checks --predictions-to before a training."""
        super().begin_training()
        if self.cfg.predictions_to:
            folder = run_config(self.cfg).checkpoint.save_dir
            self._set_origin(Origin(f"the training in {folder}", None, self.type.name))

    def _set_origin(self, origin):
        """Sets the model of --predictions-to; raises `UserError` if the folder would keep those of another model."""
        self.origin, run = origin, run_config(self.cfg)
        splits = run.dataset.valid_subset.split(",") if run is not None else []
        self.prefixes = [f"{split}.{language}." for split in splits for language in self._languages(split)]
        for name, kind in self.type.folders().items():
            check_replaceable(Path(self.cfg.predictions_to, name), origin._replace(task=kind), self.prefixes)

    def _check_head(self, found, path):
        if found.get("head") != self.type.name:
            raise UserError(f"{path} has no head of {self.cfg._name}: fine-tune its encoder with --init-from {path}")

    def check_fits(self, state, path):
        """Raises `UserError` unless a checkpoint to resume from has this run's head."""
        super().check_fits(state, path)
        found = state["task_state"]["fairseq_xl"]
        self.language_module.restore(found, resumes=True)
        self._check_head(found, path)
        theirs = found.get("type_state", {})
        for name, ours in self.type.learned_state().items():
            if theirs.get(name) != ours:
                shown = f"{name.replace('_', ' ')} {theirs.get(name)}; this run has {ours}"
                raise UserError(f"{path} was trained on other files, with {shown}")

    # --- model -------------------------------------------------------------------------------------------------

    def metrics(self):
        """Names of the validation metrics: the task type's metrics, `loss`, and each metric by language."""
        names = list(self.type.metrics())
        languages = self._languages("valid")
        return [*names, "loss", *(f"{name}_{language}" for name in names for language in languages)]

    def build_model(self, cfg, from_checkpoint=False):
        """Builds the encoder and the head; a new run takes the encoder of --init-from."""
        self.check_architecture(cfg)
        if not from_checkpoint or not self.type.learned:
            self.learn()
        if self.cfg.length > cfg.max_positions:
            raise UserError(f"--length {self.cfg.length} is more than the model's --max-positions {cfg.max_positions}")
        self.language_module.prepare(cfg, self.cfg.init_from, from_checkpoint)
        model = super().build_model(cfg, from_checkpoint)
        self.language_module.attach(model, self.cfg.init_from, from_checkpoint)
        if not isinstance(model, XLEncoderModel):
            raise UserError(f"{self.cfg._name} needs {XLEncoderModel.described}")
        model.add_heads(self.type.heads(cfg))
        if self.cfg.freeze and not from_checkpoint:
            for name in matching_parameters(model, self.cfg.freeze.split(","), "--freeze"):
                model.get_parameter(name).requires_grad = False
        if self.needs_initial_weights(from_checkpoint):
            if self.cfg.init_from:
                self.transfer_weights(model, {"encoder": self.cfg.init_from})
            else:
                logger.info("the encoder has random weights: there is no --init-from")
        return model

    def learn(self) -> None:
        """Reads the training files, from which the task type learns its state."""
        if not self.training_examples and "train" not in self.datasets:
            self.training_files, self.training_examples = [], []
            for path, examples in self._read("train"):
                self.training_files.append(self.count_file("train", path, examples))
                self.training_examples += examples
            self.type.learn(self.training_examples)

    def adapt_pretrained(self, pretrained, model):
        """Removes the language module that the run does not use."""
        return self.language_module.adapt(pretrained, model)

    # --- data --------------------------------------------------------------------------------------------------

    def _languages(self, split):
        named = {"train": self.cfg.train_langs, "valid": self.cfg.valid_langs or self.cfg.eval_langs}
        return named.get(split, self.cfg.eval_langs).split(",")

    def files_to_read(self, split):
        """(function that reads, file, language) of each file of a split."""
        return [
            (self.type.read, find_file("--task-files", self.cfg.task_files, split, language, self.type), language)
            for language in self._languages(split)
        ]

    def input_name(self, path):
        """The name of a file among the `inputs`, without its folder and its suffix of compressed files."""
        return without_suffix(path.name)

    def _read(self, split):
        """Yields path and examples of the `files_to_read` of a split, and adds each file to the `inputs`."""
        for read, path, language in self.files_to_read(split):
            yield path, read(path, language)
            self.inputs.add(split, self.input_name(path), path, text_fingerprint(path))

    def _evaluation_files(self):
        """The counts of the validation files and of the test files that exist; raises `UserError` for their errors."""
        run, found = run_config(self.cfg), []
        validated = run is not None and not run.dataset.disable_validation
        splits = run.dataset.valid_subset.split(",") if validated else []
        for split in dict.fromkeys([*splits, "test"]):
            for read, path, language in self.files_to_read(split):
                if split == "test" and not path.is_file():
                    continue
                examples = read(path, language)
                if split == "test":  # others are checked when they are loaded
                    self.type.check(examples)
                found.append(self.count_file(split, path, examples))
        return found

    def count_file(self, split, path, examples):
        """The `TaskFile` of the examples of a file."""
        return count(split, path, examples, self.type)

    def load_dataset(self, split, combine=False, task_cfg=None, epoch=1, **kwargs):
        """Reads and encodes the files of a split in its languages."""
        if self.training_files:  # before anything is encoded
            self.check_selection()
            warn_of_files(self.training_files + self._evaluation_files())
            self.training_files = []
        examples = (split == "train" and self.training_examples) or [
            example for _, examples in self._read(split) for example in examples
        ]
        if split == "train":
            self.training_examples = []
            self.inputs.check_complete(split)
        self.type.check(examples)
        encode = TextEncoder(self.folder(), self.dictionary)
        inputs = [self.type.inputs(example, encode) for example in examples]
        cut = sum(any(each.truncated for each in of_one) for of_one in inputs)
        if cut:
            logger.warning(
                "%s: %d of %d examples are truncated to %s tokens",
                split,
                cut,
                len(inputs),
                self.type.truncation_option(),
            )
        self._warn_of_unknown(split, examples, inputs)
        if split == "train":
            examples, inputs = self.type.training_items(examples, inputs)
        self.datasets[split] = self.make_dataset(split, examples, inputs)

    def _warn_of_unknown(self, split, examples, inputs):
        """Warns if more than a share `UNKNOWN` of the tokens of a language are <unk>."""
        counts = defaultdict(lambda: np.zeros(2, dtype=np.int64))  # language -> tokens that are <unk>, all tokens
        for example, of_one in zip(examples, inputs):
            for each in of_one:
                counts[example.language] += (each.tokens == self.dictionary.unk()).sum(), each.tokens.size
        for language, (unknown, total) in counts.items():
            if unknown > UNKNOWN * total:
                share = 100 * unknown / total
                logger.warning(
                    "%s.%s: %.0f %% of the tokens are <unk>: the vocabulary lacks characters of this text",
                    *(split, language, share),
                )

    def make_dataset(self, split, examples, inputs):
        """The dataset of a split: its examples with the inputs of each."""
        more = self.type.collate, self.dictionary, self.cfg.examples_per_epoch
        return FineTuningDataset(split, examples, inputs, *more)

    def get_batch_iterator(self, dataset, max_tokens=None, **kwargs):
        """The iterator of fairseq; raises `UserError` for an example longer than --max-tokens."""
        self.check_longest(dataset, max_tokens)
        return super().get_batch_iterator(dataset, max_tokens=max_tokens, **kwargs)

    def validation_limit(self):
        """Maximum number of validation examples of a group; 0 (all) if --predictions-to is given, which writes all."""
        return 0 if self.cfg.predictions_to else super().validation_limit()

    def check_longest(self, dataset, max_tokens):
        """Raises `UserError` if an example of a dataset needs more than `max_tokens`; None: any number is allowed."""
        longest = int(dataset.padded_lengths.max())
        if max_tokens is not None and longest > max_tokens:
            advice = f"more than --max-tokens {max_tokens}: raise --max-tokens or lower --length"
            raise UserError(f"{self.type.example_name} needs {longest} tokens with padding, {advice}")

    # --- validation --------------------------------------------------------------------------------------------

    def valid_step(self, sample, model, criterion):
        """Scores a batch; keeps its predictions if --predictions-to is set."""
        model.eval()
        with torch.no_grad():
            outputs = model(self.type.outputs, sample)
            loss, size, log = criterion.score(outputs, sample)
        predictions = self.predict(outputs, sample)
        self._keep(sample, predictions)
        return loss, size, log | self.counted(sample, predictions)

    def predict(self, outputs, sample):
        """Predictions of the examples of a sample, from the outputs of the head."""
        dataset = self.datasets[sample["split"]]
        return self.type.predict(outputs, sample, [dataset.inputs[index] for index in sample["id"].tolist()])

    # --- predictions -------------------------------------------------------------------------------------------

    def begin_valid_epoch(self, epoch, model):
        """fairseq hook before each validation in training: forgets the predictions of the one before."""
        super().begin_valid_epoch(epoch, model)
        self.predictions.clear()

    def _keep(self, sample, predictions):
        """Collects predictions until the split is complete, and then writes them."""
        if not self.cfg.predictions_to:
            return
        if distributed_utils.get_data_parallel_world_size() > 1:
            raise UserError("--predictions-to works in one process only")
        split = sample["split"]
        kept = self.predictions.setdefault(split, {})
        kept.update(zip(sample["id"].tolist(), predictions, strict=True))
        if len(kept) < len(self.datasets[split]):
            return
        rows = {language: [] for language in self._languages(split)}
        for index, example in enumerate(self.datasets[split].examples):
            rows[example.language].append((example, kept[index]))
        self._write(split, rows)

    def _write(self, split, rows):
        """Writes the predictions of a split, {language: (example, prediction) in order}."""
        folder, files = Path(self.cfg.predictions_to), defaultdict(dict)
        for language, predicted in rows.items():
            for path, content in self.type.files_of(split, language, predicted).items():
                subtask, _, name = path.rpartition("/")
                files[subtask][name] = content
        try:
            for subtask, texts in files.items():
                origin = self.origin and self.origin._replace(task=self.type.folders()[subtask])
                write_predictions(folder / subtask, origin, texts, self.prefixes)
        except OSError as error:
            raise UserError(f"--predictions-to {folder}: {error.strerror}") from error

    def _check_complete(self):
        """Raises `UserError` if validation skipped examples, since they have no predictions."""
        for split, kept in self.predictions.items() if self.cfg.predictions_to else ():
            dataset, run = self.datasets[split], run_config(self.cfg)
            skipped = np.setdiff1d(np.arange(len(dataset)), list(kept))
            if not len(skipped):
                continue
            steps = run.dataset.max_valid_steps if "train" in self.datasets else None
            option = "--skip-invalid-size-inputs-valid-test" if steps is None else f"--max-valid-steps {steps}"
            of_each = Counter(example.language for example in dataset.examples)
            missing = Counter(dataset.examples[index].language for index in skipped.tolist())
            counts = ", ".join(f"{missing[code]} of {of_each[code]} examples of {code}" for code in missing)
            raise UserError(f"--predictions-to: {option} skipped {counts} of the split {split}; remove {option}")

    def end_validation(self, metrics, updates=None):
        """Warns of collapse after warm-up; raises `UserError` if predictions are not complete."""
        if updates is None or updates >= self._warmup_updates():
            self.warn_of_collapse(metrics.periods[""])
        self._check_complete()

    def _warmup_updates(self):
        run = run_config(self.cfg)
        limits = OmegaConf.select(run, "lr_scheduler.warmup_updates"), run.optimization.max_update
        return min(limit or 0 for limit in limits)


def find_file(option, folders, split, language, task_type):
    """Path of a split's file in the first folder that has it; if none has it, the path in the first folder.

    Args:
        option: the option that names the folders, for messages.
        folders: the folders, joined by ':'.
        task_type: the `TaskType` of the file.
    """
    if not folders:
        raise UserError(f"{option}: name a folder of files {task_type.files}")
    name = f"{split}.{language}.{task_type.suffix}"
    return file_in(folders.split(os.pathsep), name)


def define_tasks():
    """Defines and registers the task `xl_{name}` of each task type that has none yet."""
    for name, task_type in TASK_TYPES.items():
        if f"xl_{name}" not in TASK_REGISTRY:
            config = make_config(name, task_type.Config)
            described = {"__doc__": task_type.__doc__, "criterion": f"xl_{name}", "task_type": task_type}
            made = type(f"XL{camel_case(name)}Task", (FineTuningTask,), described)
            register_task(f"xl_{name}", dataclass=config)(made)


def make_config(name, *configs):
    """The options dataclass of `xl_{name}`: those of every fine-tuning task and of these `TypeConfig`s."""
    described = {"__doc__": f"Options of `xl_{name}`.", "__module__": __name__}
    return make_dataclass(f"XL{camel_case(name)}Config", [], bases=(*configs, FineTuningConfig), namespace=described)


define_tasks()
