"""Entropy of n-gram models: counts and weights by hand, probabilities that sum to 1, texts with known entropy."""

import json

import numpy as np
import pytest

from fairseq_xl.commands import main as fairseq_xl_command
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.ngrams import MODELS, Counts, Model, bits, components, flat, interpolate

END = 0


def test_counts_by_hand():
    counts = Counts(np.array([0, 1, 2, 1, 2, 0]), 3)
    assert counts.single.tolist() == [2, 2, 2]
    first, second = np.array([1, 2, 2, 0, 1]), np.array([2, 1, 0, 1, 1])
    assert counts.pair_counts(first, second).tolist() == [2, 1, 1, 1, 0]


def test_components_by_hand():
    """Pieces 1 and 2 occur 3 times and once; 1 follows </s> in 2 of 3 times and stands before 1 in one of 3."""
    text = flat([np.array([1, 1, 0]), np.array([1, 2, 0])], END)
    counts = Counts(text, 3)
    shares, bucket = components(counts, np.array([1, 2]), text, np.array([1]), MODELS["both neighbors"])
    assert shares.tolist() == [[1 / 2, 3 / 4, 2 / 3, 1 / 3]]
    assert bucket.tolist() == [2 * 12 + 2]  # both neighbors occur 3 times: ceil(log2(4)) = 2


@pytest.mark.parametrize("neighbors", MODELS.values(), ids=MODELS)
def test_probabilities_sum_to_one(neighbors):
    """Over all tokens in one place, with any weights."""
    random = np.random.default_rng(0)
    lines = [np.append(random.integers(1, 6, 9), END) for _ in range(50)]
    counts, pieces = Counts(flat(lines, END), 6), np.arange(1, 6)
    total = 0.0
    for token in pieces:
        text = np.array([END, 3, token, 3, END])
        shares, bucket = components(counts, pieces, text, np.array([2]), neighbors)
        weights = np.random.default_rng(bucket[0]).dirichlet(np.ones(shares.shape[1]))
        total += (shares * weights).sum()
    follows_end = counts.pair_counts(np.array([3]), np.array([END]))[0] / counts.single[3]
    before_end = counts.pair_counts(np.array([END]), np.array([3]))[0] / counts.single[3]
    lost = dict(zip((-1, 1), (follows_end, before_end)))  # </s> is no piece: its share is never predicted
    expected = 1 - sum(weights[2 + place] * lost[side] for place, side in enumerate(neighbors))
    assert total == pytest.approx(expected)


def test_weights_maximize_the_likelihood():
    """Three of four tokens are certain by the first component, one by the second: weights 3/4 and 1/4."""
    shares = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]] * 1000)
    weights = interpolate(shares, np.zeros(4000, dtype=int), 2)
    assert weights[0] == pytest.approx([0.75, 0.25], abs=1e-3)
    assert weights[1] == pytest.approx([0.5, 0.5])  # an empty bucket


def test_texts_of_known_entropy():
    """8 pieces in a cycle: 3 bits alone; beside </s>, in 1 or 2 of 8 places, a neighbor says nothing.

    Random pieces have 3 bits by any model.
    """
    pieces = np.arange(1, 9)
    cycle = [np.append(np.roll(pieces, shift), END) for shift in range(8)] * 200
    random = [np.append(np.random.default_rng(seed).integers(1, 9, 8), END) for seed in range(3000)]
    for lines, expected in ((cycle, (3, 0.58, 0.42)), (random, (3, 3, 3))):
        text = flat(lines[:80], END)
        places = np.flatnonzero(text != END)
        found = bits(lines, pieces, 9, END, text, places)
        assert found["unigram"] == pytest.approx(expected[0], abs=0.02)
        assert 3 / 8 < found["bigram"] <= expected[1] + 0.02
        assert 2 / 8 < found["both neighbors"] <= expected[2] + 0.02


def test_the_command_reads_the_positions_that_mlm_predicts(data_bin, capsys):
    fairseq_xl_command(["score", "ngram-entropy", str(data_bin), "--langs", "en,de", "--frequency-exponent", "0"])
    uniform = json.loads(capsys.readouterr().out)
    assert uniform.keys() == {"en", "de"} and uniform["en"].keys() == {"tokens", *MODELS}
    fairseq_xl_command(["score", "ngram-entropy", str(data_bin), "--langs", "en", "--length", "32"])
    weighted = json.loads(capsys.readouterr().out)["en"]
    assert weighted["tokens"] == pytest.approx(0.15 * uniform["en"]["tokens"], rel=0.1)
    assert weighted["unigram"] > uniform["en"]["unigram"]  # rare pieces are sampled more often


@pytest.mark.parametrize(
    "flags, message", [(["--langs", "xx"], "xx"), (["--split", "dev"], "dev.idx: no binarized text")]
)
def test_wrong_arguments(data_bin, flags, message):
    with pytest.raises(UserError, match=message):
        fairseq_xl_command(["score", "ngram-entropy", str(data_bin), *flags])


def test_probabilities_of_the_next_token_sum_to_one_and_follow_the_text():
    """5 always follows 4."""
    rng = np.random.default_rng(0)
    words = [[6], [4, 5]]
    lines = [np.array([*(token for word in rng.integers(2, size=4) for token in words[word]), END]) for _ in range(60)]
    predicted = np.array([END, 4, 5, 6])
    model = Model(lines, predicted, 7, END)
    for before in predicted:
        pairs = [np.array([before, token]) for token in predicted]
        each = [model.probabilities(pair, np.array([1]), MODELS["bigram"])[0] for pair in pairs]
        assert sum(each) == pytest.approx(1, abs=0.02 if before == END else 1e-9)  # nothing follows the last END
    found = model.probabilities(np.array([4, 5, 4, 4]), np.arange(1, 4), MODELS["bigram"])
    assert len(found) == 3 and found[0] > 0.5 > 0.2 > found[2]
