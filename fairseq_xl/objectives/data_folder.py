"""The languages and pairs of a data folder, opened for the objectives of a run."""

import gc
import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from fairseq_xl.data.corpora.base import Corpus
from fairseq_xl.data.store.manifest import files_of, folder_of_epoch, is_begun, stored_fingerprint
from fairseq_xl.data.store.plain_folder import dictionary_file, indices, located, plain_files
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.text_encoder import TextEncoder
from fairseq_xl.errors import UserError, names_of
from fairseq_xl.io.fingerprints import Inputs, binarized_fingerprint

logger = logging.getLogger(__name__)

PAIR = re.compile(r"(\w+)-(\w+)")


class DataFolder:
    """The languages and pairs of a data folder, and their corpora, each of which is opened once.

    Args:
        folder: the data folder.
        dictionary: the joint dictionary.
        inputs: the files of the run, to which opened files are added.
        data: all data folders of the run, joined by ``:``; the first determines languages and pairs. None: this one.
        langs, pairs: --langs and --pairs; None: all of the folder.
        pair_splits: the folder has a pair if its bitext has one of these splits.
    """

    def __init__(
        self,
        folder: Path,
        dictionary: XLDictionary,
        inputs: Inputs,
        data: str | None = None,
        langs: str | None = None,
        pairs: str | None = None,
        pair_splits: Sequence[str] = ("train",),
    ):
        self.folder, self.dictionary, self.inputs, self.data = folder, dictionary, inputs, data or str(folder)
        self.first = folder_of_epoch(self.data, 1)
        #: those that languages and pairs are read from: a language of plain folders may be in one of them only
        self.parts = list(map(Path, self.data.split(os.pathsep))) if plain_files(self.first) else [self.first]
        self.options, self.pair_splits = {"--langs": langs, "--pairs": pairs}, pair_splits
        self.pair_languages: list[str] | None = None  # languages that pairs may have; None: all
        self._opened: dict[tuple[type[Corpus], str, str], Corpus] = {}

    @cached_property
    def encode(self) -> TextEncoder:
        """Text -> token ids, with the sub-words of the folder."""
        return TextEncoder(self.folder, self.dictionary)

    def open(self, kind: Any, split: str, name: str) -> Corpus:
        """The corpus of class `kind` of a language or pair in a split."""
        key = kind, split, name
        if key not in self._opened:
            prefix, codes, prefixes = split, [name], [split]
            if kind.num_languages == 2:
                prefix, codes = f"{split}.{name}", name.split("-")
                prefixes = [f"{prefix}.{code}" for code in codes]
            folder = self.part(name, prefixes)
            self._opened[key] = kind(folder / name / prefix, *codes, len(self.dictionary))
            self.add_inputs(split, *files_of(folder / name, prefixes))
        return self._opened[key]

    def part(self, name: str, prefixes: Iterable[str]) -> Path:
        """The folder with texts of a language or pair: this one, or the first part that has them if it does not."""
        parts = self.parts if len(self.parts) > 1 else []
        begun = (path for path in (self.folder, *parts) if any(is_begun(path / name / prefix) for prefix in prefixes))
        return next(begun, self.folder)

    def add_inputs(self, split: str, *paths: Path) -> None:
        """Adds files of the folder to the inputs of a split; with several data folders, by the index of theirs."""
        folders = self.data.split(os.pathsep)
        for path in paths:
            folder, name, file = path.parent.parent, f"{path.parent.name}/{path.name}", located(path)
            fingerprint = binarized_fingerprint(file, stored_fingerprint(folder, name))
            index = f"{folders.index(str(folder))}/" if len(folders) > 1 else ""
            self.inputs.add(split, index + name, file, fingerprint)

    def names(self, kind: type[Corpus], split: str | None, owner: str = "", left_out: str | None = None) -> list[str]:
        """The languages or pairs with text of the corpus class `kind` in a split, None: in any, without `left_out`.

        Raises `UserError` if this option of the objective `owner` names one without text.
        """
        excluded = names_of(f"{owner}.leave_out", left_out) if left_out else []
        listed = (self.languages, self._languages) if kind.num_languages == 1 else (self.pairs, self._pairs)
        names, available = listed
        for name in excluded:
            if name not in available:
                raise UserError(
                    f"--objective-options {owner}.leave_out={left_out}: {self.first} has no text of {name}; expected "
                    f"one of {', '.join(available) or 'none'}"
                )
        return [name for name in names(split) if name not in excluded]

    def languages(self, split: str | None = "train") -> list[str]:
        """The languages of --langs with text in a split (None: with training text)."""
        languages = self._select("--langs", self._languages)
        return [code for code in languages if split is None or self._begun(code, split)]

    def pairs(self, split: str | None = "train") -> list[str]:
        """The pairs of --pairs with text in a split (None: in one of `pair_splits`)."""
        pairs, codes = self._select("--pairs", self._pairs), self.pair_languages
        usable = [name for name in pairs if codes is None or set(name.split("-")) <= set(codes)]
        return [name for name in usable if split is None or self._has_pair(name, split)]

    @property
    def splits(self) -> list[str]:
        """The splits of the text of any language or pair."""
        return sorted({path.name.partition(".")[0] for path in indices(self.folder)})

    @property
    def how_to_add(self) -> str:
        """What adds text to the folder, for messages."""
        if plain_files(self.folder):
            dictionary = dictionary_file(self.folder / "dict.txt")
            return f"add it to the folder with fairseq-preprocess and --srcdict {dictionary}"
        return "add it to the corpus description and run `fairseq-xl data prepare`"

    @property
    def _languages(self) -> list[str]:
        return [code for code in self.dictionary.languages if self._begun(code, "train")]

    @property
    def _pairs(self) -> list[str]:
        paths = {path for part in self.parts for path in (*part.iterdir(), *map(Path, plain_files(part)))}
        names = sorted({name for path in paths for name in (path.name, path.parent.name) if PAIR.fullmatch(name)})
        return [name for name in names if any(self._has_pair(name, split) for split in self.pair_splits)]

    def _has_pair(self, name: str, split: str) -> bool:
        return self._begun(name, *(f"{split}.{name}.{code}" for code in name.split("-")))

    def _begun(self, name: str, *prefixes: str) -> bool:
        return any(is_begun(part / name / prefix) for part in self.parts for prefix in prefixes)

    def _select(self, option: str, available: list[str]) -> list[str]:
        value = self.options[option]
        if not value:
            return available
        names = names_of(option, value)
        missing = [name for name in names if name not in available]
        if missing:
            raise UserError(
                f"{option}: {self.first} has no text of {', '.join(missing)}; expected one of "
                f"{', '.join(available) or 'none'}"
            )
        return names


