"""XLM's words: punctuation, control characters, segmenters, lower case without accents."""

import sys
import unicodedata
from types import SimpleNamespace

import jieba
import pytest
from transformers.models.xlm import tokenization_xlm

from fairseq_xl.data.vocabulary import tokenizers
from fairseq_xl.data.vocabulary.xlm_text import places_without_accents, without_accents
from fairseq_xl.errors import UserError

LINES = [
    ("en", "“Hello…”, he said:  it’s 3，5％ (approx.)\u200b of Mr. O’Neil’s 𝟓 & <b>."),
    ("fr", "L’été «dernier», c'est-à-dire l'an 2020 : où ? Çà et là !"),
    ("de", "Größe: 1.000,50 EUR — „Straße“ z.B. Nr. 5"),
    ("es", "¿Qué tal? ¡Mañana 1ª vez!"),
    ("ru", "Ещё «Йод» и т. д. – 5 %"),
    ("hi", "यह एक परख है। कहा?"),  # without a virama, which sacremoses takes for a letter
    ("ar", "مرحبا، كيف الحال؟"),
    ("vi", "Tiếng Việt có dấu."),
    ("ko", "한국어 문장입니다."),
    ("zh", "我来到北京，清华大学（hello）。　３．５％"),
    ("th", "ผมรักคุณนะครับ hello"),
]


@pytest.fixture
def theirs(tmp_path, monkeypatch):
    """transformers' tokenizer up to its words, whose Chinese segmenter is jieba in another language."""
    monkeypatch.setitem(sys.modules, "rjieba", jieba)

    def words(line, language, lower):
        for name, content in (("vocab.json", "{}"), ("merges.txt", "")):
            (tmp_path / name).write_text(content)
        files = [str(tmp_path / name) for name in ("vocab.json", "merges.txt")]
        made = tokenization_xlm.XLMTokenizer(*files, do_lowercase_and_remove_accent=lower)
        made.bpe = lambda token: token
        return [word for word in made._tokenize(line, lang=language) if word.strip()]

    return words


@pytest.mark.parametrize("language, line", LINES)
def test_words_are_those_of_transformers(theirs, language, line):
    tokens = tokenizers.tokenize(line, "xlm", language)
    assert tokens.split(" ") == theirs(line, language, False)
    assert without_accents(tokens).split(" ") == theirs(line, language, True)


def test_by_hand():
    """Moses puts English quotation marks behind full stops and commas."""
    assert tokenizers.tokenize("“Größe”，\u200b （５％）", "xlm", "en") == '" Größe , " ( 5 % )'
    assert tokenizers.tokenize("“Größe”，\u200b （５％）", "xlm", "de") == '" Größe " , ( 5 % )'
    assert without_accents("Größe ÇÀ İ Йод ΣΑΣ") == "große ca i иод σας"


def test_places_of_what_remains():
    """An accent that is a character of its own leaves nothing; Hangul becomes two or three letters."""
    text = "E\u0301Ça 한İ"
    found = without_accents(text)
    places = places_without_accents(text)
    assert len(places) == len(found)
    assert places == [0, 2, 3, 4, 5, 5, 5, 6]
    for char, place in zip(found, places):
        assert char in unicodedata.normalize("NFD", text[place].lower())


def test_japanese_is_segmented_by_kytea(theirs, tmp_path, monkeypatch):
    """A stand-in has the interface of KyTea's package, which has no model; transformers calls it in the same way."""

    class Mykytea:
        def __init__(self, options):
            assert options == f"-model {model}"

        def getWS(self, line):  # noqa: N802
            return list(line.replace(" ", ""))

    tokenizers._splitter.cache_clear()
    monkeypatch.setitem(sys.modules, "Mykytea", SimpleNamespace(Mykytea=Mykytea))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UserError, match="needs KyTea's model as .*; or segment .*tokenizer: {ja: segmented}"):
        tokenizers.tokenize("これは本です", "xlm", "ja")
    model = tmp_path / "local/share/kytea/model.bin"
    model.parent.mkdir(parents=True)
    model.touch()
    line = "これは「本」です。　（３．５％）"
    assert tokenizers.tokenize(line, "xlm", "ja").split(" ") == theirs(line, "ja", False)
    tokenizers._splitter.cache_clear()
    assert tokenizers.tokenize("これ は 本", "segmented", "ja") == "これ は 本"


@pytest.mark.parametrize(
    "name, language, tokens, text",
    [
        ("xlm", "en", 'it \'s ( 3.5 ) , " so "', 'it\'s (3.5), "so"'),
        ("segmented", "en", "a , b", "a, b"),
        ("xlm", "zh", "我 来到 北京", "我来到北京"),
        ("segmented", "ja", "これ は 本", "これは本"),
    ],
)
def test_tokens_become_text_again(name, language, tokens, text):
    assert tokenizers.detokenize(tokens, name, language) == text


def test_packages_by_language():
    assert tokenizers.packages_of("xlm", "en") == ["sacremoses"] == tokenizers.packages_of("segmented", "zh")
    assert tokenizers.packages_of("xlm", "zh") == ["sacremoses", "jieba"]
    assert tokenizers.packages_of("xlm", "ja") == ["sacremoses", "kytea"]
    assert tokenizers.packages_of("moses", "zh") == ["sacremoses"]
