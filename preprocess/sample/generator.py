"""Documents of the sample corpus: one hero, one theme, four to eight sentences."""

from __future__ import annotations

import random
import zlib
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
from preprocess.sample.syntax import Document, Phrase, Sentence, combinations, walk

REALIZERS = {"en": english, "de": german, "fr": french, "es": spanish}
HELD_OUT_SHARE = 8  # one combination in this many never occurs in training text


@cache
def held_out(combination):
    """Whether a combination of concepts (see syntax.combinations) is kept out of training text."""
    return zlib.crc32("|".join(combination).encode("utf-8")) % HELD_OUT_SHARE == 0


def acceptable(node, split):
    """Whether a sentence or title may stand in a split.

    Training text holds no held-out combination, every test sentence at least one; validation text is free.
    """
    if split == "valid":
        return True
    held = any(held_out(pair) for pair in combinations(node))
    return held == (split == "test")


def sensible(sentence):
    """Rejects what repeats a noun or describes somebody as doing something to himself."""
    named = []
    for part in walk(sentence):
        if isinstance(part, Phrase) and not part.pronoun:
            named.append(part.noun)
    return len(named) == len(set(named))


def _hero(rng, topic):
    kind = "animal" if topic == "a" and chance(rng, 0.55) else "person"
    noun = pick(rng, some(rng, kind, topic))
    return Phrase(noun, chance(rng, 0.15), adjective=pick(rng, adjectives_of(noun)))


def _title(rng, scene, first):
    """A noun phrase about the hero and the theme, the place or what is done first; (phrase, place or None)."""
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
def _themes(hero, topic):
    """Nouns of the topic that the noun hero can act on with some verb."""
    found = []
    for verb in verbs_of(hero, "t", topic):
        if is_plain(verb):
            found += [
                noun
                for noun in members(verbs()[verb].objects)
                if topic in nouns()[noun].topics and not {"person", "place"} & set(nouns()[noun].tags)
            ]
    return found


def _try_document(rng, topic, split):
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


def document(seed, split, stream, index):
    """The document with this number: a pure function of its arguments.

    Args:
        seed: the corpus.
        split: train, valid or test.
        stream: "bitext", or the language of a monolingual part.
        index: its number; topics take turns.
    """
    rng = random.Random(f"{seed}/{split}/{stream}/{index}")
    topic = tuple(TOPICS)[index % len(TOPICS)]
    while True:
        made = _try_document(rng, topic, split)
        if made is not None:
            return made


def documents(seed, split, stream, count, seen):
    """Yields count documents, none of which has the sentences of one in seen, a set that is added to."""
    for index in range(count):
        attempt = index
        made = document(seed, split, stream, attempt)
        while made.sentences in seen:
            attempt += count * len(TOPICS)
            made = document(seed, split, stream, attempt)
        seen.add(made.sentences)
        yield made


def realize(made, language):
    """(title, list of sentences) of a document in a language."""
    module = REALIZERS[language]
    return module.title(made), [module.sentence(sentence) for sentence in made.sentences]
