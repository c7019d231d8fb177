"""Corrupted lines do not depend on other lines, and hypotheses restore them."""

import numpy as np
import pytest

from fairseq_xl.data.framing import Framing
from fairseq_xl.objectives import build_objectives
from fairseq_xl.objectives.corrupted_lines import LINES_PER_BATCH, Lines, corrupt_lines, fill_masks


@pytest.fixture(scope="module")
def rows():
    """More lines than one batch corrupts, of 20 to 99 pieces and </s>; the first is short."""
    rng = np.random.default_rng(3)
    return [
        np.append(rng.integers(4, 20, size=2 if not number else rng.integers(20, 100)), 2)
        for number in range(2 * LINES_PER_BATCH + 5)
    ]


def denoiser(name, dictionary, options=""):
    return build_objectives(name, options, dictionary, Framing.of("xl", dictionary))[name]


@pytest.mark.parametrize("name", ["xdae", "xfnp"])
def test_noise_is_that_of_the_line_in_its_language(name, dictionary, rows):
    objective = denoiser(name, dictionary)
    whole, _ = corrupt_lines(objective, Lines(rows, "de"), range(len(rows)))
    chosen = [0, 3, *range(7, LINES_PER_BATCH + 12)]
    some, _ = corrupt_lines(objective, Lines(rows[: LINES_PER_BATCH + 20], "de"), chosen)
    other, _ = corrupt_lines(objective, Lines(rows, "en"), range(len(rows)))
    assert len(whole) == len(rows) and len(some) == len(chosen) > LINES_PER_BATCH
    assert all(np.array_equal(one, whole[number]) for one, number in zip(some, chosen))
    assert sum(np.array_equal(one, same) for one, same in zip(other, whole)) < 5
    assert all(source[-1] == 2 for source in whole)
    assert sum((source == dictionary.mask_index).sum() for source in whole) > 3 * len(whole)


def test_xdae_writes_whole_lines(dictionary, rows):
    sources, places = corrupt_lines(denoiser("xdae", dictionary), Lines(rows, "de"), range(len(rows)))
    assert set(places) == {None} and all(len(source) <= len(row) for source, row in zip(sources, rows))


def test_the_right_spans_make_the_line_whole(dictionary, rows):
    """About 9 in 64 tokens change, nothing else; the clean tokens in their places restore the clean line."""
    sources, places = corrupt_lines(denoiser("xfnp", dictionary), Lines(rows, "de"), range(len(rows)))
    for source, gaps, row in zip(sources, places, rows):
        kept = np.delete(np.arange(len(row)), gaps)
        assert np.array_equal(source[kept], row[kept])
        assert np.array_equal(fill_masks(source, gaps, row[gaps]), row)
    share = sum(map(len, places)) / sum(len(row) - 1 for row in rows)
    assert share == pytest.approx(9 / 64, rel=0.1)


def test_tokens_that_are_too_few_or_too_many():
    source, places = np.array([5, 9, 9, 6, 9, 2]), np.array([1, 2, 4])
    assert fill_masks(source, places, np.array([7, 8])).tolist() == [5, 7, 8, 6, 2]
    assert fill_masks(source, places, np.array([7, 8, 9, 10])).tolist() == [5, 7, 8, 6, 9, 2]
    assert fill_masks(source, places, np.array([], dtype=int)).tolist() == [5, 6, 2]
    assert fill_masks(source, places[:0], np.array([7])).tolist() == source.tolist()
    assert source.tolist() == [5, 9, 9, 6, 9, 2]
