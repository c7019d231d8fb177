"""Ranking: reading, loss, statistics."""

import math

import numpy as np
import pytest
import torch

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.task_files import read_queries
from fairseq_xl.objectives.ranking import Ranking


@pytest.fixture
def task():
    return Ranking(Ranking.Config(), None, None)


def test_reading_joins_the_lines_of_a_query(tmp_path):
    path = tmp_path / "train.en.tsv"
    path.write_text("2\tq\ttitle\tsnippet\n0\tr\tother\tone\n0.5\tq\ta\tb\n", encoding="utf-8")
    first, second = read_queries(path, "en")
    assert (first.query, first.texts, first.relevance) == ("q", (("title", "snippet"), ("a", "b")), (2, 0.5))
    assert first.lines == (1, 3) and second.lines == (2,) and second.query == "r"


@pytest.mark.parametrize(
    "content, message",
    [
        ("1\tq\n", "line 1: expected relevance TAB query TAB text"),
        ("1\tq\tt\n1\tq\t \n", "line 2: expected relevance TAB query TAB text"),
        ("1\tq\ta\n1\tq\t\0\0", "f.tsv, line 2: a byte 0"),
        ("1\tq\ta\tb\tc\n", "line 1: expected relevance TAB query TAB text"),
        ("good\tq\tt\n", "line 1: expected a relevance of 0 or more, found 'good'"),
        ("-1\tq\tt\n", "line 1: expected a relevance of 0 or more, found '-1'"),
        ("nan\tq\tt\n", "line 1: expected a relevance of 0 or more, found 'nan'"),
        ("1\t \t \n", "line 1: expected relevance TAB query TAB text"),
    ],
)
def test_files_that_are_wrong(tmp_path, content, message):
    (tmp_path / "f.tsv").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        read_queries(tmp_path / "f.tsv", "en")


def test_the_number_of_texts_is_that_of_training(task, tmp_path):
    (tmp_path / "f.tsv").write_text("2\tq\ta\n0\tq\tb\tc\n", encoding="utf-8")
    (example,), loaded = read_queries(tmp_path / "f.tsv", "en"), Ranking(Ranking.Config(), None, None)
    task.learn([example])
    loaded.load_state(task.learned_state(), "x.pt")
    with pytest.raises(UserError, match="f.tsv, line 2: expected 2 texts as in training, the query included, found 3"):
        loaded.check_examples([example])
    with pytest.raises(UserError, match="line 3: expected query TAB text, found"):
        loaded.from_line("q\ta\tb", "en", "f", 3)


def test_the_loss_by_hand(task):
    """Equal scores: log n for a query of n texts, whatever the relevances; then scores that equal the relevances."""
    relevance = torch.tensor([2.0, 0.0, 1.0, 0.0, 3.0])
    sample = {"inputs_per_example": [3, 2], "target": {"relevance": relevance, "labeled": np.ones(5, dtype=bool)}}
    loss, count = task.output_loss(torch.zeros(5), sample)
    assert count == 2 and loss.item() == pytest.approx(math.log(3) + math.log(2))
    shares = [math.exp(value) for value in (2, 0, 1)]
    total = sum(shares)
    expected = math.log(total) - (2 * shares[0] + 1 * shares[2]) / total  # scores equal to the relevances: the entropy
    loss, _ = task.output_loss(torch.tensor([2.0, 0.0, 1.0, 5.0, 5.0]), sample)
    assert loss.item() == pytest.approx(expected + math.log(2))


def test_predictions_and_statistics(task, tmp_path):
    (tmp_path / "f.tsv").write_text("2\tq\ta\n0\tr\tb\n0\tq\tc\n", encoding="utf-8")
    examples = read_queries(tmp_path / "f.tsv", "en")
    predictions = task.predictions(torch.tensor([0.25, 1.0, 7.0]), {"inputs_per_example": [2, 1]}, [])
    assert [each.tolist() for each in predictions] == [[0.25, 1.0], [7.0]]
    assert task.count(examples[0], predictions[0]) == {"ndcg": pytest.approx(1 / math.log2(3))}
    assert task.count(examples[1], predictions[1]) == {"examples": 0}  # nothing to rank
    assert task.metrics()["ndcg"]({"ndcg": 1.5, "examples": 2}) == 75
    assert task.format_prediction(examples[0], predictions[0]) == "1\tq\t2\t0.250000\n3\tq\t0\t1.000000\n"
