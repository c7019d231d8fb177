"""Pairs of adjacent segments of monolingual documents (Luo et al. 2020, section 2.2)."""

import bisect
import functools
import logging
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

from fairseq_xl.data import Numbers
from fairseq_xl.data.corpora.base import Corpus
from fairseq_xl.data.corpora.negatives import TRIES, LengthRange, length_codes
from fairseq_xl.data.corpora.token_stream import TokenStream
from fairseq_xl.data.noise.randomness import NEGATIVE_SEGMENT, uniforms
from fairseq_xl.data.store.binarized_text import BLOCK_LINES, Reopened, evenly_spaced
from fairseq_xl.data.store.cached_tables import table
from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)


class Windows(Corpus):
    """Base of corpora whose examples are the rows of a table, which is computed from the text for each length.

    A subclass defines the methods `rows_of`, which computes the table, `sizes_of` and `no_windows_error`.
    """

    path: str  # prefix of the table's file
    table_prefixes: list[str]  # prefixes of the texts
    lines: int  # number of lines of the texts
    columns: int  # number of columns of the table
    version = 1  # of `rows_of`; increase it when the same text gives other rows, so that files are computed again

    def __init__(self) -> None:
        self.windows = lru_cache(maxsize=4)(self._windows)

    def rows_of(self, length: int) -> Iterator[Numbers]:
        """Yields blocks of the table's rows, (b, c) int64."""
        raise NotImplementedError(f"{type(self).__name__}.rows_of")

    def sizes_of(self, windows: Numbers, length: int) -> Numbers:
        """Numbers of tokens (n,) of windows (n, c)."""
        raise NotImplementedError(f"{type(self).__name__}.sizes_of")

    def no_windows_error(self, length: int) -> UserError:
        """The `UserError` for a text without windows."""
        raise NotImplementedError(f"{type(self).__name__}.none")

    def _windows(self, length: int) -> Numbers:
        path = f"{self.path}.{type(self).__name__}-{length}.table"
        rows = functools.partial(self.rows_of, length)
        windows = table(path, self.table_prefixes, self.lines, rows, self.columns, self.version)
        if not len(windows):
            raise self.no_windows_error(length)
        return windows

    def check(self, length: int) -> None:
        """Raises `UserError` if the text has no windows. Reads the text up to the first one."""
        if not any(map(len, self.rows_of(length))):
            raise self.no_windows_error(length)

    def mean_size(self, length: int) -> float:
        """Mean tokens of an example, all texts together; estimated from `evenly_spaced` examples if there are many."""
        windows = self.windows(length)
        return self.sizes_of(windows[evenly_spaced(len(windows))], length).mean()

    def number_of_examples(self, length: int) -> int:
        return len(self.windows(length))

    def examples_at(self, positions: Numbers, length: int) -> tuple[Numbers, Numbers]:
        return positions, self.sizes_of(self.windows(length)[positions], length)


def follow_jumps(following: Numbers) -> tuple[Numbers, int]:
    """The increasing indices 0, following[0], following[following[0]], …, with about log₂(n) operations on arrays.

    Args:
        following: (n,) for each index a greater one, perhaps n or more.

    Returns: the indices below n (m,), and the first one that is n or more.
    """
    count = len(following)
    jumps = np.append(np.minimum(following, count), count)  # index after 2^k steps
    indices = np.zeros(1, dtype=np.int64)  # the first 2^k indices
    while jumps[0] < count:
        indices = np.concatenate((indices, jumps[indices]))
        jumps = jumps[jumps]
    indices = indices[: np.searchsorted(indices, count)]
    return indices, int(following[indices[-1]])


class OneLanguageWindows(Reopened, Windows):
    """Base of corpora that divide the text of one language into windows; arguments are those of `open_text`."""

    def __init__(self, path: str | Path, language: str, symbols: int | None = None):
        super().__init__()
        self.stream = TokenStream(path, language, symbols)
        self.path, self.language, self.sentences = self.stream.path, language, self.stream.sentences
        self.text, self.table_prefixes, self.codes = self.stream.text, [self.path], (language,)
        self.lines = len(self.text)

    def sizes_from(self, line: int, count: int) -> Numbers:
        """Tokens (n,) of up to `count` lines from a line on; `UserError` for a line without tokens."""
        sizes = self.text.load_sizes(line, count)
        if sizes.min() < 1:
            raise UserError(
                f"{self.path}.idx is damaged: line {line + int(sizes.argmin()) + 1} has {sizes.min()} tokens"
            )
        return sizes


