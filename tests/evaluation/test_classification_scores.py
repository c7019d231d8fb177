"""Scores of classification: worked out by hand, and scikit-learn's."""

import json
import random

import pytest
from sklearn.metrics import accuracy_score, f1_score

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import bootstrap
from fairseq_xl.evaluation.classification import macro_f1, main, read_predictions, score


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
    assert macro_f1(labels, found) == pytest.approx(100 * f1_score(labels, found, average="macro"))
    assert score(labels, found)["accuracy"] == round(100 * accuracy_score(labels, found), 2)


def test_interval():
    """For 100 draws at 80 %: 80 ± 1.96 · 4; without variance there is none."""
    low, high = bootstrap.accuracy([True] * 80 + [False] * 20)["interval"]
    assert low == pytest.approx(72.2, abs=1.1) and high == pytest.approx(87.8, abs=1.1)
    assert bootstrap.accuracy([True] * 5) == {"accuracy": 100.0, "interval": [100.0, 100.0]}


def test_average_over_languages(tmp_path, capsys):
    """The mean of the languages' accuracies, however many lines each has; none while one is missing."""
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
