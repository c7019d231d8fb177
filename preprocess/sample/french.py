"""French: agreement, clitics, negation in two parts, contraction and elision."""

import re
from functools import cache

from preprocess.sample import sentences
from preprocess.sample.lexicon import adjectives, adverbs, gender_and_forms, nouns, verbs
from preprocess.sample.syntax import Clause, Document, Phrase, Sentence

VOWEL = "aeiouyhâàéèêëîïôûœ"
ELIDED = re.compile(rf"(?<![\w'-])([LlDdNnSs]|[Qq]u|[Pp]arce qu)[ea] (?=[{VOWEL}])")
SPECIAL = {"beau": "bel", "nouveau": "nouvel", "vieux": "vieil"}
CONTRACTED = {"de le": "du", "de les": "des", "à le": "au", "à les": "aux"}
CONJUNCTIONS = {
    "because": "parce que",
    "when": "quand",
    "if": "si",
    "while": "pendant que",
    "and": " et ",
    "but": ", mais ",
}
QUESTIONS = {"whether": "", "where": "où", "why": "pourquoi", "when": "quand"}
DEGREES = {"": "", "very": "très", "too": "trop"}
MODALS = {
    "want": ("veut", "veulent", "voulait", ""),
    "can": ("peut", "peuvent", "pouvait", ""),
    "must": ("doit", "doivent", "devait", ""),
    "try": ("essaie", "essaient", "essayait", "de"),
    "begin": ("commence", "commencent", "commençait", "à"),
}
AUXILIARIES = {"avoir": ("a", "ont"), "être": ("est", "sont")}


def pluralize(word: str) -> str:
    """Returns the regular plural of a noun or of a masculine adjective."""
    if word.endswith(("s", "x", "z")):
        return word
    if word.endswith(("eau", "eu")) and word != "bleu":
        return word + "x"
    return word[:-2] + "aux" if word.endswith("al") else word + "s"


@cache
def noun_entry(noun: str) -> tuple[str, str, str]:
    """Gender, singular, plural."""
    return gender_and_forms(noun, "fr", pluralize)


@cache
def adjective_form(adjective: str, feminine: bool, plural: bool) -> str:
    """Returns an adjective with gender and number."""
    masculine, *rest = adjectives()[adjective].forms["fr"].lstrip("<").split()
    form = masculine
    if feminine:
        form = rest[0] if rest else masculine if masculine.endswith("e") else masculine + "e"
    if masculine == "bon_marché":
        return "bon marché"
    return pluralize(form) if plural else form


@cache
def verb_entry(verb: str) -> tuple[str, str, str, str, str, str, bool, bool]:
    """Infinitive, preposition, third singular and plural, participle, future stem, uses "être", reflexive."""
    special = {"be": "être est sont été ser", "exist": "avoir a a eu aur"}
    spec = special[verb] if verb in special else verbs()[verb].forms["fr"]
    reflexive = spec.startswith(("se ", "s'"))
    spec = spec.removeprefix("se ").removeprefix("s'")
    head, *rest = spec.split()
    head, _, preposition = head.partition("@")
    infinitive = head.rstrip("!")
    stem = infinitive[:-2]
    if rest:
        present, many, participle, future = rest
    elif infinitive.endswith("er"):
        present, many, participle, future = stem + "e", stem + "ent", stem + "é", infinitive
    elif infinitive.endswith("ir"):
        present, many, participle, future = stem + "it", stem + "issent", stem + "i", infinitive
    else:
        present, many, participle, future = stem, stem + "ent", stem + "u", stem + "r"
    return infinitive, preposition, present, many, participle, future, head.endswith("!") or reflexive, reflexive


def is_feminine(np: Phrase) -> bool:
    """Tells whether adjectives and participles of the whole phrase are feminine."""
    return noun_entry(np.noun)[0] == "f" and (np.also is None or is_feminine(np.also))


