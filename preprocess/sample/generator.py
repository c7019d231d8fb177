"""Generates documents of the sample corpus: one hero, one theme, four to eight sentences."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from preprocess.sample import english, french, german, spanish
from preprocess.sample.grammar import (
    DRAWS,
    Scene,
    adjectives_of,
    chance,
    countable,
    members,
    pick,
    place_phrase,
    some,
    verbs_of,
)
from preprocess.sample.lexicon import TOPICS, is_plain, nouns, verbs
from preprocess.sample.syntax import Clause, Document, Node, Phrase, Sentence, combinations, walk

REALIZERS = {"en": english, "de": german, "fr": french, "es": spanish}
HELD_OUT_SHARE = 8  # one combination in this many never occurs in training text


@cache
def held_out(combination: tuple[str, ...]) -> bool:
    """Tells whether a combination of concepts (`syntax.combinations`) never occurs in training text."""
    return zlib.crc32("|".join(combination).encode("utf-8")) % HELD_OUT_SHARE == 0


def acceptable(node: Node, split: str) -> bool:
    """Tells whether a sentence or title may stand in a split.

    Training text has no held-out combination, every test sentence at least one; validation text may have any.
    """
    if split == "valid":
        return True
    held = any(held_out(pair) for pair in combinations(node))
    return held == (split == "test")


def sensible(sentence: Node) -> bool:
    """Tells whether no noun is repeated, as in "the cat sees the cat"."""
    names = [part.noun for part in walk(sentence) if isinstance(part, Phrase) and not part.pronoun]
    return len(names) == len(set(names))


def _hero(rng: random.Random, topic: str) -> Phrase:
    kind = "animal" if topic == "a" and chance(rng, 0.55) else "person"
    noun = pick(rng, some(rng, kind, topic))
    return Phrase(noun, chance(rng, 0.15), adjective=pick(rng, adjectives_of(noun)))


def _title(rng: random.Random, scene: Scene, first: Clause) -> tuple[Phrase, Phrase | None]:
    """Draws a title about the hero and the theme, the place or the first action; returns (phrase, place or None)."""
    hero = scene.hero
    theme = Phrase(scene.theme, countable(scene.theme) and chance(rng, 0.5))
    draw = rng.random()
    if draw < 0.2:
        return replace(hero, relative=replace(first, subject=None, front="", opening="", time="")), None
    if draw < 0.45:
        return hero, place_phrase(rng, scene.topic, scene.place)
    if draw < 0.6 and hero.is_a("person") and not theme.is_a("weather"):
        return replace(theme, owner=replace(hero, adjective=None)), None
    return replace(hero, also=theme if chance(rng, 0.7) else replace(scene.friend, adjective=None)), None


@cache
def _themes(hero: str, topic: str) -> list[str]:
    """Lists the nouns of the topic that the hero can act on with some verb."""
    themes = []
    for verb in verbs_of(hero, "t", topic):
        if is_plain(verb):
            themes += [
                noun
                for noun in members(verbs()[verb].objects)
                if topic in nouns()[noun].topics and not {"person", "place"} & set(nouns()[noun].tags)
            ]
    return themes


def _try_document(rng: random.Random, topic: str, split: str) -> Document | None:
    hero = _hero(rng, topic)
    themes = [noun for noun in _themes(hero.noun, topic) if noun != hero.noun]
    if not themes:
        return None
    friend = Phrase(pick(rng, some(rng, "person", topic)))
    scene = Scene(
        rng,
        topic,
        hero,
        friend,
        pick(rng, themes),
        pick(rng, some(rng, "place", topic)),
        pick(rng, ("present", "present", "past", "past", "future")),
    )
    first = scene.action(hero, frames="ttd")
    if first is None or friend.noun == hero.noun or first.negated:
        return None
    opening = Sentence(first)
    title, place = _title(rng, scene, first)
    length = 4 + int(rng.random() * 5)
    sentences = []
    if sensible(opening) and acceptable(opening, split):
        sentences.append(opening)
    elif split != "test":
        return None
    if not sensible(title) or (split == "train" and not acceptable(title, split)):
        return None
    for _ in range(400):
        sentence = pick(rng, DRAWS)(scene)
        if sentence and sentence not in sentences and sensible(sentence) and acceptable(sentence, split):
            if sentences or (sentence.first.subject is not None and not sentence.first.subject.pronoun):
                sentences.append(sentence)
        if len(sentences) == length:
            return Document(TOPICS[topic], title, place, tuple(sentences))
    return None


def document(seed: int, split: str, stream: str, index: int) -> Document:
    """Generates a document, a pure function of the arguments.

    Args:
        seed: the corpus.
        split: train, valid or test.
        stream: "bitext", or the language of a monolingual part.
        index: its number; topics take turns.
    """
    rng = random.Random(f"{seed}/{split}/{stream}/{index}")
    topic = tuple(TOPICS)[index % len(TOPICS)]
    while True:
        candidate = _try_document(rng, topic, split)
        if candidate is not None:
            return candidate


def documents(seed: int, split: str, stream: str, count: int, seen: set[tuple[Sentence, ...]]) -> Iterator[Document]:
    """Yields `count` documents; the sentences of none are in the set `seen`, to which they are added."""
    for index in range(count):
        attempt = index
        candidate = document(seed, split, stream, attempt)
        while candidate.sentences in seen:
            attempt += count * len(TOPICS)
            candidate = document(seed, split, stream, attempt)
        seen.add(candidate.sentences)
        yield candidate


def realize(item: Document, language: str) -> tuple[str, list[str]]:
    """Returns (title, list of sentences) of a document in a language."""
    module = REALIZERS[language]
    return module.title(item), [module.sentence(sentence) for sentence in item.sentences]
