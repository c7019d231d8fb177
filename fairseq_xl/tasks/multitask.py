"""Fine-tuning of one encoder on several subtasks in one run (Liang et al. 2020)."""

import os
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Optional

from fairseq.tasks import register_task

from fairseq_xl.data.finetuning import SubtaskDataset
from fairseq_xl.errors import UserError, names_of
from fairseq_xl.finetuning import TASK_TYPES, TypeConfig
from fairseq_xl.finetuning.file_checks import count
from fairseq_xl.finetuning.subtasks import Subtasks
from fairseq_xl.options import option
from fairseq_xl.tasks.finetuning import FineTuningTask, find_file, make_config

NAME = re.compile("[A-Za-z0-9_-]+")  # of a subtask: a part of names of metrics, heads and folders


@dataclass
class MultitaskConfig(TypeConfig):
    """Options of several subtasks in one run."""

    subtasks: Optional[str] = option(
        None,
        "the subtasks, separated by spaces: NAME=TYPE:FOLDER, TYPE one of classification, ranking, "
        "tagging, question-answering, FOLDER its --task-files, such as 'xnli=classification:task-files/xnli "
        "ner=tagging:task-files/ner'",
    )
    subtask_eval_langs: Optional[str] = option(
        None,
        "languages of subtasks that lack files in some of --eval-langs, separated by spaces: 'ner=en,de' "
        "(default: --eval-langs)",
    )
    subtask_alpha: Optional[float] = option(
        None,
        "exponent: an epoch has examples of each subtask in proportion to its number of examples to this "
        "power (default: 1). An epoch has --examples-per-epoch examples, or as many as all subtasks together",
        range="0 or more",
    )


def _configs():
    """The options of all task types, each once."""
    found = dict.fromkeys(each.Config for each in TASK_TYPES.values())
    return [one for one in found if not any(one is not other and issubclass(other, one) for other in found)]


@register_task("xl_multitask", dataclass=make_config("multitask", MultitaskConfig, *_configs()))
class XLMultitaskTask(FineTuningTask):
    """One encoder with a head for each of several subtasks; each batch has examples of one subtask.

    `score`, to select checkpoints, is the mean over the subtasks of their main metrics, averaged over languages.
    """

    criterion = "xl_multitask"

    def make_type(self):
        """The `Subtasks` of --subtasks."""
        if self.cfg.task_files:
            raise UserError(f"--task-files {self.cfg.task_files}: --subtasks names the folder of each subtask instead")
        named = read_subtasks(self.cfg.subtasks)
        self.folders = {name: folder for name, (_, folder) in named.items()}
        types = {name: task_type(self.cfg, self.framing, name) for name, (task_type, _) in named.items()}
        self.languages_of = self._subtask_languages(types)
        return Subtasks(self.cfg, self.framing, types)

    def _subtask_languages(self, names):
        """{subtask: the languages of --subtask-eval-langs}, of the subtasks that it names."""
        found, known = {}, self.cfg.eval_langs.split(",")
        for part in (self.cfg.subtask_eval_langs or "").split():
            name, equals, languages = part.partition("=")
            if name not in names or not equals or name in found:
                expected = f"NAME=LANGUAGES once for each of {', '.join(names)}"
                raise UserError(f"--subtask-eval-langs {part!r}: expected {expected}")
            found[name] = names_of(f"--subtask-eval-langs {name}", languages)
            for language in found[name]:
                if language not in known:
                    raise UserError(f"--subtask-eval-langs {part}: {language} is not in --eval-langs {','.join(known)}")
        return found

    def _use_only(self, language):
        super()._use_only(language)
        self.languages_of = {}

    def subtask_languages(self, name, split):
        """The languages of a split that a subtask has; raises `UserError` if there is none."""
        languages = self._languages(split)
        if split == "train" or name not in self.languages_of:
            return languages
        own = [language for language in languages if language in self.languages_of[name]]
        if not own:
            among = f"none of its languages is among those of the split {split}: {','.join(languages)}"
            raise UserError(f"--subtask-eval-langs {name}: {among}")
        return own

    def metrics(self):
        """Names of the validation metrics: `score`, `loss`, METRIC_SUBTASK and METRIC_SUBTASK_LANGUAGE."""
        names = {f"{metric}_{name}": name for name, each in self.type.types.items() for metric in each.metrics()}
        by_language = [
            f"{metric}_{code}" for metric, name in names.items() for code in self.subtask_languages(name, "valid")
        ]
        return ["score", *names, "loss", *by_language]

    def files_to_read(self, split):
        """(function that reads, file, language) of each file of a split."""
        return [
            (
                partial(self.type.read_subtask, name),
                find_file("--subtasks", self.folders[name], split, language, each),
                language,
            )
            for name, each in self.type.types.items()
            for language in self.subtask_languages(name, split)
        ]

    def count_file(self, split, path, examples):
        """The `TaskFile` of the examples of a file of a subtask."""
        name = examples[0].subtask
        return count(split, path, [each.example for each in examples], self.type.types[name], name)

    def input_name(self, path):
        """The name of a file among the `inputs`, with its subtask."""
        name = next(
            name for name, folders in self.folders.items() if path.parent in map(Path, folders.split(os.pathsep))
        )
        return f"{name}/{super().input_name(path)}"

    def make_dataset(self, split, examples, inputs):
        """The dataset of a split: batches of one subtask each."""
        more = self.type.collate, self.dictionary, self.cfg.examples_per_epoch, self.cfg.subtask_alpha
        return SubtaskDataset(split, examples, inputs, *more)

    def log(self, metrics, logging_outputs, criterion):
        """Logs `score` and the metrics of the subtasks."""
        super().log(metrics, logging_outputs, criterion)
        if "counted" not in logging_outputs[0]:  # in validation
            functions = self.type.metrics()
            means = [self._mean(functions[name]) for name in self.type.main_metrics()]
            metrics.derived("score", lambda meters: {"score": _score([mean(meters) for mean in means])})


def read_subtasks(text):
    """{name: (`TaskType` class, folder)} of --subtasks; raises `UserError` for another form, a wrong name or type."""
    found = {}
    for part in (text or "").split():
        name, equals, rest = part.partition("=")
        kind, colon, folder = rest.partition(":")
        if not (equals and colon and folder and NAME.fullmatch(name)):
            raise UserError(f"--subtasks {part!r}: expected NAME=TYPE:FOLDER, NAME of letters, digits, - and _")
        if name in found:
            raise UserError(f"--subtasks: {name} is named twice")
        types = {name.replace("_", "-"): one for name, one in TASK_TYPES.items()} | TASK_TYPES
        if kind not in types:
            valid = ", ".join(sorted(name for name in types if "_" not in name))
            raise UserError(f"--subtasks {part}: task type {kind!r} is not one of {valid}")
        found[name] = types[kind], folder
    if not found:
        raise UserError("--subtasks: name the subtasks, NAME=TYPE:FOLDER, separated by spaces")
    return found


def _score(values):
    """The mean of the subtasks' main metrics; None until all of them have one."""
    return None if None in values else round(sum(values) / len(values), 3)
