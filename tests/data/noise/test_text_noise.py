"""xDAE's noise: each kind by hand, rates, symbols that it never changes, and independence of rows (G4)."""

import numpy as np
import pytest

from fairseq_xl.data.framing import pad_rows
from fairseq_xl.data.noise import text_noise
from fairseq_xl.data.noise.randomness import BEGINNING, BUDGET, DISTANCE, DROP, LENGTH, PLACE, uniforms
from fairseq_xl.data.noise.text_noise import NO_WORD, Text, dropped, infilled, masked, shuffled, split_into_words

BOS, PAD, EOS, MASK = 0, 1, 2, 20
IS_PIECE = np.isin(np.arange(24), np.arange(4, 20))
BEGINS = np.isin(np.arange(24), np.arange(4, 10))  # of the pieces 4 … 19
NONE = np.zeros(24, dtype=bool)


def split(rows, every_piece=False):
    tokens = pad_rows([[BOS, *row, EOS] for row in rows], PAD)
    return split_into_words(tokens, IS_PIECE, BEGINS, NONE, np.full(len(rows), every_piece))


def some_keys(count, seed=3):
    return np.random.default_rng(seed).integers(2**64, size=count, dtype=np.uint64)


@pytest.fixture
def drawn(monkeypatch):
    """drawn({purpose: numbers of one row}) fixes the random numbers from then on."""

    def drawn(numbers):
        monkeypatch.setattr(text_noise, "uniforms", lambda keys, count, purpose: np.array([numbers[purpose][:count]]))

    return drawn


# --- words


def test_words_begin_with_their_piece_and_end_before_the_next():
    """The first piece of a row, or after a symbol, begins a word too: blocks may begin within words."""
    text = split([[10, 11, 4, 12, 5, EOS, 13, 14, MASK, 15], [4, 10]])
    assert text.words.tolist() == [
        [-1, 0, 0, 1, 1, 2, -1, 3, 3, -1, 4, -1],
        [-1, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1, -1],
    ]
    assert text.width == 5
    assert (
        text.tokens == pad_rows([[BOS, 10, 11, 4, 12, 5, EOS, 13, 14, MASK, 15, EOS], [BOS, 4, 10, EOS]], PAD)
    ).all()


def test_every_piece_is_a_word_in_languages_without_blanks():
    text = split_into_words(np.array([[0, 4, 10, 11, 2]] * 2), IS_PIECE, BEGINS, NONE, np.array([True, False]))
    assert text.words.tolist() == [[-1, 0, 1, 2, -1], [-1, 0, 0, 0, -1]]


def test_words_end_with_their_last_piece():
    """As in BPE: 4 … 9 end a word, 10 … 19 do not. A block may end within a word; a symbol ends a word, too."""
    tokens = np.array([[BOS, 10, 11, 4, 5, 12, 6, 13, EOS, 14, MASK, 7, 15]])
    text = split_into_words(tokens, IS_PIECE, NONE, BEGINS, np.array([False]))
    assert text.words.tolist() == [[-1, 0, 0, 0, 1, 2, 2, 3, -1, 4, -1, 5, 6]]


# --- shuffle


def test_shuffle_by_hand(drawn):
    """Words 4 10 | 5 | 6 11 | 7 at 0+2.7, 1+0.3, 2+0.9, 3+0: in the order of 1.3, 2.7, 2.9, 3."""
    drawn({DISTANCE: [0.9, 0.1, 0.3, 0.0]})
    text = shuffled(split([[4, 10, 5, 6, 11, 7]]), some_keys(1), 3.0)
    assert text.tokens.tolist() == [[BOS, 5, 4, 10, 6, 11, 7, EOS]]
    assert text.words.tolist() == [[-1, 1, 0, 0, 2, 2, 3, -1]]


def test_no_word_passes_a_symbol(drawn):
    drawn({DISTANCE: [0.9, 0.0, 0.9, 0.0]})
    text = shuffled(split([[4, 5, EOS, 6, 7]]), some_keys(1), 3.0)
    assert text.tokens.tolist() == [[BOS, 5, 4, EOS, 7, 6, EOS]]


