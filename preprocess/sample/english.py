"""English: do-support, third person -s, a/an."""

from functools import cache

from preprocess.sample import sentences
from preprocess.sample.lexicon import adjectives, adverbs, nouns, verbs
from preprocess.sample.syntax import Clause, Document, Phrase, Sentence

DETERMINERS = {
    "definite": "the",
    "this": "this",
    "our": "our",
    "every": "every",
    "two": "two",
    "three": "three",
    "many": "many",
    "generic": "",
}
CONJUNCTIONS = {"because": "because", "when": "when", "if": "if", "while": "while", "and": " and ", "but": ", but "}
MODALS = {"want": ("want", "wanted"), "try": ("try", "tried"), "begin": ("start", "started"), "must": ("have", "had")}


def pluralize(noun: str) -> str:
    """Returns the regular plural: "boxes", "cities", "days"."""
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def article(word: str) -> str:
    """Returns a or an, by the first sound of the next word."""
    vowel = word[0] in "aeiou" and not word.startswith(("uni", "eu"))
    return "an" if vowel else "a"


@cache
def noun_form(noun: str, plural: bool) -> str:
    forms = [form.strip() for form in nouns()[noun].forms["en"].split(",")]
    if not plural:
        return forms[0]
    return forms[1] if len(forms) > 1 else pluralize(noun)


@cache
def verb_forms(verb: str) -> tuple[str, str, str, str]:
    """Returns base, third person, past and the particle or preposition after the verb."""
    if verb == "be":
        return "be", "is", "was", ""
    first, *rest = verbs()[verb].forms["en"].split()
    base, _, after = first.partition("@")
    if rest:
        past = rest[0]
    elif base.endswith("e"):
        past = base + "d"
    elif base.endswith("y") and base[-2] not in "aeiou":
        past = base[:-1] + "ied"
    else:
        past = {"plan": "planned", "stop": "stopped"}.get(base, base + "ed")
    third = base + "es" if base == "go" else pluralize(base)
    return base, third, past, after


def phrase(np: Phrase, objective: bool = False) -> str:
    """A noun phrase."""
    if np.pronoun:
        if np.many:
            return "them" if objective else "they"
        kind = "he" if np.is_a("he") else "she" if np.is_a("she") else "it"
        return {"he": "him", "she": "her", "it": "it"}[kind] if objective else kind
    words = [np.adjective] if np.adjective else []
    words.append(noun_form(np.noun, np.plural))
    text = " ".join(words)
    if np.owner is not None:
        owner = phrase(np.owner)
        text = owner + ("' " if np.owner.plural and owner.endswith("s") else "'s ") + text
    elif np.determiner == "indefinite":
        text = text if np.plural or np.mass else f"{article(text)} {text}"
    elif np.determiner == "this" and np.plural:
        text = f"these {text}"
    else:
        text = f"{DETERMINERS[np.determiner]} {text}".strip()
    if np.relative is not None:
        role = "who" if np.is_a("person") else "that"
        inner = np.relative
        text += f" {role} " + (_clause(inner, np.many, None) if inner.subject is None else clause(inner))
    if np.also is not None:
        text += " and " + phrase(np.also, objective)
    return text


def locative(np: Phrase, goal: bool = False) -> str:
    """A place with its preposition."""
    preposition = nouns()[np.noun].places.split()[0]
    return f"{'to' if goal else preposition} {phrase(np)}"


