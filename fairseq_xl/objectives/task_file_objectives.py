"""Base of objectives that read files of raw text with labels or targets, one for each split and language."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from fairseq_xl.data.framing import Framing
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError, names_of
from fairseq_xl.evaluation.task_files import file_in
from fairseq_xl.io.options import option_name
from fairseq_xl.objectives.base import OBJECTIVES, Objective, ObjectiveConfig
from fairseq_xl.objectives.data_folder import DataFolder


@dataclass
class FilesConfig(ObjectiveConfig):
    """Options of objectives that read files."""

    # folder of SPLIT.LANGUAGE files; several folders, separated by ":", are searched in order
    task_files: Optional[str] = None
    train_langs: str = "en"  # languages to train on, separated by commas
    eval_langs: str = "en"  # languages of every other split, separated by commas
    valid_langs: Optional[str] = None  # languages of the split `valid`, separated by commas (default: eval_langs)
    examples_per_epoch: Optional[int] = None  # random examples in each pass over the data (default: each once)

    def __post_init__(self) -> None:
        super().__post_init__()
        count = self.examples_per_epoch
        self.require("examples_per_epoch", count is None or count > 0, "1 or more")
        for name in ("alpha", "mixed", "leave_out"):  # options of the corpora of a data folder, fixed here
            default = ObjectiveConfig.__dataclass_fields__[name].default
            self.require(name, getattr(self, name) == default, "left out: batches mix the examples of train_langs")


class FilesObjective(Objective):
    """Base of objectives that read files.

    Args:
        cfg: the options, a `FilesConfig`.
        dictionary, framing: as in `Objective`.
        name: the name of the objective; None: that of its class.
        named: whether it stands in --objectives, so that its name is part of its metrics, options and folders;
            otherwise it is the only objective of its task.
    """

    def __init__(
        self, cfg: Any, dictionary: XLDictionary, framing: Framing, name: Optional[str] = None, named: bool = True
    ):
        super().__init__(cfg, dictionary, framing)
        self.name, self.named = name or self.name, named

    def languages_of(self, split: str) -> list[str]:
        """The languages of a split."""
        named = {"train": self.cfg.train_langs, "valid": self.cfg.valid_langs or self.cfg.eval_langs}
        return str(named.get(split, self.cfg.eval_langs)).split(",")

    def corpora(self, folder: DataFolder, split: Optional[str] = None) -> list[str]:
        """The languages of a split; None: of any split."""
        splits = ("train", "valid", "test") if split is None else (split,)
        return list(dict.fromkeys(code for each in splits for code in self.languages_of(each)))

    def repeats(self, corpora: dict[str, Any]) -> dict[str, float]:
        """`examples_per_epoch` as a factor of the number of examples."""
        if not self.cfg.examples_per_epoch:
            return {}
        size = sum(corpus.sentences for corpus in corpora.values())
        names = [name for each, corpus in corpora.items() for name in getattr(corpus, "parts", [each])]
        return dict.fromkeys(names, self.cfg.examples_per_epoch / size)

    def option(self, key: str) -> str:
        """The name of an option on the command line, for messages."""
        return f"--objective-options {self.name}.{key}" if self.named else option_name(key)

    def path(self, split: str, language: str, ending: str, described: str) -> Path:
        """The file of a split in the first folder that has it; otherwise its path in the first folder.

        Args:
            ending: of its name, after the language.
            described: the names of all files, for the message where no folder is named.
        """
        if not self.cfg.task_files:
            raise UserError(f"{self.option('task_files')}: name a folder of {described}")
        return file_in(self.cfg.task_files.split(os.pathsep), f"{split}.{language}{ending}")

    def input_name(self, path: Path) -> str:
        """The name of a file among the inputs of a run."""
        return f"{self.name}/{path.name}" if self.named else path.name


def all_read_files(names: str) -> bool:
    """Whether all objectives of --objectives read files."""
    kinds = [OBJECTIVES.get(part.strip().partition("=")[2] or part.strip()) for part in names.split(",")]
    return all(kind is not None and issubclass(kind, FilesObjective) for kind in kinds)


def named_languages(option: str, names: str, dictionary: XLDictionary) -> list[str]:
    """``en,de`` -> [en, de]; raises `UserError` for a language that is repeated or not in the dictionary."""
    languages = names_of(option, names)
    for language in languages:
        dictionary.language_id(language)
    return languages