def test_shuffle_moves_less_than_its_reach():
    """Of U(0, 3): no word moves 3 places; over neighbors, P(1 + u < u') with u, u' in U(0, 3) is (2/3)^2 / 2."""
    text = split([[4] * 50] * 4000)
    numbers = shuffled(text, some_keys(4000), 3.0).words[:, 1:-1]
    assert (np.sort(numbers, axis=1) == np.arange(50)).all()
    assert np.abs(numbers - np.arange(50)).max() == 2
    places = np.argsort(numbers, axis=1)
    swapped = (places[:, :-1] > places[:, 1:]).mean()
    assert swapped == pytest.approx(2 / 9, abs=0.005)  # 196 000 neighbors: deviation 0.0012 if independent
    assert (shuffled(text, some_keys(4000), 1.0).words == text.words).all()  # words less than 1 later pass none


# --- drop


def test_drop_by_hand(drawn):
    drawn({DROP: [0.05, 0.5, 0.09, 0.1]})
    text = dropped(split([[4, 10, 5, 6, 11, EOS, 7]]), some_keys(1), 0.1, PAD)
    assert text.tokens.tolist() == [[BOS, 5, EOS, 7, EOS]]
    assert text.words.tolist() == [[-1, 1, -1, 3, -1]]


def test_drop_keeps_a_word_of_each_row(drawn):
    """A row that would lose all words keeps the one with the highest number; one without words stays as it is."""
    drawn({DROP: [0.05, 0.09, 0.01]})
    assert dropped(split([[4, 5, 10, EOS, 6]]), some_keys(1), 0.1, PAD).tokens.tolist() == [[BOS, 5, 10, EOS, EOS]]
    assert dropped(split([[EOS]]), some_keys(1), 1.0, PAD).tokens.tolist() == [[BOS, EOS, EOS]]


def test_the_word_that_stays_is_any_of_the_row():
    text = dropped(split([[4, 5, 6, 7]] * 4000), some_keys(4000), 1.0, PAD)
    assert text.tokens.shape == (4000, 3)
    shares = np.bincount(text.tokens[:, 1], minlength=8)[4:] / 4000
    assert shares == pytest.approx(np.full(4, 0.25), abs=0.03)  # deviation 0.007


def test_drop_leaves_out_its_share_of_words():
    text = dropped(split([[4, 10, 5, EOS, 6] * 10] * 2000), some_keys(2000), 0.1, PAD)
    assert (text.tokens == 5).sum() / 20_000 == pytest.approx(0.9, abs=0.01)  # deviation 0.002
    assert ((text.tokens == 4).sum(1) == (text.tokens == 10).sum(1)).all()  # a word goes as a whole
    assert (text.tokens == EOS).sum() == 11 * 2000 and (text.tokens == BOS).sum() == 2000
    assert ((text.words == NO_WORD) == np.isin(text.tokens, (BOS, PAD, EOS))).all()


# --- mask


def test_mask_by_hand(monkeypatch):
    """Words 0 and 2 are chosen; a word of two pieces becomes one <mask>."""
    asked = []
    monkeypatch.setattr(
        text_noise, "choose_positions", lambda there, keys, share: asked.append(there) or there * [1, 0, 1]
    )
    text = masked(split([[4, 10, 5, EOS, 6, 11]]), some_keys(1), 0.1, MASK, PAD)
    assert asked[0].tolist() == [[True, True, True]]
    assert text.tokens.tolist() == [[BOS, MASK, 5, EOS, MASK, EOS]]
    assert text.words.tolist() == [[-1, -1, 1, -1, -1, -1]]


def test_mask_takes_exactly_its_share_of_words():
    """A tenth of the 30 words that are left of 40; two adjacent masked words stay two."""
    text = split([[4, 10, 11, 5] * 15 + [EOS] + [6] * 10] * 500)
    text = Text(text.tokens, np.where(np.isin(text.tokens, (5,)), NO_WORD, text.words))  # those are gone: 25 words
    found = masked(text, some_keys(500), 0.4, MASK, PAD)
    assert ((found.tokens == MASK).sum(1) == 10).all()
    gone = (text.tokens != PAD).sum(1) - (found.tokens != PAD).sum(1)
    several = 15 - (found.tokens == 4).sum(1)
    assert (gone == 2 * several).all() and 5 < several.mean() < 7
    assert ((found.tokens == 5).sum(1) == 15).all() and (found.tokens == EOS).sum() == 1000


def test_the_share_of_words_is_unbiased_where_it_is_rounded():
    found = masked(split([[4, 10, 5] * 7] * 5000), some_keys(5000), 0.1, MASK, PAD)
    counts = (found.tokens == MASK).sum(1)
    assert set(counts.tolist()) == {1, 2} and counts.mean() == pytest.approx(1.4, abs=0.03)


# --- infill


