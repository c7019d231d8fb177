"""Retrieval: the margin worked out by hand, and cases with obvious answers."""

import numpy as np
import pytest

from fairseq_xl.evaluation.retrieval_scores import best_matches, cosine, evaluate_similarity, margin

SIMILARITY = np.array([[0.8, 0.6, 0.1], [0.9, 0.7, 0.3], [0.5, 0.2, 0.4]])


def test_cosine():
    found = cosine(np.array([[3.0, 4.0], [1.0, 0.0]]), np.array([[0.0, 2.0], [-1.0, 0.0], [0.0, 0.0]]))
    assert found == pytest.approx(np.array([[0.8, -0.6, 0.0], [0.0, -1.0, 0.0]]))


def test_margin_with_two_neighbors():
    """Rows' nearest two: 0.7, 0.8, 0.45; columns': 0.85, 0.65, 0.35."""
    expected = [
        [0.8 / 0.775, 0.6 / 0.675, 0.1 / 0.525],
        [0.9 / 0.825, 0.7 / 0.725, 0.3 / 0.575],
        [0.5 / 0.65, 0.2 / 0.55, 0.4 / 0.4],
    ]
    assert margin(SIMILARITY, 2) == pytest.approx(np.array(expected))
    # by cosine the third source finds the first target, which is near to everything; by margin its own
    assert SIMILARITY.argmax(1).tolist() == [0, 0, 0] and margin(SIMILARITY, 2).argmax(1).tolist() == [0, 0, 2]


def test_the_sentences_found_are_those_of_largest_margin():
    """Means of rows: 0.5, 0.63, 0.37; of columns: 0.73, 0.5, 0.27. First column: 0.8 / 0.62, 0.9 / 0.68, 0.5 / 0.55."""
    assert [matches.tolist() for matches in best_matches(SIMILARITY)] == [[0, 0, 2], [1, 1, 2]]


@pytest.mark.filterwarnings("error")
def test_vectors_of_zeros_find_nothing_and_are_found_by_nothing():
    similarity = cosine(np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]]))
    assert margin(similarity, 1).tolist() == [[0, 0, 1], [-np.inf, -np.inf, 0]]
    vectors = np.vstack([np.zeros((2, 5)), np.eye(5)])
    result = evaluate_similarity(cosine(vectors, vectors))["margin"]
    assert result["forward"]["accuracy"] == pytest.approx(100 * 5 / 7, abs=0.01)


def test_nothing_that_is_unlike_its_neighbors_wins():
    """Source 1 is opposite to every target: a quotient of two negative numbers would be the highest score."""
    found = margin(np.array([[0.2, 0.1], [-0.9, -0.8]]), 1)
    assert found[1].tolist() == [-np.inf, -np.inf] and found[0, 0] > 0


def test_margin_with_more_neighbors_than_sentences():
    assert margin(SIMILARITY, 4) == pytest.approx(margin(SIMILARITY, 3))
    assert margin(SIMILARITY, 3)[0, 1] == pytest.approx(0.6 / ((0.5 + 0.5) / 2))


def test_directions_differ():
    """Sources 0 and 1 are nearest to target 0; targets 0 and 1 are nearest to their own."""
    source, target = np.array([[1.0, 0.0], [0.8, 0.6]]), np.array([[1.0, 0.0], [-0.1, 1.0]])
    result = evaluate_similarity(cosine(source, target))["cosine"]
    assert (result["forward"]["accuracy"], result["backward"]["accuracy"]) == (50.0, 100.0)


def test_a_model_that_says_the_same_of_everything_finds_one():
    result = evaluate_similarity(cosine(np.ones((20, 4)), np.ones((20, 4))))
    assert result["cosine"]["forward"]["accuracy"] == result["margin"]["backward"]["accuracy"] == 5.0
