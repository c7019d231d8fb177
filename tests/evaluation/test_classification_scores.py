"""Scores of classification: worked out by hand, and scikit-learn's."""

import json
import random

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import accuracy_score, f1_score

from fairseq_xl.commands.score_classification import main
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import bootstrap
from fairseq_xl.evaluation.classification_scores import mcnemar, read_predictions, score


def write(path, pairs):
    lines = [f"{number}\t{label}\t{found}\t0.5\n" for number, (label, found) in enumerate(pairs, start=1)]
    path.write_text("".join(lines), encoding="utf-8")


def test_by_hand():
    """a: 2 right of 3 and 2 predicted, 4/5; b: 0 right; c is predicted once and never right."""
    result = score(["a", "a", "a", "b"], ["a", "a", "b", "c"])
    assert (result["n"], result["accuracy"], result["majority"], result["most_predicted"]) == (4, 50.0, 75.0, 50.0)
    assert result["macro_f1"] == round(100 * (4 / 5 + 0 + 0) / 3, 2)


@pytest.mark.parametrize("seed", range(3))
def test_as_scikit_learn(seed):
    rng = random.Random(seed)
    labels, found = (rng.choices("abcd", [9, 5, 2, 1], k=200) for _ in range(2))
    assert score(labels, found)["macro_f1"] == round(100 * f1_score(labels, found, average="macro"), 2)
    assert score(labels, found)["accuracy"] == round(100 * accuracy_score(labels, found), 2)


def test_interval():
    """For 100 draws at 80 %: 80 ± 1.96 · 4; without variance there is none."""
    low, high = bootstrap.accuracy([True] * 80 + [False] * 20)["interval"]
    assert low == pytest.approx(72.2, abs=1.1) and high == pytest.approx(87.8, abs=1.1)
    assert bootstrap.accuracy([True] * 5) == {"accuracy": 100.0, "interval": [100.0, 100.0]}


def test_average_over_languages(tmp_path, capsys):
    """The mean of the languages' accuracies, whatever their numbers of lines; none if a language is missing."""
    write(tmp_path / "test.en.tsv", [("a", "a")] * 6)
    write(tmp_path / "test.de.tsv", [("a", "b"), ("b", "b")])
    main([str(tmp_path), "--langs", "en,de"])
    result = json.loads(capsys.readouterr().out)
    assert result["accuracy"] == 75.0 and result["majority"] == 75.0 and result["missing"] == []
    assert result["languages"]["de"]["accuracy"] == 50.0
    main([str(tmp_path), "--langs", "en,de,fr"])
    result = json.loads(capsys.readouterr().out)
    assert result["missing"] == ["fr"] and "accuracy" not in result and result["languages"]["en"]["n"] == 6


def test_incomplete_predictions(tmp_path):
    path = tmp_path / "test.en.tsv"
    for text, sentence in (
        ("1\ta\ta\t0.5\n3\ta\ta\t0.5\n", "line 2: expected 2 TAB"),
        ("1\ta\ta\n", "line 1: expected 1 TAB"),
        ("", "holds no predictions"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=sentence):
            read_predictions(path)
    with pytest.raises(UserError, match="no prediction file valid.LANGUAGE.tsv of en,de"):
        main([str(tmp_path), "--langs", "en,de", "--split", "valid"])
    with pytest.raises(UserError, match="--langs en,de,en: en is named twice"):
        main([str(tmp_path), "--langs", "en,de,en"])


def test_two_classifiers_are_compared_item_by_item(tmp_path, capsys):
    """Of 6 items that one system alone has right, 5 are the other's: p = 2 · (1 + 6) / 2^6; both have 10 more right."""
    write(tmp_path / "test.en.tsv", [("a", "a")] * 10 + [("a", "a")] + [("a", "b")] * 5)
    (tmp_path / "other").mkdir()
    write(tmp_path / "other/test.en.tsv", [("a", "a")] * 10 + [("a", "b")] + [("a", "a")] * 5)
    main([str(tmp_path), "--langs", "en", "--against", str(tmp_path / "other")])
    found = json.loads(capsys.readouterr().out)["languages"]["en"]["paired"]
    assert found == {"difference": -25.0, "only_here": 1, "only_there": 5, "p": 0.219}
    write(tmp_path / "other/test.en.tsv", [("b", "b")] * 16)
    with pytest.raises(UserError, match="are of different items: their labels differ"):
        main([str(tmp_path), "--langs", "en", "--against", str(tmp_path / "other")])


@pytest.mark.parametrize("here, there", [(0, 0), (3, 3), (0, 1), (900, 1100)])
def test_mcnemar_is_the_binomial_test(here, there):
    right = np.array([True] * here + [False] * there + [True, False])
    others = np.array([False] * here + [True] * there + [True, False])
    expected = binomtest(here, here + there).pvalue if here + there else 1.0
    assert mcnemar(right, others)["p"] == pytest.approx(expected, rel=5e-3)


def test_mcnemar_of_many_items():
    right, others = np.arange(20000) < 9900, np.arange(20000) >= 9900
    assert mcnemar(right, others)["p"] == pytest.approx(binomtest(9900, 20000).pvalue, rel=5e-3)
