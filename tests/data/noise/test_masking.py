"""Rates of masking, symbols that are never masked, and independence of rows (X5)."""

import numpy as np
import pytest

from fairseq_xl.data.noise.masking import choose_positions, choose_spans, corrupt

MASK, PIECES = 20, np.arange(4, 20)


def some_keys(count, seed=3):
    return np.random.default_rng(seed).integers(2**64, size=count, dtype=np.uint64)


@pytest.mark.parametrize("width, lengths, mean", [(40, {6}, 6), (30, {4, 5}, 4.5), (2, {0, 1}, 0.3)])
def test_the_share_is_unbiased_where_it_is_rounded(width, lengths, mean):
    """15 % of 30 is 4.5: rows get 4 or 5, half of them each (20 000 rows: deviation 0.0035). So do short rows."""
    counts = choose_positions(np.ones((20_000, width), dtype=bool), some_keys(20_000), 0.15).sum(1)
    assert set(counts.tolist()) == lengths and counts.mean() == pytest.approx(mean, abs=0.015)


def test_positions_are_drawn_uniformly_without_weights():
    chosen = choose_positions(np.ones((40_000, 10), dtype=bool), some_keys(40_000), 0.2)
    assert chosen.mean(0) == pytest.approx(np.full(10, 0.2), abs=0.01)  # deviation 0.002


def test_positions_are_drawn_in_proportion_to_their_weights():
    """One of 50 rare (weight 1) and 50 frequent positions (count 100: weight 0.1): 5 of 55 draws are frequent."""
    counts = np.tile(np.repeat([1, 100], 50), (20_000, 1))
    chosen = choose_positions(np.ones(counts.shape, dtype=bool), some_keys(20_000), 0.01, counts**-0.5)
    assert chosen.sum(1).tolist() == [1] * 20_000
    assert (chosen & (counts == 100)).sum() / 20_000 == pytest.approx(1 / 11, abs=0.008)  # deviation 0.002


def test_draws_with_weights_are_without_replacement():
    """Two of three positions with weights 2, 1, 1: the heavy one is in 1/2 + 1/4 · 2/3 · 2 = 5/6 of the rows."""
    weights = np.tile([2.0, 1.0, 1.0], (20_000, 1))
    chosen = choose_positions(np.ones(weights.shape, dtype=bool), some_keys(20_000), 2 / 3 + 1e-12, weights)
    assert chosen.sum(1).tolist() == [2] * 20_000
    assert chosen.mean(0) == pytest.approx([5 / 6, 7 / 12, 7 / 12], abs=0.014)  # deviation 0.0035


def test_only_allowed_positions_are_chosen_and_the_share_is_of_them():
    allowed = np.zeros((200, 30), dtype=bool)
    allowed[:, 5:25] = True
    chosen = choose_positions(allowed, some_keys(200), 0.15)
    assert not chosen[~allowed].any()
    assert chosen.sum(1).tolist() == [3] * 200
    assert not choose_positions(np.zeros((5, 8), dtype=bool), some_keys(5), 0.9).any()
    assert choose_positions(allowed, some_keys(200), 1.0).sum() == allowed.sum()


def runs(row):
    """(start, length) of each run of True in a row."""
    edges = np.flatnonzero(np.diff(np.pad(row.astype(int), 1)))
    return [(start, end - start) for start, end in zip(edges[::2], edges[1::2])]


def test_a_span_in_every_block():
    """G6: each block of 64 has a span of 9, at each of the 56 places equally often."""
    chosen = choose_spans(np.ones((20_000, 128), dtype=bool), some_keys(20_000), 64, 9)
    for first in (0, 64):
        block = chosen[:, first : first + 64]
        assert block.sum(1).tolist() == [9] * 20_000 and (np.diff(block.astype(int), axis=1) != 0).sum(1).max() == 2
        starts = np.bincount(block.argmax(1), minlength=64) / 20_000
        assert starts[:56] == pytest.approx(np.full(56, 1 / 56), abs=0.004)  # deviation 0.00094
        assert not starts[56:].any()
    assert np.corrcoef(chosen[:, :64].argmax(1), chosen[:, 64:].argmax(1))[0, 1] == pytest.approx(0, abs=0.03)


@pytest.mark.parametrize("left, lengths", [(1, {0, 1}), (32, {4, 5}), (60, {8, 9}), (63, {8, 9})])
def test_a_last_block_has_its_share(left, lengths):
    """A span of 9 n / 64 on average, rounded to either side: 14.06 % of the row whatever its length."""
    chosen = choose_spans(np.ones((20_000, 64 + left), dtype=bool), some_keys(20_000), 64, 9)[:, 64:]
    assert set(chosen.sum(1).tolist()) == lengths
    assert chosen.sum(1).mean() == pytest.approx(9 * left / 64, abs=0.016)  # deviation at most 0.0036
    assert all(len(runs(row)) == min(row.sum(), 1) for row in chosen[:500])
    if left == 32:  # first and last places are as likely as their spans are long: 4.5 of 32 in 28.5 places
        assert chosen.mean(0)[[0, -1]] == pytest.approx(np.full(2, (1 / 29 + 1 / 28) / 2), abs=0.006)


