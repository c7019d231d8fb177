"""German: case, adjective declension, verb second and verb last, separable verbs."""

import re
from functools import cache, partial

from preprocess.sample import sentences
from preprocess.sample.lexicon import adjectives, adverbs, nouns, verbs
from preprocess.sample.syntax import Clause, Document, Phrase, Sentence

ENDINGS = {  # of der-words: nominative, accusative, dative, genitive for masculine, feminine, neuter, plural
    "m": ("er", "en", "em", "es"),
    "f": ("e", "e", "er", "er"),
    "n": ("es", "es", "em", "es"),
    "p": ("e", "e", "en", "er"),
}
DEFINITE = {
    "m": ("der", "den", "dem", "des"),
    "f": ("die", "die", "der", "der"),
    "n": ("das", "das", "dem", "des"),
    "p": ("die", "die", "den", "der"),
}
WEAK = {
    "m": ("e", "en", "en", "en"),
    "f": ("e", "e", "en", "en"),
    "n": ("e", "e", "en", "en"),
    "p": ("en", "en", "en", "en"),
}
NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = range(4)
CASES = {"a": ACCUSATIVE, "d": DATIVE}
STEMS = {"this": "dies", "every": "jed", "our": "unser", "no": "kein"}
STRONG_WORDS = {"two": "zwei", "three": "drei", "generic": "", "indefinite": ""}
PRONOUNS = {
    "m": ("er", "ihn", "ihm"),
    "f": ("sie", "sie", "ihr"),
    "n": ("es", "es", "ihm"),
    "p": ("sie", "sie", "ihnen"),
}
CONTRACTED = {
    "in dem": "im",
    "an dem": "am",
    "zu dem": "zum",
    "zu der": "zur",
    "in das": "ins",
    "an das": "ans",
    "von dem": "vom",
    "bei dem": "beim",
}
CONJUNCTIONS = {"because": "weil", "when": "wenn", "if": "falls", "while": "während", "and": " und ", "but": ", aber "}
QUESTIONS = {"where": "wo", "why": "warum", "when": "wann"}
DEGREES = {"": "", "very": "sehr", "too": "zu"}
MODALS = {
    "want": ("will", "wollen", "wollte"),
    "can": ("kann", "können", "konnte"),
    "must": ("muss", "müssen", "musste"),
}
CONTROL = {"try": "versuchen - versucht", "begin": "beginnen - begonnen"}


@cache
def noun_entry(noun: str) -> tuple[str, bool, str, str]:
    """Returns gender (m, f, n), whether weak, singular, plural."""
    head, _, plural = nouns()[noun].forms["de"].partition(", ")
    gender, singular = head.split(" ", 1)
    return gender[0], gender.endswith("w"), singular, plural


def gender(np: Phrase) -> str:
    """Returns m, f, n or p (plural)."""
    return "p" if np.many else noun_entry(np.noun)[0]


@cache
def noun_form(noun: str, plural: bool, case: int) -> str:
    """Returns a noun in its case: dative plural -n, genitive -s or -es, weak masculines."""
    kind, weak, singular, many = noun_entry(noun)
    if plural:
        return many + "n" if case == DATIVE and not many.endswith(("n", "s")) else many
    if weak and case != NOMINATIVE:
        return many
    if case == GENITIVE and kind != "f":
        syllables = len(re.findall("[aeiouäöü]+", singular.lower()))
        return singular + ("es" if syllables == 1 or singular.endswith(("s", "ß", "z")) else "s")
    return singular


@cache
def verb_entry(spec: str) -> tuple[str, str, str, str, bool, bool, str, int]:
    """Returns particle, infinitive, third singular, participle, uses "sein", reflexive, preposition, case."""
    reflexive = spec.startswith("sich ")
    head, *rest = spec.removeprefix("sich ").split()
    head, _, government = head.partition("@")
    preposition, _, case = government.partition(":")
    sein = head.endswith("!")
    particle, _, infinitive = head.rstrip("!").rpartition("|")
    stem = infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]
    soft = stem.endswith(("t", "d", "ffn", "chn", "ckn", "gn"))
    regular = stem + ("et" if soft else "t")
    third = rest[0] if rest and rest[0] != "-" else regular
    if len(rest) > 1:
        participle = rest[1]
    else:
        bare = infinitive.startswith(("be", "er", "ver", "zer", "ent")) or infinitive.endswith("ieren")
        participle = particle + ("" if bare else "ge") + regular
    return particle, infinitive, third, participle, sein, reflexive, preposition, CASES.get(case, ACCUSATIVE)


def _entry(verb: str) -> tuple[str, str, str, str, bool, bool, str, int]:
    special = {"be": "sein! ist gewesen", "exist": "geben gibt gegeben"}
    return verb_entry(special[verb] if verb in special else verbs()[verb].forms["de"])


