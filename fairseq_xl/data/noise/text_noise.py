"""Text noise of xDAE (Liang et al. 2020, section 4.1) as pure functions over padded batches.

Rows are padded on the right. Special symbols and padding stay where they are. Random numbers belong to a word, a token
or a span of a row, so that the noise of a row does not depend on the other rows of the batch.

Legend: B rows, T positions, W words of the longest row, N tokens that may be masked, S spans.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy import ndarray

from fairseq_xl.data import Numbers
from fairseq_xl.data.framing import pad_rows
from fairseq_xl.data.noise.masking import choose_positions
from fairseq_xl.data.noise.randomness import BEGINNING, BUDGET, DISTANCE, DROP, LENGTH, PLACE, uniforms

NO_WORD = -1


class Text(NamedTuple):
    """Rows of tokens, and the word of its row that each token belongs to."""

    tokens: Numbers  # (B, T) ids
    words: Numbers  # (B, T) numbers of words in the order of the clean row; NO_WORD at special symbols

    @property
    def width(self) -> int:
        """The highest number of a word, plus one."""
        return int(self.words.max(initial=NO_WORD)) + 1


def split_into_words(
    tokens: Numbers, is_piece: ndarray, begins_word: ndarray, ends_word: ndarray, every_piece: ndarray
) -> Text:
    """Splits tokens (B, T) into words.

    A word starts at a piece marked as word-initial (▁), after one marked as word-final (no @@) and a special symbol.

    Args:
        is_piece, begins_word, ends_word: (V,) bool, by symbol.
        every_piece: (B,) bool, True for rows of languages without spaces between words, in which each piece is a word.
    """
    pieces = is_piece[tokens]
    continues = np.pad(pieces & ~ends_word[tokens], ((0, 0), (1, 0)))[:, :-1]
    first = pieces & (begins_word[tokens] | every_piece[:, None] | ~continues)
    return Text(tokens, np.where(pieces, first.cumsum(1) - 1, NO_WORD))


def shuffled(text: Text, keys: Numbers, reach: float) -> Text:
    """Sorts words by their index + U(0, reach), which moves each by fewer than `reach` positions; `keys` (B,) uint64.

    No word passes a special symbol: the words between two symbols are shuffled among themselves.
    """
    special = text.words == NO_WORD
    moved = text.words + reach * _word_draws(text, keys, DISTANCE)
    moved = np.where(special, NO_WORD, moved)  # a symbol sorts before the words that follow it
    order = np.lexsort((moved, special.cumsum(1)))  # stable: the pieces of a word stay in order
    return Text(*(np.take_along_axis(part, order, axis=1) for part in text))


def dropped(text: Text, keys: Numbers, probability: float, pad: int) -> Text:
    """Leaves out each word with a probability: `Text` (B, T) -> `Text` (B, T'), T' <= T.

    A row that would lose all its words keeps the word whose random number is highest.
    """
    draws = np.where(text.words == NO_WORD, 1.0, _word_draws(text, keys, DROP))
    highest = np.where(text.words == NO_WORD, 0.0, draws).max(axis=1, keepdims=True)
    return _remaining(text, draws >= np.minimum(probability, highest), pad)


def masked(text: Text, keys: Numbers, share: float, mask_index: int, pad: int) -> Text:
    """Replaces a share of each row's words, rounded at random, by one `<mask>` each, which belongs to no word."""
    rows, columns = np.nonzero(text.words != NO_WORD)
    is_word = np.zeros((len(text.words), text.width), dtype=bool)
    is_word[rows, text.words[rows, columns]] = True
    selected = np.zeros(text.words.shape, dtype=bool)
    selected[rows, columns] = choose_positions(is_word, keys, share)[rows, text.words[rows, columns]]
    first = selected & (text.words != np.pad(text.words, ((0, 0), (1, 0)), constant_values=NO_WORD)[:, :-1])
    replaced = Text(np.where(first, mask_index, text.tokens), np.where(selected, NO_WORD, text.words))
    return _remaining(replaced, first | ~selected, pad)


def infilled(
    tokens: Numbers, allowed: ndarray, keys: Numbers, share: float, mean_length: float, mask_index: int, pad: int
) -> Numbers:
    """Replaces spans of tokens by one `<mask>` each; a span of length 0 inserts a `<mask>`.

    In a row of n allowed tokens, share·n tokens are masked: the budget, rounded at random so that the expectation is
    exact. Span lengths are sampled from a Poisson distribution until the budget is spent; the last span is cut to what
    is left of it. Spans of length 0 spend nothing. The positions of the spans are uniform over all arrangements without
    overlap on a ring, so that tokens at both ends are masked as often as others: a span over the end of the row
    continues at its beginning and leaves a `<mask>` at both ends.

    Rows never become longer. A budget of k tokens has at most k spans, the k-th of which takes the rest of the budget.
    Where a span covers a special symbol, which stays, or the end of the row, each of its parts becomes a `<mask>`;
    insertions are left out if the row would become longer.

    Tokens (B, T), those that may be masked (B, T) bool, and the keys of the examples (B,) uint64 -> (B, T'), T' <= T.
    """
    counts = allowed.sum(1)
    budgets = np.floor(share * counts + uniforms(keys, 1, BUDGET)[:, 0]).astype(np.int64)
    slots, is_span, insertions = _arranged(counts, budgets, _span_lengths(budgets, keys, mean_length), keys)
    beginning = np.floor(uniforms(keys, 1, BEGINNING) * counts[:, None]).astype(np.int64)
    ring_index = (allowed.cumsum(1) - 1 + beginning) % np.maximum(counts, 1)[:, None]  # on the ring of allowed tokens
    slot = np.where(allowed, np.take_along_axis(slots, ring_index, axis=1), -1)  # (B, T)
    covered = allowed & np.take_along_axis(is_span, np.maximum(slot, 0), axis=1)
    first = covered & (slot != np.pad(slot, ((0, 0), (1, 0)), constant_values=-1)[:, :-1])
    before = np.where(allowed, np.take_along_axis(insertions, ring_index, axis=1), 0)  # (B, T) insertions before each
    room = (budgets - first.sum(1))[:, None]
    before = np.diff(np.minimum(before.cumsum(1), room), axis=1, prepend=0)
    stays = np.where(covered, first, tokens != pad)
    return _with_insertions(np.where(first, mask_index, tokens), stays, before, mask_index, pad)


def _word_draws(text: Text, keys: Numbers, purpose: int) -> ndarray:
    """Draws a uniform number for each word, repeated at its tokens: (B, T); arbitrary outside words."""
    draws = uniforms(keys, max(text.width, 1), purpose)
    return np.take_along_axis(draws, np.maximum(text.words, 0), axis=1)


def _remaining(text: Text, stays: ndarray, pad: int) -> Text:
    """Removes tokens that do not stay, (B, T) bool, and pads the rows again."""
    stays = stays & (text.tokens != pad)
    lengths = stays.sum(1)
    order = np.argsort(~stays, axis=1, kind="stable")[:, : lengths.max()]
    gone = np.arange(order.shape[1]) >= lengths[:, None]
    tokens, words = (np.take_along_axis(part, order, axis=1) for part in text)
    return Text(np.where(gone, pad, tokens), np.where(gone, NO_WORD, words))


def _span_lengths(budgets: Numbers, keys: Numbers, mean: float) -> Numbers:
    """Samples the lengths of spans, which sum to the budget of the row: (B, S), -1 behind the last span."""
    budget, most = budgets[:, None], int(budgets.max())
    longest = int(mean + 12 * math.sqrt(mean) + 12)  # the rest of the distribution is below the precision of floats
    weights = [math.exp(length * math.log(mean) - mean - math.lgamma(length + 1)) for length in range(longest)]
    lengths = np.searchsorted(np.cumsum(weights), uniforms(keys, most, LENGTH), side="right")  # Poisson
    spent = np.minimum(lengths.cumsum(1), budget)
    spent = np.where(np.arange(1, most + 1) < budget, spent, budget)
    before = np.pad(spent, ((0, 0), (1, 0)))[:, :-1]
    return np.where(before < budget, spent - before, -1)


def _arranged(counts: Numbers, budgets: Numbers, lengths: Numbers, keys: Numbers) -> tuple[Numbers, ndarray, Numbers]:
    """Arranges spans and uncovered tokens, together the slots of a row, in random order on a ring.

    Args:
        counts, budgets: (B,) numbers of allowed tokens and of tokens that spans cover.
        lengths: (B, S) lengths of spans, -1 where there is none.

    Returns: the slot of each allowed token (B, N); whether each slot is a span (B, …); the number of spans of length 0
        before each allowed token (B, N). Spans of length 0 behind the last token count as before the first one.
    """
    rows, spans = np.nonzero(lengths >= 0)
    totals = counts - budgets + (lengths >= 0).sum(1)
    is_slot = np.arange(max(int(totals.max()), 1)) < totals[:, None]
    order = np.argsort(np.where(is_slot, uniforms(keys, is_slot.shape[1], PLACE), np.inf), axis=1)
    sizes, is_span = is_slot.astype(np.int64), np.zeros(is_slot.shape, dtype=bool)
    sizes[rows, order[rows, spans]] = lengths[rows, spans]
    is_span[rows, order[rows, spans]] = True
    first = sizes.cumsum(1) - sizes  # number of the first allowed token of each slot
    slots = np.zeros((len(counts), max(int(counts.max()), 1)), dtype=np.int64)
    filled, empty = np.nonzero(sizes), np.nonzero(is_span & (sizes == 0))
    slots[filled[0], first[filled]] = filled[1]
    insertions = np.zeros_like(slots)
    np.add.at(insertions, (empty[0], first[empty] % counts[empty[0]]), 1)
    return np.maximum.accumulate(slots, axis=1), is_span, insertions


def _with_insertions(tokens: Numbers, stays: ndarray, before: Numbers, inserted: int, pad: int) -> Numbers:
    """Keeps tokens where `stays` (B, T) and inserts `before` (B, T) symbols before each: (B, T'), padded again."""
    counts = before + stays
    source = np.repeat(np.arange(counts.size), counts.ravel())  # of each output symbol
    # index of each output symbol among those of its source
    offset = np.arange(len(source)) - (counts.ravel().cumsum() - counts.ravel())[source]
    flat = np.where(offset < before.ravel()[source], inserted, tokens.ravel()[source])
    return pad_rows(np.split(flat, counts.sum(1).cumsum()[:-1]), pad)
