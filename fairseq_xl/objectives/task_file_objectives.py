"""Base of objectives with files of raw text and labels or targets, one for each split and language."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from fairseq_xl.data.corpora.mixed_corpus import unmixed
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import LISTED, UserError, names_of
from fairseq_xl.evaluation.task_files import file_in
from fairseq_xl.io.options import option
from fairseq_xl.objectives.base import OBJECTIVES, Objective, ObjectiveConfig
from fairseq_xl.objectives.data_folder import DataFolder

#: options that name languages of splits
LANGUAGES = ("train_langs", "eval_langs", "valid_langs")


@dataclass
class FilesOptions:
    """Options of objectives, and of tasks, that read files."""

    task_files: Optional[str] = option(
        None,
        "folder of raw text: SPLIT.LANGUAGE files in the format of the task (recipes/README.md), of generation "
        "SPLIT.LANGUAGE.src and SPLIT.LANGUAGE.tgt, aligned line by line; several folders, separated by ':', are "
        "searched in order",
    )
    train_langs: str = option("en", "languages to train on, separated by commas")
    eval_langs: str = option("en", "languages of every split but `train`, separated by commas; to generate, one")
    valid_langs: Optional[str] = option(None, "languages of the split `valid`, joined by commas (default: eval_langs)")
    examples_per_epoch: Optional[int] = option(
        None,
        "number of examples drawn at random for each pass over the data; of question answering: windows (default: each "
        "example once; XLM: 20000)",
        range="1 or more",
    )


@dataclass
class FilesConfig(FilesOptions, ObjectiveConfig):
    """Options of objectives that read files."""

    def __post_init__(self) -> None:
        super().__post_init__()
        count = self.examples_per_epoch
        self.require("examples_per_epoch", count is None or count > 0, "1 or more")
        for name in ("alpha", "mixed", "leave_out"):  # options of the corpora of a data folder, fixed here
            default = ObjectiveConfig.__dataclass_fields__[name].default
            self.require(name, getattr(self, name) == default, "left out: batches mix the examples of train_langs")


class FilesObjective(Objective):
    """Base of objectives that read files."""

    @classmethod
    def random_files(cls, text: Any, count: int, length: int, candidates: int) -> dict[str, Iterable[str]]:
        """{suffix of a file: its lines} of `count` examples, of which `fairseq-xl plan` counts a batch.

        `text` makes a text of so many random words, `length` at most; a query has at most `candidates` texts.
        """
        raise UserError(f"--task xl_{cls.name} cannot be planned: the objective {cls.name} has no `random_files`")

    def languages_of(self, split: str) -> list[str]:
        """The languages of a split."""
        languages = {"train": self.cfg.train_langs, "valid": self.cfg.valid_langs or self.cfg.eval_langs}
        return str(languages.get(split, self.cfg.eval_langs)).split(",")

    def corpora(self, folder: DataFolder, split: Optional[str] = None) -> list[str]:
        splits = ("train", "valid", "test") if split is None else (split,)
        return list(dict.fromkeys(code for split in splits for code in self.languages_of(split)))

    @property
    def mixes(self) -> bool:
        return True

    def repeats(self, corpora: dict[str, Any]) -> dict[str, float]:
        """`examples_per_epoch` as a factor of the number of examples."""
        if not self.cfg.examples_per_epoch:
            return {}
        size = sum(corpus.sentences for corpus in corpora.values())
        names = list(unmixed(corpora))
        return dict.fromkeys(names, self.cfg.examples_per_epoch / size)

    def path(self, split: str, language: str, suffix: str, description: str) -> Path:
        """The file of a split in the first folder that has it, else in the first; `description` is for errors."""
        if not self.cfg.task_files:
            raise UserError(f"{self.option('task_files')}: name a folder of {description}")
        return file_in(self.cfg.task_files.split(os.pathsep), f"{split}.{language}{suffix}")

    def files_of(self, split: str) -> list[Path]:
        """The files of a split, which need not exist."""
        raise NotImplementedError(f"{type(self).__name__}.files_of")

    @property
    def reads_training_files(self) -> bool:
        """Whether a run reads the files of `train`."""
        return self.is_trained

    def input_name(self, path: Path) -> str:
        """The name of a file among the inputs of a run."""
        return f"{self.name}/{path.name}" if self.named else path.name


def check_files_exist(objectives: Iterable[FilesObjective], splits: Sequence[str]) -> None:
    """Raises one `UserError` for all files of these splits that are missing, with the names of their objectives."""
    missing = [
        f"{path} of {objective.name}"
        for objective in objectives
        for split in splits
        if split != "train" or objective.reads_training_files
        for path in objective.files_of(split)
        if not path.is_file()
    ]
    if missing:
        rest = f" and {len(missing) - LISTED} more" if len(missing) > LISTED else ""
        raise UserError(f"missing files: {', '.join(missing[:LISTED])}{rest}")


def all_read_files(names: str) -> bool:
    """Whether all objectives of --objectives read files."""
    kinds = [OBJECTIVES.get(part.strip().partition("=")[2] or part.strip()) for part in names.split(",")]
    return all(kind is not None and issubclass(kind, FilesObjective) for kind in kinds)


def check_languages(options: Any, name_of: Callable[[str], str], dictionary: XLDictionary) -> None:
    """Raises `UserError` for a language of `LANGUAGES` in options that is repeated or not in the dictionary.

    `name_of` returns the name of an option, for messages.
    """
    for key in LANGUAGES:
        for language in names_of(name_of(key), names) if (names := getattr(options, key)) is not None else ():
            dictionary.language_id(language)
