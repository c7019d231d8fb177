"""Tasks nc, qam, ntg and retrieval: the selection of items, and their files in each language.

The paragraphs of an item are selected in English, by kind, number of words and hashes of names. A language has an item
if it has all of its paragraphs, so that an item is the same in all languages. The items of a split use its pages only,
without text that training shares with validation or test.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_xl.io.files import replacing
from preprocess.config import SPLITS
from preprocess.readers.libreoffice_help.page import APPLICATIONS, CELL, TEXT
from preprocess.readers.splitting import Documents
from preprocess.readers.text import letters_and_digits

PASSAGE = 20  # words: a passage of nc ends with the paragraph that reaches this number
PAGE_PASSAGES = 6  # maximum number of passages of a page
CLASS_PASSAGES = 1000  # maximum number of training passages of an application
ANSWER = 5  # minimum number of words of a paragraph of qam
#: maximum number of sections with the same heading: common ones ("Options") do not describe their paragraphs
SAME_HEADING = 3
#: body of ntg: minimum number of words; the body ends with the paragraph that reaches the second number
BODY = 20, 150
SENTENCE = 5, 60  # minimum and maximum number of words of a sentence for retrieval
PAIRS = 1000  # maximum number of sentences for retrieval
INNER_END = re.compile(r"[.!?:]\s")

ParagraphId = tuple[str, str]  # page, id of a paragraph
Kinds = dict[str, dict[str, str]]  # page -> id -> kind of the paragraph


class Item(NamedTuple):
    """An item of a task: the paragraphs of each of its texts, and for nc the application, for ui the kinds of spans."""

    split: str
    texts: tuple[tuple[ParagraphId, ...], ...]
    label: str = ""


class Plan(NamedTuple):
    """The items of each task, in the order of the files."""

    nc: list[Item]  # the passage
    qam: list[Item]  # heading, the paragraph beneath it, the paragraph beneath another heading
    ntg: list[Item]  # body, title
    retrieval: list[Item]  # the sentence


def plan(english: Documents, kinds: Kinds, splits: dict[str, str]) -> Plan:
    """Selects the items.

    Args:
        english: English pages, without text that two splits share.
        kinds: kinds of their paragraphs.
        splits: the split of each page.
    """
    by_split = {split: {name: english[name] for name in sorted(english) if splits[name] == split} for split in SPLITS}

    def all_splits(choose: Callable) -> list[Item]:
        return [item for split, pages in by_split.items() for item in shuffled(choose(split, pages, kinds))]

    return Plan(
        _balanced(all_splits(_passages)),
        all_splits(_sections),
        all_splits(_titles),
        shuffled(_sentences("test", by_split["test"], kinds)),
    )


def write(folder: Path, code: str, items: Plan, text: Documents, english: Documents) -> dict[str, dict[str, int]]:
    """Writes a language's files of every task.

    Args:
        folder: the corpus folder.
        code: the language.
        items: the result of `plan`.
        text: the language's pages, without text that two splits share.
        english: the same for English; retrieval is written unless `text` is English.

    Returns the lines of each file; the two files of ntg, and those of retrieval, count under their common name.
    """
    counts = {}
    for split in SPLITS:
        rows = [f"{item.label}\t{passage}" for item, (passage,) in available(items.nc, split, text)]
        counts |= _write_lines(folder, labeled_path("nc", split, code), [""], [(row,) for row in rows])
        rows = _matches([texts for _, texts in available(items.qam, split, text)])
        counts |= _write_lines(folder, labeled_path("qam", split, code), [""], [(row,) for row in rows])
        titles = [texts for _, texts in available(items.ntg, split, text)]
        counts |= _write_lines(folder, f"tasks/ntg/{split}.{code}", [".src", ".tgt"], titles)
    if code != "en":
        sentences = available(items.retrieval, "test", text)
        pairs = _unique((_joined(item.texts[0], english), translation) for item, (translation,) in sentences)
        counts |= _write_lines(folder, f"tasks/retrieval/en-{code}", [".en", f".{code}"], pairs)
    return counts


def outputs(code: str) -> list[str]:
    """Lists the paths in the corpus folder of all files of `write`."""
    names = [labeled_path(task, split, code) for task in ("nc", "qam") for split in SPLITS]
    names += [f"tasks/ntg/{split}.{code}.{side}" for split in SPLITS for side in ("src", "tgt")]
    return names + ([] if code == "en" else [f"tasks/retrieval/en-{code}.{side}" for side in ("en", code)])


# Selection


def _passages(split: str, pages: Documents, kinds: Kinds) -> Iterator[Item]:
    """Yields the items of nc: consecutive paragraphs of a page of an application."""
    for name, texts in pages.items():
        application = name.split("/")[0]
        if application not in APPLICATIONS:
            continue
        run, words, count = [], 0, 0
        for identity, text in texts.items():
            if kinds[name][identity] == TEXT:
                run.append((name, identity))
                words += len(text.split())
            if words >= PASSAGE and count < PAGE_PASSAGES:
                yield Item(split, (tuple(run),), application)
                run, words, count = [], 0, count + 1


def _balanced(passages: list[Item]) -> list[Item]:
    """Returns passages of applications that are in every split, at most CLASS_PASSAGES of each in training."""
    applications = [{item.label for item in passages if item.split == split} for split in SPLITS]
    counts, balanced = Counter(), []
    for item in passages:
        counts[item.split, item.label] += 1
        enough = item.split == "train" and counts[item.split, item.label] > CLASS_PASSAGES
        if item.label in set.intersection(*applications) and not enough:
            balanced.append(item)
    return balanced


def _sections(split: str, pages: Documents, kinds: Kinds) -> Iterator[Item]:
    """Yields the items of qam: headings, each with its paragraph and with a wrong one.

    Each paragraph is right once and wrong once, so that a paragraph alone does not show its label. The wrong one is
    that of the page's next section; a page of one section has that of another such page of the application.
    """
    sections = {name: list(headed(texts, kinds[name])) for name, texts in pages.items()}
    heading_counts = Counter(
        letters_and_digits(pages[name][heading]) for name, headings in sections.items() for heading, _ in headings
    )
    rings, singles = [], defaultdict(list)
    for name, headings in sections.items():
        usable = [
            ((name, heading), (name, paragraph))
            for heading, paragraph in headings
            if heading_counts[letters_and_digits(pages[name][heading])] <= SAME_HEADING
        ]
        if len(usable) > 1:
            rings.append(usable)
        else:
            singles[name.split("/")[0]] += usable
    for ring in [*rings, *(sorted(headings, key=hashed) for headings in singles.values())]:
        if len(ring) > 1:
            for (heading, paragraph), (_, wrong) in zip(ring, [*ring[1:], ring[0]]):
                yield Item(split, ((heading,), (paragraph,), (wrong,)))


def headed(texts: dict[str, str], kinds: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yields the headings of a page with the paragraph beneath, unless text between them has been left out."""
    for first, second in pairwise(kinds):
        if kinds[first] not in (TEXT, CELL) and kinds[second] == TEXT and first in texts and second in texts:
            if len(texts[second].split()) >= ANSWER:
                yield first, second