def test_spans_continue_behind_what_is_not_allowed():
    """Every third position is not allowed; 8 of the others are a block, 3 of them a span."""
    allowed = np.tile(np.arange(24) % 3 != 1, (500, 1))
    chosen = choose_spans(allowed, some_keys(500), 8, 3)
    assert not chosen[~allowed].any()
    for row in chosen:
        of_pieces = row[allowed[0]]
        assert [of_pieces[first : first + 8].sum() for first in (0, 8)] == [3, 3]
        assert all(runs(of_pieces[first : first + 8])[0][1] == 3 for first in (0, 8))
    assert not choose_spans(np.zeros((3, 8), dtype=bool), some_keys(3), 8, 3).any()


def test_spans_depend_on_the_key():
    allowed, keys = np.ones((6, 200), dtype=bool), some_keys(6)
    allowed[3, 150:] = False
    together = choose_spans(allowed, keys, 64, 9)
    for row in range(6):
        width = 150 if row == 3 else 200
        assert (choose_spans(allowed[row : row + 1, :width], keys[row : row + 1], 64, 9) == together[row, :width]).all()
    assert len({tuple(row) for row in together.tolist()}) == 6


def test_eighty_ten_ten():
    tokens = np.full((400, 500), 4)
    chosen = np.zeros(tokens.shape, dtype=bool)
    chosen[:, ::2] = True
    noised = corrupt(tokens, chosen, some_keys(400), MASK, PIECES)
    assert (noised[~chosen] == 4).all()
    found = noised[chosen]  # 100 000: deviations 0.0013, 0.00095, 0.0003
    assert (found == MASK).mean() == pytest.approx(0.8, abs=0.006)
    assert (found == 4).mean() == pytest.approx(0.1 + 0.1 / 16, abs=0.005)  # kept, or drawn by chance
    shares = np.array([(found == piece).mean() for piece in range(5, 20)])
    assert shares == pytest.approx(np.full(15, 0.1 / 16), abs=0.0014)
    assert np.isin(found, [MASK, *PIECES]).all()
    assert (tokens == 4).all()  # the input is as it was


@pytest.mark.parametrize(
    "mask_share, random_share, expected", [(1.0, 0.0, {MASK}), (0.0, 0.0, {4}), (0.0, 1.0, set(PIECES))]
)
def test_other_shares(mask_share, random_share, expected):
    tokens = np.full((20, 50), 4)
    noised = corrupt(tokens, np.ones(tokens.shape, bool), some_keys(20), MASK, PIECES, mask_share, random_share)
    assert set(noised.ravel().tolist()) == expected


def test_what_is_done_to_a_position_is_independent_of_its_choice():
    """If both used the same random numbers, all positions that are chosen early would be masked."""
    tokens = np.full((2000, 100), 4)
    few, many = (choose_positions(tokens == 4, some_keys(2000), share) for share in (0.05, 0.5))
    assert not (few & ~many).any()
    noised = corrupt(tokens, many, some_keys(2000), MASK, PIECES)
    assert (noised[few] == MASK).mean() == pytest.approx(0.8, abs=0.02)  # 10 000: deviation 0.004


@pytest.mark.parametrize("weighted", [False, True])
def test_a_rows_noise_is_its_own(weighted):
    """A batch equals its rows one by one, in any order, and padding changes nothing."""
    rng = np.random.default_rng(1)
    keys, lengths = some_keys(12), rng.integers(5, 40, size=12)
    tokens = rng.integers(4, 20, size=(12, 40))
    allowed = np.arange(40) < lengths[:, None]
    weights = rng.uniform(0.1, 2, size=20) if weighted else None

    def noise(rows, time):
        part, where = tokens[rows][:, :time], allowed[rows][:, :time]
        chosen = choose_positions(where, keys[rows], 0.3, None if weights is None else weights[part])
        return chosen, corrupt(part, chosen, keys[rows], MASK, PIECES)

    chosen, noised = noise(np.arange(12), 40)
    assert chosen.any(1).all()
    for row, length in enumerate(lengths):
        alone, alone_noised = noise(np.array([row]), length)
        assert np.array_equal(alone[0], chosen[row, :length])
        assert np.array_equal(alone_noised[0], noised[row, :length])
    assert np.array_equal(noise(np.arange(12)[::-1], 40)[1], noised[::-1])
