"""Tasks from LibreOffice help pages, on small packages; every text names its place."""

import json
import re
import shutil
from collections import Counter

import pytest
from help_pages import html, paragraph, write_package

from preprocess.readers.libreoffice_help import questions, ranking, tagging, tasks
from preprocess.readers.libreoffice_help.read_libreoffice_help import main
from tests.preprocess.readers.written_files import lines

pytestmark = pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="the packages are read with dpkg-deb")

LANGUAGES = ("en", "de", "ru")
SPLITS = ("train", "valid", "test")
APPLICATIONS = ("swriter", "scalc", "shared")
WORDS = {
    "en": (
        "About",
        "How to begin with",
        "Anyone who wants to change {} opens the second window, chooses a colour "
        "there, and closes it again with the last key of the row",
    ),
    "de": (
        "Über",
        "Anfangen mit",
        "Zum Ändern von {} öffnet man das zweite Fenster, wählt darin eine Farbe aus und "
        "schließt alles wieder mit der letzten Taste",
    ),
    "ru": ("Статья", "Как начать", "Чтобы изменить {}, откройте второе окно, выберите цвет и закройте его клавишей"),
}
REPEATED = {
    "en": "The colours of the whole row stay the same in every window that is open behind the first one of them all",
    "de": "In jedem Fenster hinter dem ersten bleiben alle Farben der Zeile genau so wie vorher",
    "ru": "Цвета строки остаются прежними во всех окнах",
}
UNTRANSLATED, MISPLACED = "p19s2", "p19s3"  # a paragraph left in English, and one with another one's text at its id


def mark(number, section):
    return f"p{number}s{section}"


def marks(text):
    return re.findall(r"p\d+s\d+", text)


def page_of(text):
    return int(re.match(r"p(\d+)s", marks(text)[0])[1])


def sections_of(number):
    return 1 if number % 4 == 0 else 3


def page(language, number):
    """A title, and one section or three of a heading and a paragraph; one paragraph isn't translated."""
    title, heading, text = WORDS[language]
    body = [f'<h1 id="hd_0">{title} {mark(number, 0)}</h1>']
    for section in range(1, sections_of(number) + 1):
        body.append(f'<h2 id="hd_{section}">{heading} {mark(number, section)}</h2>')
        own = WORDS["en"][2] if mark(number, section) == UNTRANSLATED else text
        slid = language != "en" and mark(number, section) == MISPLACED
        body.append(paragraph(f"par_{section}", own.format("p999s3" if slid else mark(number, section))))
    body.append(f'<h2 id="hd_9">Options {language}</h2>')
    body.append(paragraph("par_9", REPEATED[language]))
    body.append(f"<table><tr><td>{paragraph('par_10', f'Cell {language} {mark(number, 99)}')}</td></tr></table>")
    return html("\n".join(body))


@pytest.fixture(scope="module")
def debs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("debs")
    for language in LANGUAGES:
        names = {number: f"{APPLICATIONS[number % 3]}/guide/page{number}.html" for number in range(120)}
        contents = {name: page(language, number) for number, name in names.items()}
        write_package(folder, language, contents | {"sdraw/only.html": page(language, 400)})
    return folder


