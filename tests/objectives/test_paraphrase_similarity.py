"""The similarity that finds hard negatives, and its model (U5): vectors and the loss by hand, copies in a batch."""

import math

import pytest
import torch

from fairseq_xl.models.dan import DANConfig, XLDANModel

PAD = 1


@pytest.fixture
def averaging(dictionary):
    """A deep averaging network."""
    torch.manual_seed(3)
    return XLDANModel(DANConfig(embed_dim=8, dropout=0.2), len(dictionary), PAD).double().eval()


def test_vectors_are_of_the_average_of_the_words(averaging):
    words = torch.tensor([[4, 5, 6], [7, PAD, PAD]])
    first, second = averaging.feed_forward
    for row, tokens in zip(averaging.vectors(words), ([4, 5, 6], [7])):
        mean = sum(averaging.words.weight[token] for token in tokens) / len(tokens)
        hidden = second.weight @ torch.nn.functional.gelu(first.weight @ mean + first.bias) + second.bias
        torch.testing.assert_close(row, (hidden / hidden.norm()).float())


def test_dropout_leaves_words_out_but_never_all(averaging):
    averaging.train()
    torch.manual_seed(1)
    same = torch.tensor([[4, 5, 6, 7, 8]] * 200)
    assert len(averaging.vectors(same).detach().unique(dim=0)) > 10
    single = averaging.vectors(torch.tensor([[4]] * 50)).detach()
    assert len(single.unique(dim=0)) == 1


@pytest.mark.parametrize("words, left_out", [(5, 0.5 - 0.5**5 / 5), (2, 0.5 - 0.5**2 / 2), (1, 0.0)])
def test_every_word_is_left_out_as_often_and_one_stays(dictionary, words, left_out):
    """The first one too; if all were dropped, one stays. Words are unit vectors here, to show which stay."""
    model = XLDANModel(DANConfig(embed_dim=8, layers=0, dropout=0.5), len(dictionary), PAD).train()
    with torch.no_grad():
        model.words.weight[4:12] = torch.eye(8)
    torch.manual_seed(5)
    rows = torch.full((4000, words + 2), PAD)
    rows[:, :words] = torch.arange(4, 4 + words)
    left = model.vectors(rows) > 0
    assert left.any(1).all() and not left[:, words:].any()
    for place in range(words):
        assert 1 - left[:, place].double().mean().item() == pytest.approx(left_out, abs=0.032)  # 4 deviations


def test_similarity_batch_and_loss(build, averaging, pairs, spec):
    """Two copies of the first pair: neither is a candidate of the other."""
    objective = build("paraphrase_similarity", "paraphrase_similarity.scale=5")
    batch = objective.collate(spec([0, 1, 0]), pairs)
    assert batch["tokens"].tolist() == [[4, 5, 6], [7, PAD, PAD], [4, 5, 6]]
    assert batch["translations"].tolist() == [[14, PAD], [15, 16], [14, PAD]]
    assert batch["copies"].tolist() == [[False, False, True], [False] * 3, [True, False, False]]
    term = averaging(objective.loss, batch)["paraphrase_similarity"]
    u, v = averaging.vectors(batch["tokens"]), averaging.vectors(batch["translations"])
    expected = 0.0
    for one, other in ((u, v), (v, u)):
        for row, others in enumerate(([0, 1], [0, 1, 2], [1, 2])):
            scores = {n: 5 * (one[row] @ other[n]).item() for n in others}
            expected -= (scores[row] - math.log(sum(map(math.exp, scores.values())))) / 2
    assert term.sum.item() == pytest.approx(expected, rel=1e-5) and term.count == 3