def infill(rows, share=0.3, mean=3.0, keys=None):
    tokens = pad_rows([[BOS, *row, EOS] for row in rows], PAD)
    keys = some_keys(len(rows)) if keys is None else keys
    return infilled(tokens, IS_PIECE[tokens], keys, share, mean, MASK, PAD)


def quantile(length):
    """A uniform number that gives a span of this length under Poisson(3): 0.0498, 0.1991, 0.4232, 0.6472, 0.8153 …"""
    return [0.02, 0.1, 0.3, 0.6, 0.7, 0.9][length]


def test_infilling_by_hand(drawn):
    """Ten tokens, a budget of 5: spans of 2, 0, 2 and what is left, 1. Four spans and five tokens are nine slots.

    By PLACE the first span is in slot 6, the second in slot 0, the third in slot 2, the fourth in slot 3:
    ∅ 4 [5 6] [7] 8 9 [10 11] 12 13.
    """
    drawn(
        {
            BUDGET: [0.0],
            LENGTH: [quantile(2), quantile(0), quantile(2), quantile(3), quantile(3)],
            PLACE: [0.2, 0.9, 0.3, 0.4, 0.8, 0.7, 0.1, 0.6, 0.5],
            BEGINNING: [0.0],
        }
    )
    found = infill([[4, 5, 6, 7, 8, 9, 10, 11, 12, 13]], share=0.5)
    assert found.tolist() == [[BOS, MASK, 4, MASK, MASK, 8, 9, MASK, 12, 13, EOS]]


def test_spans_lie_on_a_ring(drawn):
    """A budget of 2 of 4: spans of 0 and 2 in slots 3 and 1 of four, 4 [5 6] 7 ∅, counted from the second token."""
    numbers = {BUDGET: [0.0], LENGTH: [quantile(0), quantile(4)], PLACE: [0.9, 0.2, 0.8, 0.1]}
    drawn(numbers | {BEGINNING: [0.0]})
    assert infill([[4, 5, 6, 7]], share=0.5).tolist() == [[BOS, MASK, 4, MASK, 7, EOS]]
    drawn(numbers | {BEGINNING: [0.25]})
    assert infill([[4, 5, 6, 7]], share=0.5).tolist() == [[BOS, MASK, 6, MASK, 7, EOS]]
    drawn(numbers | {BEGINNING: [0.5]})  # the row begins in the span and ends with it: no room for an insertion
    assert infill([[4, 5, 6, 7]], share=0.5).tolist() == [[BOS, MASK, 5, 6, MASK, EOS]]


def test_a_span_over_a_symbol_is_a_mask_on_both_sides(drawn):
    """One span of 4 of 6 in slot 1; of two with a span of 0, the insertion is left out where the row would grow."""
    drawn({BUDGET: [0.0], LENGTH: [quantile(4)] * 4, PLACE: [0.9, 0.1, 0.8], BEGINNING: [0.0]})
    found = infill([[4, 5, EOS, 6, 7, EOS, 8, 9]], share=4 / 6 + 1e-9)
    assert found.tolist() == [[BOS, 4, MASK, EOS, MASK, EOS, MASK, 9, EOS]]
    drawn({BUDGET: [0.0], LENGTH: [quantile(0), quantile(3)], PLACE: [0.2, 0.1, 0.9], BEGINNING: [0.0]})
    assert infill([[4, EOS, 5, EOS, 6]], share=0.67).tolist() == [[BOS, MASK, EOS, MASK, EOS, 6, EOS]]


def test_exactly_the_budget_is_masked():
    """Whatever the symbols in between: 30 % of 40 tokens."""
    rows = [[4, 5, 6, 7] * 5 + [EOS] + [8, 9, 10, 11] * 5] * 2000
    found = infill(rows)
    assert (IS_PIECE[found].sum(1) == 28).all()
    assert (found == EOS).sum() == 4000 and (found[:, 0] == BOS).all()
    assert found.shape[1] <= 43


def test_the_budget_is_unbiased_where_it_is_rounded():
    left = IS_PIECE[infill([[4, 5, 6]] * 20_000)].sum(1)
    assert set(left.tolist()) == {2, 3} and left.mean() == pytest.approx(3 - 0.9, abs=0.01)  # deviation 0.0021


