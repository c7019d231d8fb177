"""The loss of decoders that read the clean text, by hand."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from fairseq_xl.models.model_options import BackboneConfig
from fairseq_xl.modules.embeddings import TokenEmbeddings
from fairseq_xl.modules.output import OutputLayer
from fairseq_xl.objectives.sequence import decoder_target, sequence_losses, sequence_terms

TARGET = torch.tensor([[3, 4, 2], [4, 2, 1]])  # 1 is padding


class Streams:
    """A stand-in for a model: each stream's hidden states are its logits."""

    def __init__(self, *probabilities):
        token_embeddings = TokenEmbeddings(5, 5, 1, output_bias=True)
        token_embeddings.table.weight.data = torch.eye(5)
        self.decoder = SimpleNamespace(
            output=OutputLayer(BackboneConfig(embed_dim=5), token_embeddings), dictionary=SimpleNamespace(pad=lambda: 1)
        )
        self.hidden = [torch.tensor(stream).log() for stream in probabilities]

    def teacher_forced(self, batch):
        return self.hidden


def spread(token, probability):
    """One of five symbols has the probability, the others share the rest."""
    return [probability if symbol == token else (1 - probability) / 4 for symbol in range(5)]


#: the first stream's target at each position, and the second one's: the next; what they don't predict is anything
FIRST = [[spread(3, 0.5), spread(4, 0.25), spread(2, 0.2)], [spread(4, 0.1), spread(2, 0.8), spread(0, 0.9)]]
SECOND = [[spread(4, 0.4), spread(2, 0.5), spread(0, 0.9)], [spread(2, 0.3), spread(0, 0.9), spread(0, 0.9)]]


def test_loss_by_hand():
    (term,) = sequence_terms(Streams(FIRST), decoder_target(TARGET, 1))
    assert term.count == 5 and term.weight == 1.0
    # 1/2 * 1/4 * 1/5 * 1/10 * 8/10 = 1/500
    assert term.sum.item() == pytest.approx(math.log(500), rel=1e-5)


def test_each_further_stream_predicts_one_further():
    first, second = sequence_terms(Streams(FIRST, SECOND), decoder_target(TARGET, 1))
    assert first.sum.item() == pytest.approx(math.log(500), rel=1e-5)
    # positions 0 and 1 of the first row and 0 of the second: 4/10 * 5/10 * 3/10 = 6/100
    assert second.count == 3 and second.sum.item() == pytest.approx(math.log(100 / 6), rel=1e-5)


def test_a_third_stream_leaves_out_two_tokens():
    *_, third = sequence_terms(Streams(FIRST, SECOND, FIRST), decoder_target(TARGET, 1))
    # only the first row has a third token, 2, which the third stream predicts at position 0
    assert third.count == 1 and third.sum.item() == pytest.approx(-math.log(0.5 / 4), rel=1e-5)


def test_a_stream_may_have_nothing_to_predict():
    first, second = sequence_terms(
        Streams([[spread(2, 0.5)]], [[spread(2, 0.5)]]), decoder_target(torch.tensor([[2]]), 1)
    )
    assert (first.count, second.count) == (1, 0)
    assert first.sum.item() == pytest.approx(math.log(2)) and second.sum.item() == 0


def test_label_smoothing_is_fairseqs():
    """0.1 of the probability goes to the four other symbols, 0.025 each."""
    batch = decoder_target(torch.tensor([[3]]), 1)
    ((loss, nll, count),) = sequence_losses(Streams([[spread(3, 0.6)]]), batch, label_smoothing=0.1)
    assert loss.item() == pytest.approx(-0.9 * math.log(0.6) - 4 * 0.025 * math.log(0.1), rel=1e-5)
    assert nll.item() == pytest.approx(-math.log(0.6), rel=1e-5) and count == 1
    hidden = Streams(torch.rand(2, 3, 5).tolist())
    ((loss, *_),) = sequence_losses(hidden, decoder_target(TARGET, 1), label_smoothing=0.2)
    logits, target = hidden.hidden[0][TARGET.ne(1)], TARGET[TARGET.ne(1)]
    wanted = torch.full((5, 5), 0.2 / 4)
    wanted[torch.arange(5), target] = 0.8
    torch.testing.assert_close(loss, F.cross_entropy(logits, wanted, reduction="sum"))
