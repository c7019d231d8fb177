"""Labelled objectives of a task: their files, what they learn from them, validation and predictions."""

import itertools
import logging
import os
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import torch
from fairseq.distributed import utils as distributed_utils
from omegaconf import OmegaConf

from fairseq_xl.criterions.combined import CombinedCriterion
from fairseq_xl.data.labelled import LabelledExamples
from fairseq_xl.data.text import TextEncoder
from fairseq_xl.engine.inputs import text_fingerprint
from fairseq_xl.engine.interfaces import run_config
from fairseq_xl.engine.selection import check_selection
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.prediction_folders import write_predictions
from fairseq_xl.evaluation.task_files import file_in
from fairseq_xl.finetuning.file_checks import count, warn_of_files
from fairseq_xl.io.compressed import without_suffix
from fairseq_xl.objectives.labelled import STATISTICS, LabelledObjective
from fairseq_xl.tasks.planned_batches import MIXED, PlannedTask

logger = logging.getLogger(__name__)

COLLAPSED = 98.0  # percent of the predictions in one class from which on the model is reported as collapsed
UNKNOWN = 0.1  # share of <unk> among the tokens of a language from which on there is a warning


class LabelledTask(PlannedTask):
    """Base of tasks that may have labelled objectives, of the task types `types`."""

    #: folder of the predictions of a validation
    predictions_to = None
    #: the model of these predictions, and prefixes of the names of their files
    origin, prefixes = None, ()

    def __init__(self, cfg, dictionary):
        super().__init__(cfg, dictionary)
        self.training_examples = {}  # those that a type has learned from, until they are encoded: {type: examples}
        self.training_files = []  # their counts, until the other files are compared with them
        self.predictions = {}  # split -> {(type, language, number of the example): prediction}, where they are kept

    @property
    def types(self):
        """{name of a labelled objective: its `TaskType`}."""
        return {name: each.type for name, each in self.objectives.items() if isinstance(each, LabelledObjective)}

    def folders_of_type(self, name):
        """The option that names the folders of a task type's files, and the folders, joined by ':'."""
        raise NotImplementedError(f"{type(self).__name__}.folders_of_type")

    def languages_of_type(self, name, split):
        """The languages of a split that a task type has."""
        raise NotImplementedError(f"{type(self).__name__}.languages_of_type")

    def input_name(self, name, path):
        """The name of a file of a task type among the `inputs`, without folder and suffix of compressed files."""
        return without_suffix(path.name)

    def folders_of_predictions(self):
        """{subfolder of --predictions-to, "" for itself: its task type}."""
        return self.types

    # --- files -------------------------------------------------------------------------------------------------

    def learn(self) -> None:
        """Reads the training files, from which the task types learn their state."""
        if self.training_examples or "train" in self.datasets:
            return
        self.training_files = []
        for name, each in self.types.items():
            found = []
            for path, _, examples in self._read(name, "train"):
                self.training_files.append(self._counted(name, "train", path, examples))
                found += examples
            each.learn(found)
            self.training_examples[name] = found

    def _files(self, name, split):
        """{language: file} of a task type in a split."""
        option, folders = self.folders_of_type(name)
        languages = self.languages_of_type(name, split)
        return {code: find_file(option, folders, split, code, self.types[name]) for code in languages}

    def _read(self, name, split):
        """Yields path, language and examples of the files of a task type in a split; adds the files to the `inputs`."""
        for language, path in self._files(name, split).items():
            yield path, language, self.types[name].read(path, language)
            self.inputs.add(split, self.input_name(name, path), path, text_fingerprint(path))

    def _evaluation_files(self):
        """The counts of the validation files and of the test files that exist; raises `UserError` for their errors."""
        run, found = run_config(self.cfg), []
        validated = run is not None and not run.dataset.disable_validation
        splits = run.dataset.valid_subset.split(",") if validated else []
        for split, name in itertools.product(dict.fromkeys([*splits, "test"]), self.types):
            for language, path in self._files(name, split).items():
                if split == "test" and not path.is_file():
                    continue
                examples = self.types[name].read(path, language)
                if split == "test":  # others are checked when they are loaded
                    self.types[name].check(examples)
                found.append(self._counted(name, split, path, examples))
        return found

    def _counted(self, name, split, path, examples):
        """The `TaskFile` of the examples of a file of a task type."""
        return count(split, path, examples, self.types[name], self.objectives[name].suffix.removeprefix("_"))

    def labelled_corpora(self, split, names):
        """Reads and encodes the files of task types: {name: {language, or "mixed" in training: corpus}}."""
        if self.training_files:  # before anything is encoded
            check_selection(run_config(self.cfg), self)
            warn_of_files(self.training_files + self._evaluation_files())
            self.training_files = []
        if not names:
            return {}
        trains = split == "train" and not self.evaluates
        encode, encoded = TextEncoder(self.folder(), self.dictionary), {}
        for name in names:
            each = self.types[name]
            by_language = {language: examples for _, language, examples in self._examples(name, split)}
            examples = [example for of_language in by_language.values() for example in of_language]
            each.check(examples)
            inputs = [each.inputs(example, encode) for example in examples]
            self._warn_of_inputs(name, split, examples, inputs)
            if trains:
                examples, inputs = each.training_items(examples, inputs)
                corpora = {MIXED if len(by_language) > 1 else next(iter(by_language)): (examples, inputs)}
            else:
                ends = np.cumsum([0, *map(len, by_language.values())]).tolist()
                parts = zip(by_language, itertools.pairwise(ends), strict=True)
                corpora = {code: (examples[first:end], inputs[first:end]) for code, (first, end) in parts}
            encoded[name] = {corpus: LabelledExamples(*found) for corpus, found in corpora.items()}
        if split == "train":
            self.training_examples = {}
        return encoded

    def _examples(self, name, split):
        """Path, language and examples of each file; of training files those that the task type has learned from."""
        if split != "train" or name not in self.training_examples:
            return self._read(name, split)
        learned = self.training_examples[name]
        return [
            (path, code, [example for example in learned if example.language == code])
            for code, path in self._files(name, split).items()
        ]

    def _warn_of_inputs(self, name, split, examples, inputs):
        """Warns of truncated examples, and if more than a share `UNKNOWN` of the tokens of a language are <unk>."""
        cut = sum(any(each.truncated for each in of_one) for of_one in inputs)
        if cut:
            logger.warning(
                "%s: %d of %d examples are truncated to %s tokens",
                *(split, cut, len(inputs), self.types[name].truncation_option()),
            )
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

    def validation_limit(self, objective):
        """As the base class; labelled examples are all read for predictions, and where nothing is trained."""
        if objective in self.types and (self.predictions_to or not self.training_begun):
            return 0
        return super().validation_limit(objective)

    def check_longest(self, name, corpus, max_tokens):
        """Raises `UserError` if an example of a corpus needs more than `max_tokens`; None: any number is allowed."""
        longest = int((corpus.longest * corpus.input_counts).max())
        if max_tokens is not None and longest > max_tokens:
            advice = f"more than --max-tokens {max_tokens}: raise --max-tokens or lower --length"
            raise UserError(f"{self.types[name].example_name} needs {longest} tokens with padding, {advice}")

    # --- validation --------------------------------------------------------------------------------------------

    def valid_step(self, sample, model, criterion):
        """Scores a batch; keeps its predictions if --predictions-to is set."""
        objective, numbers = self.objectives[sample["objective"]], sample["id"].cpu().numpy()
        if not isinstance(objective, LabelledObjective):
            return super().valid_step(sample, model, criterion)
        model.eval()
        corpus = self.datasets[sample["split"]].corpora[sample["objective"]][sample["corpus"]]
        with torch.no_grad():
            outputs = model(objective.outputs, sample["batch"])
            terms = objective.terms_of(outputs, sample["batch"])
        predictions = objective.type.predict(outputs, sample["batch"], corpus.inputs_of(numbers))
        self._keep(sample, numbers, predictions)
        terms[STATISTICS] = objective.counted(corpus, numbers, predictions, outputs.device)
        return criterion.combined(terms, sample)

    def begin_valid_epoch(self, epoch, model):
        """fairseq hook before each validation in training: forgets the predictions of the one before."""
        super().begin_valid_epoch(epoch, model)
        self.predictions.clear()

    def _keep(self, sample, numbers, predictions):
        """Collects predictions until the split is complete, and then writes them."""
        if not self.predictions_to:
            return
        if distributed_utils.get_data_parallel_world_size() > 1:
            raise UserError("--predictions-to works in one process only")
        split, place = sample["split"], (sample["objective"], sample["corpus"])
        kept = self.predictions.setdefault(split, {})
        kept |= {(*place, number): each for number, each in zip(numbers.tolist(), predictions, strict=True)}
        if len(kept) == len(self.datasets[split]):
            self._write(split, kept)

    def _write(self, split, kept):
        """Writes the predictions of a split, {(type, language, number): prediction}."""
        folder = Path(self.predictions_to)
        try:
            for subfolder, each in self.folders_of_predictions().items():
                name, texts = subfolder or each.name, {}
                for language, corpus in self.datasets[split].corpora[name].items():
                    rows = [(example, kept[name, language, n]) for n, example in enumerate(corpus.examples)]
                    texts |= each.files_of(split, language, rows)
                origin = self.origin and self.origin._replace(task=each.name)
                write_predictions(folder / subfolder, origin, texts, self.prefixes)
        except OSError as error:
            raise UserError(f"--predictions-to {folder}: {error.strerror}") from error

    def _check_complete(self):
        """Raises `UserError` if validation skipped examples, since they have no predictions."""
        for split, kept in self.predictions.items() if self.predictions_to else ():
            dataset, run = self.datasets[split], run_config(self.cfg)
            if len(kept) == len(dataset):
                continue
            option = f"--max-valid-steps {run.dataset.max_valid_steps}"
            of_each, there = Counter(), Counter(language for _, language, _ in kept)
            for corpora in dataset.corpora.values():
                of_each.update({code: corpus.sentences for code, corpus in corpora.items()})
            skipped = {code: size - there[code] for code, size in of_each.items()}
            counts = ", ".join(f"{n} of {of_each[code]} examples of {code}" for code, n in skipped.items() if n)
            raise UserError(f"--predictions-to: {option} skipped {counts} of the split {split}; remove {option}")

    def end_validation(self, metrics, updates=None):
        """Warns of collapse after warm-up; raises `UserError` if predictions are not complete."""
        if updates is None or updates >= self._warmup_updates():
            for name, sums in CombinedCriterion.by_objective(metrics.periods[""]).items():
                if name in self.types:
                    self._warn_of_collapse(self.objectives[name], sums)
        self._check_complete()

    @staticmethod
    def _warn_of_collapse(objective, sums):
        """Warns of each language in which nearly all predictions are the same class."""
        for language, label, predicted, gold in objective.shares(sums):
            if predicted >= COLLAPSED > gold:
                logger.warning(
                    "the model has collapsed in %s: %.1f %% of its predictions are %r, which is right for %.1f %%; "
                    "a lower --lr, more updates or a warm-up that is shorter than the training may help",
                    *(language, predicted, label, gold),
                )

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
