"""Descriptions that name XLM's or BERT's vocabulary: the data folder, its manifest and its dictionary, and problems."""

import json
import logging
import sys

import pytest
import yaml
from fairseq.data import Dictionary, data_utils
from tiny_corpus import change, content, describe

from fairseq_xl.data.vocabulary import tokenizers
from fairseq_xl.data.vocabulary.subwords import FILES, vocabulary_kind
from fairseq_xl.data.vocabulary.xlm_bpe import XLMPieces
from fairseq_xl.errors import UserError
from preprocess.commands.prepare import main
from preprocess.commands.verify import main as verify_command
from preprocess.disjoint import join
from preprocess.pipeline import prepare
from tests.published_text import BERT, write_wordpiece, write_xlm


@pytest.fixture
def named(corpus):
    """The corpus, with the files of both vocabularies beside it and accents and quotation marks in its text."""
    root = corpus.parent
    for path in root.glob("*.*"):
        if path.suffix in (".en", ".de"):
            path.write_text(path.read_text(encoding="utf-8").replace("Fluß", "„Flüsse“"), encoding="utf-8")
    lines = [line for path in sorted(root.glob("train.*")) for line in path.read_text(encoding="utf-8").splitlines()]
    lines = [line.lower().replace("„", '" ').replace("“", ' "').replace("ü", "u") for line in lines if line]
    write_xlm(root, lines, merges=30)
    write_wordpiece(root / "vocab.txt", [line for line in lines for line in (line, line.title())], least=60)
    return corpus


XLM = {"xlm": {"codes": "codes", "vocab": "vocab"}}


def text_of(data_bin, folder, name):
    dictionary = Dictionary.load(str(data_bin / "dict.txt"))
    data = data_utils.load_indexed_dataset(str(data_bin / folder / name), dictionary)
    return [dictionary.string(item) for item in data]


def symbols_of(data_bin):
    lines = (data_bin / "dict.txt").read_text(encoding="utf-8").splitlines()
    return [line.rpartition(" ")[0] for line in lines]


def test_the_first_words_of_a_vocabulary(named, tmp_path, fairseq_in_process):
    lines = (named.parent / "vocab").read_text(encoding="utf-8").splitlines()
    sized = {"xlm": XLM["xlm"] | {"size": 20}}
    prepare(change(named, vocabulary=XLM), tmp_path / "data")
    prepare(change(named, vocabulary=sized), tmp_path / "data")
    words = [line.rpartition(" ")[0] for line in lines[:20]]
    assert symbols_of(tmp_path / "data") == [*words, "<mask>", "[en]", "[de]"]
    assert (tmp_path / "data/xlm.vocab").read_text(encoding="utf-8").splitlines() == lines[:20]
    for size, sentence in (
        (9999, f"size 9999: .*vocab has {len(lines)} lines"),
        (0, "size must be 1 or more, found 0"),
    ):
        with pytest.raises(UserError, match=sentence):
            prepare(change(named, vocabulary={"xlm": XLM["xlm"] | {"size": size}}), tmp_path / "other")


def test_text_with_xlms_vocabulary(named, tmp_path, fairseq_in_process):
    data, root = tmp_path / "data-bin", named.parent
    prepare(change(named, vocabulary=XLM), data, 2)
    words = [line.rpartition(" ")[0] for line in (root / "vocab").read_text(encoding="utf-8").splitlines()]
    assert symbols_of(data) == [*words, "<mask>", "[en]", "[de]"]
    written = [line.replace("@@ ", "") for line in text_of(data, "en-de", "train.en-de.de")]
    raw = (root / "train.en-de.de").read_text(encoding="utf-8").split("\n")[:-1]
    assert written == [line.lower().replace("„", '" ').replace("“", ' "').replace("ü", "u") for line in raw]
    assert any("@@" in line for line in text_of(data, "en", "train"))
    manifest = json.loads((data / "manifest.json").read_text(encoding="utf-8"))
    entry = manifest["vocabulary"]
    assert entry["kind"] == "xlm" == vocabulary_kind(data) and entry["lowercase_and_remove_accent"] is True
    assert entry["sha256"].keys() == set(FILES["xlm"]) <= manifest["fingerprints"].keys()
    assert manifest["config"]["tokenizer"] == {"en": "xlm", "de": "xlm"} and manifest["versions"]["sacremoses"]
    assert manifest["config"]["vocabulary"] == {"xlm": XLM["xlm"] | {"lowercase_and_remove_accent": True}}
    for copied, given in zip(FILES["xlm"], ("codes", "vocab")):
        assert (data / copied).read_bytes() == (root / given).read_bytes()


def test_files_of_transformers_give_the_same_text(named, tmp_path, fairseq_in_process):
    made = []
    for files in (XLM["xlm"], {"codes": "merges.txt", "vocab": "vocab.json"}):
        data = tmp_path / files["codes"]
        prepare(change(named, vocabulary={"xlm": files}), data)
        made.append({name: bytes for name, bytes in content(data).items() if name.endswith((".bin", ".idx", ".txt"))})
    assert made[0] == made[1]


def test_case_and_accents_may_stay(named, tmp_path, fairseq_in_process):
    """The codes here know no capitals, so that they are lost; nothing else changes."""
    cased = {"xlm": XLM["xlm"] | {"lowercase_and_remove_accent": "false"}}
    prepare(change(named, vocabulary=cased), tmp_path / "data-bin")
    text = " ".join(text_of(tmp_path / "data-bin", "en-de", "train.en-de.de"))
    assert "<unk>" in text
    entry = json.loads((tmp_path / "data-bin/manifest.json").read_text())["vocabulary"]
    assert entry["lowercase_and_remove_accent"] is False


