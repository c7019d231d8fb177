"""Spanish: dropped subjects, ser and estar, personal a, clitics, gustar."""

import re
from functools import cache

from preprocess.sample import sentences
from preprocess.sample.lexicon import adjectives, adverbs, gender_and_forms, nouns, verbs
from preprocess.sample.syntax import Clause, Document, Phrase, Sentence

CONTRACTED = {"a el": "al", "de el": "del"}
CONJUNCTIONS = {"because": "porque", "when": "cuando", "if": "si", "while": "mientras", "and": " y ", "but": ", pero "}
QUESTIONS = {"whether": "", "where": "dónde", "why": "por qué", "when": "cuándo"}
DEGREES = {"": "", "very": "muy", "too": "demasiado"}
MODALS = {
    "want": ("quiere", "quería", ""),
    "can": ("puede", "podía", ""),
    "must": ("tiene", "tenía", "que"),
    "try": ("intenta", "intentaba", ""),
    "begin": ("empieza", "empezaba", "a"),
}
PREVERBAL = ("always", "never")  # other adverbs of frequency follow the verb
UNACCENTED = str.maketrans("áéíóú", "aeiou")


def pluralize(word: str) -> str:
    """Returns the regular plural; an accent on the last syllable is lost before -es."""
    if word[-1] in "aeioué":
        return word + "s"
    if word.endswith("z"):
        return word[:-1] + "ces"
    if re.search(r"[áéíóú][ns]$", word):
        return word[:-2] + word[-2].translate(UNACCENTED) + word[-1] + "es"
    return word + "es"


@cache
def noun_entry(noun: str) -> tuple[str, str, str]:
    """Gender (m, f, or fa: feminine with "el"), singular, plural."""
    return gender_and_forms(noun, "es", pluralize)


@cache
def adjective_form(adjective: str, feminine: bool, plural: bool) -> str:
    """Returns an adjective with gender and number."""
    form, *rest = adjectives()[adjective].forms["es"].lstrip("~").split()
    if plural and rest:
        return rest[0]
    if feminine and form.endswith("o"):
        form = form[:-1] + "a"
    return pluralize(form) if plural else form


@cache
def verb_entry(verb: str) -> tuple[str, str, str, str, str, str, bool]:
    """Infinitive, preposition, present, preterite, its plural, future stem, reflexive."""
    head, *rest = verbs()[verb].forms["es"].split()
    infinitive, _, preposition = head.partition("@")
    reflexive = infinitive.endswith("se")
    infinitive = infinitive.removesuffix("se")
    stem, ending = infinitive[:-2], infinitive[-2:]
    irregular = [form if form != "-" else "" for form in rest] + [""] * (4 - len(rest))
    present = irregular[0] or stem + ("a" if ending == "ar" else "e")
    past = irregular[1] or stem + ("ó" if ending == "ar" else "ió")
    many = irregular[2]
    if not many:
        many = past[:-1] + ("aron" if ending == "ar" else "eron")
    return infinitive, preposition, present, past, many, irregular[3] or infinitive.replace("í", "i"), reflexive


def is_feminine(np: Phrase) -> bool:
    """Tells whether adjectives of the whole phrase are feminine."""
    return noun_entry(np.noun)[0] != "m" and (np.also is None or is_feminine(np.also))


def _determiner(np: Phrase, negated: bool) -> str:
    kind = noun_entry(np.noun)[0]
    feminine, stressed = kind != "m", kind == "fa" and not np.plural
    ending = ("as" if feminine else "os") if np.plural else ("a" if feminine else "o")
    if np.determiner in ("definite", "generic"):
        return {"o": "el", "os": "los", "a": "el" if stressed else "la", "as": "las"}[ending]
    if np.determiner == "indefinite":
        base = "ningún" if negated else "un"
        return "" if np.plural or np.mass else base if not feminine or stressed else base.replace("ú", "u") + "a"
    fixed = {
        "this": "este" if ending == "o" else "est" + ending,
        "our": "nuestr" + ending,
        "every": "cada",
        "two": "dos",
        "three": "tres",
        "many": "much" + ending,
    }
    return fixed[np.determiner]


def phrase(np: Phrase, preposition: str = "", negated: bool = False) -> str:
    """Returns a noun phrase after a preposition; empty for a subject pronoun, which Spanish drops.

    `negated`: it is the object of a negated verb ("ningún").
    """
    if np.pronoun:
        return ""
    _, singular, plural = noun_entry(np.noun)
    determiner = _determiner(np, negated)
    start = f"{preposition} {determiner}".strip()
    words = [CONTRACTED.get(start, start), plural if np.plural else singular]
    if np.adjective:
        words.append(adjective_form(np.adjective, noun_entry(np.noun)[0] != "m", np.plural))
    if np.owner is not None:
        words.append(phrase(np.owner, "de"))
    if np.relative is not None:
        inner = np.relative
        words.append(
            "que " + (_clause(inner, "", np.many, is_feminine(np)) if inner.subject is None else clause(inner))
        )
    if np.also is not None:
        words.append("y " + phrase(np.also, preposition, negated))
    return " ".join(word for word in words if word)


def locative(np: Phrase, goal: bool = False) -> str:
    """A place with its preposition."""
    return phrase(np, "a" if goal else nouns()[np.noun].places.split(" > ")[0].split()[3])


def object_preposition(c: Clause) -> str:
    """Returns the preposition of the object: that of the verb, or the personal a."""
    preposition = verb_entry(c.verb)[1]
    specific = c.object.determiner not in ("indefinite", "many")
    personal = c.object.is_a("person") or (c.object.is_a("animal") and specific)
    return preposition or ("a" if personal else "")