def _determiner(np: Phrase, following: str, negated: bool, partitive: bool) -> str:
    feminine = noun_entry(np.noun)[0] == "f"
    vowel = following[0] in VOWEL
    if np.determiner == "indefinite":
        if negated or (partitive and (np.plural or np.mass)):
            return "de"
        if np.mass:
            return "de l'" if vowel else "de la" if feminine else "du"
        if np.plural:
            # "de" for "des" before an adjective
            return "de" if np.adjective and _precedes(np.adjective) else "des"
        return "une" if feminine else "un"
    if np.determiner == "this":
        return "ces" if np.plural else "cette" if feminine else "cet" if vowel else "ce"
    if np.determiner in ("definite", "generic"):
        return "les" if np.plural else "la" if feminine else "le"
    fixed = {
        "our": "nos" if np.plural else "notre",
        "every": "chaque",
        "two": "deux",
        "three": "trois",
        "many": "beaucoup de",
    }
    return fixed[np.determiner]


def _precedes(adjective: str) -> bool:
    return adjectives()[adjective].forms["fr"].startswith("<")


def phrase(np: Phrase, preposition: str = "", negated: bool = False) -> str:
    """Returns a noun phrase, after a preposition that contracts with its article."""
    if np.pronoun:
        return {"00": "il", "01": "elle", "10": "ils", "11": "elles"}[f"{int(np.many)}{int(is_feminine(np))}"]
    kind, singular, plural = noun_entry(np.noun)
    words = [plural if np.plural else singular]
    if np.adjective:
        form = adjective_form(np.adjective, kind == "f", np.plural)
        if _precedes(np.adjective):
            if form in SPECIAL and words[0][0] in VOWEL and not np.plural:
                form = SPECIAL[form]
            words.insert(0, form)
        else:
            words.append(form)
    determiner = _determiner(np, words[0], negated, preposition == "de")
    if preposition and determiner in ("le", "les") and not (determiner == "le" and words[0][0] in VOWEL):
        start = CONTRACTED.get(f"{preposition} {determiner}", f"{preposition} {determiner}")
    elif preposition == "de" and determiner == "de":
        start = "de"
    else:
        start = f"{preposition} {determiner}".strip()
    text = " ".join([start, *words]).replace("' ", "'")
    if np.owner is not None:
        text += " " + phrase(np.owner, "de")
    if np.relative is not None:
        inner = np.relative
        text += (
            " qui " + _clause(inner, "", np.many, is_feminine(np))
            if inner.subject is None
            else " que " + clause(inner, head=np)
        )
    if np.also is not None:
        text += " et " + phrase(np.also, preposition, negated)
    return text


def locative(np: Phrase, goal: bool = False) -> str:
    """A place with its preposition."""
    location, direction = nouns()[np.noun].places.split(" > ")
    return phrase(np, direction.split()[1] if goal else location.split()[2])


def _agree(participle: str, feminine: bool, plural: bool) -> str:
    form = participle + ("e" if feminine else "")
    return form + "s" if plural and not form.endswith("s") else form


def _clitics(c: Clause) -> list[str]:
    """The object pronoun or the reflexive one before the verb."""
    if verb_entry(c.verb)[7]:
        return ["se"]
    if c.object is not None and c.object.pronoun:
        return ["les" if c.object.many else "la" if is_feminine(c.object) else "le"]
    return []


