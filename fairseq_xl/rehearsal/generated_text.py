"""A folder of generated text for any task: its lines are as long as a configuration allows."""

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary, write_dictionary
from fairseq_xl.data.vocabulary.special_symbols import MASK
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import write_lines

WORDS = [f"w{number}" for number in range(200)]  # each is a piece
FIRST = 4  # the index of the first of them in the dictionary
SEED = 20190122
SPLITS = {"train": 1.0, "valid": 0.1, "test": 0.1}  # share of the lines
LABELS, TAGS = ("0", "1", "2"), ("O", "B-X", "I-X")


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
            for suffix, lines in _labeled_lines(task, rng, words, max(int(share * examples), 4), texts).items():
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


def _labeled_lines(task: str, rng: random.Random, words: int, count: int, texts: int) -> dict[str, Iterable[str]]:
    """{suffix of a file: its lines} of `count` examples of a task; `words` and `texts` as in `write_labeled`."""

    def text(length: int) -> str:
        return " ".join(rng.choices(WORDS, k=length))

    if task == "xl_classification":
        return {"tsv": (f"{LABELS[index % 3]}\t{text(words)}\t{text(words)}" for index in range(count))}
    if task == "xl_tagging":
        sentence = (f"{word}\t{TAGS[index % 3]}" for index, word in enumerate(rng.choices(WORDS, k=words)))
        return {"tsv": [*sentence, ""] * count}
    if task == "xl_generation":
        sides = {"src": words, "tgt": words // 8}
        return {side: [text(max(length, 4)) for _ in range(count)] for side, length in sides.items()}
    if task == "xl_ranking":
        rows: list[str] = []
        for index in range(count):
            query = f"{WORDS[index % len(WORDS)]} {text(3)}"
            rows += [f"{relevance}\t{query}\t{text(words)}" for relevance in range(texts)]
        return {"tsv": rows}
    if task != "xl_question_answering":
        raise UserError(f"--task {task} cannot be rehearsed: rehearse each of its tasks")
    paragraphs: list[dict[str, Any]] = []  # in SQuAD's format
    for index in range(count):
        context = text(words)
        answer = context.split(" ")[words // 2]
        entry = {"text": answer, "answer_start": context.index(f" {answer}") + 1}
        question = {"id": str(index), "question": text(8), "answers": [entry]}
        paragraphs.append({"context": context, "qas": [question]})
    return {"json": [json.dumps({"version": "1.1", "data": [{"title": "generated", "paragraphs": paragraphs}]})]}
