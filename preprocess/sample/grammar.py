"""Draws abstract sentences that make sense: verbs determine the classes of their subjects and objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any, TypeVar

from preprocess.sample.lexicon import adjectives, adverbs, classes, is_plain, nouns, verbs
from preprocess.sample.syntax import Clause, Phrase, Sentence

#: verbs for which "where" would be odd, or is the object itself
PLACELESS = set(
    "arrive depart fly drive visit reach cross leave dream think fear love know believe like prefer begin end cover "
    "destroy travel miss take understand solve blow grow disappear sound stop laugh_at lose forget send describe "
    "await call".split()
)
#: no "wants to", no "because ... tries"
STATES = set(
    "know believe like prefer love fear understand see hear smell lose forget miss disappear fall shine blow grow "
    "bloom".split()
)
ON_TOPIC = 0.5  # share of free draws from the document's topic; the others are from the whole lexicon
WET = ("lake", "sea", "river", "pond")
CONTRADICTIONS = {
    *(("old", noun) for noun in ("boy", "girl", "child")),
    *(("young", noun) for noun in ("grandmother", "grandfather")),
    *(("strict", noun) for noun in ("child", "boy", "girl", "pupil")),
}
Item = TypeVar("Item")
TENSE_LETTERS = {"present": "p", "future": "f", "past": "x"}


def pick(rng: Random, items: Sequence[Item]) -> Item:
    """Draws one item with rng.random(), whose values are the same in every Python version."""
    return items[int(rng.random() * len(items))]


def chance(rng: Random, probability: float) -> bool:
    return rng.random() < probability


@cache
def members(tags: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the nouns in any of the classes, in table order, without repetition."""
    selected = {noun for tag in tags for noun in classes()[tag]}
    return tuple(noun for noun in nouns() if noun in selected)


@cache
def verbs_of(noun: str, frames: str, topic: str = "") -> tuple[str, ...]:
    """Returns verbs of the frames (letters) with the noun as subject; with a topic, those about it."""
    return tuple(
        name
        for name, verb in verbs().items()
        if verb.tags[0] in frames
        and noun in members(verb.subjects)
        and (not topic or topic in verb.topics or "*" in verb.topics)
    )


@cache
def adjectives_of(noun: str) -> tuple[str, ...]:
    """Adjectives that suit a noun."""
    return tuple(
        name
        for name, entry in adjectives().items()
        if noun in members(entry.tags)
        and (name, noun) not in CONTRADICTIONS
        and not (name in ("small", "big", "round") and "mass" in nouns()[noun].tags)
    )


@cache
def nouns_about(tag: str, topic: str) -> tuple[str, ...]:
    """Nouns of a class that belong to a topic."""
    return tuple(noun for noun in classes()[tag] if topic in nouns()[noun].topics)


def some(rng: Random, tag: str, topic: str) -> tuple[str, ...]:
    """Returns the nouns of a class, those of the topic or all."""
    return nouns_about(tag, topic) if chance(rng, ON_TOPIC) else classes()[tag]


@cache
def _adverbs(kind: str, tense: str) -> tuple[str, ...]:
    letter = TENSE_LETTERS[tense]
    return tuple(name for name, entry in adverbs().items() if entry.tags[0] == kind and letter in entry.tags[1])


@cache
def _objects_about(verb: str, topic: str) -> tuple[str, ...]:
    return tuple(noun for noun in members(verbs()[verb].objects) if topic in nouns()[noun].topics)


def object_noun(rng: Random, verb: str, topic: str, theme: str) -> str:
    """Draws an object of the verb, preferably the document's theme or one of its topic."""
    choices = members(verbs()[verb].objects)
    if theme in choices and chance(rng, 0.5):
        return theme
    about = _objects_about(verb, topic)
    return pick(rng, about if about and chance(rng, ON_TOPIC) else choices)


def countable(noun: str) -> bool:
    """Tells whether a noun can be counted; there is one sun."""
    return not {"mass", "single"} & set(nouns()[noun].tags)


