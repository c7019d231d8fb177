"""Sentence pairs: which lines are pairs, sampling, files that are refused."""

import itertools
import logging

import numpy as np
import pytest
from tiny_data import write_items

from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.errors import UserError

ENGLISH = [[5, 2], [2], [6, 7, 2], [2], [8, 2], [9, 9, 9, 9, 2]]
GERMAN = [[15, 16, 2], [2], [17, 2], [18, 2], [2], [19, 2]]  # a boundary in line 1, holes in lines 3 and 4


def write_pairs(folder, english=ENGLISH, german=GERMAN):
    write_items(folder / "train.en-de.en", english)
    write_items(folder / "train.en-de.de", german)
    return folder / "train.en-de"


@pytest.fixture
def pairs(tmp_path):
    return SentencePairs(write_pairs(tmp_path), "en", "de")


def test_pairs(pairs):
    assert (pairs.codes, pairs.sentences) == (("en", "de"), 3)
    ((source, target),) = pairs.texts([2], 9)
    assert (source.tolist(), target.tolist()) == ([6, 7, 2], [17, 2])
    assert pairs.sizes.tolist() == [[2, 3], [1, 1], [3, 2], [1, 2], [2, 1], [5, 2]]
    lines, sizes = pairs.all_examples(10)
    assert (lines.tolist(), sizes.tolist()) == ([0, 2, 5], [5, 5, 7])
    assert pairs.mean_size(10) == pytest.approx(17 / 3)


def test_boundaries_and_holes_are_never_drawn(pairs):
    lines, sizes = pairs.sample(np.random.default_rng(0), 300, 10)
    assert np.bincount(lines).tolist() == [100, 0, 100, 0, 0, 100]  # 100 passes
    assert (sizes == pairs.sizes[lines].sum(1)).all()


def test_a_pass_draws_every_pair_in_any_order(pairs):
    orders = {tuple(pairs.sample(np.random.default_rng(seed), 3, 10)[0].tolist()) for seed in range(100)}
    assert orders == set(itertools.permutations((0, 2, 5)))


def test_over_long_pairs_are_left_out_with_a_warning(pairs, caplog):
    with caplog.at_level(logging.WARNING):
        assert pairs.all_examples(4)[0].tolist() == [0, 2]
        assert set(pairs.sample(np.random.default_rng(0), 50, 4)[0].tolist()) == {0, 2}
    assert [record.getMessage() for record in caplog.records] == [
        f"{pairs.prefix}: 1 of 3 pairs have a side of more than 4 tokens and are left out"
    ]


def test_refused_text(pairs, tmp_path):
    with pytest.raises(UserError, match="train.en-de: every pair has a side of more than 2 tokens"):
        pairs.sample(np.random.default_rng(0), 1, 2)
    for german, message in (
        (GERMAN[:-1], "train.en-de: 6 lines of 'en' but 5 of 'de'"),
        ([], "train.en-de.de: the text of language 'de' is empty"),
    ):
        with pytest.raises(UserError, match=message):
            SentencePairs(write_pairs(tmp_path, german=german), "en", "de")
    (tmp_path / "train.en-de.de.idx").unlink()
    with pytest.raises(UserError, match="train.en-de.de.idx: no binarized text of language 'de'"):
        SentencePairs(tmp_path / "train.en-de", "en", "de")
