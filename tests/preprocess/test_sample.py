"""The sample corpus: its grammar by hand-written sentences, its splits, its determinism."""

import hashlib
import re
import unicodedata
from collections import Counter

import pytest

from fairseq_xl.errors import UserError
from preprocess.commands.sample import main
from preprocess.sample import corpus
from preprocess.sample.corpus import EVALUATION, plan, write
from preprocess.sample.generator import REALIZERS, held_out
from preprocess.sample.lexicon import LANGUAGES, TOPICS, adjectives, adverbs, classes, nouns, verbs
from preprocess.sample.syntax import Clause, Phrase, Sentence, combinations, concepts

SMALL, SEED = 240, 1
DIGEST = "3241083ffa46eb9918524cd4a7c1a488ae25c7d45755e937606e5c728d084de1"

HE_GARDENER = Phrase("gardener", pronoun=True)


def said(*parts, question="", **more):
    """A sentence of one clause."""
    return Sentence(Clause(*parts, **more), question=question)


#: what it shows -> abstract sentence, English, German, French, Spanish
GRAMMAR = {
    "past, fronted time, adjectives": (
        said(
            Phrase("gardener", adjective="old"),
            "water",
            Phrase("rose", True),
            tense="past",
            time="yesterday",
            front="time",
        ),
        "Yesterday, the old gardener watered the roses.",
        "Gestern hat der alte Gärtner die Rosen gegossen.",
        "Hier, le vieux jardinier a arrosé les roses.",
        "Ayer el jardinero viejo regó las rosas.",
    ),
    "separable verb, elided clitic, dropped subject": (
        said(HE_GARDENER, "invite", Phrase("neighbour", pronoun=True), opening="then"),
        "Then he invites her.",
        "Dann lädt er sie ein.",
        "Ensuite, il l'invite.",
        "Luego la invita.",
    ),
    "comparison": (
        said(Phrase("dog", determiner="indefinite"), "be", adjective="big", degree="comparative", than=Phrase("cat")),
        "A dog is bigger than the cat.",
        "Ein Hund ist größer als die Katze.",
        "Un chien est plus grand que le chat.",
        "Un perro es más grande que el gato.",
    ),
    "liking in general, negated": (
        said(Phrase("child"), "like", Phrase("apple", True, "generic"), negated=True),
        "The child does not like apples.",
        "Das Kind mag keine Äpfel.",
        "L'enfant n'aime pas les pommes.",
        "Al niño no le gustan las manzanas.",
    ),
    "mass noun, negated": (
        said(
            Phrase("neighbour"), "buy", Phrase("water", determiner="indefinite"), negated=True, place=Phrase("market")
        ),
        "The neighbour does not buy water at the market.",
        "Die Nachbarin kauft auf dem Markt kein Wasser.",
        "La voisine n'achète pas d'eau au marché.",
        "La vecina no compra agua en el mercado.",
    ),
    "goal, purpose, strong adjective, agreement with être, de before a plural adjective": (
        said(
            Phrase("neighbour"),
            "go",
            goal=Phrase("market"),
            tense="past",
            purpose=Clause(None, "buy", Phrase("chair", True, "indefinite", "new")),
        ),
        "The neighbour went to the market to buy new chairs.",
        "Die Nachbarin ist auf den Markt gegangen, um neue Stühle zu kaufen.",
        "La voisine est allée au marché pour acheter de nouvelles chaises.",
        "La vecina fue al mercado para comprar sillas nuevas.",
    ),
    "question, recipient, mixed adjective": (
        said(
            Phrase("girl"),
            "give",
            Phrase("book", determiner="indefinite", adjective="new"),
            Phrase("teacher"),
            question="whether",
        ),
        "Does the girl give a new book to the teacher?",
        "Gibt das Mädchen der Lehrerin ein neues Buch?",
        "Est-ce que la fille donne un nouveau livre à l'institutrice ?",
        "¿Le da la chica un libro nuevo a la maestra?",
    ),
    "object relative, participle agreement, verb last": (
        said(
            Phrase("rose", True, relative=Clause(Phrase("gardener"), "water", tense="past")),
            "be",
            adjective="beautiful",
            degree="very",
        ),
        "The roses that the gardener watered are very beautiful.",
        "Die Rosen, die der Gärtner gegossen hat, sind sehr schön.",
        "Les roses que le jardinier a arrosées sont très belles.",
        "Las rosas que el jardinero regó son muy hermosas.",
    ),
    "subject relative, separable infinitive, personal a": (
        said(Phrase("boy", relative=Clause(None, "get_up", time="morning")), "invite", Phrase("doctor"), modal="try"),
        "The boy who gets up in the morning tries to invite the doctor.",
        "Der Junge, der am Morgen aufsteht, versucht, den Arzt einzuladen.",
        "Le garçon qui se lève le matin essaie d'inviter le médecin.",
        "El chico que se levanta por la mañana intenta invitar al médico.",
    ),
    "existence, weak dative, irregular plural": (
        said(None, "exist", Phrase("mouse", True, "three"), place=Phrase("kitchen"), front="place", tense="past"),
        "In the kitchen, there were three mice.",
        "In der Küche gab es drei Mäuse.",
        "Dans la cuisine, il y avait trois souris.",
        "En la cocina había tres ratones.",
    ),
    "subordinate first, inversion, elided si, reflexive": (
        said(
            Phrase("singer"),
            "rest",
            reason_word="if",
            reason=Clause(Phrase("composer", pronoun=True), "be", adjective="tired"),
            reason_first=True,
        ),
        "If he is tired, the singer rests.",
        "Falls er müde ist, ruht sich die Sängerin aus.",
        "S'il est fatigué, la chanteuse se repose.",
        "Si está cansado, la cantante descansa.",
    ),
    "content clause, weak masculine, future": (
        said(Phrase("cook"), "believe", content=Clause(Phrase("farmer", True), "help", Phrase("boy"), tense="future")),
        "The cook believes that the farmers will help the boy.",
        "Die Köchin glaubt, dass die Bauern dem Jungen helfen werden.",
        "La cuisinière croit que les paysans aideront le garçon.",
        "La cocinera cree que los granjeros ayudarán al chico.",
    ),
    "genitive, never, reflexive with object": (
        said(Phrase("pupil"), "put_on", Phrase("coat", owner=Phrase("colleague")), frequency="never"),
        "The pupil never puts on the colleague's coat.",
        "Der Schüler zieht den Mantel des Kollegen nie an.",
        "L'élève ne met jamais le manteau du collègue.",
        "El alumno nunca se pone el abrigo del compañero.",
    ),
    "an, cet, el agua, jouer de": (
        Sentence(
            Clause(Phrase("engineer", determiner="this"), "drink", Phrase("water", adjective="cold")),
            "and",
            Clause(Phrase("pianist"), "play", Phrase("organ", determiner="indefinite", adjective="old")),
        ),
        "This engineer drinks the cold water and the pianist plays an old organ.",
        "Dieser Ingenieur trinkt das kalte Wasser und die Pianistin spielt eine alte Orgel.",
        "Cet ingénieur boit l'eau froide et la pianiste joue d'un vieil orgue.",
        "Este ingeniero bebe el agua fría y la pianista toca un órgano viejo.",
    ),
    "ser and estar, weather, joined by but": (
        Sentence(
            Clause(None, "rain", time="monday", front="time", tense="future"),
            "but",
            Clause(Phrase("window", True), "be", adjective="dirty", tense="past"),
        ),
        "On Monday, it will rain, but the windows were dirty.",
        "Am Montag wird es regnen, aber die Fenster waren schmutzig.",
        "Lundi, il pleuvra, mais les fenêtres étaient sales.",
        "El lunes lloverá, pero las ventanas estaban sucias.",
    ),
    "perfect with sein, attempt in the past": (
        Sentence(
            Clause(Phrase("frog", True), "swim", tense="past"),
            "and",
            Clause(Phrase("girl", True), "catch", Phrase("hen"), tense="past", modal="try"),
        ),
        "The frogs swam and the girls tried to catch the hen.",
        "Die Frösche sind geschwommen und die Mädchen haben versucht, die Henne zu fangen.",
        "Les grenouilles ont nagé et les filles ont essayé d'attraper la poule.",
        "Las ranas nadaron y las chicas intentaron atrapar a la gallina.",
    ),
    "modal, clitic on the infinitive, preceding participle": (
        Sentence(
            Clause(Phrase("vet", True), "find", Phrase("bone", True), tense="past"),
            "and",
            Clause(Phrase("vet", True, pronoun=True), "hide", Phrase("bone", True, pronoun=True), modal="want"),
        ),
        "The vets found the bones and they want to hide them.",
        "Die Tierärztinnen haben die Knochen gefunden und sie wollen sie verstecken.",
        "Les vétérinaires ont trouvé les os et elles veulent les cacher.",
        "Las veterinarias encontraron los huesos y quieren esconderlos.",
    ),
}


