"""The tokenisers of a manifest: as the preparation applies them, and undone."""

import json
import sys

import pytest

from fairseq_xl.data import tokenisers
from fairseq_xl.errors import UserError
from preprocess import tokenisers as prepared

LINES = [  # the last of each: what comes back, where tokens don't tell where blanks were
    ("moses", "en", 'He said: "It\'s <b>, Mr. X."', 'He said: "It\'s < b >, Mr. X."'),
    ("moses", "fr", "L'eau, c'est 3,5 kg.", "L'eau, c'est 3,5 kg."),
    ("moses", "xx", "It's, Mr. X.", "It 's, Mr. X."),
    ("jieba", "zh", "我来到北京清华大学 hello 3.5。", "我来到北京清华大学 hello 3.5。"),
    ("pythainlp", "th", "ผมรักคุณนะครับ hello", "ผมรักคุณนะครับ hello"),
]


@pytest.mark.parametrize("name, language, line, back", LINES)
def test_a_line_becomes_the_tokens_of_the_preparation_and_text_again(name, language, line, back):
    tokens = tokenisers.tokenise(line, name, language)
    assert tokens == prepared.load(name, language)(line) != line
    assert tokenisers.detokenise(tokens, name, language) == back


def test_every_tokeniser_of_the_preparation_is_here():
    assert tokenisers.PACKAGES == prepared.PACKAGES


def test_blanks_stay_beside_words_that_have_them():
    assert tokenisers.detokenise("我 用 Open Office 3.5 ， 好 吗 ？", "jieba", "zh") == "我用 Open Office 3.5，好吗？"


def test_a_line_without_tokens_and_a_language_without_tokeniser_stay():
    assert tokenisers.tokenise(" ", "moses", "en") == " "
    assert tokenisers.tokenise("a,b", None, "en") == tokenisers.detokenise("a,b", None, "en") == "a,b"


def write(folder, content):
    (folder / "manifest.json").write_text(json.dumps(content))
    return folder


def test_named_in_the_manifest(tmp_path, monkeypatch):
    assert tokenisers.named_in(tmp_path) == {} == tokenisers.named_in(write(tmp_path, {"config": {}}))
    assert tokenisers.named_in(write(tmp_path, {"config": {"tokeniser": {"en": "moses"}}})) == {"en": "moses"}
    tokenisers._splitter.cache_clear()
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(UserError, match="manifest.json: the text of en was tokenised by moses.*package sacremoses"):
        tokenisers.named_in(tmp_path)
    with pytest.raises(UserError, match="tokenised by mecab, which needs another version"):
        tokenisers.named_in(write(tmp_path, {"config": {"tokeniser": {"ja": "mecab"}}}))
    with pytest.raises(UserError, match="manifest.json is no manifest"):
        tokenisers.named_in(write(tmp_path, {"config": []}))
