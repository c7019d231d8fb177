"""The lexicon of the sample corpus: four tables, one concept a line, a column per language."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LANGUAGES = ("en", "de", "fr", "es")
TOPICS = {
    "k": "kitchen",
    "g": "garden",
    "t": "travel",
    "o": "office",
    "s": "school",
    "w": "weather",
    "a": "animals",
    "m": "music",
}


@dataclass(frozen=True)
class Entry:
    """One concept.

    Attributes:
        concept: name, the English citation form.
        tags: semantic classes of a noun, the noun classes of an adjective; a verb's frame.
        topics: letters of TOPICS.
        forms: the column of each language, as it stands in the table.
        subjects, objects: classes or nouns that a verb takes.
        places: the prepositions of a place, "" for other nouns.
    """

    concept: str
    tags: tuple[str, ...]
    topics: str
    forms: dict
    subjects: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    places: str = ""


def _rows(name: str) -> Iterator[list[str]]:
    """Yields the columns of each line of a table, without comments."""
    for line in (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield [column.strip() for column in line.split("|")] if name != "verbs.txt" else _verb_columns(line)


def _verb_columns(line: str) -> list[str]:
    return [column.strip() for column in (" " + line + " ").replace(" |", " | ").split(" | ")]


@cache
def nouns() -> dict[str, Entry]:
    """All nouns by concept."""
    table = {}
    for english, tags, topics, *rest in _rows("nouns.txt"):
        forms = dict(zip(LANGUAGES, (english, *rest)))
        concept = english.split(",")[0]
        table[concept] = Entry(
            concept, tuple(tags.split()), topics.replace(" ", ""), forms, places=rest[3] if len(rest) > 3 else ""
        )
    return table


def gender_and_forms(noun: str, code: str, pluralize: Callable[[str], str]) -> tuple[str, str, str]:
    """Returns gender, singular and plural of a noun; without a plural in the table it is `pluralize(singular)`."""
    head, _, plural = nouns()[noun].forms[code].partition(", ")
    kind, singular = head.split(" ", 1)
    return kind, singular, plural or pluralize(singular)


@cache
def adjectives() -> dict[str, Entry]:
    """All adjectives by concept; a Spanish form with ~ in front takes "estar"."""
    table = {}
    for english, tags, *rest in _rows("adjectives.txt"):
        concept = english.split()[0]
        table[concept] = Entry(concept, tuple(tags.split()), "", dict(zip(LANGUAGES, (english, *rest))))
    return table


@cache
def verbs() -> dict[str, Entry]:
    """All verbs by concept; the first tag is the frame, "manner" a second one."""
    table = {}
    for concept, frame, subjects, objects, topics, *rest in _rows("verbs.txt"):
        tags = (frame[0], "manner") if frame.endswith("+") else (frame,)
        table[concept] = Entry(
            concept,
            tags,
            topics.replace(" ", ""),
            dict(zip(LANGUAGES, rest)),
            tuple(subjects.split()),
            tuple(objects.split()),
        )
    return table


@cache
def adverbs() -> dict[str, Entry]:
    """All adverbs by concept; tags are the kind and the tenses (letters p, f, x)."""
    return {
        concept: Entry(concept, (kind, tenses), "", dict(zip(LANGUAGES, rest)))
        for concept, kind, tenses, *rest in _rows("adverbs.txt")
    }


@cache
def classes() -> dict[str, tuple[str, ...]]:
    """Noun concepts of each class, and each noun as its own class."""
    table: dict[str, tuple[str, ...]] = {concept: (concept,) for concept in nouns()}
    for concept, entry in nouns().items():
        for tag in entry.tags:
            table[tag] = (*table.get(tag, ()), concept)
    return table


@cache
def is_plain(verb: str) -> bool:
    """Tells whether the verb takes a direct object in all languages, which can be a pronoun or be relativized."""
    forms = verbs()[verb].forms
    heads = [forms[language].split()[0] for language in LANGUAGES]
    special = any("@" in head for head in heads) or heads[3].endswith("rse") or "sich " in forms["de"]
    return verbs()[verb].tags[0] == "t" and not special
