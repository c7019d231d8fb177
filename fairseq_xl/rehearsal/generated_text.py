"""A folder of generated text for any task: its lines are as long as a configuration allows."""

import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary, write_dictionary
from fairseq_xl.data.vocabulary.special_symbols import MASK
from fairseq_xl.io.files import write_lines

WORDS = [f"w{number}" for number in range(200)]  # each is a piece
FIRST = 4  # the index of the first of them in the dictionary
SEED = 20190122
SPLITS = {"train": 1.0, "valid": 0.1, "test": 0.1}  # share of the lines
LABELS, TAGS = ("0", "1", "2"), ("O", "B-X", "I-X")
LabeledLines = dict[str, Iterable[str]]


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
    """Writes binarized monolingual text and bitext to a folder; an empty line ends a document of 64 lines."""
    rng, eos = np.random.default_rng(SEED), XLDictionary().eos()
    for split, share in SPLITS.items():
        for code in size.languages:
            _write_items(folder / code / split, _lines(rng, eos, [size.line], max(int(share * size.lines), 8)))
        for pair in size.pairs:
            count = max(int(share * size.bitext), 8)
            for code in pair.split("-"):
                lines = _lines(rng, eos, size.sides, count * len(size.sides))
                _write_items(folder / pair / f"{split}.{pair}.{code}", lines)
    for folder_name in (*size.languages, *size.pairs):
        for code in folder_name.split("-"):
            name = "dict.txt" if code == folder_name else f"dict.{code}.txt"
            (folder / folder_name / name).write_bytes((folder / "dict.txt").read_bytes())


def write_labeled(folder: Path, task: str, languages: Sequence[str], words: int, examples: int, texts: int) -> None:
    """Writes labeled text of a task, with `words` words in each text, to a folder; queries have `texts` texts."""
    rng = random.Random(SEED)
    for split, share in SPLITS.items():
        for code in languages:
            for suffix, lines in _LABELED[task](rng, words, max(int(share * examples), 4), texts).items():
                write_lines(folder / f"{split}.{code}.{suffix}", lines)


def _lines(rng: np.random.Generator, eos: int, lengths: Sequence[int], count: int) -> Iterable[np.ndarray]:
    """`count` lines of these lengths in turn, with an empty line after every 64."""
    for index in range(count):
        if index and index % 64 == 0:
            yield np.array([eos])
        pieces = rng.integers(FIRST, FIRST + len(WORDS), lengths[index % len(lengths)] - 1)
        yield np.append(pieces, eos)


def _write_items(prefix: Path, items: Iterable[np.ndarray]) -> None:
    prefix.parent.mkdir(exist_ok=True)
    builder = MMapIndexedDatasetBuilder(f"{prefix}.bin", dtype=np.uint16)
    for item in items:
        builder.add_item(torch.from_numpy(item))
    builder.finalize(f"{prefix}.idx")


def _text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words))


# Functions of a generator, words of a text, number of examples and texts of a query: {suffix of a file: its lines}


def _classification(rng: random.Random, words: int, count: int, texts: int) -> LabeledLines:
    return {"tsv": (f"{LABELS[index % 3]}\t{_text(rng, words)}\t{_text(rng, words)}" for index in range(count))}


def _ranking(rng: random.Random, words: int, count: int, texts: int) -> LabeledLines:
    rows: list[str] = []
    for index in range(count):
        query = f"{WORDS[index % len(WORDS)]} {_text(rng, 3)}"
        rows += [f"{relevance}\t{query}\t{_text(rng, words)}" for relevance in range(texts)]
    return {"tsv": rows}


def _tagging(rng: random.Random, words: int, count: int, texts: int) -> LabeledLines:
    sentence = (f"{word}\t{TAGS[index % 3]}" for index, word in enumerate(rng.choices(WORDS, k=words)))
    return {"tsv": [*sentence, ""] * count}


def _questions(rng: random.Random, words: int, count: int, texts: int) -> LabeledLines:
    """Contexts of `words` words with one question each, in SQuAD's format."""
    paragraphs: list[dict[str, Any]] = []
    for index in range(count):
        context = _text(rng, words)
        answer = context.split(" ")[words // 2]
        entry = {"text": answer, "answer_start": context.index(f" {answer}") + 1}
        question = {"id": str(index), "question": _text(rng, 8), "answers": [entry]}
        paragraphs.append({"context": context, "qas": [question]})
    return {"json": [json.dumps({"version": "1.1", "data": [{"title": "generated", "paragraphs": paragraphs}]})]}


def _generation(rng: random.Random, words: int, count: int, texts: int) -> LabeledLines:
    sides = {"src": words, "tgt": words // 8}
    return {side: [_text(rng, max(length, 4)) for _ in range(count)] for side, length in sides.items()}


_LABELED: dict[str, Callable[[random.Random, int, int, int], LabeledLines]] = {
    "xl_classification": _classification,
    "xl_ranking": _ranking,
    "xl_tagging": _tagging,
    "xl_question_answering": _questions,
    "xl_generation": _generation,
}
