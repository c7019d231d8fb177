"""The task qa from LibreOffice help pages: questions, contexts and answers."""

import json
import re
import shutil

import pytest
from help_pages import html, paragraph, write_package

from fairseq_xl.evaluation.squad import read_questions
from preprocess.readers.libreoffice_help import questions
from preprocess.readers.libreoffice_help.read_libreoffice_help import main

PAGE = "x.html"


def section(name, words=30, heading="h2"):
    """A heading and its paragraph, as (id, kind, text)."""
    return [(f"h{name}", heading, f"Heading {name}"), (f"p{name}", "text", " ".join([f"{name}word"] * words))]


def sections(names, words=30):
    return [row for name in names for row in section(name, words)]


def plan(rows, entries=None, page=PAGE):
    """{id of the question: (id of the answer, ids of the context)} for a page of (id, kind, text)."""
    texts = questions.with_entries({page: {name: text for name, _, text in rows}}, {page: entries or {}})
    items = questions.plan(texts, {page: {name: kind for name, kind, _ in rows}}, {page: "test"})
    found = {}
    for item in items:
        (question,), (answer,), context = ([name for _, name in places] for places in item.texts)
        found[question] = answer, context
    return found


def test_a_heading_asks_for_its_paragraph_among_others():
    """The first paragraph of a page is no answer: it could only be the first of its context."""
    found = plan(sections("abcdefgh"))
    assert {question: answer for question, (answer, _) in found.items()} == {
        f"h{name}": f"p{name}" for name in "bcdefgh"
    }
    run = [f"p{name}" for name in "abcdefgh"]
    for answer, context in found.values():
        start = run.index(context[0])
        assert answer in context and context == run[start : start + len(context)] and 4 <= len(context) <= 10


def test_the_answer_is_at_every_place_of_the_context():
    """Pages of the same form differ in the hash of their name only."""
    places = [
        found["hd"][1].index("pd") for number in range(60) if (found := plan(sections("abcdefg"), page=f"{number}"))
    ]
    assert set(places) == {0, 1, 2, 3} and max(map(places.count, set(places))) < 30


@pytest.mark.parametrize(
    "others, answer, asked", [(24, 28, 1), (24, 27, 0), (80, 60, 1), (81, 60, 0), (80, 61, 0), (32, 5, 1), (32, 4, 0)]
)
def test_lengths(others, answer, asked):
    """Four paragraphs with 100 to 300 words, one of them the answer, which has 5 to 60 words."""
    rows = [*section("a", others), *section("c", answer), ("b", "text", "b " * others), ("d", "text", "d " * others)]
    assert len(plan(rows)) == asked


def test_cells_headings_and_lost_paragraphs_are_no_context_and_no_answer():
    rows = [*sections("abc"), ("cell", "cell", "word " * 30), *section("d"), ("hx", "h3", "No text"), *sections("ef")]
    found = plan(rows)
    assert "hx" not in found and all(name.startswith("p") for _, context in found.values() for name in context)


def test_questions_that_are_not_clear_are_left_out():
    """A heading twice on the page, and one of four sections in all."""
    rows = [(name, kind, "Same!" if name in ("hb", "hd") else text) for name, kind, text in sections("abcdef")]
    assert set(plan(rows)) == {"hc", "he", "hf"}
    pages = {f"{number}": sections("abcdef") for number in range(4)}
    texts = {page: {name: text for name, _, text in rows} for page, rows in pages.items()}
    kinds = {page: {name: kind for name, kind, _ in rows} for page, rows in pages.items()}
    assert questions.plan(texts, kinds, dict.fromkeys(pages, "test")) == []
    texts["0"]["hc"] = "Rows"
    items = questions.plan(texts, kinds, dict.fromkeys(pages, "test"))
    assert {item.texts[0][0] for item in items} == {(page, "hc") for page in pages}


def test_an_index_entry_without_a_word_of_the_heading_is_a_question_too():
    entries = {"hc": ["heading (function)", "rows,swapping", "columns, swapping"], "pd": ["no heading"], "gone": ["x"]}
    found = plan(sections("abcdef"), entries)
    assert set(found) == {"hb", "hc", "hc@1", "hd", "he", "hf"} and found["hc@1"][0] == "pc"
    texts = questions.with_entries({PAGE: {"hc": "Heading"}}, {PAGE: {"hc": ["", "rows,swapping", "a, b"]}})
    assert texts == {PAGE: {"hc": "Heading", "hc@1": "rows, swapping", "hc@2": "a, b"}}