@pytest.fixture(scope="module")
def planned():
    return plan(SMALL, SEED)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, planned):
    path = tmp_path_factory.mktemp("sample")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "plan", lambda *arguments: {(SMALL, SEED): planned}[arguments])
        write(path, SMALL, SEED)
    return path


@pytest.mark.parametrize("case", GRAMMAR)
def test_literal_sentences(case):
    sentence, *expected = GRAMMAR[case]
    assert [REALIZERS[language].sentence(sentence) for language in LANGUAGES] == expected


def test_irregular_forms():
    german, french, spanish, english = (REALIZERS[language] for language in ("de", "fr", "es", "en"))
    assert german.verb_entry("vor|bereiten")[3] == "vorbereitet"
    assert german.verb_entry("reparieren")[3] == "repariert"
    assert [german._entry(verb)[3] for verb in ("cross", "bark", "open", "wash")] == [
        "überquert",
        "gebellt",
        "geöffnet",
        "gewaschen",
    ]
    assert german.noun_form("child", True, german.DATIVE) == "Kindern"
    assert german.noun_form("doctor", False, german.GENITIVE) == "Arztes"
    assert french.adjective_form("beautiful", True, True) == "belles"
    assert french.noun_entry("horse")[2] == "chevaux"
    assert spanish.noun_entry("song")[2] == "canciones" and spanish.noun_entry("pencil")[2] == "lápices"
    assert spanish.verb_entry("read")[3:5] == ("leyó", "leyeron")
    assert spanish.verb_entry("laugh_at")[5] == "reir"
    assert english.verb_forms("cry")[:3] == ("cry", "cries", "cried")


