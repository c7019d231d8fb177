"""Scores of single test examples, from files written by hand."""

import numpy as np
import pytest

from fairseq_xl.errors import UserError
from recipes.example_scores import bleu_test, scores


def written(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_right_and_wrong_labels(tmp_path):
    path = written(tmp_path / "test.de.tsv", "1\ta\ta\t0.9", "2\tb\ta\t0.5", "3\tb\tb\t0.7")
    assert scores("classification", [path], "de").tolist() == [100, 0, 100]


def test_queries_with_two_texts(tmp_path):
    """The relevant text of the first query is ranked second: nDCG 1 / log2(3)."""
    lines = ["1\tq\t0\t0.9", "2\tq\t1\t0.5", "3\tr\t1\t0.9", "4\tr\t0\t0.1", "5\ts\t1\t0.3"]
    found = scores("ranking", [written(tmp_path / "test.de.tsv", *lines)], "de")
    assert found == pytest.approx(np.array([100 / np.log2(3), 100]))


def test_sentences_found_forward_and_backward(tmp_path):
    """A pair has the mean of both directions."""
    path = written(tmp_path / "en-de.tsv", "1\t1\t2", "2\t1\t2", "3\t3\t3")
    assert scores("retrieval", [path], "de").tolist() == [50, 50, 100]
    for lines in ([], ["1\t1"]):
        with pytest.raises(UserError, match="number of the target found"):
            scores("retrieval", [written(path, *lines)], "de")


def test_rouge_of_each_title(tmp_path):
    """ "Save all" of "Save all files": precision 1, recall 2/3."""
    outputs = written(tmp_path / "generate-test.txt", "D-1\t-1\tOpen", "D-0\t-1\tSave all")
    references = written(tmp_path / "test.en.tgt", "Save all files", "Close")
    assert scores("titles", [outputs, references], "en") == pytest.approx(np.array([80.0, 0.0]))


def test_bleu_of_two_systems(tmp_path):
    references = written(tmp_path / "test.de", *(f"das ist der Satz {number} von allen" for number in range(40)))
    bad = written(tmp_path / "bad", *(f"dies war kein Satz {number} der Welt" for number in range(40)))
    difference, p = bleu_test([references, references], [bad, references], "de")
    assert difference > 50 and p < 0.01
    assert bleu_test([bad, references], [bad, references], "de") == (0, 1)


def test_an_unknown_kind_is_one_sentence(tmp_path):
    with pytest.raises(
        UserError, match="examples: parsing: choose one of classification, ranking, retrieval, titles, bleu"
    ):
        scores("parsing", [tmp_path / "x"], "de")
