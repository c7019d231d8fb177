"""Files of word pairs, and distances and similarities of word embeddings by hand."""

import numpy as np
import pytest
from scipy import stats

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.word_embeddings import (
    cosines,
    dictionary_scores,
    nearest_in_dictionary,
    read_dictionary,
    read_similarities,
    similarity_scores,
)
from tests.tasks.tiny_text import write


def test_dictionaries_and_similarities_as_they_are_distributed(tmp_path):
    write(tmp_path / "en-de.txt", ["house Haus", "New York\tNew York", "house Haus"])
    assert read_dictionary(tmp_path / "en-de.txt") == [("house", "Haus"), ("New York", "New York")]
    write(tmp_path / "data.txt", ["house\tHaus", "New York\tStadt"])
    write(tmp_path / "gold.txt", ["4.0", "1.25"])
    found = read_similarities(tmp_path / "data.txt", tmp_path / "gold.txt")
    assert found == ([("house", "Haus"), ("New York", "Stadt")], [4.0, 1.25])


def test_mistakes(tmp_path):
    for lines, message in ((["a b c"], "line 1: expected two words"), (["a b", "a\t"], "line 2: expected two words")):
        write(tmp_path / "x.txt", lines)
        with pytest.raises(UserError, match=message):
            read_dictionary(tmp_path / "x.txt")
    write(tmp_path / "data.txt", ["a\tb", "c\td"])
    for data, gold, message in (
        (["a\tb", "c"], ["1", "2"], "data.txt, line 2: expected word TAB word, found 1 fields"),
        (["a\tb"], ["x"], "gold.txt, line 1: expected a number, found 'x'"),
        (["a\tb"], ["1", "2"], "data.txt has 1 lines, .*gold.txt has 2"),
    ):
        write(tmp_path / "data.txt", data)
        write(tmp_path / "gold.txt", gold)
        with pytest.raises(UserError, match=message):
            read_similarities(tmp_path / "data.txt", tmp_path / "gold.txt")


def test_distances_by_hand():
    one, two = np.array([[3.0, 4.0], [1.0, 0.0], [0.0, 0.0]]), np.array([[4.0, 3.0], [-2.0, 0.0], [3.0, 4.0]])
    assert cosines(one, two).tolist() == pytest.approx([24 / 25, -1, 0])
    found = dictionary_scores(np.array([True, False, True]), one, two)
    assert found["n"] == 3 and found["no_common_piece"]["n"] == 2
    assert found["cosine"]["score"] == pytest.approx((0.96 - 1) / 3, abs=6e-4)
    assert found["no_common_piece"]["cosine"]["score"] == 0.48
    assert found["l2"]["score"] == pytest.approx((2**0.5 + 8) / 3, abs=6e-4)
    low, high = found["l2"]["interval"]
    assert 1.41 < low < found["l2"]["score"] < high <= 5


def test_random_pairs_are_never_translations():
    """Translations have equal embeddings, all other words orthogonal ones."""
    rows = np.eye(7)
    found = dictionary_scores(np.zeros(7, dtype=bool), rows, rows)
    assert (found["cosine"]["score"], found["random"]["cosine"]) == (1, 0)
    assert (found["l2"]["score"], found["random"]["l2"]) == (0, 1.414) and found["no_common_piece"] == {"n": 0}


def test_nearest_in_dictionary_by_hand():
    """The last two words have the same translation; the second row has cosine .83 with the first, .78 with its own."""
    one = np.array([[1.0, 0], [1, 1], [0, 2], [0, 1]])
    two = np.array([[5.0, 1], [1, 9], [0, 1], [0, 1]])
    assert nearest_in_dictionary(one, two).tolist() == [1, 0, 1, 1]
    found = dictionary_scores(np.array([True] * 3 + [False]), one, two)
    assert found["nearest_in_dictionary"]["score"] == 0.75
    assert found["no_common_piece"]["nearest_in_dictionary"]["score"] == 0.667
    assert nearest_in_dictionary(np.zeros((2, 2)), two[:2]).tolist() == [0, 0]
    assert dictionary_scores(np.zeros(4, dtype=bool), np.eye(4), np.eye(4))["random"]["nearest_in_dictionary"] == 0


def test_nearest_in_dictionary_in_blocks():
    """More words than a block, each target twice, in float32: all are found."""
    rows = np.random.default_rng(0).normal(size=(1500, 16)).astype(np.float32)
    assert nearest_in_dictionary(np.concatenate([rows, rows]), np.concatenate([rows, rows])).all()
    assert not nearest_in_dictionary(rows, np.roll(rows, 1, axis=0)).any()


def test_similarity_is_scipys_pearson():
    rng = np.random.default_rng(2)
    one, two, ratings = rng.normal(size=(40, 5)), rng.normal(size=(40, 5)), rng.uniform(0, 4, size=40)
    found = similarity_scores(one, two, ratings)
    assert found["score"] == round(100 * stats.pearsonr(cosines(one, two), ratings).statistic, 2)