def test_tables_name_only_known_classes():
    named = {name for verb in verbs().values() for name in verb.subjects + verb.objects}
    named |= {name for adjective in adjectives().values() for name in adjective.tags}
    assert named <= set(classes())
    for table in (nouns(), verbs(), adjectives(), adverbs()):
        assert all(set(entry.forms) == set(LANGUAGES) and all(entry.forms.values()) for entry in table.values())


def _lemma(kind, form, language):
    if kind == "noun":
        singular = form.split(",")[0]
        return singular if language == "en" else singular.split(" ", 1)[1]
    if kind == "adverb":
        return form
    return form.removeprefix("sich ").removeprefix("se ").split()[0].split("@")[0].strip("<~!")


def test_at_least_400_lemmas_are_used_in_each_language(planned):
    parallel, alone = planned
    tables = {"noun": nouns(), "verb": verbs(), "adjective": adjectives(), "adverb": adverbs()}
    for language in LANGUAGES:
        used = set().union(*(concepts(made) for made in parallel["train"] + alone[language]))
        lemmas = {
            (kind, _lemma(kind, tables[kind][name].forms[language], language))
            for kind, name in used
            if name in tables.get(kind, ())
        }
        assert len(lemmas) >= 400, (language, len(lemmas))


def test_every_test_sentence_holds_a_combination_that_no_training_text_has(planned):
    parallel, alone = planned
    training = parallel["train"] + [made for part in alone.values() for made in part]
    seen = set().union(*(combinations(made) for made in training))
    assert len(seen) > 1000
    assert not any(held_out(pair) for pair in seen)
    for made in parallel["test"]:
        for sentence in made.sentences:
            assert combinations(sentence) - seen, REALIZERS["en"].sentence(sentence)


def test_combinations_are_found_in_any_construction():
    relative = Phrase("rose", relative=Clause(Phrase("gardener"), "water"))
    assert combinations(Clause(relative, "be", adjective="beautiful")) == {
        ("subject", "gardener", "water"),
        ("object", "water", "rose"),
        ("adjective", "beautiful", "rose"),
    }


def test_no_document_occurs_twice(planned):
    parallel, alone = planned
    everything = [made for part in (*parallel.values(), *alone.values()) for made in part]
    bodies = [tuple(REALIZERS["en"].sentence(sentence) for sentence in made.sentences) for made in everything]
    assert len(set(bodies)) == len(bodies) == 5 * SMALL + sum(EVALUATION.values())


def test_documents_have_four_to_eight_sentences_and_balanced_topics(planned):
    parallel, _ = planned
    for split, documents in parallel.items():
        counts = Counter(made.topic for made in documents)
        assert set(counts) == set(TOPICS.values())
        assert max(counts.values()) - min(counts.values()) <= 1
        assert {len(made.sentences) for made in documents} == {4, 5, 6, 7, 8}, split


def test_no_word_gives_the_topic_away(folder):
    lines = [line.split("\t") for line in (folder / "tasks/nc/train.en.tsv").read_text("utf-8").splitlines()]
    topics_of = {}
    for label, text in lines:
        for word in set(text.lower().split()):
            topics_of.setdefault(word, Counter())[label] += 1
    frequent = {word: counts for word, counts in topics_of.items() if counts.total() >= 20}
    assert len(frequent) > 30
    assert not [word for word, counts in frequent.items() if max(counts.values()) > 0.9 * counts.total()]


