"""Tasks made of the pages, and how each language writes them.

The paragraphs that make an item are chosen in English, by kind, number of words and hashes of names. A language has
an item when it has all of its paragraphs, so that an item is the same one wherever it is. Items of a split are of its
pages only, and pages come without what training shares with validation or test.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from preprocess.config import SPLITS
from preprocess.files import replacing
from preprocess.readers.libreoffice_help.page import APPLICATIONS, CELL, TEXT
from preprocess.readers.splitting import Documents
from preprocess.readers.text import letters_and_digits

PASSAGE = 20  # words: a passage of nc ends with the paragraph that reaches them
PAGE_PASSAGES = 6  # at most so many passages of a page
CLASS_PASSAGES = 1000  # at most so many training passages of an application
ANSWER = 5  # words: a paragraph of qam has them
SAME_HEADING = 3  # sections: a heading that more of them have ("Options") tells nothing of its paragraph
BODY = 20, 150  # words: a body of ntg has the first number of them and ends with the paragraph that reaches the second
SENTENCE = 5, 60  # words of a sentence for retrieval, at least and at most
PAIRS = 1000  # sentences for retrieval, at most
INNER_END = re.compile(r"[.!?:]\s")

Place = tuple[str, str]  # page, id of a paragraph
Kinds = dict[str, dict[str, str]]  # page -> id -> kind of the paragraph


class Item(NamedTuple):
    """What a task asks: the paragraphs of each of its texts, and for nc the application."""

    split: str
    texts: tuple[tuple[Place, ...], ...]
    label: str = ""


class Plan(NamedTuple):
    """The items of each task, in the order that they are written in."""

    nc: list[Item]  # the passage
    qam: list[Item]  # heading, the paragraph beneath it, the paragraph beneath another heading
    ntg: list[Item]  # body, title
    retrieval: list[Item]  # the sentence


def plan(english: Documents, kinds: Kinds, splits: dict[str, str]) -> Plan:
    """Choose the items.

    Args:
        english: pages without text that two splits share.
        kinds: kinds of their paragraphs.
        splits: the split of each page.
    """
    by_split = {split: {name: english[name] for name in sorted(english) if splits[name] == split} for split in SPLITS}

    def every(choose: Callable) -> list[Item]:
        return [item for split, pages in by_split.items() for item in _shuffled(choose(split, pages, kinds))]

    return Plan(
        _balanced(every(_passages)),
        every(_sections),
        every(_titles),
        _shuffled(_sentences("test", by_split["test"], kinds)),
    )


def write(folder: Path, code: str, items: Plan, text: Documents, english: Documents) -> dict[str, dict[str, int]]:
    """Write a language's files of every task.

    Args:
        folder: the corpus folder.
        code: the language.
        items: of `plan`.
        text: the language's pages, only what may be used.
        english: the same of English; retrieval is written when it isn't `text` itself.

    Returns the lines of each file (of both files of ntg and of retrieval, under their common name).
    """
    counts = {}
    for split in SPLITS:
        extra = "translate_train/" if split == "train" and code != "en" else ""
        rows = [f"{item.label}\t{passage}" for item, (passage,) in _found(items.nc, split, text)]
        counts |= _write_lines(folder, f"tasks/nc/{extra}{split}.{code}.tsv", [""], [(row,) for row in rows])
        rows = _matches([texts for _, texts in _found(items.qam, split, text)])
        counts |= _write_lines(folder, f"tasks/qam/{extra}{split}.{code}.tsv", [""], [(row,) for row in rows])
        titles = [texts for _, texts in _found(items.ntg, split, text)]
        counts |= _write_lines(folder, f"tasks/ntg/{split}.{code}", [".src", ".tgt"], titles)
    if code != "en":
        pairs = _unique(
            (_joined(item.texts[0], english), own) for item, (own,) in _found(items.retrieval, "test", text)
        )
        counts |= _write_lines(folder, f"tasks/retrieval/en-{code}", [".en", f".{code}"], pairs)
    return counts


def outputs(code: str) -> list[str]:
    """Paths in the corpus folder of all that `write` writes."""
    train = "train" if code == "en" else "translate_train/train"
    names = [f"tasks/{task}/{split}.{code}.tsv" for task in ("nc", "qam") for split in (train, *SPLITS[1:])]
    names += [f"tasks/ntg/{split}.{code}.{side}" for split in SPLITS for side in ("src", "tgt")]
    return names + ([] if code == "en" else [f"tasks/retrieval/en-{code}.{side}" for side in ("en", code)])


# Choosing


def _passages(split: str, pages: Documents, kinds: Kinds) -> Iterator[Item]:
    """nc: paragraphs of a page of an application, one after the other."""
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
    """Passages of the applications that every split has, no more than CLASS_PASSAGES of one in training."""
    found = [{item.label for item in passages if item.split == split} for split in SPLITS]
    taken, kept = Counter(), []
    for item in passages:
        taken[item.split, item.label] += 1
        enough = item.split == "train" and taken[item.split, item.label] > CLASS_PASSAGES
        if item.label in set.intersection(*found) and not enough:
            kept.append(item)
    return kept


def _sections(split: str, pages: Documents, kinds: Kinds) -> Iterator[Item]:
    """qam: each paragraph is once the right one and once the wrong one, so that by itself it tells nothing.

    The wrong one is that of the page's next section, or, where the page has only one, of another such page of the
    application.
    """
    sections = {name: list(_headed(texts, kinds[name])) for name, texts in pages.items()}
    same = Counter(letters_and_digits(pages[name][heading]) for name, found in sections.items() for heading, _ in found)
    rings, singles = [], defaultdict(list)
    for name, found in sections.items():
        usable = [
            ((name, heading), (name, paragraph))
            for heading, paragraph in found
            if same[letters_and_digits(pages[name][heading])] <= SAME_HEADING
        ]
        if len(usable) > 1:
            rings.append(usable)
        else:
            singles[name.split("/")[0]] += usable
    for ring in [*rings, *(sorted(found, key=_place) for found in singles.values())]:
        if len(ring) > 1:
            for (heading, paragraph), (_, wrong) in zip(ring, [*ring[1:], ring[0]]):
                yield Item(split, ((heading,), (paragraph,), (wrong,)))


def _headed(texts: dict[str, str], kinds: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Headings of a page with the paragraph beneath: neighbours in the whole page, not only in what is left of it."""
    for first, second in pairwise(kinds):
        if kinds[first] not in (TEXT, CELL) and kinds[second] == TEXT and first in texts and second in texts:
            if len(texts[second].split()) >= ANSWER:
                yield first, second


