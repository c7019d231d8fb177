"""`fairseq-xl data encode`, then fairseq-preprocess: the text that `fairseq-xl data prepare` binarizes."""

import pytest

from preprocess import binarize
from preprocess.commands import encode


@pytest.mark.parametrize("again", [False, True])
def test_pieces_become_the_same_binarized_text(corpus, tmp_path, prepared, again):
    pieces, data = tmp_path / "pieces", tmp_path / "data"
    for _ in range(1 + again):
        assert encode.main([str(corpus), str(pieces)]) == 0
    for name in ("dict.txt", "sentencepiece.model"):
        assert (pieces / name).read_bytes() == (prepared / name).read_bytes()
    options = ["--destdir", str(data), "--srcdict", "dict.txt"]
    one_language = ["--only-source", "-s", "en", "--trainpref", "train", "--validpref", "valid"]
    pair = ["--tgtdict", "dict.txt", "-s", "en", "-t", "de", "--trainpref", "train.en-de"]
    for words in (one_language, pair):
        binarize.run_fairseq([*options, *words], pieces, tmp_path / "log")
    for path, name in (
        ("en/train", "train.en-None.en"),
        ("en/valid", "valid.en-None.en"),
        ("en-de/train.en-de.en", "train.en-de.en"),
        ("en-de/train.en-de.de", "train.en-de.de"),
    ):
        for suffix in ("bin", "idx"):
            assert (data / f"{name}.{suffix}").read_bytes() == (prepared / f"{path}.{suffix}").read_bytes()
