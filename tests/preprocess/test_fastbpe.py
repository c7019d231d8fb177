"""Sub-words of XLM's kind that are learned: merges, pieces and their counts are those of subword-nmt's own commands."""

import json
import subprocess
from collections import Counter

import pytest
from tiny_corpus import change

from fairseq_xl.data.vocabulary.subwords import open_subwords
from fairseq_xl.data.vocabulary.xlm_text import without_accents
from fairseq_xl.errors import UserError
from preprocess.pipeline import prepare

LEARNED = {"model": "fastbpe", "codes": 60, "size": 40}


def test_a_data_folder_with_learned_codes(corpus, tmp_path, fairseq_in_process, caplog):
    data = tmp_path / "data-bin"
    prepare(change(corpus, vocabulary=LEARNED), data)
    assert "with their counts: " in caplog.text and "; a larger `size` of the vocabulary keeps them" in caplog.text
    text = without_accents((data / ".stages/sample.txt").read_text(encoding="utf-8"))
    assert "Fluß" not in text and text.count("\n") > 100
    (tmp_path / "text").write_text(text, encoding="utf-8")
    learn = ["subword-nmt", "learn-bpe", "-s", "60", "--min-frequency", "1", "-i", tmp_path / "text", "-o"]
    subprocess.run([*learn, tmp_path / "codes"], check=True, capture_output=True)
    version, *merges = (tmp_path / "codes").read_text(encoding="utf-8").splitlines()
    assert version == "#version: 0.2" and (data / "xlm.codes").read_text(encoding="utf-8").splitlines() == merges
    apply = ["subword-nmt", "apply-bpe", "-c", tmp_path / "codes", "-i", tmp_path / "text"]
    segmented = subprocess.run(apply, check=True, capture_output=True, encoding="utf-8").stdout
    words = (data / "xlm.vocab").read_text(encoding="utf-8").splitlines()
    counts = Counter(segmented.split())
    assert len(counts) > 40 == len(words)
    assert words == [
        f"{piece} {counts[piece]}" for piece in sorted(counts, key=lambda each: (-counts[each], each))[:40]
    ]
    subwords, lines = open_subwords(data), text.splitlines()
    for ids, line in zip(subwords.encode(lines), segmented.splitlines(), strict=True):
        assert [subwords.symbols[number] for number in ids] == [
            piece if f"{piece} {counts[piece]}" in words else "<unk>" for piece in line.split()
        ]
    manifest = json.loads((data / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["config"]["tokenizer"] == {"en": "xlm", "de": "xlm"}
    described = manifest["config"]["vocabulary"]
    assert (
        described.items() >= (LEARNED | {"lowercase_and_remove_accent": True}).items() and "coverage" not in described
    )
    fairseq_in_process.clear()
    prepare(corpus, data)  # nothing is made again
    assert not fairseq_in_process
    with caplog.at_level("WARNING"):
        prepare(change(corpus, vocabulary=LEARNED | {"codes": 100000, "lowercase_and_remove_accent": "false"}), data)
    assert f"start it with vocabulary: {{xlm: {{codes: {data}/xlm.codes, vocab: {data}/xlm.vocab}}}}" in caplog.text
    assert "codes 100000 is too large for this corpus, which gave" in caplog.text
    words = {word for line in (data / ".stages/sample.txt").open(encoding="utf-8") for word in line.split()}
    assert f"gives at most {sum(len(word) - 1 for word in words)} merges" in caplog.text
    assert any(symbol[0].isupper() for symbol in open_subwords(data).symbols)
    prepare(change(corpus, vocabulary=LEARNED | {"codes": 1000, "size": 9999, "sentences": 3}), tmp_path / "whole")
    assert "`vocabulary: {sentences: N, alpha: 1}` with a large N learns from all sentences" in caplog.text


def test_settings_without_effect_are_refused(corpus, tmp_path):
    for changes, message in (
        ({"codes": 0}, "vocabulary: codes must be more than 0, found 0"),
        ({"coverage": 1}, "vocabulary: coverage has no effect with model fastbpe"),
        ({"normalization": "nfkc"}, "vocabulary: normalization has no effect with model fastbpe"),
        ({"model": "bpe"}, "vocabulary: codes has no effect with model bpe"),
    ):
        with pytest.raises(UserError, match=message):
            prepare(change(corpus, vocabulary=LEARNED | changes), tmp_path / "data")