def test_segmented_text_is_split_at_spaces(named, tmp_path, fairseq_in_process):
    path = named.parent / "train.en-de.de"
    path.write_text(path.read_text(encoding="utf-8").replace(" .", "."), encoding="utf-8")
    prepare(change(named, vocabulary=XLM, tokenizer={"de": "segmented"}), tmp_path / "data-bin")
    pieces = XLMPieces(named.parent / "codes", named.parent / "vocab", True)
    rows = pieces.encode(path.read_text(encoding="utf-8").split("\n")[:-1])  # words as they are in the file
    expected = [" ".join(pieces.symbols[number] for number in row) for row in rows]
    assert text_of(tmp_path / "data-bin", "en-de", "train.en-de.de") == expected
    words = tokenizers.tokenize("ein Buch.", "xlm", "de")
    assert pieces.encode([words]) != pieces.encode(["ein Buch."])


def test_text_with_wordpiece(named, tmp_path, fairseq_in_process):
    data = tmp_path / "data-bin"
    prepare(change(named, vocabulary={"wordpiece": "vocab.txt"}), data)
    pieces = (named.parent / "vocab.txt").read_text(encoding="utf-8").splitlines()
    kept = [piece for piece in pieces if piece not in BERT or piece.startswith("[unused")]
    assert symbols_of(data) == [*kept, "<mask>", "[en]", "[de]"]
    raw = (named.parent / "train.en").read_text(encoding="utf-8").split("\n")[:-1]
    assert [line.replace(" ##", "") for line in text_of(data, "en", "train")] == raw
    assert any(" ##" in line for line in text_of(data, "en", "train"))
    manifest = json.loads((data / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["vocabulary"]["lowercase"] is False and manifest["versions"]["tokenizers"]
    uncased = {"wordpiece": {"vocab": "vocab.txt", "lowercase": "true"}}
    prepare(change(named, vocabulary=uncased), data)
    assert [line.replace(" ##", "") for line in text_of(data, "en", "train")] == [line.lower() for line in raw]


def test_another_kind_replaces_the_first(named, tmp_path, fairseq_in_process, caplog):
    """A second run with nothing changed does nothing; another kind leaves no file of the first one."""
    data = tmp_path / "data-bin"
    prepare(change(named, vocabulary=XLM), data)
    before = content(data)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        prepare(named, data)
    assert content(data) == before and "manifest.json: up to date" in caplog.text
    prepare(change(named, vocabulary={"wordpiece": "vocab.txt"}), data)
    assert vocabulary_kind(data) == "wordpiece"
    assert not any((data / name).exists() for name in FILES["xlm"])
    assert verify_command([str(data)]) == 0
    with pytest.raises(UserError, match="monolingual text of one language is expected|has a vocabulary of kind"):
        join(tmp_path / "joined", [data, data])


def test_chinese_is_named_where_it_is_segmented_otherwise(named, tmp_path, fairseq_in_process, caplog):
    root = named.parent
    (root / "train.zh").write_text("我来到北京\n", encoding="utf-8")
    description = {"languages": ["zh"], "bitext": {}, "monolingual": {"zh": {"train": "train.zh"}}, "vocabulary": XLM}
    prepare(change(named, **description), tmp_path / "zh")
    assert "zh: Chinese text is segmented by jieba in place of Stanford's segmenter" in caplog.text
    caplog.clear()
    prepare(change(named, **description, tokenizer={"zh": "segmented"}), tmp_path / "segmented")
    assert "Stanford" not in caplog.text


def test_problems(named, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "Mykytea", None)  # not installed
    (named.parent / "train.ja").write_text("本\n", encoding="utf-8")
    japanese = {"languages": ["en", "de", "ja"], "monolingual": {"ja": {"train": "train.ja"}}}
    described = yaml.safe_load(named.read_text(encoding="utf-8"))
    for changes, message in (
        ({"vocabulary": {"xlm": {"codes": "codes"}}}, "vocabulary: xlm: vocab must name a file"),
        ({"vocabulary": XLM | {"size": 9}}, "vocabulary: xlm names an existing vocabulary; leave out size"),
        (
            {"vocabulary": XLM | {"sentencepiece": "m"}},
            "vocabulary: sentencepiece names an existing model; leave out xlm",
        ),
        (
            {"vocabulary": {"xlm": {"codes": "nowhere", "vocab": "vocab"}}},
            "nowhere: no such file, expected the codes",
        ),
        (
            {"vocabulary": {"xlm": {"codes": "train.en", "vocab": "vocab"}}},
            "train.en, line 1: expected 'left right count'",
        ),
        ({"vocabulary": {"wordpiece": "codes"}}, "vocabulary: wordpiece: "),
        ({"vocabulary": {"wordpiece": {"lowercase": "true"}}}, "vocabulary: wordpiece: vocab must name a file"),
        ({"tokenizer": {"en": "moses"}}, "tokenizer en: unknown 'moses'; valid: segmented"),
        (japanese, "tokenizer ja: xlm needs a package that is not installed: pip install kytea"),
    ):
        path = describe(named.parent, described | {"vocabulary": XLM} | changes)
        assert main([str(path), "--check-only"]) == 1
        assert message in capsys.readouterr().err