class AdjacentSegments(OneLanguageWindows):
    """Pairs of adjacent segments of one document.

    A document, which ends at an empty line, is divided into windows of whole sentences of up to twice `length` tokens
    (two sentences may be longer). A window is cut at the end of the sentence that is nearest to its middle. Tokens by
    which a segment is longer than `length` are removed at the start or the end of the window, so that the segments stay
    adjacent. Windows of a single sentence are left out.
    """

    num_texts, columns, described_text = 2, 4, "monolingual text of documents"

    def __init__(self, path: str | Path, language: str, symbols: int | None = None):
        super().__init__(path, language, symbols)
        self.codes = (language, language)
        self.range = lru_cache(maxsize=4)(lambda length: LengthRange(self, length))

    def rows_of(self, length: int) -> Iterator[Numbers]:
        """Yields windows (b, 4): token indices where they begin, are cut and end, and the index of the document.

        Each block has the windows that begin in `BLOCK_LINES` lines, and reads on as far as these windows reach.
        """
        line = documents = single = total = 0
        while line < self.lines:
            sizes = self.sizes_from(line, BLOCK_LINES + 2 * length + 2)
            count = min(BLOCK_LINES, len(sizes))
            starts = np.concatenate(([0], np.cumsum(sizes)))  # first token of each sentence; last: end of the block
            blank = sizes == 1
            ends = np.append(np.flatnonzero(blank), len(sizes))  # line that ends each document
            ends = np.repeat(ends, np.diff(ends, prepend=-1))[:count]  # the same for each sentence
            reach = np.searchsorted(starts, starts[:count] + 2 * length, side="right") - 1
            indices = np.arange(count)
            following = np.maximum(np.minimum(np.maximum(reach, indices + 2), ends), indices + 1)
            firsts, end = follow_jumps(following)
            firsts = firsts[~blank[firsts]]
            lasts = following[firsts]
            several = lasts - firsts > 1
            single, total = single + (~several).sum(), total + len(several)
            firsts, lasts = firsts[several], lasts[several]
            middles = (starts[firsts] + starts[lasts]) / 2
            after = np.searchsorted(starts, middles)
            nearest = np.where(starts[after] - middles < middles - starts[after - 1], after, after - 1)
            cuts = np.clip(nearest, firsts + 1, lasts - 1)
            document_ids = documents + np.cumsum(blank)[firsts]
            first_token = self.text.bounds(line)[0]
            yield np.stack((*(first_token + starts[lines] for lines in (firsts, cuts, lasts)), document_ids), axis=1)
            line, documents = line + end, documents + int(blank[:end].sum())
        if not documents:
            logger.warning("%s: no empty line, so the whole text is one document", self.path)
        if single and total > single:
            logger.info("%s: %d of %d windows are single sentences and are left out", self.path, single, total)

    def no_windows_error(self, length: int) -> UserError:
        return UserError(
            f"{self.path}: no document of language {self.language!r} has two sentences; documents are separated by "
            "empty lines"
        )

    def texts(self, examples: Numbers, length: int) -> list[tuple[Numbers, ...]]:
        """The two segments of each example, of at most `length` tokens each: a list of pairs of arrays."""
        read = self.text.read
        return [
            (read(max(begin, middle - length), middle), read(middle, min(end, middle + length)))
            for begin, middle, end in self.windows(length)[examples, :3].tolist()
        ]

    def sizes_of(self, windows: Numbers, length: int) -> Numbers:
        """Tokens of both segments of windows (n, 4) together, (n,)."""
        return np.minimum(np.diff(windows[:, :3]), length).sum(1)

    def check_negatives(self, length: int) -> None:
        """Raises `UserError` if there is no negative. Reads the text up to the second document with a window."""
        self.check(length)
        first = None
        for rows in self.rows_of(length):
            if len(rows):
                first = rows[0, 3] if first is None else first
                if rows[-1, 3] != first:
                    return
        raise UserError(
            f"{self.path}: negatives need a second document of two or more sentences, and the text of language "
            f"{self.language!r} has only one; documents are separated by empty lines"
        )

    def sorted_by_length(self, length: int) -> Numbers:
        """The windows sorted by the length of the second segment: (n,) `length_codes`."""
        windows = self.windows(length)

        def rows() -> Iterator[Numbers]:
            for first in range(0, len(windows), BLOCK_LINES):
                _, cuts, ends, _ = windows[first : first + BLOCK_LINES].T
                yield length_codes(np.minimum(ends - cuts, length), np.arange(first, first + len(cuts)))

        if windows[0, 3] == windows[-1, 3]:
            self.check_negatives(length)
        path = f"{self.path}.second-segments-{length}.table"
        return table(path, self.table_prefixes, self.lines, rows, None)

    def sizes_with_negatives(self, examples: Numbers, length: int) -> Numbers:
        """Tokens (n,) of each example with its longest possible negative."""
        begins, cuts, ends, _ = self.windows(length)[examples].T
        return np.minimum(cuts - begins, length) + self.range(length).most[np.minimum(ends - cuts, length)]

    def negatives(self, examples: Numbers, length: int, keys: Numbers) -> list[Numbers]:
        """Samples a second segment of similar length from another document for each example (B,): a list of arrays.

        All segments of the lengths in `LengthRange` are equally probable. Each example has a key, (B,) uint64.
        """
        windows, lengths = self.windows(length), self.range(length)
        sizes = np.minimum(windows[examples, 2] - windows[examples, 1], length)
        draws = uniforms(keys, TRIES, NEGATIVE_SEGMENT)
        candidates, documents = lengths.draw(sizes, draws), windows[examples, 3]
        elsewhere = windows[candidates, 3] != documents[:, None]
        negatives = candidates[np.arange(len(candidates)), elsewhere.argmax(axis=1)]
        for row in np.flatnonzero(~elsewhere.any(axis=1)):  # the document is most of the text
            first, end = (side(windows[:, 3], documents[row]) for side in (bisect.bisect_left, bisect.bisect_right))
            index = int(draws[row, 0] * (len(windows) - (end - first)))
            negatives[row] = index if index < first else index + end - first
        return [second[:size] for (_, second), size in zip(self.texts(negatives, length), lengths.most[sizes].tolist())]
