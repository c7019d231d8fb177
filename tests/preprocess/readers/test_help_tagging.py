"""The task ui from LibreOffice help pages: words, tags, and which paragraphs are items."""

import json
import shutil

import pytest
from help_pages import html, paragraph, write_package

from fairseq_xl.evaluation.task_files import read_sentences
from preprocess.readers.libreoffice_help import tagging
from preprocess.readers.libreoffice_help.page import Mark
from preprocess.readers.libreoffice_help.read_libreoffice_help import main


def tags(text, *marked, code="en"):
    """Words and tags joined by "/"; `marked` has (kind, text of a mark)."""
    marks = [Mark(text.index(part), text.index(part) + len(part), kind) for kind, part in marked]
    return " ".join("/".join(row) for row in tagging.tags(text, marks, code))


@pytest.mark.parametrize(
    "text, marked, expected",
    [
        ("Click OK now.", [("UI", "OK")], "Click/O OK/B-UI now./O"),
        ('Click "OK".', [("UI", "OK")], 'Click/O "OK"./B-UI'),
        (
            "In Insert - Frame, press F2.",
            [("UI", "Insert - Frame"), ("KEY", "F2")],
            "In/O Insert/B-UI -/I-UI Frame,/I-UI press/O F2./B-KEY",
        ),
        ("OK, Help", [("UI", "OK"), ("UI", "Help")], "OK,/B-UI Help/B-UI"),
        ("Ctrl+F8 opens", [("KEY", "Ctrl")], "Ctrl+F8/B-KEY opens/O"),
        ("Type =A1; 4) or ~", [("CODE", "=A1; 4)"), ("CODE", "~")], "Type/O =A1;/B-CODE 4)/I-CODE or/O ~/B-CODE"),
        ("No marks - here", [], "No/O marks/O -/O here/O"),
    ],
)
def test_tags_of_words(text, marked, expected):
    assert tags(text, *marked) == expected


@pytest.mark.parametrize(
    "text, kind, part",
    [
        ("Die OK-Schaltfläche drücken", "UI", "OK"),  # less than half of the word
        ("Ctrl+Shift+F8 opens it", "KEY", "Ctrl"),
        ("The Number is zero", "?", "Number"),
    ],
)
def test_a_paragraph_without_clear_tags_has_none(text, kind, part):
    assert tags(text, (kind, part)) == ""


@pytest.mark.parametrize(
    "code, text, part, expected",
    [
        (
            "zh",
            "选择「工具 - LibreOffice」。",
            "工具 - LibreOffice",
            "选/O 择/O 「/O 工/B-UI 具/I-UI -/I-UI LibreOffice/I-UI 」/O 。/O",
        ),
        ("ja", "ファイルを開く", "ファイル", "フ/B-UI ァ/I-UI イ/I-UI ル/I-UI を/O 開/O く/O"),
        ("ko", "파일 열기 선택", "파일 열기", "파일/B-UI 열기/I-UI 선택/O"),
    ],
)
def test_words_of_languages_without_spaces_are_characters(code, text, part, expected):
    assert tags(text, ("UI", part), code=code) == expected


# Choosing, by hand

FILLED = "now in this open window"  # with the marked word, the fewest words of an item


def plan(texts, marks, kind="text", splits="test"):
    """The items of one page, by id."""
    marks = {
        identity: [Mark(text.index(part), text.index(part) + len(part), name) for name, part in marks.get(identity, [])]
        for identity, text in texts.items()
    }
    items = tagging.plan(
        {"x.html": texts}, {"x.html": dict.fromkeys(texts, kind)}, {"x.html": marks}, {"x.html": splits}
    )
    return {item.texts[0][0][1]: item.label for item in items}


def test_items_are_the_paragraphs_of_pages_with_marks():
    texts = {"a": f"Click OK and press F2 {FILLED}", "b": f"Nothing {FILLED}", "c": "Click OK now"}
    marks = {"a": [("UI", "OK"), ("KEY", "F2")], "c": [("UI", "OK")]}
    assert plan(texts, marks) == {"a": "KEY UI", "b": ""} == plan(texts, marks, kind="cell")
    assert plan(texts, {}) == plan(texts, marks, kind="h2") == {}


@pytest.mark.parametrize("words, items", [(4, 0), (5, 1), (60, 1), (61, 0)])
def test_a_paragraph_has_5_to_60_words(words, items):
    assert len(plan({"a": " ".join(["OK"] * words)}, {"a": [("UI", "OK")]})) == items


