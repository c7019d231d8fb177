"""The tokenizers of a manifest, applied and undone."""

import json
import sys

import pytest

from fairseq_xl.data.vocabulary import tokenizers
from fairseq_xl.errors import UserError

LINES = [  # language, line, tokens, and the line that comes back: tokens do not always show where blanks were
    (
        "moses en",
        'He said: "It\'s <b>, Mr. X."',
        'He said : " It \'s < b > , Mr. X. "',
        'He said: "It\'s < b >, Mr. X."',
    ),
    ("moses fr", "L'eau, c'est 3,5 kg.", "L' eau , c' est 3,5 kg .", "L'eau, c'est 3,5 kg."),
    ("moses xx", "It's, Mr. X.", "It ' s , Mr. X .", "It 's, Mr. X."),
    (
        "jieba zh",
        "我来到北京清华大学 hello 3.5。",
        "我 来到 北京 清华大学 hello 3.5 。",
        "我来到北京清华大学 hello 3.5。",
    ),
    ("pythainlp th", "ผมรักคุณนะครับ hello", "ผม รัก คุณ นะ ครับ hello", "ผมรักคุณนะครับ hello"),
]


@pytest.mark.parametrize("names, line, tokens, back", LINES)
def test_a_line_becomes_tokens_and_text_again(names, line, tokens, back):
    assert tokenizers.tokenize(line, *names.split()) == tokens
    assert tokenizers.detokenize(tokens, *names.split()) == back


def test_blanks_stay_beside_words_that_have_them():
    assert tokenizers.detokenize("我 用 Open Office 3.5 ， 好 吗 ？", "jieba", "zh") == "我用 Open Office 3.5，好吗？"


def test_a_line_without_tokens_and_a_language_without_tokenizer_stay():
    assert tokenizers.tokenize(" ", "moses", "en") == " "
    assert tokenizers.tokenize("a,b", None, "en") == tokenizers.detokenize("a,b", None, "en") == "a,b"


def write(folder, content):
    (folder / "manifest.json").write_text(json.dumps({"format": 1} | content))
    return folder


def test_named_in_the_manifest(tmp_path, monkeypatch):
    assert tokenizers.named_in(tmp_path) == {} == tokenizers.named_in(write(tmp_path, {"config": {}}))
    assert tokenizers.named_in(write(tmp_path, {"config": {"tokenizer": {"en": "moses"}}})) == {"en": "moses"}
    tokenizers._splitter.cache_clear()
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(UserError, match="manifest.json: the text of en was tokenized by moses.*package sacremoses"):
        tokenizers.named_in(tmp_path)
    with pytest.raises(UserError, match="tokenized by mecab, which needs another version"):
        tokenizers.named_in(write(tmp_path, {"config": {"tokenizer": {"ja": "mecab"}}}))
    with pytest.raises(UserError, match="manifest.json is not a manifest"):
        tokenizers.named_in(write(tmp_path, {"config": []}))


def test_other_versions_than_those_of_the_text_are_named(tmp_path, caplog):
    now = tokenizers.versions({"en": "xlm"})
    written = {"config": {"tokenizer": {"en": "xlm"}}, "versions": {"python": "3", **now}}
    tokenizers.named_in(write(tmp_path, written))
    tokenizers.named_in(write(tmp_path, {"config": written["config"]}))  # a published model
    assert caplog.text == ""
    written["versions"]["rules of moses"] = "0"
    written["versions"]["sacremoses"] = "0.0.1"
    for _ in range(2):
        tokenizers.named_in(write(tmp_path, written))
    (record,) = caplog.records
    assert f"{tmp_path}: " in record.message and f"sacremoses 0.0.1, now {now['sacremoses']}, rules" in record.message


def test_another_segmenter_than_the_published_models_is_named(tmp_path, caplog):
    """A data folder of its own has text of the same segmenter, a published model has not."""
    config = {"config": {"tokenizer": {"zh": "xlm"}}}
    tokenizers.named_in(write(tmp_path, config | {"versions": tokenizers.versions({"zh": "xlm"})}))
    assert caplog.text == ""
    tokenizers.named_in(write(tmp_path, config))
    assert f"{tmp_path}: Chinese text is segmented by jieba in place of Stanford's" in caplog.text
