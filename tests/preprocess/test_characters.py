"""The text that the vocabulary is learned from, the characters that get a piece, and the warning about the others."""

import json
import logging
import shutil

import pytest
from tiny_corpus import change, describe

from fairseq_xl.data.vocabulary.subwords import Source
from preprocess import encode, vocabulary
from preprocess.config import Vocabulary, read_config
from preprocess.pipeline import _Preparation, prepare

SIZES = {"model": "unigram", "size": 200}


def warnings(caplog):
    found = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    caplog.clear()
    return [message for message in found if "become <unk>" in message]


def append(path, *lines):
    with open(path, "a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


@pytest.fixture
def lettered(corpus, fairseq_in_process):
    """The corpus with letters that are rare in it, in German, which has bitext only, and in English."""
    append(corpus.parent / "train.en-de.de", "Öl Öl", "Ähre", "x")
    append(corpus.parent / "train.en-de.en", "oil", "ear", "Ω")
    return corpus


def manifest(data_bin):
    return json.loads((data_bin / "manifest.json").read_text(encoding="utf-8"))


def test_bitext_does_not_count_where_there_is_monolingual_text(corpus):
    """X2: n_i are monolingual sentences. German has none, so its side of the bitext stands for them."""
    change(corpus, bitext={"en-de": {"train": "train.en-de"}})
    config, _ = read_config(corpus)
    assert vocabulary.training_files(config) == {"en": ["train.en", "train.en-de.en"], "de": ["train.en-de.de"]}
    assert vocabulary.sampled_files(config) == {"en": ["train.en"], "de": ["train.en-de.de"]}
    change(corpus, monolingual={"en": {"valid": "valid.en"}})
    assert vocabulary.sampled_files(read_config(corpus)[0])["en"] == ["train.en-de.en"]


def test_shares_are_of_monolingual_sentences(corpus, tmp_path, monkeypatch):
    for language, count in (("en", 90), ("de", 10)):
        (corpus.parent / f"m.{language}").write_text("a b\n" * count, encoding="utf-8")
    description = {"languages": ["en", "de"], "vocabulary": SIZES, "bitext": {"en-de": {"train": "train.en-de"}}}
    description["monolingual"] = {language: {"train": f"m.{language}"} for language in ("en", "de")}
    describe(corpus.parent, description)
    monkeypatch.setattr(_Preparation, "symbols", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        prepare(corpus, tmp_path / "data-bin")
    sampling = json.loads((tmp_path / "data-bin/.stages/records/sample.json").read_text(encoding="utf-8"))["result"]
    # p = 0.9, 0.1 and alpha 0.5: 3 : 1, with 100 sentences 75 and 10 (all of them)
    assert {name: (found["sentences"], found["share"]) for name, found in sampling.items()} == {
        "en": (90, 0.75),
        "de": (10, 0.25),
    }
    lines = (tmp_path / "data-bin/.stages/sample.txt").read_text(encoding="utf-8").split("\n")
    assert lines.count("a b") == 75 + 10
    # all else is there for its letters, each line with a new one
    seen = set("a b")
    added = [line for line in lines[85:-1] if not seen.issuperset(line) and not seen.update(line)]
    assert added == lines[85:-1] and seen >= set("ßüFG")
    assert sum(found["drawn"] for found in sampling.values()) == len(lines) - 1


def test_a_small_corpus_keeps_all_letters(lettered, tmp_path, caplog):
    change(lettered, vocabulary=SIZES)
    prepare(lettered, tmp_path / "data-bin")
    written = manifest(tmp_path / "data-bin")
    assert written["config"]["vocabulary"]["coverage"] == 1.0
    unknown = {name: found["unknown"] for name, found in written["datasets"].items() if "train" in name}
    assert set(unknown.values()) == {0} and len(unknown) == 3
    assert warnings(caplog) == []


@pytest.mark.parametrize(
    "options, small, expected",
    [
        ({"size": 16}, True, 1.0),
        ({"size": 15}, True, 0.9995),
        ({"size": 16}, False, 0.9995),
        ({"size": 16, "coverage": 0.99}, True, 0.99),
        ({"size": 4, "coverage": 1.0}, False, 1.0),
    ],
)
def test_other_corpora_keep_most_characters(tmp_path, options, small, expected):
    (tmp_path / "sample").write_text("ab\nba\nc\n", encoding="utf-8")  # and the line's end: four characters
    assert vocabulary.coverage_of(Vocabulary(**options), tmp_path / "sample", small) == expected


def test_lost_characters_are_named(lettered, tmp_path, monkeypatch, caplog):
    change(lettered, vocabulary={"model": "unigram", "size": 60})  # too few for all letters
    prepare(lettered, tmp_path / "data-bin")
    (message,) = warnings(caplog)
    assert "training text" in message and "<unk>" in message and "coverage: 1.0" in message
    assert " en: 'Ω' (1); de: 'Ä' (1); " in message
    assert manifest(tmp_path / "data-bin")["config"]["vocabulary"]["coverage"] == 0.9995
    changed = f"{tmp_path / 'data-bin/dict.txt'}: the symbols change: checkpoints trained on this data folder no longer"
    change(lettered, vocabulary={"model": "unigram", "size": 60, "coverage": 0.998})
    for *stage, warning in (vocabulary, "train_model", "--vocabulary-from"), (_Preparation, "encode_all", changed):
        with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
            patch.setattr(*stage, lambda *_: 1 / 0)
            prepare(lettered, tmp_path / "data-bin")
        assert warning in caplog.text
    prepare(lettered, tmp_path / "data-bin")
    assert changed in caplog.text
    (message,) = warnings(caplog)
    assert " en: 'Ω' (1); de: 'Ö' (2), 'Ä' (1), 'x' (1); " in message
    prepare(lettered, tmp_path / "data-bin")
    assert changed not in caplog.text
    assert warnings(caplog) == [message]  # an up-to-date run warns again
    change(lettered, vocabulary={"model": "unigram", "size": 60, "coverage": 1.0})
    prepare(lettered, tmp_path / "data-bin")
    assert warnings(caplog) == []
    # the same text with the sub-words of other text
    shutil.copy(tmp_path / "data-bin/sentencepiece.model", lettered.parent)
    append(lettered.parent / "train.en", *(f"{char} {char}" for char in "абвгдежзийкл"), "л")
    change(lettered, vocabulary={"sentencepiece": "sentencepiece.model"})
    prepare(lettered, tmp_path / "reused")
    (message,) = warnings(caplog)
    assert "en: 'л' (3), 'а' (2), 'б' (2)" in message and "and 2 more; a vocabulary that is learned from" in message


def test_characters_of_validation_and_test_text_alone_are_named(lettered, tmp_path, caplog):
    """Those of the training text are left out: its own warning names them."""
    change(lettered, vocabulary={"model": "unigram", "size": 60})
    append(lettered.parent / "test.en-de.de", "Ä☃☃", "Ω")
    append(lettered.parent / "test.en-de.en", "a", "Ω")
    append(lettered.parent / "valid.en", "☃ Ä", "Ä")
    for _ in range(2):
        prepare(lettered, tmp_path / "data-bin")
        alone, training = warnings(caplog)
        assert alone == (
            "vocabulary: characters of validation and test text that become <unk> and are not in the training text of "
            "their language, with their counts: en valid: 'Ä' (2), '☃' (1); de test: '☃' (2), 'Ω' (1)"
        )
        assert "of the training text that become <unk>, with their counts: en: 'Ω' (1); de: 'Ä' (1); " in training


def test_what_a_large_corpus_was_not_learned_from_is_named(lettered, tmp_path, caplog):
    change(lettered, vocabulary=SIZES | {"sentences": 40, "coverage": 1.0})
    prepare(lettered, tmp_path / "data-bin")
    (message,) = warnings(caplog)
    assert "'Ω' (1)" in message and message.endswith(
        "`vocabulary: {sentences: N, alpha: 1}` with a large N learns from all sentences"
    )


@pytest.mark.parametrize("normalization, expected", [("nmt_nfkc", "▁fi"), ("nmt_nfkc_cf", "▁fi"), ("identity", "▁ﬁ")])
def test_normalization(tmp_path, normalization, expected):
    sample, path = tmp_path / "sample", tmp_path / "model"
    sample.write_text("ﬁ fi\n" * 50, encoding="utf-8")
    vocabulary.train_model(sample, Vocabulary(size=9, coverage=1.0, normalization=normalization), path)
    assert "".join(vocabulary.load_model(path).model.encode("ﬁ", out_type=str)) == expected


def test_lost_characters_are_counted_as_they_are_normalized(tmp_path):
    sample, path = tmp_path / "sample", tmp_path / "model"
    sample.write_text("a b c\n" * 50, encoding="utf-8")
    vocabulary.train_model(sample, Vocabulary(size=9, coverage=1.0), path)
    encode.start(Source("sentencepiece", (path,)), ())
    found = encode.encode_block("a Ω b\nＡＡ\nc\n\nΩ☃a\n".encode())
    assert found.lost == {"Ω": 2, "☃": 1, "A": 2} and found.unknown == 3