def test_answers_have_exact_offsets_and_occur_once(tmp_path):
    place = lambda *names: tuple((PAGE, name) for name in names)  # noqa: E731
    items = [
        questions.Item("test", (place("h"), place("b"), place("a", "b", "c"))),
        questions.Item("test", (place("g"), place("c"), place("a", "b", "c"))),
        questions.Item("test", (place("missing"), place("c"), place("a", "b", "c"))),
    ]
    texts = {PAGE: {"h": "Frage", "g": "Andere", "a": "Ein Satz mit Ende.", "b": "Größe 𝔸 é", "c": "Ende."}}
    counts = questions.write(tmp_path, "de", items, texts)
    (found,) = read_questions(tmp_path / "tasks/qa/test.de.json", "de")
    assert (found.id, found.question, found.context) == ("x.html#h", "Frage", "Ein Satz mit Ende.\nGröße 𝔸 é\nEnde.")
    assert found.answers == (("Größe 𝔸 é", 19),)
    assert counts["tasks/qa/test.de.json"] == {"questions": 1} and set(counts) == set(questions.outputs("de"))


TEXTS = {
    "en": (
        "How to use {}",
        "In order to find {} again open the second window of the program and read what it says about",
    ),
    "de": (
        "Anleitung für {}",
        "Wer {} wieder sucht, öffnet das zweite Fenster des Programms und liest darin alles Wichtige",
    ),
}
ENTRIES = {"en": "searching,{}", "de": "Suchen, {}"}


@pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="the packages are read with dpkg-deb")
def test_questions_are_the_same_in_every_language(tmp_path):
    """One page has a section in English; an index entry that is not translated is no question."""
    for code in ("en", "de"):
        contents = {}
        for number in range(120):
            rows = ['<h1 id="hd_0">Title {}</h1>'.format(f"p{number}")]
            for place in range(1, 8):
                name = f"p{number}s{place}"
                heading, text = TEXTS["en" if name == "p7s4" else code]
                entry = ENTRIES["en" if number == 8 else code].format(number)
                rows += [f'<meta itemprop="keywords" content="{entry}">' * (place == 5)]
                rows += [
                    f'<h2 id="hd_{place}">{heading.format(name)}</h2>',
                    paragraph(f"par_{place}", text.format(name)),
                ]
            contents[f"swriter/page{number}.html"] = html("\n".join(rows))
        write_package(tmp_path, code, contents)
    assert main([str(tmp_path / "help"), "--langs", "de", "--packages", str(tmp_path)]) == 0
    folder, missing, pages = tmp_path / "help/tasks/qa", set(), {}
    for split in ("train", "valid", "test"):
        extra = "translate_train/" if split == "train" else ""
        english = {each.id: each for each in read_questions(folder / f"{split}.en.json", "en")}
        german = {each.id: each for each in read_questions(folder / f"{extra}{split}.de.json", "de")}
        assert list(german) == [name for name in english if name in german]
        missing |= english.keys() - german.keys()
        pages[split] = {name.split("#")[0] for name in english}
        for name, found in [*english.items(), *german.items()]:
            ((answer, _),) = found.answers
            (page, place), mark = re.findall(r"\d+", name)[:2], found.question.split()[-1]
            assert f"p{page}s{place}" in answer and found.question not in found.context
            assert mark == (page if "@" in name else f"p{page}s{place}")
    assert sum("@" in name for name in english) > 2 and not pages["train"] & (pages["valid"] | pages["test"])
    assert "swriter/page8.html#hd_5@0" in missing and "swriter/page7.html#hd_4" in missing
    assert {name.split("#")[0] for name in missing} == {"swriter/page7.html", "swriter/page8.html"}
    counts = json.loads((tmp_path / "help/manifest.json").read_text())["counts"]
    assert counts["tasks/qa/test.en.json"] == {"questions": len(english)}