@pytest.fixture(scope="module")
def built(debs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("built") / "help"
    assert main([str(folder), "--langs", "de,ru", "--packages", str(debs)]) == 0
    return folder


def rows(folder, task, split, language):
    extra = "translate_train/" if split == "train" and language != "en" else ""
    return [line.split("\t") for line in lines(folder / f"tasks/{task}/{extra}{split}.{language}.tsv")]


def every(folder, task):
    return {(split, language): rows(folder, task, split, language) for split in SPLITS for language in LANGUAGES}


@pytest.mark.parametrize("task", ["nc", "qam"])
def test_an_item_is_the_same_one_in_every_language(built, task):
    """One paragraph lacks a translation: the items of its page are fewer there, and all others are the same."""

    def items(split, language):
        return [(row[0], marks(" ".join(row))) for row in rows(built, task, split, language)]

    def elsewhere(found):
        return [item for item in found if UNTRANSLATED.split("s")[0] + "s" not in " ".join(item[1])]

    assert UNTRANSLATED in str(items("train", "en"))
    for split in SPLITS:
        assert len(elsewhere(items(split, "en"))) > 3
        for language in ("de", "ru"):
            assert elsewhere(items(split, language)) == elsewhere(items(split, "en"))
            assert UNTRANSLATED not in str(items(split, language))


def test_text_at_another_one_s_id_is_in_no_item(built):
    assert "p999s3" in (built / "mono/train.de").read_text(encoding="utf-8")
    assert not any("p999s3" in path.read_text(encoding="utf-8") for path in (built / "tasks").rglob("*.*"))


@pytest.mark.parametrize("task", ["nc", "qam", "ntg"])
def test_items_are_of_their_split_s_pages(built, task):
    pages = {split: {page_of(line) for line in lines(built / f"mono/{split}.en") if marks(line)} for split in SPLITS}
    assert not pages["train"] & (pages["valid"] | pages["test"])
    for path in (built / "tasks" / task).rglob("*.*"):
        found = {int(number) for number in re.findall(r"p(\d+)s", path.read_text(encoding="utf-8"))}
        assert found and found <= pages[path.name.split(".")[0]]


def test_passages_are_labeled_with_their_application(built):
    """Pages that all applications share have no label, and the one page of Draw isn't in every split."""
    for found in every(built, "nc").values():
        assert {label for label, _ in found} == {"swriter", "scalc"}
        for label, passage in found:
            assert len({re.match(r"p\d+", one)[0] for one in marks(passage)}) <= 1
            assert not marks(passage) or APPLICATIONS[page_of(passage) % 3] == label
            assert "Cell" not in passage and WORDS["en"][1] not in passage


def test_a_heading_has_its_paragraph_and_another_one(built):
    """A paragraph is as often right as wrong."""
    for (_, language), found in every(built, "qam").items():
        right, wrong = (Counter(text for label, _, text in found if label == kind) for kind in "10")
        assert right.total() == wrong.total() == len(found) // 2
        assert language != "en" or (right == wrong and set(right.values()) == {1})
        assert all(marks(heading) == marks(text) for label, heading, text in found if label == "1")
        for label, heading, text in found:
            number, other = page_of(heading), page_of(text)
            if label == "0" and sections_of(number) > 1:
                assert number == other and marks(heading) != marks(text)
            elif label == "0":
                assert number != other and number % 3 == other % 3 and sections_of(other) == 1


def test_repeated_text_is_evaluated_and_not_trained_on(built):
    """The paragraph is on every page: it leaves training, and a heading of every page is no question."""
    assert any(REPEATED["de"] in row[1] for row in rows(built, "nc", "test", "de"))
    for language in LANGUAGES:
        for task in ("nc", "qam"):
            assert not any(REPEATED[language] in " ".join(row) for row in rows(built, task, "train", language))
        assert not any(REPEATED[language] in line for line in lines(built / f"tasks/ntg/train.{language}.src"))
    assert not any("Options" in heading for found in every(built, "qam").values() for _, heading, _ in found)


def test_titles_have_the_text_of_their_page(built):
    for split in SPLITS:
        for language in LANGUAGES:
            bodies, titles = (lines(built / f"tasks/ntg/{split}.{language}.{side}") for side in ("src", "tgt"))
            assert len(bodies) == len(titles) > 3
            for body, title in zip(bodies, titles):
                number = page_of(title)
                assert title == f"{WORDS[language][0]} {mark(number, 0)}"
                assert marks(body) == [mark(number, section) for section in range(1, sections_of(number) + 1)]


def test_retrieval_has_unique_sentences_of_test_pages(built, monkeypatch):
    test_pages = {page_of(line) for line in lines(built / "mono/test.en") if marks(line)}
    for language in ("de", "ru"):
        english, own = (lines(built / f"tasks/retrieval/en-{language}.{side}") for side in ("en", language))
        assert [marks(line) for line in english] == [marks(line) for line in own]
        assert len(english) == len(set(english)) == len(set(own)) > 20
        assert {page_of(line) for line in english if marks(line)} == test_pages
        assert english.count(REPEATED["en"]) == 1  # once, of all the pages that have it
    monkeypatch.setattr(tasks, "PAIRS", 2)
    assert tasks._unique(iter(["aA", "bB", "cC"])) == ["aA", "bB"]


def test_counts_are_those_of_the_files(built):
    counts = json.loads((built / "manifest.json").read_text())["counts"]
    counts = {name: count["lines"] for name, count in counts.items() if re.match("tasks/(?!qa/)", name)}
    files = {str(path.relative_to(built)): len(lines(path)) for path in (built / "tasks").rglob("*.*")}
    for name in [name for language in LANGUAGES for name in questions.outputs(language)]:
        del files[name]
    found = {}
    for name, count in counts.items():
        endings = {"ntg": [".src", ".tgt"], "retrieval": [".en", f".{name[-2:]}"]}.get(name.split("/")[1], [""])
        found |= {f"{name}{ending}": count for ending in endings}
    expected = {name for language in LANGUAGES for part in (tasks, tagging, ranking) for name in part.outputs(language)}
    assert found == files and set(files) == expected


# Choosing, by hand

LONG = "one two three four five six"


def plan(pages):
    """Items of test pages, each a list of (id, kind, text)."""
    texts = {name: {identity: text for identity, _, text in page} for name, page in pages.items()}
    kinds = {name: {identity: kind for identity, kind, _ in page} for name, page in pages.items()}
    return tasks.plan(texts, kinds, dict.fromkeys(pages, "test"))


def sections(*headings):
    found = []
    for number, heading in enumerate(headings):
        found += [(f"h{number}", "h2", heading), (f"p{number}", "text", f"{LONG} {heading} {number}")]
    return found


def ids(items):
    return sorted("".join(identity for places in item.texts for _, identity in places) for item in items)


def test_the_wrong_paragraph_is_the_next_section_s():
    assert ids(plan({"shared/x.html": sections("A", "B", "C")}).qam) == ["h0p0p1", "h1p1p2", "h2p2p0"]


@pytest.mark.parametrize("repeated, items", [(3, 5), (4, 2)])
def test_a_heading_of_many_sections_is_no_question(repeated, items):
    assert len(plan({"shared/x.html": sections("Own", "Mine", *["Options"] * repeated)}).qam) == items


def test_a_paragraph_of_a_few_words_is_no_answer():
    page = [*sections("A", "B"), ("h7", "h2", "C"), ("p7", "text", "four words and no"), ("c", "cell", LONG)]
    assert ids(plan({"shared/x.html": page}).qam) == ["h0p0p1", "h1p1p0"]


def test_what_stood_between_a_heading_and_a_paragraph_separates_them():
    page = [("h", "h2", "Head"), ("x", "h3", "Gone"), ("p", "text", LONG), *sections("A", "B")]
    kinds = {"shared/x.html": {identity: kind for identity, kind, _ in page}}
    texts = {"shared/x.html": {identity: text for identity, _, text in page if identity != "x"}}
    assert ids(tasks.plan(texts, kinds, {"shared/x.html": "test"}).qam) == ["h0p0p1", "h1p1p0"]


def test_a_body_has_twenty_words_and_ends_with_the_paragraph_that_is_enough(monkeypatch):
    monkeypatch.setattr(tasks, "BODY", (20, 30))
    for words, items in (
        ([19], []),
        ([20], ["bt"]),
        ([20, 9], ["bct"]),
        ([20, 9, 9], ["bcdt"]),
        ([20, 10, 9], ["bct"]),
    ):
        body = [(name, "text", " ".join(["word"] * count)) for name, count in zip("bcd", words)]
        page = [("t", "h1", "Title"), *body, ("x", "cell", LONG)]
        assert ids(plan({"shared/x.html": page}).ntg) == items


def test_a_page_gives_six_passages_of_paragraphs_that_have_twenty_words(monkeypatch):
    """An application has at most CLASS_PASSAGES in training."""
    page = [(f"p{number:02}", "text", " ".join(["word"] * 10)) for number in range(20)]
    pages = {f"scalc/{split}.html": split for split in SPLITS}
    texts = {name: {identity: text for identity, _, text in page} for name in pages}
    kinds = {name: {identity: kind for identity, kind, _ in page} for name in pages}
    expected = [f"p{number:02}p{number + 1:02}" for number in range(0, 12, 2)]
    whole = tasks.plan(texts, kinds, pages).nc
    monkeypatch.setattr(tasks, "CLASS_PASSAGES", 4)
    limited = tasks.plan(texts, kinds, pages).nc
    for split in SPLITS:
        assert ids(item for item in whole if item.split == split) == expected
        fewer = ids(item for item in limited if item.split == split)
        assert set(fewer) <= set(expected) and len(fewer) == (4 if split == "train" else 6)


def test_what_is_wrong_on_one_page_and_right_on_another_is_no_item():
    texts = {"a": {"h": "Head", "p": "Right", "q": "Wrong"}, "b": {"h": "Head!", "p": "Wrong", "q": "Other"}}
    places = [((("a", "h"),), (("a", "p"),), (("a", "q"),)), ((("b", "h"),), (("b", "p"),), (("b", "q"),))]
    rows = [[texts[page][name] for ((page, name),) in item] for item in places]
    assert tasks._matches(rows) == ["1\tHead!\tWrong", "0\tHead!\tOther"]


@pytest.mark.parametrize(
    "text, kind, chosen",
    [
        ("Choose the frame to be moved.", "text", True),
        ("Choose the frame to be moved", "cell", True),
        ("Choose the frame to be moved", "h2", False),
        ("Choose the frame. Then move it.", "text", False),
        ("Choose the frame", "text", False),
        (" ".join(["word"] * 61), "text", False),
    ],
)
def test_a_sentence_is_a_paragraph_without_an_inner_end(text, kind, chosen):
    assert bool(plan({"shared/x.html": [("p", kind, text)]}).retrieval) == chosen
