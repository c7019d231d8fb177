"""Abstract sentences of concepts, which the modules of languages realize."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from preprocess.sample.lexicon import nouns


@dataclass(frozen=True)
class Phrase:
    """A noun phrase.

    Attributes:
        determiner: definite, indefinite (a; "bare" in the plural and for mass nouns), generic (any of its kind),
            this, our, every, two, three, many.
        owner: the possessor ("the gardener's").
        also: a second noun phrase joined by "and".
        relative: a relative clause; this noun is its subject if that is None, otherwise its object.
        pronoun: whether a pronoun replaces the phrase.
    """

    noun: str
    plural: bool = False
    determiner: str = "definite"
    adjective: str | None = None
    owner: Phrase | None = None
    also: Phrase | None = None
    relative: Clause | None = None
    pronoun: bool = False

    @property
    def many(self) -> bool:
        """Whether the verb is in the plural."""
        return self.plural or self.also is not None

    @property
    def mass(self) -> bool:
        return "mass" in nouns()[self.noun].tags

    def is_a(self, tag: str) -> bool:
        return tag in nouns()[self.noun].tags


@dataclass(frozen=True)
class Clause:
    """A clause in third person.

    Attributes:
        subject: None for "it rains", in an infinitive, or if the head of a relative clause is its subject.
        verb: a verb concept, "be" (with an adjective) or "exist" (there is).
        tense: present, past or future.
        modal: want, can, must, try or begin.
        degree: "", very, too or comparative (then with `than`).
        opening, time, frequency, manner: adverb concepts.
        front: adverbial in front of a main clause without an opening: "", time or place.
        purpose: an infinitive clause, "in order to".
        content: a clause after "that".
        reason_word, reason: because, when, if or while, and its clause; `reason_first` puts it in front.
    """

    subject: Any  # a `Phrase` or None, which follows from the verb, as do the object and `than`
    verb: str
    object: Any = None
    recipient: Phrase | None = None
    tense: str = "present"
    negated: bool = False
    modal: str = ""
    adjective: str = ""
    degree: str = ""
    than: Any = None
    opening: str = ""
    time: str = ""
    frequency: str = ""
    manner: str = ""
    place: Phrase | None = None
    goal: Phrase | None = None
    front: str = ""
    purpose: Clause | None = None
    content: Clause | None = None
    reason_word: str = ""
    reason: Clause | None = None
    reason_first: bool = False


@dataclass(frozen=True)
class Sentence:
    """One or two clauses joined by "and" or "but", or one clause asked: whether, where, why or when."""

    first: Clause
    joiner: str = ""
    second: Clause | None = None
    question: str = ""


@dataclass(frozen=True)
class Document:
    """A topic, a title (phrase, with an optional place) and sentences."""

    topic: str
    title: Phrase
    title_place: Phrase | None = None
    sentences: tuple = field(default=())


Node = Phrase | Clause | Sentence | Document
PARTS = {  # fields of nodes
    Phrase: ("owner", "also", "relative"),
    Clause: ("subject", "object", "recipient", "than", "place", "goal", "purpose", "content", "reason"),
    Sentence: ("first", "second"),
    Document: ("title", "title_place"),
}


def walk(node: Node) -> list[Node]:
    """Lists a node and all phrases, clauses and sentences in it."""
    nodes = [node]
    for part in nodes:
        nodes += [value for name in PARTS[type(part)] if (value := getattr(part, name)) is not None]
        if type(part) is Document:
            nodes += part.sentences
    return nodes


def concepts(node: Node) -> set[tuple[str, str]]:
    """Returns the set of concepts (kind, name) of a node; pronouns have none."""
    names = set()
    for part in walk(node):
        if isinstance(part, Phrase):
            if not part.pronoun:
                names.add(("noun", part.noun))
            if part.adjective:
                names.add(("adjective", part.adjective))
            names.add(("word", "pronoun" if part.pronoun else part.determiner))
        elif isinstance(part, Clause):
            names.add(("verb", part.verb))
            names.update(("adverb", name) for name in (part.opening, part.time, part.frequency, part.manner) if name)
            if part.adjective:
                names.add(("adjective", part.adjective))
            names.update(("word", name) for name in (part.modal, part.reason_word) if name)
    return names


def combinations(node: Node) -> set[tuple[str, ...]]:
    """Returns the pairs of concepts of a node, some of which never occur in training text.

    They are (kind, first, second): kind "subject" (noun, verb), "object" (verb, noun), "adjective" (adjective, noun).
    A pronoun has no pair. The verb of a relative clause is paired with the noun that it describes.
    """
    pairs: set[tuple[str, ...]] = set()
    for part in walk(node):
        if isinstance(part, Phrase):
            if part.adjective:
                pairs.add(("adjective", part.adjective, part.noun))
            if part.relative is not None:
                pairs |= _pairs(part.relative, part)
        elif isinstance(part, Clause):
            pairs |= _pairs(part, None)
    return pairs


def _pairs(clause: Clause, head: Phrase | None) -> set[tuple[str, ...]]:
    subject, direct = clause.subject, clause.object
    if head is not None:
        subject, direct = (head, direct) if subject is None else (subject, head)
    pairs: set[tuple[str, ...]] = set()
    for kind, phrase in (("subject", subject), ("object", direct)):
        while phrase is not None:
            if not phrase.pronoun:
                pair = (phrase.noun, clause.verb) if kind == "subject" else (clause.verb, phrase.noun)
                if kind == "subject" and clause.adjective:
                    pair = (clause.adjective, phrase.noun)
                    pairs.add(("adjective", *pair))
                else:
                    pairs.add((kind, *pair))
            phrase = phrase.also
    return pairs
