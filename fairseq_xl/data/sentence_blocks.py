"""Monolingual text in blocks of whole sentences."""

import numpy as np

from fairseq_xl.data.corpus import Numbers
from fairseq_xl.data.indexed import open_text
from fairseq_xl.data.spans import Spans


class SentenceBlocks(Spans):
    """Blocks of as many consecutive sentences as fit into `length` tokens: fairseq's ``--sample-break-mode complete``.

    Unlike fairseq's, blocks never exceed `length`: a longer sentence is split into parts of `length` tokens, and what
    is left begins the next block. Blocks may contain several documents and are the same in every pass.
    """

    def _spans(self, length: int) -> Numbers:
        """Token indices where blocks begin and end, (n, 2). A block of a single ``</s>`` is left out."""
        items = open_text(self.path, self.language)  # a variable: its sizes are unmapped when it is freed
        sizes = np.asarray(items.sizes, dtype=np.int64)
        # a sentence longer than `length` is split after every `length` tokens
        counts = np.maximum(-(-sizes // length), 1)
        parts = np.full(counts.sum(), length)
        parts[np.cumsum(counts) - 1] = sizes - (counts - 1) * length
        ends = np.concatenate(([0], np.cumsum(parts)))  # of parts, after a first 0
        # for each part, the part after the last one that fits into a block that begins with it; `.data`: plain numbers
        following = (np.searchsorted(ends, ends[:-1] + length, side="right") - 1).data
        firsts, first = [], 0
        while first < len(following):
            firsts.append(first)
            first = following[first]
        blocks = np.stack((ends[firsts], ends[[*firsts[1:], -1]]), axis=1)
        return blocks[np.diff(blocks)[:, 0] > 1]