def test_lengths_of_spans_are_poisson():
    """Without the last span of a row, which is shortened, the mean length is 3, and e^-3 of the spans insert a mask."""
    budgets, keys = np.full(400, 300), some_keys(400)
    lengths = text_noise._span_lengths(budgets, keys, 3.0)
    assert (np.maximum(lengths, 0).sum(1) == 300).all()
    whole = lengths[:, :80].ravel()  # far from the last
    assert (lengths[:, :80] >= 0).all()
    assert whole.mean() == pytest.approx(3, abs=0.05) and whole.var() == pytest.approx(3, abs=0.15)
    assert (whole == 0).mean() == pytest.approx(np.exp(-3), abs=0.005)
    assert (whole == 3).mean() == pytest.approx(np.exp(-3) * 27 / 6, abs=0.01)


def test_a_mask_stands_for_a_span_and_some_for_nothing():
    """150 of 500 tokens in spans of 3: 50 masks, a share e^-3 of which stands for no token; measured over rows."""
    masks = (infill([[4] * 500] * 500) == MASK).sum(1)
    assert masks.mean() == pytest.approx(50.6, abs=1)  # the last is cut, and one may lie over the row's end


def test_spans_lie_anywhere():
    """Each of 40 places is masked equally often."""
    tokens = np.tile(np.arange(40), (20_000, 1))
    found = infilled(tokens, np.ones(tokens.shape, dtype=bool), some_keys(20_000), 0.3, 3.0, 99, -1)
    left = np.array([(found == place).any(1).mean() for place in range(40)])
    assert left == pytest.approx(np.full(40, 0.7), abs=0.015)  # deviation 0.0032


def test_no_row_grows():
    rng = np.random.default_rng(1)
    rows = [rng.choice([4, 5, 6, EOS], size=rng.integers(1, 12)) for _ in range(3000)]
    for share in (0.1, 0.5, 1.0):
        found = infill(rows, share=share, mean=0.5)
        assert ((found != PAD).sum(1) <= [len(row) + 2 for row in rows]).all()
        assert [(row == EOS).sum() for row in found] == [(row == EOS).sum() + 1 for row in rows]


def test_nothing_to_mask():
    assert infill([[EOS, EOS], [EOS]]).tolist() == [[BOS, EOS, EOS, EOS], [BOS, EOS, EOS, PAD]]
    assert infill([[4, 5]], share=0.0).tolist() == [[BOS, 4, 5, EOS]]


# --- all of them


KINDS = {
    "shuffle": lambda text, keys: shuffled(text, keys, 3.0).tokens,
    "drop": lambda text, keys: dropped(text, keys, 0.3, PAD).tokens,
    "mask": lambda text, keys: masked(text, keys, 0.3, MASK, PAD).tokens,
    "infill": lambda text, keys: infilled(text.tokens, IS_PIECE[text.tokens], keys, 0.3, 3.0, MASK, PAD),
}


@pytest.mark.parametrize("kind", KINDS)
def test_noise_belongs_to_the_row(kind):
    """It is the same for the same key alone, beside others, and beside longer ones."""
    rng = np.random.default_rng(5)
    rows = [rng.integers(4, 20, size=size) for size in (30, 7, 60, 12, 1)]
    keys = some_keys(5)
    together = KINDS[kind](split(rows), keys)
    for row, tokens in enumerate(rows):
        alone = KINDS[kind](split([tokens]), keys[row : row + 1])[0]
        assert together[row][together[row] != PAD].tolist() == alone.tolist()
    again = KINDS[kind](split(rows), keys)
    assert (again == together).all()
    other = KINDS[kind](split(rows), some_keys(5, seed=4))
    assert other.shape != together.shape or (other != together).any()


@pytest.mark.parametrize("kind", KINDS)
def test_symbols_are_never_touched(kind):
    rng = np.random.default_rng(6)
    rows = [rng.choice([3, EOS, 21, *range(4, 20)], size=40) for _ in range(500)]
    found = KINDS[kind](split(rows), some_keys(500))
    for row, noised in zip(rows, found):
        symbols = noised[~IS_PIECE[noised] & (noised != MASK) & (noised != PAD)]
        assert symbols.tolist() == [BOS, *row[~IS_PIECE[row]], EOS]
    clean = split(rows).tokens
    assert (clean == pad_rows([[BOS, *row, EOS] for row in rows], PAD)).all()  # the input stays as it is


def test_numbers_of_different_kinds_are_independent():
    keys = some_keys(20_000)
    drawn = [uniforms(keys, 1, purpose)[:, 0] for purpose in (DISTANCE, DROP, BUDGET, LENGTH, PLACE)]
    assert np.abs(np.corrcoef(drawn) - np.eye(5)).max() < 0.03
