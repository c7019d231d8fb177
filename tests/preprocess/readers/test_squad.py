"""Files of SQuAD 1.1, XQuAD, MLQA and TyDiQA-GoldP, from small files in their format."""

import json
from pathlib import Path

import pytest

from fairseq_xl.evaluation.squad import read_questions
from preprocess.readers.squad import main

FILES = Path(__file__).parents[1] / "files/squad"


def read(destination, *arguments):
    return main([str(destination), *map(str, arguments)])


def test_a_file_of_each_data_set(tmp_path):
    """A file of one language is copied; what is written is what question answering reads."""
    named = {"train.en": "train-v1.1.json", "test.de": "xquad.de.json", "test.zh": "test-context-zh-question-zh.json"}
    assert read(tmp_path, *(f"{name}={FILES / file}" for name, file in named.items())) == 0
    for name, file in named.items():
        written = tmp_path / f"{name}.json"
        assert written.read_bytes() == (FILES / file).read_bytes()
        for question in read_questions(written, name.split(".")[1]):
            for text, start in question.answers:
                assert question.context[start:].startswith(text)


def test_a_file_of_several_languages(tmp_path):
    """TyDiQA-GoldP's ids name the language; questions of other languages are not written."""
    assert read(tmp_path, f"train.en,fi={FILES / 'tydiqa-goldp-v1.1-train.json'}") == 0
    found = {
        language: [question.id for question in read_questions(tmp_path / f"train.{language}.json", language)]
        for language in ("en", "fi")
    }
    assert found == {"en": ["english-1001-0"], "fi": ["finnish-3001-0"]}
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["manifest.json", "train.en.json", "train.fi.json"]


def test_a_language_without_questions(tmp_path, capsys):
    assert read(tmp_path, f"train.en,te={FILES / 'tydiqa-goldp-v1.1-train.json'}") == 1
    assert capsys.readouterr().err.endswith("tydiqa-goldp-v1.1-train.json holds no questions\n")
    (tmp_path / "list.json").write_text("[]", encoding="utf-8")
    assert read(tmp_path, f"train.en,te={tmp_path / 'list.json'}") == 1
    assert "list.json is not in SQuAD's format: it has a value of another type" in capsys.readouterr().err
    assert read(tmp_path, "train.en,de=x") == 1
    assert "de is not one of TyDiQA-GoldP's ar, bn, en, fi, id, ko, ru, sw, te" in capsys.readouterr().err


@pytest.fixture
def wrong(tmp_path):
    """Answers of which one, none and all are wrong, and a question without text."""
    asked = [("a", "Wie?", (4, 3)), ("b", "Wie?", (4,)), ("c", "Wie?", (3,)), ("d", " ", (4,))]
    questions = [
        {"id": name, "question": text, "answers": [{"text": "Elbe", "answer_start": start} for start in starts]}
        for name, text, starts in asked
    ]
    path = tmp_path / "source.json"
    content = {"data": [{"paragraphs": [{"context": "Die Elbe.", "qas": questions}]}, {"paragraphs": []}]}
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_what_is_wrong_is_listed_or_left_out(wrong, tmp_path, capsys):
    assert read(tmp_path / "out", f"train.de={wrong}", f"valid.de={wrong}") == 1
    at = "the answer 'Elbe' is not at 3, where there is ' Elb'"
    expected = [("a", at), ("c", at), ("d", "an empty question or context")]
    listed = [f"  - {wrong}, line 1, question {name!r}: {what}" for name, what in expected]
    assert capsys.readouterr().err.split("squad: ", 1)[1].splitlines() == ["3 problems:", *listed]
    assert not list((tmp_path / "out").glob("*.json"))
    assert read(tmp_path / "out", f"train.de={wrong}", "--skip-invalid") == 0
    found = read_questions(tmp_path / "out/train.de.json", "de")
    assert [(question.id, question.answers) for question in found] == [("a", (("Elbe", 4),)), ("b", (("Elbe", 4),))]
    manifest = json.loads((tmp_path / "out/manifest.json").read_text(encoding="utf-8"))
    left_out = {"questions without a right answer": 1, "wrong answers": 2, "wrong questions": 1}
    assert manifest["counts"]["train.de.json"]["left out"] == left_out


def test_what_is_never_left_out(wrong, tmp_path, capsys):
    """A wrong question of a test file; training text of wrong answers only."""
    assert read(tmp_path / "out", f"test.de={wrong}", "--skip-invalid") == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == f"squad: {wrong}, line 1, question 'd': an empty question or context"
    wrong.write_text(wrong.read_text().replace('"answer_start": 4', '"answer_start": 3'))
    assert read(tmp_path / "out", f"train.de={wrong}", "--skip-invalid") == 1
    assert capsys.readouterr().err.endswith(f"squad: {wrong}: every question is wrong\n")