@pytest.mark.parametrize(
    "kind, part, items",
    [("UI", "Enter", 0), ("UI", "Shift+F1", 0), ("UI", "Shift Rows", 1), ("KEY", "Enter", 1), ("?", "Enter", 0)],
)
def test_emphasized_keys_and_unclear_marks_are_no_items(kind, part, items):
    assert len(plan({"a": f"Press {part} {FILLED}"}, {"a": [(kind, part)]})) == items


def write(folder, code, texts, marks, items):
    """The files of the test split."""
    marks = {
        name: [Mark(text.index(part), text.index(part) + len(part), kind) for kind, part in marks.get(name, [])]
        for name, text in texts.items()
    }
    counts = tagging.write(folder, code, items, {"x.html": texts}, {"x.html": marks})
    path = folder / f"tasks/ui/test.{code}.tsv"
    return counts[f"tasks/ui/test.{code}.tsv"], path.read_text(), path.with_suffix(".ids").read_text()


def item(identity, label):
    return tagging.Item("test", ((("x.html", identity),),), label)


def test_a_translation_has_the_spans_of_the_original(tmp_path):
    """A paragraph with another number of spans, a repeated one and one that is missing are left out."""
    texts = {"a": "Klicken Sie OK", "b": "Klicken Sie Hilfe", "c": "Klicken Sie OK!", "d": "Taste F2"}
    marks = {"a": [("UI", "OK")], "c": [("UI", "OK")], "d": [("KEY", "F2")]}
    items = [item("d", "KEY"), item("a", "UI"), item("b", "UI"), item("c", "UI"), item("e", "UI")]
    counts, content, ids = write(tmp_path, "de", texts, marks, items)
    assert content == "Taste\tO\nF2\tB-KEY\n\nKlicken\tO\nSie\tO\nOK\tB-UI\n\n"
    assert ids == "x.html#d\nx.html#a\n"
    assert counts == {"lines": 7, "sentences": 2, "words": 5, "spans KEY": 1, "spans UI": 1}
    assert [len(example.words) for example in read_sentences(tmp_path / "tasks/ui/test.de.tsv", "de")] == [2, 3]


@pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="the packages are read with dpkg-deb")
def test_files_are_aligned_by_their_ids(tmp_path):
    """Each paragraph names its page; German lacks the mark on page 3, and its page 5 is English."""
    sentences = {
        "en": 'Choose {} of the window number {} in the list <span class="menuitem">Name {}</span> below',
        "de": 'In der Liste <span class="menuitem">Bezeichnung {2}</span> wählt man {0} mit Fenster Nummer {1} aus',
    }
    for code, sentence in sentences.items():
        shown = {number: sentence if number != 5 else sentences["en"] for number in range(120)}
        if code == "de":
            shown[3] = shown[3].replace("menuitem", "avis")
        contents = {
            f"swriter/page{number}.html": html(paragraph("par_1", text.format(*[f"p{number}"] * 3)))
            for number, text in shown.items()
        }
        write_package(tmp_path, code, contents)
    assert main([str(tmp_path / "help"), "--langs", "de", "--packages", str(tmp_path)]) == 0
    folder, missing = tmp_path / "help/tasks/ui", set()
    for split in ("train", "valid", "test"):
        found = {}
        for code, extra in (("en", ""), ("de", "translate_train/" if split == "train" else "")):
            ids = (folder / f"{extra}{split}.{code}.ids").read_text().split()
            examples = read_sentences(folder / f"{extra}{split}.{code}.tsv", code)
            for name, example in zip(ids, examples, strict=True):
                assert name.split("page")[1].split(".")[0] in {word.strip("p") for word in example.words}
                assert [tag for tag in example.tags if tag != "O"] == ["B-UI", "I-UI"]
            found[code] = ids
        assert found["de"] == [name for name in found["en"] if name in found["de"]]
        missing |= set(found["en"]) - set(found["de"])
    assert missing == {"swriter/page3.html#par_1", "swriter/page5.html#par_1"}
    counts = json.loads((tmp_path / "help/manifest.json").read_text())["counts"]["tasks/ui/test.en.tsv"]
    assert counts["spans UI"] == counts["sentences"] == len((folder / "test.en.ids").read_text().split())
