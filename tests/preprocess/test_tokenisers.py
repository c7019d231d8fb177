"""Tokenisers before the sub-words: each beside its package, and in the preparation of a corpus."""

import json
import sys
import types

import pytest
import sentencepiece
from fairseq.data import Dictionary, data_utils
from sacremoses import MosesTokenizer
from tiny_corpus import change

from preprocess import tokenisers
from preprocess.__main__ import main
from preprocess.config import PreprocessError
from preprocess.pipeline import prepare


@pytest.fixture(autouse=True)
def nothing_loaded():
    tokenisers.load.cache_clear()
    yield
    tokenisers.load.cache_clear()


@pytest.mark.parametrize(
    "language, line, expected",
    [
        ("en", 'He said: "It\'s <b>, Mr. X."', "He said : \" It 's < b > , Mr. X. \""),
        ("fr", "L'eau, c'est 3,5 kg.", "L' eau , c' est 3,5 kg ."),
        ("xx", "It's, Mr. X.", "It ' s , Mr. X."),  # English abbreviations where Moses knows none of the language
        ("de", "", ""),
    ],
)
def test_moses(language, line, expected):
    assert tokenisers.load("moses", language)(line) == expected
    assert expected == MosesTokenizer(lang=language).tokenize(line, return_str=True, escape=False)


def test_jieba():
    assert tokenisers.load("jieba", "zh")("我来到北京清华大学 hello 3.5。") == "我 来到 北京 清华大学 hello 3.5 。"


def test_pythainlp():
    assert tokenisers.load("pythainlp", "th")("ผมรักคุณนะครับ hello") == "ผม รัก คุณ นะ ครับ hello"


@pytest.mark.parametrize("name", ["jieba", "pythainlp"])
def test_segmenters_are_called_as_their_packages_are(name, monkeypatch):
    """In the packages' place, modules with the functions that are used."""
    jieba, thai, tokenize = (types.ModuleType(module) for module in ("jieba", "pythainlp", "pythainlp.tokenize"))
    levels = []
    jieba.setLogLevel, jieba.lcut = levels.append, lambda line: [line[:2], " ", line[2:]]
    tokenize.word_tokenize = lambda line, engine, keep_whitespace: [line[:2], line[2:]]
    for module in (jieba, thai, tokenize):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    assert tokenisers.load(name, "zh")("北京大学") == "北京 大学"
    assert bool(levels) == (name == "jieba")


def test_a_line_without_tokens_stays(monkeypatch):
    monkeypatch.setattr(tokenisers, "_moses", lambda language: lambda line: [])
    assert tokenisers.load("moses", "en")("\u200b") == "\u200b"


def text_of(data_bin, folder, name, language):
    dictionary = Dictionary.load(str(data_bin / "dict.txt"))
    data = data_utils.load_indexed_dataset(str(data_bin / folder / name), dictionary)
    model = sentencepiece.SentencePieceProcessor(model_file=str(data_bin / "sentencepiece.model"))
    return [model.decode(dictionary.string(item).split()) for item in data]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_language_with_a_tokeniser_is_tokenised_everywhere(corpus, tmp_path, fairseq_in_process, workers):
    for path in corpus.parent.glob("*.*"):
        if path.suffix in (".en", ".de"):
            path.write_text(path.read_text().replace(" .", ", x."))
    raw, tokenised = tmp_path / "raw", tmp_path / "tokenised"
    prepare(corpus, raw, workers)
    change(corpus, tokeniser={"en": "moses"})
    prepare(corpus, tokenised, workers)
    source = (corpus.parent / "train.en-de.en").read_text().split("\n")[:-1]
    expected = [line.replace(", x.", " , x .") for line in source]
    assert text_of(tokenised, "en-de", "train.en-de.en", "en") == expected
    assert text_of(tokenised, "en-de", "train.en-de.de", "de") == text_of(raw, "en-de", "train.en-de.de", "de")
    assert text_of(raw, "en-de", "train.en-de.en", "en") == source
    sample = (tokenised / ".stages/sample.txt").read_text().split("\n")[:-1]
    assert any(line.endswith(" , x .") for line in sample) and any(line.endswith(", x.") for line in sample)
    manifest = json.loads((tokenised / "manifest.json").read_text())
    assert manifest["config"]["tokeniser"] == {"en": "moses"} and manifest["versions"]["sacremoses"]
    assert "tokeniser" not in json.loads((raw / "manifest.json").read_text())["config"]


def test_another_tokeniser_makes_the_stages_run_again(corpus, tmp_path, fairseq_in_process):
    path = corpus.parent / "train.en-de.de"
    path.write_text(path.read_text().replace(" .", "."))
    prepare(corpus, tmp_path / "data-bin")
    change(corpus, tokeniser={"de": "moses"})
    prepare(corpus, tmp_path / "data-bin")
    source = path.read_text().split("\n")[:-1]
    assert text_of(tmp_path / "data-bin", "en-de", "train.en-de.de", "de") == [
        line.replace(".", " .") for line in source]


@pytest.mark.parametrize(
    "chosen, message",
    [
        ({"en": "mosess"}, "tokeniser en: unknown 'mosess'; valid: moses, jieba, pythainlp"),
        ({"fr": "moses"}, "tokeniser: unknown key 'fr'; valid keys: en, de"),
        ("moses", "tokeniser: expected a mapping"),
    ],
)
def test_wrong_choices_are_told(corpus, chosen, message, capsys):
    assert main([str(change(corpus, tokeniser=chosen)), "--check-only"]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", list(tokenisers.PACKAGES))
def test_a_missing_package_is_one_sentence(corpus, tmp_path, name, monkeypatch):
    monkeypatch.setitem(sys.modules, tokenisers.PACKAGES[name], None)
    change(corpus, tokeniser={"en": name, "de": name})
    with pytest.raises(PreprocessError) as told:
        prepare(corpus, tmp_path / "data-bin")
    assert str(told.value).splitlines()[1:] == [
        f"  - tokeniser en, de: {name} needs a package that is not installed: pip install {tokenisers.PACKAGES[name]}"]
