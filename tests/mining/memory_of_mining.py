"""Prints the most memory that mining takes, for three texts: `python -m tests.mining.memory_of_mining FOLDER`."""

import gc
import sys
import tracemalloc
from pathlib import Path

import numpy as np

from fairseq_xl.data.corpora import negatives, sentence_pairs
from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.store import binarized_text, cached_tables
from fairseq_xl.io import fingerprints
from fairseq_xl.mining import hard_negatives
from tests.mining.builders import MADE_WITH
from tests.tiny_data import write_items

#: all that has a fixed limit has a small one here, so that it cannot hide what grows
LIMITS = (
    (hard_negatives, dict(LINES_AT_ONCE=64, PART_CHUNKS=16, BLOCK_ROWS=1024)),  # a search's memory: its candidates
    (binarized_text, dict(BLOCK_LINES=1024, STRETCH=8)),
    (fingerprints, dict(READ=4096, SAMPLE_BYTES=16)),
    (negatives, dict(IN_MEMORY_LINES=0)),
    (sentence_pairs, dict(IN_MEMORY_LINES=0)),
    (cached_tables, dict(IN_MEMORY_LINES=0)),
)


def peaks(folder):
    """Peaks of the bytes allocated while 3,000, 4,000 and 20,000 pairs are mined; the first imports modules.

    CPython keeps up to 2,000 freed tuples of each length until a full collection, so there is one in each chunk, of the
    objects made since the start.
    """
    for module, limits in LIMITS:
        for name, value in limits.items():
            assert hasattr(module, name)
            setattr(module, name, value)
    gc.collect()
    gc.freeze()
    for lines in (3_000, 4_000, 20_000):
        prefix = Path(folder, str(lines), "train.en-de")
        rng = np.random.default_rng(lines)
        for code in ("en", "de"):
            write_items(Path(f"{prefix}.{code}"), [[*words, 2] for words in rng.integers(4, 304, (lines, 2)).tolist()])
        gc.collect()
        tracemalloc.start()
        statistics = hard_negatives.mine(vectors_of_words, SentencePairs(prefix, "en", "de"), 1, 10**6, 64, MADE_WITH)
        yield tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert statistics["pairs"] == lines


def vectors_of_words(side, lines):
    """Vectors (n, 64) of sentences of two words."""
    gc.collect()
    return np.random.default_rng(0).normal(size=(304, 64)).astype(np.float32)[side.tokens.reshape(-1, 3)[lines]].sum(1)


vectors_of_words.channels = 64


if __name__ == "__main__":
    print(*peaks(sys.argv[1]))