def check_splits(data: str, splits: Sequence[str]) -> None:
    """Raises `UserError` for text valid1, valid2, … of folders of plain fairseq-preprocess that is not in `splits`.

    fairseq refuses it too for tasks of its own. `data` are the data folders, joined by ``:``.
    """
    names = {name for folder in data.split(os.pathsep) for name in plain_files(folder)}
    unused = {match[1] for name in names if (match := re.search(r"/(valid\d+)\.", name))} - set(splits)
    if unused:
        raise UserError(
            f"{data} also has {', '.join(sorted(unused))}: name what is read, as in --valid-subset "
            f"{','.join([*splits, *sorted(unused)])}, or give --ignore-unused-valid-subsets"
        )


def open_other_shards(
    data: str, epoch: int, split: str, opened: Collection[str], read: Callable[[Path, str], Any]
) -> None:
    """Logs the shard of an epoch of training; before the first epoch, reads all others once, to find damaged ones.

    `data` are the data folders, joined by ``:``, `opened` the splits that have been opened.
    """
    folders = [Path(folder) for folder in data.split(os.pathsep)]
    if split != "train" or len(folders) == 1:
        return
    folder = folder_of_epoch(data, epoch)
    logger.info("epoch %d reads %s, shard %d of %d", epoch, folder, (epoch - 1) % len(folders) + 1, len(folders))
    if plain_files(folder):
        logger.info("the other shards have the text of languages and pairs that %s lacks", folder)
    for shard in () if split in opened else {*folders} - {folder}:
        read(shard, split)
        gc.collect()  # corpora have reference cycles, which hold memory maps open