def object_phrase(rng: Random, noun: str, owner: str, negated: bool = False) -> Phrase:
    """Draws a noun phrase for an object: mostly definite or indefinite, sometimes with an adjective or an owner."""
    tags = nouns()[noun].tags
    if "single" in tags or "place" in tags or "weather" in tags:
        return Phrase(noun)
    plural = countable(noun) and chance(rng, 0.35)
    adjective = pick(rng, adjectives_of(noun)) if adjectives_of(noun) and chance(rng, 0.3) else None
    draw = rng.random()
    if draw < 0.08 and owner and "person" not in tags and owner != noun:
        return Phrase(noun, plural, adjective=adjective, owner=Phrase(owner))
    if draw < 0.5:
        determiner = "definite"
    elif draw < 0.82:
        # a bare plural of persons is odd in the German dative ("antwortet Jägern")
        determiner = "definite" if plural and "person" in tags else "indefinite"
    elif draw < 0.9:
        determiner = "our"
    elif draw < 0.94 or not countable(noun) or negated:
        determiner = "this"
    else:
        plural, determiner = True, pick(rng, ("two", "three", "many"))
    return Phrase(noun, plural, determiner, adjective)


def place_phrase(rng: Random, topic: str, place: str) -> Phrase:
    """Draws the document's place, or another one of its topic."""
    return Phrase(place if chance(rng, 0.5) else pick(rng, some(rng, "place", topic)))