def _clitic(c: Clause) -> str:
    if c.recipient is not None:
        return "les" if c.recipient.many else "le"
    if c.object is not None and c.object.pronoun:
        return "l" + ("a" if is_feminine(c.object) else "o") + ("s" if c.object.many else "")
    return ""


def _infinitive(c: Clause) -> str:
    infinitive, *_, reflexive = verb_entry(c.verb)
    return infinitive + ("se" if reflexive else "") + _clitic(c)


def _copula(c: Clause, plural: bool) -> str:
    if c.verb == "exist":
        return {"present": "hay", "past": "había", "future": "habrá"}[c.tense]
    if adjectives()[c.adjective].forms["es"].startswith("~"):
        forms = {"present": ("está", "están"), "past": ("estaba", "estaban"), "future": ("estará", "estarán")}
    else:
        forms = {"present": ("es", "son"), "past": ("era", "eran"), "future": ("será", "serán")}
    return forms[c.tense][plural]


def _verbal(c: Clause, plural: bool) -> tuple[list[str], list[str]]:
    """Returns (words up to the finite verb, words after it)."""
    frequency = adverbs()[c.frequency].forms["es"] if c.frequency else ""
    before = [frequency] if c.frequency in PREVERBAL else []
    after = [] if before or not frequency else [frequency]
    before += ["no"] if c.negated else []
    if c.verb in ("be", "exist"):
        return [*before, _copula(c, plural)], after
    _, _, present, past, many, future, reflexive = verb_entry(c.verb)
    if c.modal:
        finite, imperfect, link = MODALS[c.modal]
        finite = imperfect if c.tense == "past" else finite
        if c.modal == "try" and c.tense == "past":
            finite = "intentaro" if plural else "intentó"  # -n follows
        return [*before, finite + "n" if plural else finite], [*after, link, _infinitive(c)]
    if c.tense == "past":
        finite = many if plural else past
    else:
        singular = future + "á" if c.tense == "future" else present
        finite = singular + "n" if plural else singular
    return [*before, "se" if reflexive else "", _clitic(c), finite], after


def _complements(c: Clause, feminine: bool = False, plural: bool = False) -> str:
    """The complements and adverbials after the verb."""
    words = []
    if c.manner:
        words.append(adverbs()[c.manner].forms["es"])
    if c.adjective:
        words.append(_degree(c, feminine, plural))
    if c.object is not None and not c.object.pronoun:
        preposition = object_preposition(c) if c.verb != "exist" else ""
        words.append(phrase(c.object, preposition, c.negated or c.frequency == "never"))
    if c.recipient is not None:
        words.append(phrase(c.recipient, "a"))
    words += sentences.places_and_time(c, "es", locative)
    if c.purpose is not None:
        words += ["para", _infinitive(c.purpose), _complements(c.purpose)]
    words += sentences.subordinate_clauses(c, clause, CONJUNCTIONS)
    return " ".join(word for word in words if word)


def _degree(c: Clause, feminine: bool, plural: bool) -> str:
    form = adjective_form(c.adjective, feminine, plural)
    return f"más {form} que {phrase(c.than)}" if c.degree == "comparative" else f"{DEGREES[c.degree]} {form}".strip()


def _gustar(c: Clause) -> str:
    """Returns a clause of "gustar", whose subject is the object: "Al jardinero le gustan las rosas"."""
    no = ["no"] if c.negated else []
    clitic = "les" if c.subject.many else "le"
    words = [phrase(c.subject, "a"), *no, clitic, "gustan" if c.object.many else "gusta"]
    if c.frequency:
        words.append(adverbs()[c.frequency].forms["es"])
    words.append(phrase(c.object))
    if c.reason is not None and not c.reason_first:
        words.append(f"{CONJUNCTIONS[c.reason_word]} {clause(c.reason)}")
    return " ".join(word for word in words if word)


def _clause(c: Clause, subject: str, plural: bool, feminine: bool, asked: bool = False) -> str:
    before, after = _verbal(c, plural)
    complements = _complements(c, feminine, plural)
    if asked and c.adjective:
        words = [*before, *after, complements, subject]
    elif asked:
        words = [*before, subject, *after, complements]
    else:
        words = [subject, *before, *after, complements]
    return " ".join(word for word in words if word)


def clause(c: Clause, asked: bool = False) -> str:
    """Returns a clause without its opening."""
    if c.verb == "like":
        return _gustar(c)
    if c.subject is None:
        return _clause(c, "", False, False, asked)
    return _clause(c, phrase(c.subject), c.subject.many, is_feminine(c.subject), asked)


def main(c: Clause) -> str:
    """Returns a main clause with its opening, front adverbial or reason."""
    text = sentences.with_front(c, "es", clause(c), locative, "")
    if c.reason is not None and c.reason_first:
        text = f"{CONJUNCTIONS[c.reason_word]} {clause(c.reason)}, {text}"
    return text


def _finish(text: str, mark: str = "") -> str:
    text = re.sub(r"\by (?=h?i(?!e))", "e ", text)
    return mark + text[0].upper() + text[1:]


def sentence(s: Sentence) -> str:
    """A sentence with capital and full stop."""
    if s.question:
        return _finish(f"{QUESTIONS[s.question]} {clause(s.first, asked=True)}?".strip(), "¿")
    return _finish(sentences.statement(s, main, CONJUNCTIONS))


def title(d: Document) -> str:
    """The title of a document."""
    return _finish(sentences.title(d, phrase, locative))
