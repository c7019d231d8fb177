"""Pairs of segments of monolingual documents."""

import bisect
import copy
import functools
import logging
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

from fairseq_xl.data import Numbers
from fairseq_xl.data.corpora.base import Corpus
from fairseq_xl.data.corpora.token_stream import TokenStream
from fairseq_xl.data.noise.randomness import NEGATIVE_SEGMENT, WINDOW, uniforms
from fairseq_xl.data.store.binarized_text import BLOCK_LINES, Text, evenly_spaced
from fairseq_xl.data.store.cached_tables import table
from fairseq_xl.errors import UserError
from fairseq_xl.io.arrays import Reopened

logger = logging.getLogger(__name__)
DIVISIONS = 256  # random divisions of a text into windows of `NextSegments`
SHORTER = 0.1  # share of shorter windows, BERT's short_seq_prob
FEW = 0.2  # share of second segments that follow below which there is a warning
CANDIDATES = 1024  # random segments of which that of the best length takes the place of another


class Windows(Corpus):
    """Base of corpora whose examples are the rows of a table, which is computed from the text for each length.

    A subclass defines the methods `rows_of`, which computes the table, and `sizes_of`.
    """

    path: str  # prefix of the table's file
    sides: list[Text]  # the aligned texts
    columns: int  # number of columns of the table
    table_name = ""  # in the name of its file; empty: the name of the class
    version = 1  # of `rows_of`; increase it when the same text gives other rows, so that files are computed again
    no_windows = "{path}: the text of language {language!r} has no sentence"  # message of a `UserError`

    def __init__(self) -> None:
        self.windows = lru_cache(maxsize=4)(self._windows)

    def rows_of(self, length: int) -> Iterator[Numbers]:
        """Yields blocks of the table's rows, (b, c) int64."""
        raise NotImplementedError(f"{type(self).__name__}.rows_of")

    def sizes_of(self, windows: Numbers, length: int) -> Numbers:
        """Numbers of tokens (n,) of windows (n, c)."""
        raise NotImplementedError(f"{type(self).__name__}.sizes_of")

    def _windows(self, length: int) -> Numbers:
        path = f"{self.path}.{self.table_name or type(self).__name__}-{length}.table"
        windows = table(path, self.sides, functools.partial(self.rows_of, length), self.columns, self.version)
        if not len(windows):
            raise UserError(self.no_windows.format(**vars(self)))
        return windows

    def check(self, length: int) -> None:
        """Raises `UserError` if the text has no windows. Reads the text up to the first one."""
        if not any(map(len, self.rows_of(length))):
            raise UserError(self.no_windows.format(**vars(self)))

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

    `following` (n,) has for each index a greater one, perhaps n or more. Returns: the indices below n (m,), and the
    first one that is n or more.
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
        stream = TokenStream(path, language, symbols)
        self.path, self.language, self.codes = stream.path, language, (language,) * self.num_texts
        self.text, self.sides, self.sentences = stream.text, [stream.text], stream.sentences
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
    """Pairs of adjacent segments of one document (Luo et al. 2020, section 2.2).

    A document, which ends at an empty line, is divided into windows of whole sentences of up to twice `length` tokens
    (two sentences may be longer). A window is cut at the end of the sentence that is nearest to its middle. Tokens by
    which a segment is longer than `length` are removed at the start or the end of the window, so that the segments stay
    adjacent. Windows of a single sentence are left out.
    """

    num_texts, columns, described_text, version = 2, 3, "monolingual text of documents", 2
    no_windows = (
        "{path}: no document of language {language!r} has two sentences; documents are separated by empty lines"
    )

    def rows_of(self, length: int) -> Iterator[Numbers]:
        """Yields windows (b, 3): token indices where they begin, are cut and end.

        Each block has the windows that begin in `BLOCK_LINES` lines, and reads on as far as these windows reach.
        """
        line = documents = single = total = 0
        while line < self.lines:
            sizes = self.sizes_from(line, BLOCK_LINES + 2 * length + 2)
            count = min(BLOCK_LINES, len(sizes))
            starts = np.concatenate(([0], np.cumsum(sizes)))  # first token of each sentence; last: end of the block
            blank, ends = sizes == 1, document_ends(sizes)[:count]
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
            yield self.text.bounds(line)[0] + np.stack([starts[lines] for lines in (firsts, cuts, lasts)], axis=1)
            line, documents = line + end, documents + int(blank[:end].sum())
        if not documents:
            logger.warning("%s: no empty line, so the whole text is one document", self.path)
        if single and total > single:
            logger.info("%s: %d of %d windows are single sentences and are left out", self.path, single, total)

    def texts(self, examples: Numbers, length: int) -> list[tuple[Numbers, ...]]:
        """The two segments of each example, of at most `length` tokens each: a list of pairs of arrays."""
        read = self.text.read
        return [
            (read(max(begin, middle - length), middle), read(middle, min(end, middle + length)))
            for begin, middle, end in self.windows(length)[examples].tolist()
        ]

    def sizes_of(self, windows: Numbers, length: int) -> Numbers:
        """Tokens of both segments of windows (n, 3) together, (n,)."""
        return np.minimum(np.diff(windows), length).sum(1)