def test_sides_of_the_bitext_are_aligned(folder):
    for split in ("train", "valid", "test"):
        for language in ("de", "fr", "es"):
            sides = [
                (folder / f"bitext/{split}.en-{language}.{side}").read_text("utf-8").split("\n")
                for side in ("en", language)
            ]
            assert len(sides[0]) == len(sides[1])
            assert [not line for line in sides[0]] == [not line for line in sides[1]]
            assert sum(a == b for a, b in zip(*sides) if a) == 0  # no sentence is a copy of its source


def test_files_are_nfc_without_stray_blanks_and_begin_with_the_bitext(folder):
    for path in (path for path in folder.rglob("*") if path.is_file()):
        text = path.read_bytes().decode("utf-8")
        assert unicodedata.normalize("NFC", text) == text and "\r" not in text
        assert text.endswith("\n") and not text.endswith("\n\n") and "\n\n\n" not in text and "  " not in text
        assert ("\t" in text) == (path.suffix == ".tsv")
    mono = (folder / "mono/train.de").read_text("utf-8")
    bitext = (folder / "bitext/train.en-de.de").read_text("utf-8")
    assert mono.startswith(bitext + "\n") and len(mono) > 1.8 * len(bitext)


def test_tasks_hold_the_same_documents_as_the_bitext(folder):
    bodies = (folder / "bitext/test.en-fr.fr").read_text("utf-8").strip().split("\n\n")
    passages = [body.replace("\n", " ") for body in bodies]
    rows = [line.split("\t") for line in (folder / "tasks/nc/test.fr.tsv").read_text("utf-8").splitlines()]
    assert [text for _, text in rows] == passages
    assert (folder / "tasks/ntg/test.fr.src").read_text("utf-8").splitlines() == passages
    assert len((folder / "tasks/ntg/test.fr.tgt").read_text("utf-8").splitlines()) == len(passages)
    assert sorted(path.name for path in (folder / "tasks/nc/translate_train").iterdir()) == [
        "train.de.tsv",
        "train.es.tsv",
        "train.fr.tsv",
    ]


def test_forms_are_seen_in_the_sentences(folder, planned):
    """36 of each form, the same sentences in every language, with the words that make the form."""
    made = {REALIZERS["en"].sentence(sentence): sentence for item in planned[0]["test"] for sentence in item.sentences}
    words = {
        "en": {"negated": "not", "joined": "and|but"},
        "de": {"negated": "nicht|kein(e[mnrs]?)?", "joined": "und|aber"},
    }
    read = {}
    for language in LANGUAGES:
        lines = (folder / f"tasks/form/test.{language}.tsv").read_text("utf-8").splitlines()
        read[language] = rows = [line.split("\t") for line in lines]
        assert Counter(form for form, _ in rows) == {"joined": 36, "negated": 36, "plain": 36, "question": 36}
        assert all((form == "question") == text.endswith("?") for form, text in rows)
        assert all(re.search(rf"\b({words.get(language, {}).get(form, '')})\b", text.lower()) for form, text in rows)
    for forms in zip(*read.values()):
        assert len({form for form, _ in forms}) == 1
        sentence = made[forms[list(read).index("en")][1]]
        assert [REALIZERS[language].sentence(sentence) for language in read] == [text for _, text in forms]
        statement = "joined" if sentence.joiner else "negated" if sentence.first.negated else "plain"
        assert forms[0][0] == ("question" if sentence.question else statement)
    assert [path.name for path in (folder / "tasks/form").glob("train.*")] == ["train.en.tsv"]


def test_the_corpus_is_the_same_byte_for_byte(folder):
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    assert digest.hexdigest() == DIGEST


def test_another_seed_gives_another_corpus(monkeypatch):
    monkeypatch.setattr(corpus, "EVALUATION", {})
    assert plan(8, 1)[0]["train"] != plan(8, 2)[0]["train"]


def test_no_documents_is_an_error(tmp_path, capsys):
    with pytest.raises(UserError, match="--documents 0: 1 or more is needed"):
        main([str(tmp_path), "--documents", "0"])
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--documents", "1000001"])
    assert "--documents must be from 1 to 1000000, found 1000001" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_in_the_place_of_the_folder_is_reported_before_any_work(tmp_path, capsys, monkeypatch, place):
    (tmp_path / "file").touch()
    monkeypatch.setattr("preprocess.sample.corpus.plan", lambda *_: 1 / 0)
    with pytest.raises(SystemExit):
        main([str(tmp_path / place)])
    error = capsys.readouterr().err.splitlines()[-1]
    assert re.search(r"file(/below)?: (File exists|Not a directory)$", error)
