"""Paragraphs to sentences: cut by hand in languages of MonoTrans, with a command and while Wikipedia is read."""

import io
import json
import sys

import pytest

from fairseq_xl.errors import UserError
from preprocess import sentences
from preprocess.readers.wikipedia.read_wikipedia import main as read_wikipedia

CUT = {
    "en": "Dr. Smith came at 3 p.m. on Jan. 5. | It is 3.5 km away. | Why?",
    "de": "Am 3. Mai kam Dr. Müller z.B. nach Berlin. | Er war müde!",
    "fr": "Voir p. 3 du livre. | Il reviendra.",
    "el": "Ήρθε χθες. | Ευχαριστώ.",
    "hi": "यह एक वाक्य है। | यह दूसरा है।",
    "ar": "هل هذا صحيح؟ | نعم.",
    "ur": "یہ ایک جملہ ہے۔ | یہ دوسرا ہے۔",
    "zh": "你好。 | 我很好！ | 你呢？",
    "th": "สวัสดี ผมชื่อสมชาย ผมเป็นคนไทย",  # no mark ends a sentence
    "qxx": "It came. | It went.",  # no language: by punctuation
}


@pytest.mark.parametrize("language", CUT)
def test_sentences_cut_by_hand(language):
    expected = CUT[language].split(" | ")
    assert sentences.splitter(language)(("" if language == "zh" else " ").join(expected)) == expected


def test_the_command_keeps_documents(monkeypatch, capsysbinary):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"It came. It went.\n\n  One.\r\n")))
    assert sentences.main(["en"]) == 0
    assert capsysbinary.readouterr().out == b"It came.\nIt went.\n\nOne.\n"


def test_wikipedia_is_read_in_sentences(tmp_path):
    (tmp_path / "text").write_text(json.dumps({"id": 1, "text": "It came. It went.\nIt is here."}))
    assert read_wikipedia([str(tmp_path / "out"), f"en={tmp_path / 'text'}", "--sentences"]) == 0
    assert (tmp_path / "out/mono/train.en").read_text() == "It came.\nIt went.\nIt is here.\n"
    assert json.loads((tmp_path / "out/manifest.json").read_text())["sentencex"]


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(UserError, match="pip install sentencex"):
        sentences.splitter("en")