def adjective_stem(adjective: str) -> str:
    form, *rest = adjectives()[adjective].forms["de"].split()
    if len(rest) > 1:
        return rest[1]
    return {"müde": "müd", "leise": "leis"}.get(form, form)


def phrase(np: Phrase, case: int, negated: bool = False) -> str:
    """Returns a noun phrase in a case; `negated` gives it "kein"."""
    kind = gender(np)
    if np.pronoun:
        return PRONOUNS[kind][case]
    kind = "p" if np.plural else noun_entry(np.noun)[0]
    determiner = np.determiner
    if negated and determiner in ("indefinite", "generic"):
        determiner = "no"
    plain = np.plural or np.mass
    endings = ENDINGS[kind]
    mixed = (kind == "m" and case == NOMINATIVE) or (kind == "n" and case in (NOMINATIVE, ACCUSATIVE))
    weak = WEAK[kind]
    if determiner == "definite":
        article = DEFINITE[kind][case]
    elif determiner in ("this", "every"):
        article = STEMS[determiner] + endings[case]
    elif determiner in ("our", "no") or (determiner == "indefinite" and not plain):
        article = STEMS.get(determiner, "ein") + ("" if mixed else endings[case])
        weak = endings if mixed else weak
    else:
        article = "viel" + endings[case] if determiner == "many" else STRONG_WORDS[determiner]
        weak = endings
    words = [article] if article else []
    if np.adjective:
        words.append(adjective_stem(np.adjective) + weak[case])
    words.append(noun_form(np.noun, np.plural, case))
    if np.owner is not None:
        words.append(phrase(np.owner, GENITIVE))
    if np.relative is not None:
        words.append(_relative(np.relative, kind))
    if np.also is not None:
        words.append("und " + phrase(np.also, case, negated))
    return " ".join(words)


def prepositional(preposition: str, np: Phrase, case: int, negated: bool = False) -> str:
    """Preposition and noun phrase, contracted: im, zur, ins."""
    text = f"{preposition} {phrase(np, case, negated)}"
    start = " ".join(text.split(" ", 2)[:2])
    if np.determiner == "definite" and not np.pronoun and start in CONTRACTED:
        text = CONTRACTED[start] + text[len(start) :]
    return text


def locative(np: Phrase, goal: bool = False) -> str:
    """A place (dative) or a goal (accusative, dative after "zu")."""
    location, direction = nouns()[np.noun].places.split(" > ")
    preposition = direction.split()[0] if goal else location.split()[1]
    return prepositional(preposition, np, ACCUSATIVE if goal and preposition != "zu" else DATIVE)


def _relative(c: Clause, kind: str) -> str:
    if c.subject is None:
        pronoun = DEFINITE[kind][NOMINATIVE]
        return f", {pronoun} {_clause(c, 'relative', kind == 'p')},"
    return f", {DEFINITE[kind][ACCUSATIVE]} {_clause(c, 'last', c.subject.many)},"


def _middle(c: Clause) -> list[str]:
    """Returns the parts of the middle field without the subject, in order."""
    *_, preposition, case = _entry(c.verb)
    parts = []
    direct = c.object if not preposition else None
    no = c.negated and direct is not None and not direct.pronoun and direct.determiner in ("indefinite", "generic")
    direct_text = phrase(direct, case, no) if direct is not None else ""
    definite = direct is not None and direct.determiner not in ("indefinite", "generic", "many", "two", "three")
    if direct is not None and direct.pronoun:
        parts.append(direct_text)
    if c.time and (c.front != "time"):
        parts.append(adverbs()[c.time].forms["de"])
    if c.recipient is not None:
        parts.append(phrase(c.recipient, DATIVE))
    if direct is not None and definite and not direct.pronoun:
        parts.append(direct_text)
    if c.frequency:
        parts.append(adverbs()[c.frequency].forms["de"])
    if c.negated and not no:
        parts.append("nicht")
    if c.manner:
        parts.append(adverbs()[c.manner].forms["de"])
    if c.place is not None and c.front != "place":
        parts.append(locative(c.place))
    if direct is not None and not definite and not direct.pronoun:
        parts.append(direct_text)
    if preposition:
        parts.append(prepositional(preposition, c.object, case))
    if c.goal is not None:
        parts.append(locative(c.goal, True))
    if c.adjective:
        parts.append(_degree(c))
    return parts


def _degree(c: Clause) -> str:
    form, *rest = adjectives()[c.adjective].forms["de"].split()
    if c.degree != "comparative":
        return f"{DEGREES[c.degree]} {form}".strip()
    rule = rest[0]
    return f"{(form.removesuffix('e') + 'er') if rule == 'er' else rule} als {phrase(c.than, NOMINATIVE)}"


