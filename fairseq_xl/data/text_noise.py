"""The noise that xDAE's decoder undoes (G4), as pure functions over padded batches.

B rows, T positions, W words of the longest row, N tokens that may be masked, S spans. Rows are padded on the right;
special symbols and padding stay as they are, where they are. Every number is drawn by word, token or span of its own
row, so that a row's noise is the same whatever is beside it in the batch.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy import ndarray

from fairseq_xl.data.framing import pad_rows
from fairseq_xl.data.masking import choose_positions
from fairseq_xl.data.randomness import uniforms

#: purposes of random numbers; those before them are of `fairseq_xl.data.masking`
DISTANCE, DROP, BUDGET, LENGTH, PLACE, BEGINNING = range(4, 10)
NO_WORD = -1


class Text(NamedTuple):
    """Rows of tokens, and which word of its row each of them belongs to."""

    tokens: ndarray  # (B, T) ids
    words: ndarray  # (B, T) numbers of words, in the order of the clean row; NO_WORD at symbols that are no pieces

    @property
    def width(self):
        """One more than the highest number of a word."""
        return int(self.words.max(initial=NO_WORD)) + 1


def split_into_words(tokens, is_piece, begins_word, every_piece):
    """`Text` of tokens (B, T), the words of which are maximal runs of pieces up to the next that begins a word (G4).

    Args:
        is_piece, begins_word: (V,) bool, by symbol. What is no piece ends a word too.
        every_piece: (B,) bool, rows of languages written without blanks: each piece is a word.
    """
    pieces = is_piece[tokens]
    behind_piece = np.pad(pieces, ((0, 0), (1, 0)))[:, :-1]
    first = pieces & (begins_word[tokens] | every_piece[:, None] | ~behind_piece)
    return Text(tokens, np.where(pieces, first.cumsum(1) - 1, NO_WORD))


def shuffled(text, keys, reach):
    """Words in the order of their numbers + U(0, reach): none moves `reach` places or more (G4, 1).

    No word passes a special symbol: those between two of them are shuffled among themselves.

    Args:
        text: `Text`.
        keys: (B,) uint64 keys of the draws.

    Returns: `Text`.
    """
    special = text.words == NO_WORD
    moved = text.words + reach * _of_word(text, keys, DISTANCE)
    moved = np.where(special, NO_WORD, moved)  # first of what follows it
    order = np.lexsort((moved, special.cumsum(1)))  # stable: the pieces of a word stay in order
    return Text(*(np.take_along_axis(part, order, axis=1) for part in text))


def dropped(text, keys, probability, pad):
    """Each word is left out with a probability (G4, 2): `Text` -> `Text` (B, T'), T' <= T."""
    return _kept(text, (text.words == NO_WORD) | (_of_word(text, keys, DROP) >= probability), pad)


def masked(text, keys, share, mask_index, pad):
    """A share of each row's words, rounded at random, is replaced by one `<mask>` each (G4, 3).

    Returns: `Text` (B, T'), T' <= T, in which a `<mask>` is of no word.
    """
    rows, places = np.nonzero(text.words != NO_WORD)
    there = np.zeros((len(text.words), text.width), dtype=bool)
    there[rows, text.words[rows, places]] = True
    chosen = np.zeros(text.words.shape, dtype=bool)
    chosen[rows, places] = choose_positions(there, keys, share)[rows, text.words[rows, places]]
    first = chosen & (text.words != np.pad(text.words, ((0, 0), (1, 0)), constant_values=NO_WORD)[:, :-1])
    replaced = Text(np.where(first, mask_index, text.tokens), np.where(chosen, NO_WORD, text.words))
    return _kept(replaced, first | ~chosen, pad)


def infilled(tokens, allowed, keys, share, mean_length, mask_index, pad):
    """Spans of tokens are replaced by one `<mask>` each; one of length 0 inserts a `<mask>` (G4, 4).

    A row of n allowed tokens has a budget of share·n of them, rounded at random so that the expectation is exact, and
    exactly so many are masked. Lengths are Poisson, drawn one after the other until the budget is spent: what is left
    of it cuts the last span. Spans of length 0 spend nothing. Where they lie is uniform over all arrangements in which
    they don't overlap, on a ring, so that tokens at the ends are masked as often as others: a span over the end of the
    row goes on at its beginning, and is a `<mask>` at both.

    A row never becomes longer: a budget of k tokens has k spans at most, the k-th of which takes what is left; and
    where a span reaches over a symbol that is not allowed, which stays, or over the end, each part of it becomes a
    `<mask>`, for which insertions are left out where need be.

    Args:
        tokens: (B, T) ids.
        allowed: (B, T) bool, which tokens may be masked.
        keys: (B,) uint64 keys of the draws.
        share: of the allowed tokens.
        mean_length: of the Poisson distribution.

    Returns: (B, T'), T' <= T.
    """
    counts = allowed.sum(1)
    budgets = np.floor(share * counts + uniforms(keys, 1, BUDGET)[:, 0]).astype(np.int64)
    slots, is_span, insertions = _arranged(counts, budgets, _span_lengths(budgets, keys, mean_length), keys)
    beginning = np.floor(uniforms(keys, 1, BEGINNING) * counts[:, None]).astype(np.int64)
    number = (allowed.cumsum(1) - 1 + beginning) % np.maximum(counts, 1)[:, None]  # on the ring, of allowed tokens
    slot = np.where(allowed, np.take_along_axis(slots, number, axis=1), -1)  # (B, T)
    covered = allowed & np.take_along_axis(is_span, np.maximum(slot, 0), axis=1)
    first = covered & (slot != np.pad(slot, ((0, 0), (1, 0)), constant_values=-1)[:, :-1])
    before = np.where(allowed, np.take_along_axis(insertions, number, axis=1), 0)  # (B, T) insertions in front of each
    room = (budgets - first.sum(1))[:, None]
    before = np.diff(np.minimum(before.cumsum(1), room), axis=1, prepend=0)
    stays = np.where(covered, first, tokens != pad)
    return _with_insertions(np.where(first, mask_index, tokens), stays, before, mask_index, pad)


def _of_word(text, keys, purpose):
    """A uniform number of each word, at its tokens: (B, T); anything where no word is."""
    drawn = uniforms(keys, max(text.width, 1), purpose)
    return np.take_along_axis(drawn, np.maximum(text.words, 0), axis=1)


def _kept(text, kept, pad):
    """The tokens (B, T) that are kept and no padding, padded anew."""
    kept = kept & (text.tokens != pad)
    lengths = kept.sum(1)
    order = np.argsort(~kept, axis=1, kind="stable")[:, : lengths.max()]
    gone = np.arange(order.shape[1]) >= lengths[:, None]
    tokens, words = (np.take_along_axis(part, order, axis=1) for part in text)
    return Text(np.where(gone, pad, tokens), np.where(gone, NO_WORD, words))


def _span_lengths(budgets, keys, mean):
    """Lengths of each row's spans, which sum to its budget, in the order of drawing: (B, S), -1 behind the last."""
    budget, most = budgets[:, None], int(budgets.max())
    spent = np.minimum(_poisson(uniforms(keys, most, LENGTH), mean).cumsum(1), budget)
    spent = np.where(np.arange(1, most + 1) < budget, spent, budget)
    before = np.pad(spent, ((0, 0), (1, 0)))[:, :-1]
    return np.where(before < budget, spent - before, -1)


def _arranged(counts, budgets, lengths, keys):
    """Spans in random places between the tokens that none covers: these and those are the slots of a row.

    Args:
        counts, budgets: (B,) allowed tokens, and how many of them spans cover.
        lengths: (B, S) lengths of spans, -1 where there is none.

    Returns: the slot of each allowed token (B, N); which slots are spans (B, …); how many spans of length 0 lie before
        each allowed token (B, N). It is a ring: what is behind the last token is before the first.
    """
    rows, spans = np.nonzero(lengths >= 0)
    totals = counts - budgets + (lengths >= 0).sum(1)
    there = np.arange(max(int(totals.max()), 1)) < totals[:, None]
    order = np.argsort(np.where(there, uniforms(keys, there.shape[1], PLACE), np.inf), axis=1)
    sizes, is_span = there.astype(np.int64), np.zeros(there.shape, dtype=bool)
    sizes[rows, order[rows, spans]] = lengths[rows, spans]
    is_span[rows, order[rows, spans]] = True
    first = sizes.cumsum(1) - sizes  # number of the first allowed token of each slot
    slots = np.zeros((len(counts), max(int(counts.max()), 1)), dtype=np.int64)
    filled, empty = np.nonzero(sizes), np.nonzero(is_span & (sizes == 0))
    slots[filled[0], first[filled]] = filled[1]
    insertions = np.zeros_like(slots)
    np.add.at(insertions, (empty[0], first[empty] % counts[empty[0]]), 1)
    return np.maximum.accumulate(slots, axis=1), is_span, insertions


def _with_insertions(tokens, stays, before, inserted, pad):
    """Tokens (B, T) that stay, with `before` (B, T) times `inserted` in front of each: (B, T') padded anew."""
    counts = before + stays
    place = np.repeat(np.arange(counts.size), counts.ravel())
    number = np.arange(len(place)) - (counts.ravel().cumsum() - counts.ravel())[place]  # of what is at the same place
    flat = np.where(number < before.ravel()[place], inserted, tokens.ravel()[place])
    return pad_rows(np.split(flat, counts.sum(1).cumsum()[:-1]), pad)


def _poisson(uniform, mean):
    """Uniform numbers -> Poisson ones, by the inverse of the distribution."""
    most = int(mean + 12 * math.sqrt(mean) + 12)  # beyond that lies less than a float can tell from 0
    weights = [math.exp(count * math.log(mean) - mean - math.lgamma(count + 1)) for count in range(most)]
    return np.searchsorted(np.cumsum(weights), uniform, side="right")
