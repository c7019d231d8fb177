"""A folder of generated text for any task: its lines are as long as a configuration allows."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sentencepiece

from fairseq_xl.data.store.binarized_text import write_items
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary, write_dictionary
from fairseq_xl.data.vocabulary.special_symbols import MASK
from fairseq_xl.io.files import write_lines
from fairseq_xl.objectives.task_file_objectives import FilesObjective

WORDS = [f"w{number}" for number in range(200)]  # each is a piece
FIRST = 4  # the index of the first of them in the dictionary
SYMBOLS = FIRST + len(WORDS)  # maximum token id of the text, plus 1
SEED = 20190122


@dataclass(frozen=True)
class Size:
    """The languages and sizes of generated text. Lengths are in tokens and count ``</s>``."""

    languages: tuple[str, ...]
    pairs: tuple[str, ...]  # as in en-de
    line: int  # length of a line of monolingual text
    lines: int  # of each language
    sides: tuple[int, ...]  # lengths of both sides of bitext, in turn
    bitext: int  # lines of each pair and length


def write_vocabulary(folder: Path, languages: Sequence[str]) -> None:
    """Writes ``dict.txt`` with the symbols of `languages`, and its SentencePiece model, to a new folder."""
    folder.mkdir(parents=True)
    with open(folder / "sentencepiece.model", "wb") as model:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(WORDS),
            model_writer=model,
            model_type="word",
            vocab_size=len(WORDS) + 3,
            minloglevel=2,
        )
    symbols = [f"▁{word}" for word in WORDS] + [MASK] + [f"[{code}]" for code in languages]
    write_dictionary(folder / "dict.txt", symbols, [10] * len(WORDS) + [0] * (1 + len(languages)))


def write_text(folder: Path, size: Size) -> None:
    """Writes binarized text of `train`, monolingual and bitext; an empty line ends a document of 64 lines."""
    rng, eos = np.random.default_rng(SEED), XLDictionary().eos()
    for code in size.languages:
        write_items(folder / code / "train", _lines(rng, eos, [size.line], size.lines), SYMBOLS)
    for pair in size.pairs:
        for code in pair.split("-"):
            lines = _lines(rng, eos, size.sides, size.bitext * len(size.sides))
            write_items(folder / pair / f"train.{pair}.{code}", lines, SYMBOLS)
    for folder_name in (*size.languages, *size.pairs):
        for code in folder_name.split("-"):
            name = "dict.txt" if code == folder_name else f"dict.{code}.txt"
            (folder / folder_name / name).write_bytes((folder / "dict.txt").read_bytes())


def write_labeled(
    folder: Path, kind: type[FilesObjective], languages: Sequence[str], length: int, count: int, candidates: int
) -> None:
    """Writes the training files of an objective; `length`, `count` and `candidates` as in `random_files`."""
    rng = random.Random(SEED)
    for code in languages:
        files = kind.random_files(lambda size: " ".join(rng.choices(WORDS, k=size)), count, length, candidates)
        for suffix, lines in files.items():
            write_lines(folder / f"train.{code}.{suffix}", lines)


def _lines(rng: np.random.Generator, eos: int, lengths: Sequence[int], count: int) -> Iterable[np.ndarray]:
    """`count` lines of these lengths in turn, with an empty line after every 64."""
    for index in range(count):
        if index and index % 64 == 0:
            yield np.array([eos])
        pieces = rng.integers(FIRST, FIRST + len(WORDS), lengths[index % len(lengths)] - 1)
        yield np.append(pieces, eos)
