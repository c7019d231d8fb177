"""Documents whose sentences alternate between two languages (Huang et al. 2019, section 3)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_xl.data import Numbers
from fairseq_xl.data.corpora.documents import Windows, follow_jumps
from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.io.arrays import Reopened


class ParallelDocuments(Reopened, Windows):
    """Windows of aligned documents in which every other sentence is replaced by its translation.

    A document ends where both sides have an empty line; lines that are empty on one side only are left out. A window is
    a run of lines of one document, of up to `length` tokens; if its last sentence is truncated, the rest is not used.
    Windows of a single sentence are left out. Each window gives two examples: sentences at even positions are in the
    first language in one of them and in the second language in the other one. Arguments are those of `SentencePairs`.
    """

    num_languages, columns, described_text = 2, 5, "parallel text of documents"
    no_windows = (
        "{path}: no document has two sentences in both languages; documents are separated by empty lines on both sides"
    )

    def __init__(self, prefix: str | Path, first: str, second: str, symbols: int | None = None):
        super().__init__()
        self.pairs = SentencePairs(prefix, first, second, symbols)
        self.path, self.codes = self.pairs.path, self.pairs.codes
        self.sides, self.sentences = self.pairs.sides, self.pairs.sentences

    def rows_of(self, length: int) -> Iterator[Numbers]:
        """Yields windows (n, 5): first line and end, language at odd positions (0 or 1), size in tokens, sentences.

        Memory: as much as the longest document needs.
        """
        lines, sizes = [], []
        for first, block in self.pairs.blocks():
            boundaries = np.flatnonzero((block <= 1).all(axis=1))
            whole = boundaries[-1] if len(boundaries) else 0  # the documents before it are complete
            lines.append(first + np.arange(whole))
            sizes.append(block[:whole])
            if len(boundaries):
                yield _windows(np.concatenate(lines), np.concatenate(sizes), length)
                lines, sizes = [], []
            lines.append(first + np.arange(whole, len(block)))
            sizes.append(block[whole:])
        yield _windows(np.concatenate(lines), np.concatenate(sizes), length)

    def sizes_of(self, windows: Numbers, length: int) -> Numbers:
        return windows[:, 3]

    def texts(self, examples: Numbers, length: int) -> list[tuple[Numbers, ...]]:
        """The sentences of each example, of at most `length` tokens together: a list of tuples of arrays."""
        return [tuple(self._read(length, *window)) for window in self.windows(length)[examples, :3].tolist()]

    def languages(self, examples: Numbers, length: int) -> list[tuple[str, ...]]:
        """The languages of the sentences of each example: a list of tuples."""
        windows = self.windows(length)[examples][:, [2, 4]].tolist()
        return [tuple(self.codes[_side(position, base)] for position in range(count)) for base, count in windows]

    def _read(self, room: int, first: int, end: int, base: int) -> Iterator[Numbers]:
        filled = first + np.flatnonzero((self.pairs.sides_of(slice(first, end)) > 1).all(axis=1))
        for position, line in enumerate(filled.tolist()):
            sentence = self.pairs.sides[_side(position, base)][line][:room]
            yield sentence
            room -= len(sentence)


def _side(position: Any, base: int) -> Any:
    """The side, 0 or 1, of the sentence at a position: `base` at odd positions, 1 - `base` at even ones."""
    return 1 - base ^ position % 2


def _windows(lines: Numbers, sizes: Numbers, length: int) -> Numbers:
    """Windows of whole documents (as `ParallelDocuments.rows_of`) with their lines (n,) and sizes of sides (n, 2)."""
    filled = np.flatnonzero((sizes > 1).all(axis=1))
    documents = np.cumsum((sizes <= 1).all(axis=1))[filled]  # a number for each
    ends = np.searchsorted(documents, documents, side="right")
    indices, tables = np.arange(len(filled)), []
    for base in (0, 1):
        # cumulative sizes of sentences whose sides alternate; one array begins at even, one at odd positions
        sums = [
            np.concatenate(([0], np.cumsum(sizes[filled, _side(indices + start, base)], dtype=np.int64)))
            for start in (0, 1)
        ]
        following = np.empty(len(indices), dtype=np.int64)
        for start in (0, 1):
            rows = indices[start::2]
            reach = np.searchsorted(sums[start], sums[start][rows] + length)  # the sentence that fills it belongs to it
            following[rows] = np.minimum(reach, ends[rows])
        firsts = follow_jumps(following)[0] if len(indices) else indices
        following = following[firsts]
        totals = np.choose(firsts % 2, [cumulative[following] - cumulative[firsts] for cumulative in sums])
        counts, bounds = following - firsts, (lines[filled[firsts]], lines[filled[following - 1]] + 1)
        columns = (*bounds, np.full(len(firsts), base), np.minimum(totals, length), counts, documents[firsts])
        tables.append(np.stack(columns, axis=1)[counts > 1])
    windows = np.concatenate(tables)
    return windows[np.argsort(windows[:, 5], kind="stable"), :5]