class Scene:
    """The common parts of the sentences of a document.

    Attributes:
        hero, friend: phrases of actors; theme: the noun acted on; place: a place noun; tense: the usual tense.
    """

    def __init__(self, rng: Random, topic: str, hero: Phrase, friend: Phrase, theme: str, place: str, tense: str):
        self.rng, self.topic, self.hero, self.friend = rng, topic, hero, friend
        self.theme, self.place, self.tense = theme, place, tense

    def action(
        self,
        subject: Phrase,
        tense: str | None = None,
        frames: str = "tttiimd",
        bare: bool = False,
        verb: str | None = None,
    ) -> Clause | None:
        """Draws a clause with a verb of action, without adverbials if `bare`; None if the draw makes no sense."""
        rng, tense = self.rng, tense or self.tense
        topic = self.topic if chance(rng, ON_TOPIC) else ""
        choices = (verb,) if verb else verbs_of(subject.noun, pick(rng, frames), topic)
        if not choices:
            return None
        verb = pick(rng, choices)
        frame = verbs()[verb].tags[0]
        negated = chance(rng, 0.12) and subject.determiner not in ("every", "many")
        clause = Clause(subject, verb, tense=tense, negated=negated)
        if frame in "td":
            noun = object_noun(rng, verb, self.topic, self.theme)
            clause = replace(clause, object=object_phrase(rng, noun, self.friend.noun, negated))
        if frame == "d":
            clause = replace(clause, recipient=Phrase(pick(rng, some(rng, "person", self.topic)), chance(rng, 0.15)))
        if frame == "m":
            clause = replace(clause, goal=place_phrase(rng, self.topic, self.place))
        return clause if bare else self.adverbials(clause)

    def adverbials(self, clause: Clause) -> Clause:
        """Adds up to two of: time, frequency, manner, place; some in front."""
        rng, verb, entry = self.rng, clause.verb, verbs()[clause.verb]
        changes: dict[str, Any] = {}
        draw = rng.random()
        if draw < 0.4 and verb not in STATES and "shining" not in nouns()[clause.subject.noun].tags:
            changes["time"] = pick(rng, _adverbs("time", clause.tense))
            if clause.negated and changes["time"] in ("daily", "weekly"):
                changes["time"] = "morning"  # "not every day" and "every day not" differ
            changes["front"] = "time" if chance(rng, 0.5) else ""
        elif draw < 0.55 and clause.tense == "present" and not clause.negated:
            frequency = pick(rng, _adverbs("frequency", "present"))
            if clause.subject.determiner != "every":
                changes["frequency"] = frequency
        if "manner" in entry.tags and not clause.negated and "frequency" not in changes and chance(rng, 0.2):
            changes["manner"] = pick(rng, _adverbs("manner", clause.tense))
        elif verb not in PLACELESS and clause.goal is None and chance(rng, 0.35):
            if not (clause.object is not None and clause.object.is_a("place")):
                place = Phrase(pick(rng, WET)) if verb == "swim" else place_phrase(rng, self.topic, self.place)
                changes["place"] = place
        return replace(clause, **changes)

    def state(self, subject: Phrase, tense: str | None = None) -> Clause | None:
        """Draws a clause with an adjective; None if no adjective suits."""
        rng = self.rng
        choices = adjectives_of(subject.noun)
        if subject.pronoun:
            choices = adjectives_of(self.hero.noun)
        if not choices:
            return None
        tense = tense or ("present" if self.tense == "future" else self.tense)
        adjective = pick(rng, choices)
        clause = Clause(
            replace(subject, adjective=None),
            "be",
            adjective=adjective,
            tense=tense,
            degree=pick(rng, ("", "", "very", "too")),
            negated=chance(rng, 0.1),
        )
        comparable = adjectives()[adjective].forms["en"].split()[1:] != ["-"]
        if not comparable:
            clause = replace(clause, degree="")
        if comparable and chance(rng, 0.3) and adjective not in ("cheap", "broken", "full", "empty"):
            kind = nouns()[subject.noun].tags[0]
            candidates = [noun for noun in nouns_about(kind, self.topic) if adjective in adjectives_of(noun)]
            if candidates:
                clause = replace(clause, degree="comparative", negated=False, than=Phrase(pick(rng, candidates)))
        return clause

    def subject(self) -> Phrase:
        """Draws the subject of a sentence, mostly the hero."""
        rng, draw = self.rng, self.rng.random()
        if draw < 0.35:
            return replace(self.hero, adjective=None)
        if draw < 0.5:
            return self.hero
        if draw < 0.75:
            return replace(self.hero, pronoun=True, adjective=None)
        if draw < 0.92:
            return self.friend
        noun = pick(rng, some(rng, "person", self.topic))
        if draw < 0.95:
            return Phrase(noun, determiner="every")
        return Phrase(noun, True, pick(rng, ("two", "three", "many", "our", "definite")))

    def plain(self) -> Sentence | None:
        clause = self.action(self.subject())
        if clause is not None and self.rng.random() < 0.25 and not clause.front:
            clause = replace(clause, opening=pick(self.rng, _adverbs("opening", clause.tense)), time="", frequency="")
        return Sentence(clause) if clause else None

    def modal(self) -> Sentence | None:
        clause = self.action(self.subject(), tense=pick(self.rng, ("present", "past")))
        if clause is None or clause.verb in STATES or clause.frequency or clause.subject.determiner == "every":
            return None
        modal = pick(self.rng, ("want", "can", "must", "try", "begin"))
        negated = clause.negated and modal in ("want", "can")
        if modal in ("try", "begin"):
            # in the German infinitive clause the place is ambiguous
            clause = replace(clause, time="" if clause.front != "time" else clause.time, place=None)
            if clause.tense == "past" and modal == "begin":
                return None
        return Sentence(replace(clause, modal=modal, negated=negated))

    def purpose(self) -> Sentence | None:
        subject = self.subject()
        clause = self.action(subject, frames="m", bare=True)
        aim = self.action(subject, frames="td", bare=True)
        if clause is None or aim is None or aim.verb in STATES | {"leave", "await"} or clause.negated:
            return None
        return Sentence(replace(clause, purpose=replace(aim, subject=None, tense="present", negated=False)))

    def states(self) -> Sentence | None:
        rng = self.rng
        noun = pick(
            rng,
            (
                self.theme,
                self.theme,
                self.place,
                pick(rng, members(("flower", "clothes", "animal", "vehicle", "dish", "doc"))),
            ),
        )
        about = Phrase(
            noun,
            countable(noun) and noun != self.place and "place" not in nouns()[noun].tags and chance(rng, 0.3),
            pick(rng, ("definite", "definite", "this", "our")),
        )
        clause = self.state(pick(rng, (self.hero, about, about)))
        return Sentence(clause) if clause else None

    def nature(self) -> Sentence | None:
        """Draws a sentence without a person as subject."""
        rng = self.rng
        noun = pick(
            rng,
            members(
                ("plant", "vehicle", "event", "shining", "falling", "violent", "fruit", "cloud", "animal", "phone")
            ),
        )
        if self.topic not in nouns()[noun].topics and chance(rng, ON_TOPIC):
            return None
        clause = self.action(Phrase(noun, countable(noun) and chance(rng, 0.4)), frames="ti")
        return Sentence(clause) if clause else None

    def exist(self) -> Sentence | None:
        rng = self.rng
        tags = pick(rng, ("animal", "person", "plant", "vessel", "furniture", "machine", "vehicle"))
        about = nouns_about(tags, self.topic)
        if not about:
            return None
        thing = object_phrase(rng, pick(rng, about), "")
        several = ("two", "three", "many", "indefinite")
        thing = replace(thing, determiner=pick(rng, several) if thing.plural else "indefinite")
        tense = "present" if self.tense == "future" else self.tense
        return Sentence(
            Clause(
                None,
                "exist",
                thing,
                place=place_phrase(rng, self.topic, self.place),
                front=pick(rng, ("", "place")),
                tense=tense,
            )
        )

    def liking(self) -> Sentence | None:
        subject = self.subject()
        if subject.determiner in ("every", "many") or not subject.is_a("person"):
            return None
        verb = pick(self.rng, verbs_of(subject.noun, "l"))
        noun = object_noun(self.rng, verb, self.topic, self.theme)
        liked = Phrase(noun) if "person" in nouns()[noun].tags else Phrase(noun, countable(noun), "generic")
        clause = Clause(subject, verb, liked, negated=chance(self.rng, 0.2))
        return Sentence(clause)

    def content(self) -> Sentence | None:
        subject = self.friend if chance(self.rng, 0.5) else replace(self.hero, adjective=None)
        if not subject.is_a("person"):
            return None
        actor = self.hero if subject is self.friend else self.friend
        inner = (
            self.state(actor, "present")
            if chance(self.rng, 0.4)
            else self.action(replace(actor, adjective=None), pick(self.rng, ("present", "future")))
        )
        if inner is None:
            return None
        return Sentence(Clause(subject, pick(self.rng, ("know", "say", "believe")), content=replace(inner, front="")))

    def reason(self) -> Sentence | None:
        rng = self.rng
        word = pick(rng, ("because", "because", "when", "if", "while"))
        tense = "present" if word != "because" else "past" if self.tense == "past" else "present"
        clause = self.action(self.subject(), tense, frames="tim")
        draw = rng.random()
        he = replace(self.hero, pronoun=True, adjective=None)
        if draw < 0.2:
            cause: Clause | None = Clause(None, pick(rng, ("rain", "snow")), tense=tense)
        elif draw < 0.5 and word != "while":
            cause = self.state(pick(rng, (he, self.friend)), tense)
        else:
            cause = self.action(pick(rng, (he, self.friend)), tense, frames="ti", bare=True)
        if clause is None or cause is None or (clause.subject.pronoun and cause.subject == clause.subject):
            return None
        if word == "while" and (cause.verb in STATES or cause.negated):
            return None
        clause = replace(clause, front="", time="" if word != "because" else clause.time)
        cause = replace(cause, front="", frequency="")
        return Sentence(
            replace(clause, reason_word=word, reason=cause, reason_first=word != "because" and chance(rng, 0.4))
        )

    def question(self) -> Sentence | None:
        clause = self.action(replace(self.hero, adjective=None), pick(self.rng, ("present", "past", "future")))
        if clause is None or clause.frequency:
            return None
        asked = pick(self.rng, ("whether", "whether", "where", "why", "when"))
        changes: dict[str, Any] = {"front": ""}
        if asked == "where":
            if clause.verb in PLACELESS or clause.goal is not None or (clause.object and clause.object.is_a("place")):
                return None
            changes["place"] = None
        if asked == "when":
            changes["time"] = ""
        if asked in ("where", "when"):
            changes["negated"] = False
        return Sentence(replace(clause, **changes), question=asked)

    def joined(self) -> Sentence | None:
        """Draws two clauses; the second refers to subject or object of the first by a pronoun."""
        rng = self.rng
        first = self.action(replace(self.hero, adjective=None) if chance(rng, 0.6) else self.friend, frames="tti")
        if first is None:
            return None
        first = replace(first, front="") if chance(rng, 0.5) else first
        he = replace(first.subject, pronoun=True, adjective=None)
        if (
            first.object is not None
            and is_plain(first.verb)
            and chance(rng, 0.6)
            and not first.negated
            and first.object.noun != first.subject.noun
            and not first.object.mass
        ):
            later = [
                verb
                for verb in verbs_of(first.subject.noun, "t")
                if is_plain(verb) and verb != first.verb and first.object.noun in members(verbs()[verb].objects)
            ]
            if not later:
                return None
            second: Clause | None = Clause(
                he, pick(rng, later), replace(first.object, pronoun=True, adjective=None, owner=None), tense=first.tense
            )
            return Sentence(first, "and", second)
        actor = self.friend if first.subject.noun != self.friend.noun else replace(self.hero, adjective=None)
        second = self.action(pick(rng, (he, actor)), frames="ti", bare=True)
        return Sentence(first, "but" if first.negated != second.negated else "and", second) if second else None

    def relative(self) -> Sentence | None:
        rng = self.rng
        clause = self.action(replace(self.hero, adjective=None) if chance(rng, 0.5) else self.friend)
        if clause is None:
            return None
        if chance(rng, 0.5):
            inner = self.action(clause.subject, pick(rng, ("present", self.tense)), bare=True)
            if inner is None or inner.verb == clause.verb:
                return None
            return Sentence(
                replace(clause, front="", subject=replace(clause.subject, relative=replace(inner, subject=None)))
            )
        noun = self.theme
        makers = [
            verb
            for verb in verbs_of(self.friend.noun, "t")
            if is_plain(verb) and noun in members(verbs()[verb].objects)
        ]
        if not makers or "place" in nouns()[noun].tags or "person" in nouns()[noun].tags:
            return None
        tense = pick(rng, ("present", "past"))
        head = Phrase(
            noun, countable(noun) and chance(rng, 0.5), relative=Clause(self.friend, pick(rng, makers), tense=tense)
        )
        if chance(rng, 0.4):
            state = self.state(replace(head, relative=None))
            return Sentence(replace(state, subject=head, degree="" if state.than else state.degree)) if state else None
        if (
            clause.object is None
            or verbs()[clause.verb].tags[0] != "t"
            or noun not in members(verbs()[clause.verb].objects)
            or clause.subject.noun == self.friend.noun
        ):
            return None
        return Sentence(replace(clause, object=head, front="", place=None, manner=""))

    def weather(self) -> Sentence | None:
        clause = Clause(
            None,
            pick(self.rng, ("rain", "snow")),
            tense=self.tense,
            time=pick(self.rng, _adverbs("time", self.tense)),
            front=pick(self.rng, ("", "time")),
        )
        second = self.action(self.subject(), frames="tim", bare=True)
        return Sentence(clause, pick(self.rng, ("and", "but")), second) if second else None


KINDS = (  # method, relative frequency
    (Scene.plain, 30),
    (Scene.modal, 9),
    (Scene.purpose, 6),
    (Scene.states, 10),
    (Scene.nature, 7),
    (Scene.exist, 5),
    (Scene.liking, 5),
    (Scene.content, 7),
    (Scene.reason, 9),
    (Scene.question, 6),
    (Scene.joined, 9),
    (Scene.relative, 8),
    (Scene.weather, 2),
)
DRAWS = tuple(method for method, weight in KINDS for _ in range(weight))
