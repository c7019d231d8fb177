"""Spans of tags and their F1: values of seqeval 1.2.2 and by hand."""

import pytest

from fairseq_xl.evaluation.spans import f1, score, spans

#: what seqeval.metrics.sequence_labeling.get_entities returns
SEQEVAL = {
    "B-PER I-PER O B-LOC": [("PER", 0, 1), ("LOC", 3, 3)],
    "I-PER I-PER I-LOC O": [("PER", 0, 1), ("LOC", 2, 2)],
    "B-PER B-PER I-PER": [("PER", 0, 0), ("PER", 1, 2)],
    "O I-A B-A": [("A", 1, 1), ("A", 2, 2)],
    "S-A S-A E-A": [("A", 0, 0), ("A", 1, 1), ("A", 2, 2)],
    "B-A I-A E-A I-A": [("A", 0, 2), ("A", 3, 3)],
    "B-A E-B O": [("A", 0, 0), ("B", 1, 1)],
    "B-A-B I-A-B": [("A-B", 0, 1)],
    "NOUN NOUN VERB ADJ": [("OUN", 0, 1), ("ERB", 2, 2), ("DJ", 3, 3)],
    "SCONJ SCONJ X": [("CONJ", 0, 0), ("CONJ", 1, 1)],
    "X NOUN": [("_", 0, 0), ("OUN", 1, 1)],
    "O O": [],
}


@pytest.mark.parametrize("tags", SEQEVAL)
def test_spans_are_seqevals(tags):
    assert spans(tags.split()) == SEQEVAL[tags]


def test_spans_go_on_through_sentences_as_in_seqeval():
    """Values of seqeval 1.2.2; F1 would be 57.14 with each sentence by itself."""
    gold = [["NOUN", "NOUN", "X"], ["X", "NOUN", "X"], ["X"]]
    result = score(gold, [["X", "NOUN", "NOUN"], *gold[1:]])
    assert [result[name] for name in ("f1", "precision", "recall")] == [28.57, 25, 33.33]


def test_scores_by_hand():
    gold = ["B-PER I-PER O B-LOC".split(), "O B-ORG".split()]
    predicted = ["B-PER I-PER O O".split(), "B-ORG B-ORG".split()]
    result = score(gold, predicted)  # 2 of 3 predicted spans are right, of 3
    assert [result[name] for name in ("f1", "precision", "recall", "accuracy")] == [66.67, 66.67, 66.67, 66.67]
    assert (result["n"], result["words"], result["majority"]) == (2, 6, 33.33)
    assert score(gold, gold)["f1"] == 100 and f1(0, 0, 0) == 0
    assert score(gold, [["O"] * 4, ["O"] * 2])["precision"] == 0
    with pytest.raises(ValueError, match="shorter"):
        score(gold, gold[:1])
