"""Monolingual text in blocks of whole sentences."""

from collections.abc import Iterator

import numpy as np

from fairseq_xl.data import Numbers
from fairseq_xl.data.corpora.documents import OneLanguageWindows, follow_jumps
from fairseq_xl.data.store.binarized_text import BLOCK_LINES


@OneLanguageWindows.register
class SentenceBlocks(OneLanguageWindows):
    """Blocks of as many consecutive sentences as fit into `length` tokens: fairseq's ``--sample-break-mode complete``.

    Unlike fairseq's, blocks never exceed `length`: a longer sentence is split into parts of `length` tokens, and what
    is left begins the next block. Blocks may contain several documents and are the same in every pass.
    """

    break_mode, columns = "complete", 2

    def rows_of(self, length: int) -> Iterator[Numbers]:
        """Yields token indices where blocks begin and end, (n, 2). A block of a single ``</s>`` is left out.

        Each part of the table has the blocks that begin in `BLOCK_LINES` lines, and reads on to the end of them.
        """
        line = consumed = 0  # the first line, and its tokens that are in blocks already
        while line < self.lines:
            sizes = self.sizes_from(line, BLOCK_LINES + length + 1)
            count = min(BLOCK_LINES, len(sizes))
            first_token = self.text.bounds(line)[0] + consumed
            sizes[0] -= consumed
            # a sentence longer than `length` is split after every `length` tokens
            counts = -(-sizes // length)
            parts = np.full(counts.sum(), length)
            parts[np.cumsum(counts) - 1] = sizes - (counts - 1) * length
            ends = np.concatenate(([0], np.cumsum(parts)))  # of parts, after a first 0
            part_count = counts[:count].sum()
            # for each part, the part after the last one that fits into a block that begins with it
            following = np.searchsorted(ends, ends[:part_count] + length, side="right") - 1
            firsts, end = follow_jumps(following)
            blocks = np.stack((ends[firsts], ends[following[firsts]]), axis=1)
            yield first_token + blocks[np.diff(blocks)[:, 0] > 1]
            lines = np.concatenate(([0], np.cumsum(sizes)))
            passed = int(np.searchsorted(lines, ends[end], side="right")) - 1
            consumed = int(ends[end] - lines[passed]) + (consumed if passed == 0 else 0)
            line += passed

    def sizes_of(self, windows: Numbers, length: int) -> Numbers:
        return windows[:, 1] - windows[:, 0]

    def texts(self, examples: Numbers, length: int) -> list[tuple[Numbers, ...]]:
        """The blocks with the indices `examples`, of up to `length` tokens: a list of 1-tuples of arrays (t,)."""
        return [(self.text.read(begin, end),) for begin, end in self.windows(length)[examples].tolist()]