def _titles(split: str, pages: Documents, kinds: Kinds) -> Iterator[Item]:
    """Yields the items of ntg: the first h1 heading of a page, and the page's text."""
    for name, texts in pages.items():
        title = next((identity for identity in texts if kinds[name][identity] == "h1"), None)
        body, words = [], 0
        for identity, text in texts.items():
            if kinds[name][identity] == TEXT and words < BODY[1]:
                body.append((name, identity))
                words += len(text.split())
        if title and words >= BODY[0]:
            yield Item(split, (tuple(body), ((name, title),)))


def _sentences(split: str, pages: Documents, kinds: Kinds) -> Iterator[Item]:
    """Yields the items of retrieval: paragraphs of one sentence."""
    for name, texts in pages.items():
        for identity, text in texts.items():
            fitting = SENTENCE[0] <= len(text.split()) <= SENTENCE[1] and not INNER_END.search(text)
            if fitting and kinds[name][identity] in (TEXT, CELL):
                yield Item(split, (((name, identity),),))


def hashed(value: Any) -> str:
    """Returns a hash as a sorting key: an order that does not depend on that of the pages."""
    return hashlib.sha256(repr(value).encode()).hexdigest()


def shuffled(items: Iterator[Item]) -> list[Item]:
    """Sorts items by a hash of their paragraphs: an order that is the same on every machine."""
    return sorted(items, key=lambda item: hashed(item.texts))


# Writing


def available(items: list[Item], split: str, text: Documents) -> Iterator[tuple[Item, list[str]]]:
    """Yields the items of a split that the language has, and their texts."""
    for item in items:
        if item.split == split and all(
            identity in text[page] for paragraphs in item.texts for page, identity in paragraphs
        ):
            yield item, [_joined(paragraphs, text) for paragraphs in item.texts]


def labeled_path(task: str, split: str, code: str, suffix: str = "tsv") -> str:
    """Returns the path of a labeled file in the corpus folder; training text is in translate_train but for English."""
    extra = "translate_train/" if split == "train" and code != "en" else ""
    return f"tasks/{task}/{extra}{split}.{code}.{suffix}"


def _joined(paragraphs: tuple[ParagraphId, ...], text: Documents) -> str:
    return " ".join(text[page][identity] for page, identity in paragraphs)


def _matches(rows: list[list[str]]) -> list[str]:
    """Returns a right and a wrong line for each item, unless the wrong paragraph is right for its heading elsewhere."""
    keys = [[letters_and_digits(text) for text in row] for row in rows]
    right = {(heading, paragraph) for heading, paragraph, _ in keys}
    return [
        line
        for (heading, paragraph, wrong), key in zip(rows, keys)
        if (key[0], key[2]) not in right
        for line in (f"1\t{heading}\t{paragraph}", f"0\t{heading}\t{wrong}")
    ]


def _unique(pairs: Iterator[tuple[str, str]]) -> list[tuple[str, str]]:
    """Returns the first PAIRS pairs without a repeated sentence on either side."""
    seen, unique = [set(), set()], []
    for pair in pairs:
        keys = [letters_and_digits(text) for text in pair]
        if len(unique) < PAIRS and not any(key in side_keys for key, side_keys in zip(keys, seen)):
            unique.append(pair)
            for key, side_keys in zip(keys, seen):
                side_keys.add(key)
    return unique


def _write_lines(folder: Path, name: str, endings: list[str], rows: list) -> dict[str, dict[str, int]]:
    """Writes each column of `rows` to a file, `name` with its ending."""
    for column, ending in enumerate(endings):
        with replacing(folder / f"{name}{ending}", make_folder=True) as file:
            file.writelines(f"{row[column]}\n".encode() for row in rows)
    return {name: {"lines": len(rows)}}