def _titles(split: str, pages: Documents, kinds: Kinds) -> Iterator[Item]:
    """ntg: the first heading of the first order, and the page's text."""
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
    """retrieval: paragraphs of one sentence."""
    for name, texts in pages.items():
        for identity, text in texts.items():
            fitting = SENTENCE[0] <= len(text.split()) <= SENTENCE[1] and not INNER_END.search(text)
            if fitting and kinds[name][identity] in (TEXT, CELL):
                yield Item(split, (((name, identity),),))


def _place(value: Any) -> str:
    """A place in an order that has nothing to do with the pages'."""
    return hashlib.sha256(repr(value).encode()).hexdigest()


def _shuffled(items: Iterator[Item]) -> list[Item]:
    return sorted(items, key=lambda item: _place(item.texts))


# Writing


def _found(items: list[Item], split: str, text: Documents) -> Iterator[tuple[Item, list[str]]]:
    """The split's items that the language has, and their texts."""
    for item in items:
        if item.split == split and all(identity in text[page] for places in item.texts for page, identity in places):
            yield item, [_joined(places, text) for places in item.texts]


def _joined(places: tuple[Place, ...], text: Documents) -> str:
    return " ".join(text[page][identity] for page, identity in places)


def _matches(rows: list[list[str]]) -> list[str]:
    """Two lines for an item; none where what should be wrong is right elsewhere, as in two pages about the same."""
    keys = [[letters_and_digits(text) for text in row] for row in rows]
    right = {(heading, paragraph) for heading, paragraph, _ in keys}
    return [
        line
        for (heading, paragraph, wrong), key in zip(rows, keys)
        if (key[0], key[2]) not in right
        for line in (f"1\t{heading}\t{paragraph}", f"0\t{heading}\t{wrong}")
    ]


def _unique(pairs: Iterator[tuple[str, str]]) -> list[tuple[str, str]]:
    """The first PAIRS of which neither side was there before."""
    seen, kept = [set(), set()], []
    for pair in pairs:
        keys = [letters_and_digits(text) for text in pair]
        if len(kept) < PAIRS and not any(key in known for key, known in zip(keys, seen)):
            kept.append(pair)
            for key, known in zip(keys, seen):
                known.add(key)
    return kept


def _write_lines(folder: Path, name: str, endings: list[str], rows: list) -> dict[str, dict[str, int]]:
    """A file for each column of `rows`, named `name` and its ending."""
    for column, ending in enumerate(endings):
        with replacing(folder / f"{name}{ending}") as file:
            file.writelines(f"{row[column]}\n".encode() for row in rows)
    return {name: {"lines": len(rows)}}