def _verb(c: Clause, plural: bool, asked: bool) -> tuple[str, str, list[str], str]:
    """Returns (auxiliary or "", adverb, rest of the verb group); `asked` forces an auxiliary."""
    base, third, past, after = verb_forms(c.verb if c.verb != "exist" else "be")
    adverb = adverbs()[c.frequency].forms["en"] if c.frequency else ""
    past_tense, lexical = c.tense == "past", base
    tail = []
    if c.tense == "future" or c.modal == "can" or (c.modal == "must" and not past_tense):
        auxiliary = "will" if c.tense == "future" else "must" if c.modal == "must" else "could" if past_tense else "can"
        return auxiliary, adverb, [base], after
    if c.modal:
        lexical, past = MODALS[c.modal]
        third, tail = pluralize(lexical), ["to", base]
    elif base == "be":
        finite = ("were" if plural else "was") if past_tense else ("are" if plural else "is")
        return finite, adverb, [], after
    if c.negated or asked:
        return "did" if past_tense else "do" if plural else "does", adverb, [lexical, *tail], after
    finite = past if past_tense else lexical if plural else third
    return "", adverb, [finite, *tail], after


def _complements(c: Clause) -> str:
    """The complements and adverbials after the verb."""
    words = []
    particle = verb_forms(c.verb)[3] if c.verb in verbs() else ""
    direct = phrase(c.object, True) if c.object is not None else ""
    if c.object is not None and c.object.pronoun and particle in ("on", "off"):
        words += [direct, particle]
    else:
        words += [particle, direct]
    if c.adjective:
        words.append(_degree(c))
    if c.recipient is not None:
        words.append("to " + phrase(c.recipient, True))
    if c.goal is not None:
        words.append(locative(c.goal, True))
    if c.manner:
        words.append(adverbs()[c.manner].forms["en"])
    if c.place is not None and c.front != "place":
        words.append(locative(c.place))
    if c.time and c.front != "time":
        words.append(adverbs()[c.time].forms["en"])
    if c.purpose is not None:
        words.append("to " + verb_forms(c.purpose.verb)[0] + " " + _complements(c.purpose))
    if c.content is not None:
        words.append("that " + clause(c.content))
    if c.reason is not None and not c.reason_first:
        words.append(f"{CONJUNCTIONS[c.reason_word]} {clause(c.reason)}")
    return " ".join(word for word in words if word)


def _degree(c: Clause) -> str:
    adjective, *rule = adjectives()[c.adjective].forms["en"].split()
    if c.degree != "comparative":
        return f"{c.degree} {adjective}".strip()
    rule = rule[0] if rule else "more"
    if rule == "more":
        form = f"more {adjective}"
    elif rule == "er":
        form = adjective + ("r" if adjective.endswith("e") else "er")
    else:
        form = rule
    return f"{form} than {phrase(c.than, True)}"


def _clause(c: Clause, plural: bool, subject: str | None, asked: bool = False) -> str:
    auxiliary, adverb, rest, _ = _verb(c, plural, asked)
    negation = "not" if c.negated else ""
    if auxiliary == "can" and c.negated and not asked:
        auxiliary, negation = "cannot", ""
    start = [auxiliary, subject, negation, adverb] if asked else [subject, auxiliary, negation, adverb]
    return " ".join(word for word in (*start, *rest, _complements(c)) if word)


def _subject(c: Clause) -> tuple[str, bool]:
    if c.verb == "exist":
        return "there", c.object.many
    if c.subject is None:
        return "it", False
    return phrase(c.subject), c.subject.many


def clause(c: Clause, asked: bool = False) -> str:
    """Returns a clause without its opening."""
    subject, plural = _subject(c)
    return _clause(c, plural, subject, asked)


def main(c: Clause) -> str:
    """Returns a main clause with its opening, front adverbial or reason."""
    text = sentences.with_front(c, "en", clause(c), locative, ",")
    if c.reason is not None and c.reason_first:
        text = f"{CONJUNCTIONS[c.reason_word]} {clause(c.reason)}, {text}"
    return text


def sentence(s: Sentence) -> str:
    """A sentence with capital and full stop."""
    if s.question:
        word = "" if s.question == "whether" else s.question + " "
        text = word + clause(s.first, asked=True) + "?"
    else:
        text = sentences.statement(s, main, CONJUNCTIONS)
    return text[0].upper() + text[1:]


def title(d: Document) -> str:
    """The title of a document."""
    text = sentences.title(d, phrase, locative)
    return text[0].upper() + text[1:]
