"""The memory of mining hard negatives."""

import gc
import tracemalloc
from pathlib import Path

import numpy as np
from tiny_data import write_items

from fairseq_xl.data.corpora import negatives, sentence_pairs
from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.store import binarized_text, cached_tables
from fairseq_xl.io import fingerprints
from fairseq_xl.mining import hard_negatives
from tests.mining.builders import MADE_WITH, in_parts


def test_memory_does_not_grow_with_the_text(tmp_path, monkeypatch, request):
    """Bytes that Python and numpy allocate; 4 bytes for each further pair are 64 kB. FAISS is not seen.

    All that has a fixed limit has a small one here, so that it cannot hide what grows: blocks, and samples of the text
    and of its files. CPython keeps up to 2,000 freed tuples of each length until a full collection, so there is one in
    each chunk, of the objects that the test makes: the others are frozen.
    """
    monkeypatch.setattr(hard_negatives.logger, "disabled", True)  # pytest keeps what is logged
    in_parts(monkeypatch, 64, 16)  # small chunks: the memory of a search depends on its candidates
    monkeypatch.setattr(hard_negatives, "BLOCK_ROWS", 1024)
    monkeypatch.setattr(binarized_text, "BLOCK_LINES", 1024)
    monkeypatch.setattr(binarized_text, "STRETCH", 8)
    monkeypatch.setattr(fingerprints, "READ", 4096)
    monkeypatch.setattr(fingerprints, "SAMPLE_BYTES", 16)
    for module in (negatives, sentence_pairs, cached_tables):
        monkeypatch.setattr(module, "IN_MEMORY_LINES", 0)

    def vectors(side, lines):
        gc.collect()
        return vectors_of_words(side, lines)

    vectors.channels = vectors_of_words.channels
    peaks = []
    gc.collect()
    request.addfinalizer(gc.unfreeze)
    gc.freeze()
    for lines in (3_000, 4_000, 20_000):  # the first imports modules
        prefix = tmp_path / str(lines) / "train.en-de"
        rng = np.random.default_rng(lines)
        for code in ("en", "de"):
            write_items(Path(f"{prefix}.{code}"), [[*words, 2] for words in rng.integers(4, 304, (lines, 2)).tolist()])
        gc.collect()
        tracemalloc.start()
        pairs = SentencePairs(prefix, "en", "de")
        statistics = hard_negatives.mine(vectors, pairs, 1, 10**6, 64, MADE_WITH)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert statistics["pairs"] == lines
    assert peaks[2] < peaks[1] + 32_000


def vectors_of_words(side, lines):
    """Vectors (n, 64) of sentences of two words."""
    return np.random.default_rng(0).normal(size=(304, 64)).astype(np.float32)[side.tokens.reshape(-1, 3)[lines]].sum(1)


vectors_of_words.channels = 64