def _verbal(c: Clause, plural: bool, feminine: bool, head: Phrase | None) -> list[str]:
    """The words from "ne" to the end of the verb group; `head` is the antecedent if it is the object of the clause."""
    infinitive, _, present, many, participle, future, etre, _ = verb_entry(c.verb)
    clitics = _clitics(c)
    rest, inner = [], []
    if c.modal:
        singular, several, past, link = MODALS[c.modal]
        finite = (past[:-1] + "ent" if plural else past) if c.tense == "past" else several if plural else singular
        inner = [link, *clitics, infinitive]
        clitics = []
        if c.modal == "try" and c.tense == "past":
            finite, rest = AUXILIARIES["avoir"][plural], ["essayé"]
    elif c.tense == "future":
        finite = future + ("ont" if plural else "a")
    elif c.tense == "past" and c.verb in ("be", "exist"):
        finite = {"be": "étaient" if plural else "était", "exist": "avait"}[c.verb]
    elif c.tense == "past":
        finite = AUXILIARIES["être" if etre else "avoir"][plural]
        if etre:
            participle = _agree(participle, feminine, plural)
        elif head is not None:
            participle = _agree(participle, is_feminine(head), head.plural)
        elif clitics:
            participle = _agree(participle, is_feminine(c.object), c.object.many)
        rest = [participle]
    else:
        finite = many if plural else present
    if c.verb == "exist":
        clitics = ["y"]
    frequency = adverbs()[c.frequency].forms["fr"] if c.frequency else ""
    negation = frequency if c.frequency == "never" else "pas" if c.negated else ""
    ne = ["ne"] if negation else []
    return [*ne, *clitics, finite, negation, "" if negation == frequency else frequency, *rest, *inner]


def _complements(c: Clause, subject_feminine: bool = False, subject_plural: bool = False) -> str:
    """The complements and adverbials after the verb group."""
    preposition = verb_entry(c.verb)[1]
    words = []
    if c.manner:
        words.append(adverbs()[c.manner].forms["fr"])
    if c.adjective:
        words.append(_degree(c, subject_feminine, subject_plural))
    if c.object is not None and not c.object.pronoun:
        no = (c.negated or c.frequency == "never") and not preposition
        words.append(phrase(c.object, preposition, no and c.object.determiner == "indefinite"))
    if c.recipient is not None:
        words.append(phrase(c.recipient, "à"))
    words += sentences.places_and_time(c, "fr", locative)
    if c.purpose is not None:
        words += ["pour", *_clitics(c.purpose), verb_entry(c.purpose.verb)[0], _complements(c.purpose)]
    words += sentences.subordinate_clauses(c, clause, CONJUNCTIONS)
    return " ".join(word for word in words if word)


def _degree(c: Clause, feminine: bool, plural: bool) -> str:
    form = adjective_form(c.adjective, feminine, plural)
    return f"plus {form} que {phrase(c.than)}" if c.degree == "comparative" else f"{DEGREES[c.degree]} {form}".strip()


def _clause(c: Clause, subject: str, plural: bool, feminine: bool, head: Phrase | None = None) -> str:
    words = [subject, *_verbal(c, plural, feminine, head), _complements(c, feminine, plural)]
    return " ".join(word for word in words if word)


def clause(c: Clause, head: Phrase | None = None) -> str:
    """Returns a clause without its opening."""
    if c.subject is None:
        return _clause(c, "il", False, False)
    return _clause(c, phrase(c.subject), c.subject.many, is_feminine(c.subject), head)


def main(c: Clause) -> str:
    """Returns a main clause with its opening, front adverbial or reason."""
    text = sentences.with_front(c, "fr", clause(c), locative, ",")
    if c.reason is not None and c.reason_first:
        text = f"{CONJUNCTIONS[c.reason_word]} {clause(c.reason)}, {text}"
    return text


def _finish(text: str) -> str:
    text = re.sub(r"\b([Ss])i (?=ils?\b)", r"\1'", text)
    text = ELIDED.sub(r"\1'", text)
    return text[0].upper() + text[1:]


def sentence(s: Sentence) -> str:
    """A sentence with capital and full stop."""
    if s.question:
        return _finish(f"{QUESTIONS[s.question]} est-ce que {clause(s.first)} ?".strip())
    return _finish(sentences.statement(s, main, CONJUNCTIONS))


def title(d: Document) -> str:
    """The title of a document."""
    return _finish(sentences.title(d, phrase, locative))