class NextSegments(OneLanguageWindows):
    """Pairs of segments for next-sentence prediction, as in BERT's code (Artetxe et al. 2020, section 3.2).

    A window has as many whole sentences of a document as fit into twice `length` tokens, or into a smaller random
    number in a tenth of the windows, but at least one. It is cut at a random end of a sentence. With probability 1/2,
    and always after a single sentence, a segment of another document takes the place of what follows the cut, where the
    next window begins. A single sentence of more than `length` tokens gives an example for each `length` of them. So
    the examples of a pass have every token of the text once, beside the segments of other documents. ``</s>`` is left
    out and not counted. Windows depend on their first token and on the division, one of `DIVISIONS`, which each pass
    draws. The number of an example: index of its first token times 512, division times 2, 1 if the second one follows.
    """

    num_texts, columns, described_text = 2, 4, "monolingual text of documents"
    division = 0  # in validation, and of the segments that are drawn from other documents

    def for_pass(self, rng: np.random.Generator) -> "NextSegments":
        corpus = copy.copy(self)
        corpus.division = int(rng.integers(DIVISIONS))
        corpus.table_name, corpus.version = "a-pass", self.version * DIVISIONS + corpus.division
        return corpus

    def rows_of(self, length: int) -> Iterator[Numbers]:
        """Yields (b, 4): the example, tokens of its first segment and of what follows, index of the document."""
        line = documents = 0
        while line < self.lines:
            sizes = self.sizes_from(line, BLOCK_LINES + 2 * length + 1)
            begins = self.text.bounds(line)[0] + (np.cumsum(sizes) - sizes)[:BLOCK_LINES]
            examples = 2 * (begins * DIVISIONS + self.division)
            words, cuts, lasts, follows = divide(sizes, examples, length)
            firsts, end = follow_jumps(np.where(follows, lasts, cuts))
            document_ids = documents + np.cumsum(sizes == 1)
            line, documents = line + end, int(document_ids[end - 1])
            firsts = firsts[sizes[firsts] > 1]
            first, cut, last = (words[lines] for lines in (firsts, cuts[firsts], lasts[firsts]))
            columns = (examples[firsts] + follows[firsts], cut - first, last - cut, document_ids[firsts])
            parts = np.where(last > cut, 1, -(-(cut - first) // length))
            rows = np.repeat(np.stack(columns, axis=1), parts, axis=0)
            before = length * (np.arange(len(rows)) - np.repeat(np.cumsum(parts) - parts, parts))  # in the sentence
            rows[:, 0] += 2 * DIVISIONS * before
            rows[:, 1] = np.where(rows[:, 2] > 0, rows[:, 1], np.minimum(rows[:, 1] - before, length))
            yield rows

    def sizes_of(self, windows: Numbers, length: int) -> Numbers:
        """Tokens of examples (n, 4) with the longest second segment that each may get, (n,)."""
        return windows[:, 1] + np.where(windows[:, 2] > 0, windows[:, 2], 2 * length - windows[:, 1])

    def examples_at(self, positions: Numbers, length: int) -> tuple[Numbers, Numbers]:
        windows = self.windows(length)[positions]
        return windows[:, 0], self.sizes_of(windows, length)

    def positions(self, examples: Numbers, length: int) -> Numbers:
        return np.searchsorted(self.windows(length)[:, 0], examples)

    def texts(self, examples: Numbers, length: int) -> list[tuple[Numbers, ...]]:
        """The first segment of each example and what follows it, perhaps nothing: a list of pairs of arrays."""
        texts, width, eos = [], self.text.tokens.itemsize, self.text.tokens[-1]
        for example in examples.tolist():
            begin = example // (2 * DIVISIONS)
            line = bisect.bisect_right(self.text.offsets, begin * width) - 1
            line_begin, line_end = self.text.bounds(line)
            cut = end = min(begin + length, line_end - 1)
            if begin == line_begin:
                sizes = self.text.sizes[line : line + 2 * length + 1].astype(np.int64)
                _, (cut_line,), (last,), _ = divide(sizes, np.array([example - example % 2]), length)
                if last > 1:
                    cut, end = begin + sizes[:cut_line].sum(), begin + sizes[:last].sum()
            texts.append(tuple(part[part != eos] for part in np.split(self.text.read(begin, end), [cut - begin])))
        return texts

    def check_negatives(self, length: int) -> None:
        """Raises `UserError` if there is no negative, and warns of few positives. Reads up to the second document."""
        first, follows = None, []
        for rows in filter(len, self.rows_of(length)):
            first = rows[0, 3] if first is None else first
            follows.append(rows[:, 0] % 2)
            if rows[-1, 3] != first:
                if (share := np.concatenate(follows).mean()) < FEW:
                    logger.warning(
                        "%s: only %.0f %% of second segments follow, since few inputs of %d tokens hold two sentences",
                        *(self.path, 100 * share, 2 * length),
                    )
                return
        raise UserError(
            f"{self.path}: negatives need a second document, and the text of language {self.language!r} has only one; "
            "documents are separated by empty lines"
        )

    def negatives(self, examples: Numbers, length: int, keys: Numbers) -> list[Numbers]:
        """Samples a second segment from other documents for each example (B,): a list of arrays.

        Of `CANDIDATES` random segments, the one whose length is closest to that of what follows the first segment, or
        after a single sentence to the room that is left, preferably from below. Each example has a key, (B,) uint64.
        """
        windows, pairs = self.windows(length), self.texts(examples, length)
        first, second = (np.array([len(pair[side]) for pair in pairs], np.int64) for side in (0, 1))
        sizes = np.where(second > 0, second, 2 * length - first)
        documents, spans = windows[:, 3], []
        for example in (examples | (2 * DIVISIONS - 1)).tolist():
            document = documents[bisect.bisect_right(windows[:, 0], example) - 1]
            spans.append([bound(documents, document) for bound in (bisect.bisect_left, bisect.bisect_right)])
        begins, ends = np.array(spans, np.int64).reshape(-1, 2).T[:, :, None]  # of the example's document
        candidates = (uniforms(keys, CANDIDATES, NEGATIVE_SEGMENT) * (len(windows) - (ends - begins))).astype(np.int64)
        candidates += np.where(candidates < begins, 0, ends - begins)
        lengths = np.where(windows[candidates, 2] > 0, windows[candidates, 2], windows[candidates, 1])
        shorter = sizes[:, None] - lengths
        best = np.where(shorter < 0, 2 * length - shorter, shorter).argmin(axis=1)
        segments = self.texts(windows[candidates[np.arange(len(best)), best], 0], length)
        return [(segment if len(segment) else alone)[:size] for (alone, segment), size in zip(segments, sizes.tolist())]


def document_ends(sizes: Numbers) -> Numbers:
    """The line that ends the document of each line, (n,), from the lines' numbers of tokens (n,)."""
    ends = np.append(np.flatnonzero(sizes == 1), len(sizes))
    return np.repeat(ends, np.diff(ends, prepend=-1))[: len(sizes)]


def divide(sizes: Numbers, examples: Numbers, length: int) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """The windows of `NextSegments` that begin at n lines.

    Args:
        sizes: (m,) tokens of lines from the first one on, as far as windows reach.
        examples: (n,) even numbers of the examples that begin at the first n of these lines.

    Returns: tokens before each line and at the end, without ``</s>``, (m+1,); where windows are cut and end, lines
        counted from the first one, (n,) each; whether the second segment follows, (n,) bool.
    """
    words, lines = np.concatenate(([0], np.cumsum(sizes - 1))), np.arange(len(examples))
    short, cut, follows = uniforms(examples.astype(np.uint64), 3, WINDOW).T
    targets = 2 * length * np.where(short < SHORTER, short / SHORTER, 1)
    lasts = np.searchsorted(words, words[lines] + targets, side="right") - 1
    lasts = np.clip(lasts, lines + 1, document_ends(sizes)[lines])
    cuts = lines + 1 + (cut * (lasts - lines - 1)).astype(np.int64)
    return words, cuts, lasts, (follows < 0.5) & (cuts < lasts)
