"""Embeddings of hard negatives."""

import functools

import numpy as np

from fairseq_xl.mining import hard_negatives

MADE_WITH = {"checkpoint": 1}


class FixedVectors:
    """A random vector for each sentence, a function of its tokens only."""

    def __init__(self, channels=6):
        self.channels, self.calls = channels, 0

    def __call__(self, side, lines):
        self.calls += 1
        return np.stack([self.vector(side[line].tolist()) for line in lines])

    def vector(self, tokens):
        return drawn(tuple(tokens), self.channels).copy()


@functools.cache
def drawn(tokens, channels):
    """Random numbers (channels,), a function of the tokens only."""
    return np.random.default_rng(list(tokens)).normal(size=channels).astype(np.float32)


def in_parts(monkeypatch, chunk, chunks=1):
    """Parts of so many chunks of so many pairs."""
    monkeypatch.setattr(hard_negatives, "LINES_AT_ONCE", chunk)
    monkeypatch.setattr(hard_negatives, "PART_CHUNKS", chunks)
