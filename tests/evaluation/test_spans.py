"""Spans of tags and their F1: values of seqeval, of XTREME's program and by hand."""

import pytest

from fairseq_xl.evaluation.spans import f1, score, spans

#: what seqeval.metrics.sequence_labeling.get_entities of 1.2.2 returns, and for the parts of speech that of 0.0.12
SEQEVAL = {
    "B-PER I-PER O B-LOC": [("PER", 0, 1), ("LOC", 3, 3)],
    "I-PER I-PER I-LOC O": [("PER", 0, 1), ("LOC", 2, 2)],
    "B-PER B-PER I-PER": [("PER", 0, 0), ("PER", 1, 2)],
    "O I-A B-A": [("A", 1, 1), ("A", 2, 2)],
    "S-A S-A E-A": [("A", 0, 0), ("A", 1, 1), ("A", 2, 2)],
    "B-A I-A E-A I-A": [("A", 0, 2), ("A", 3, 3)],
    "B-A E-B O": [("A", 0, 0), ("B", 1, 1)],
    "B-A-B I-A-B": [("A-B", 0, 1)],
    "B I O B": [("_", 0, 1), ("_", 3, 3)],
    "NOUN NOUN VERB ADJ": [("NOUN", 0, 1), ("VERB", 2, 2), ("ADJ", 3, 3)],
    "CCONJ CCONJ SCONJ SCONJ X": [("CCONJ", 0, 1), ("SCONJ", 2, 2), ("SCONJ", 3, 3), ("X", 4, 4)],
    "X NOUN": [("X", 0, 0), ("NOUN", 1, 1)],
    "_ NOUN _ _": [("_", 0, 0), ("NOUN", 1, 1), ("_", 2, 3)],
    "O O": [],
}
#: Portuguese of XTREME's mock_test_data: tags of two sentences, and what differs in the predictions
PORTUGUESE = (
    "CCONJ ADP ADV VERB DET NOUN ADJ VERB DET NOUN ADP NOUN ADP NOUN PUNCT PUNCT VERB PUNCT",
    "DET NOUN VERB CCONJ DET NOUN AUX VERB DET NOUN ADP NOUN ADP NOUN CCONJ ADP NOUN ADP NOUN ADP NOUN PUNCT",
)
DIFFERENT = ({1: "SCONJ", 2: "PART"}, {3: "SCONJ"})


@pytest.mark.parametrize("tags", SEQEVAL)
def test_spans_are_seqevals(tags):
    assert spans(tags.split()) == SEQEVAL[tags]


def test_parts_of_speech_are_scored_as_by_xtremes_program():
    """36 of 39 spans. XTREME's evaluate_test.py states an average over its languages that contains this F1."""
    gold = [sentence.split() for sentence in PORTUGUESE]
    predicted = [[other.get(place, tag) for place, tag in enumerate(tags)] for tags, other in zip(gold, DIFFERENT)]
    result = score(gold, predicted)
    assert [result[name] for name in ("f1", "precision", "recall", "accuracy")] == [92.31, 92.31, 92.31, 92.5]


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