def _group(c: Clause, plural: bool) -> tuple[str, str, list[str]]:
    """(finite verb, separable particle, words at the end)."""
    particle, infinitive, third, participle, sein, *_ = _entry(c.verb)
    full = particle + infinitive
    if c.modal in MODALS:
        singular, many, past = MODALS[c.modal]
        finite = (past + "n" if plural else past) if c.tense == "past" else many if plural else singular
        return finite, "", [full]
    if c.modal in CONTROL:
        particle, infinitive, third, participle, sein, *_ = verb_entry(CONTROL[c.modal])
        full = infinitive
    if c.tense == "future":
        return "werden" if plural else "wird", "", [full]
    if c.verb in ("be", "exist") and c.tense == "past":
        return {"be": "waren" if plural else "war", "exist": "gab"}[c.verb], "", []
    if c.tense == "past":
        return ("sind" if plural else "ist") if sein else "haben" if plural else "hat", "", [participle]
    if c.verb == "be":
        return "sind" if plural else "ist", "", []
    return infinitive if plural else third, particle, []


def infinitive(c: Clause) -> str:
    """Returns an infinitive with "zu", after its complements."""
    particle, verb, *_, reflexive, _, _ = _entry(c.verb)
    words = (["sich"] if reflexive else []) + _middle(c)
    words.append(f"{particle}zu{verb}" if particle else f"zu {verb}")
    return " ".join(words)


def _clause(c: Clause, order: str, plural: bool, subject: str | None = None) -> str:
    """Returns a clause; `order` is main, asked, last (subordinate) or relative (last, without subject)."""
    finite, particle, tail = _group(c, plural)
    after = ""
    if c.modal in CONTROL:
        middle = [adverbs()[c.time].forms["de"]] if c.time and c.front != "time" else []
        middle += ["nicht"] if c.negated else []
        bare = type(c)(None, c.verb, c.object, c.recipient, manner=c.manner, place=c.place, goal=c.goal)
        extended = _middle(bare) or _entry(c.verb)[5]
        after = f", {infinitive(bare)}" if extended else f" {infinitive(bare)}"  # a bare infinitive takes no comma
        reflexive = False
    else:
        middle, reflexive = _middle(c), _entry(c.verb)[5]
    if order in ("main", "asked"):
        tail = tail + ([particle] if particle else [])
    else:
        tail = [*tail, particle + finite]
    if subject is None and order != "relative":
        subject = "es" if c.subject is None else phrase(c.subject, NOMINATIVE)
    full = c.subject is not None and not c.subject.pronoun
    sich = ["sich"] if reflexive else []
    if order == "relative":
        words = [*sich, *middle, *tail]
    elif order == "main" and not (c.opening or c.front or c.reason_first):
        words = [subject, finite, *sich, *middle, *tail]
    else:
        start = [] if order == "last" else [finite]
        words = [*start, *([*sich, subject] if full else [subject, *sich]), *middle, *tail]
    text = " ".join(word for word in words if word) + after
    if c.purpose is not None:
        text += f", um {infinitive(c.purpose)}"
    if c.content is not None:
        text += f", dass {clause(c.content, 'last')}"
    if c.reason is not None and not c.reason_first:
        text += f", {CONJUNCTIONS[c.reason_word]} {clause(c.reason, 'last')}"
    return text


def clause(c: Clause, order: str) -> str:
    """A clause with its subject."""
    if c.verb == "exist":
        return _clause(c, order, False, "es")
    return _clause(c, order, c.subject is not None and c.subject.many)


def main(c: Clause) -> str:
    """A main clause: one constituent, then the finite verb."""
    text = clause(c, "main")
    if c.reason_first and c.reason is not None:
        return f"{CONJUNCTIONS[c.reason_word]} {clause(c.reason, 'last')}, {text}"
    return sentences.with_front(c, "de", text, locative, "")


def _finish(text: str) -> str:
    for wrong, right in ((" ,", ","), (",,", ","), (",.", "."), (",?", "?")):
        text = text.replace(wrong, right)
    return text[0].upper() + text[1:]


def sentence(s: Sentence) -> str:
    """A sentence with capital and full stop."""
    if s.question:
        word = "" if s.question == "whether" else QUESTIONS[s.question] + " "
        return _finish(word + clause(s.first, "asked") + "?")
    return _finish(sentences.statement(s, main, CONJUNCTIONS))


def title(d: Document) -> str:
    """The title of a document."""
    return _finish(sentences.title(d, partial(phrase, case=NOMINATIVE), locative) + ".")[:-1]
