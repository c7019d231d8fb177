"""Fine-tuning of one encoder on several subtasks in one run (Liang et al. 2020)."""

import re
from dataclasses import dataclass
from typing import Optional

import numpy as np
from fairseq.tasks import register_task

from fairseq_xl.errors import UserError, names_of
from fairseq_xl.finetuning import TASK_TYPES, TypeConfig
from fairseq_xl.options import option
from fairseq_xl.tasks.finetuning import FineTuningTask, make_config

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
    head, type = "multitask", None
    group_name = "subtask and language"

    def make_types(self):
        """The task type of each subtask of --subtasks, by its name."""
        if self.cfg.task_files:
            raise UserError(f"--task-files {self.cfg.task_files}: --subtasks names the folder of each subtask instead")
        named = read_subtasks(self.cfg.subtasks)
        self.folders = {name: folder for name, (_, folder) in named.items()}
        self.languages_of = self._subtask_languages(named)
        return {name: task_type(self.cfg, self.framing, name) for name, (task_type, _) in named.items()}

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

    # --- state -------------------------------------------------------------------------------------------------

    def learned_state(self):
        """{"subtasks": their names and types, "SUBTASK.NAME": value}."""
        names = " ".join(f"{name}={each.name}" for name, each in self.types.items())
        states = {
            f"{name}.{key}": value for name, each in self.types.items() for key, value in each.learned_state().items()
        }
        return {"subtasks": names} | states

    def load_learned_state(self, found, path):
        """Takes over the states; raises `UserError` for a checkpoint of other subtasks."""
        ours, theirs = self.learned_state()["subtasks"], found.get("subtasks")
        if ours != theirs:
            raise UserError(f"{path} has the subtasks {theirs}, --subtasks names {ours}")
        for name, each in self.types.items():
            own = {key.removeprefix(f"{name}."): value for key, value in found.items() if key.startswith(f"{name}.")}
            each.load_state(own, path)

    # --- files -------------------------------------------------------------------------------------------------

    def languages_of_type(self, name, split):
        """The languages of a split that a subtask has; raises `UserError` if there is none."""
        languages = self._languages(split)
        if split == "train" or name not in self.languages_of:
            return languages
        own = [language for language in languages if language in self.languages_of[name]]
        if not own:
            among = f"none of its languages is among those of the split {split}: {','.join(languages)}"
            raise UserError(f"--subtask-eval-langs {name}: {among}")
        return own

    def folders_of_type(self, name):
        """The option that names the folders of a subtask's files, and the folders."""
        return "--subtasks", self.folders[name]

    def input_name(self, name, path):
        """The name of a file among the `inputs`, with its subtask."""
        return f"{name}/{super().input_name(name, path)}"

    def folders_of_predictions(self):
        """{subtask, a subfolder: its task type}."""
        return self.types

    def examples_of_types(self, sizes):
        """The number of examples of each subtask in an epoch: in proportion to size^--subtask-alpha, 1 or more."""
        alpha = 1.0 if self.cfg.subtask_alpha is None else self.cfg.subtask_alpha
        counts = list(sizes.values())
        return dict(zip(sizes, shares_of(counts, self.cfg.examples_per_epoch or sum(counts), alpha), strict=True))

    # --- metrics -----------------------------------------------------------------------------------------------

    def metrics(self):
        """Names of the validation metrics: `score`, `loss`, METRIC_SUBTASK and METRIC_SUBTASK_LANGUAGE."""
        names, by_language = [], []
        for name, objective in self.objectives.items():
            found, count = objective.metric_names(self.languages_of_type(name, "valid")), len(objective.type.metrics())
            names += found[:count]
            by_language += found[count:]
        return ["score", *names, "loss", *by_language]

    def log(self, metrics, logging_outputs, criterion):
        """Logs `score` and the metrics of the subtasks."""
        super().log(metrics, logging_outputs, criterion)
        if not criterion.training:
            metrics.derived("score", lambda meters: self._score(criterion.by_objective(meters)))

    def _score(self, sums):
        """The mean of the subtasks' main metrics; None until all of them have one."""
        found = [each.values(sums.get(name, {})).get(each.main_metric) for name, each in self.objectives.items()]
        return {"score": None if None in found else round(sum(found) / len(found), 3)}


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


def shares_of(sizes, total, alpha):
    """Divides `total` examples among subtasks of these sizes: counts in proportion to size^alpha, 1 or more each."""
    weights = np.asarray(sizes, dtype=float) ** alpha
    ends = np.rint(np.cumsum(weights) / weights.sum() * total).astype(np.int64)
    return np.maximum(np.diff(ends, prepend=0), 1).tolist()
