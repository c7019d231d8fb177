"""The common sentence structure of all languages: adverbials in front of a clause, joined clauses and titles."""

from collections.abc import Callable

from preprocess.sample.lexicon import adverbs
from preprocess.sample.syntax import Clause, Document, Phrase, Sentence


def with_front(c: Clause, code: str, text: str, locative: Callable[..., str], comma: str) -> str:
    """Puts an opening, a time or a place in front of the clause `text`; `comma` follows time and place."""
    if c.opening:
        return f"{adverbs()[c.opening].forms[code]} {text}"
    if c.front == "time":
        return f"{adverbs()[c.time].forms[code]}{comma} {text}"
    if c.front == "place":
        return f"{locative(c.place)}{comma} {text}"
    return text


def places_and_time(c: Clause, code: str, locative: Callable[..., str]) -> list[str]:
    """Returns goal, place and time after the verb, in this order; `locative(phrase, True)` is a goal."""
    words = [] if c.goal is None else [locative(c.goal, True)]
    if c.place is not None and c.front != "place":
        words.append(locative(c.place))
    if c.time and c.front != "time":
        words.append(adverbs()[c.time].forms[code])
    return words


def subordinate_clauses(c: Clause, clause: Callable[[Clause], str], conjunctions: dict[str, str]) -> list[str]:
    """Returns the content of a clause with French or Spanish "que", and its reason unless it comes first."""
    words = [] if c.content is None else [f"que {clause(c.content)}"]
    if c.reason is not None and not c.reason_first:
        words.append(f"{conjunctions[c.reason_word]} {clause(c.reason)}")
    return words


def statement(s: Sentence, main: Callable[[Clause], str], conjunctions: dict[str, str]) -> str:
    """Returns one main clause, or two joined by a conjunction, with a full stop."""
    text = main(s.first)
    if s.second is not None:
        text += conjunctions[s.joiner] + main(s.second)
    return text + "."


def title(d: Document, phrase: Callable[[Phrase], str], locative: Callable[..., str]) -> str:
    """Returns the words of a document's title."""
    text = phrase(d.title)
    return text if d.title_place is None else f"{text} {locative(d.title_place)}"
