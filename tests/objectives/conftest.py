"""Text, models and comparisons for tests of objectives. Ids are those of the root fixture `dictionary`."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny_data import write_items
from tiny_models import SIZES, randomized

from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.corpora.token_stream import TokenStream
from fairseq_xl.data.framing import Framing
from fairseq_xl.data.plan.epoch_plan import BatchSpec
from fairseq_xl.objectives import build_objectives


@pytest.fixture
def stream(tmp_path):
    """An English text of 12 tokens: blocks of 5 are 4 5 6 7 2 | 8 9 2 10 11 | 12 2."""
    return TokenStream(write_items(tmp_path / "train", [[4, 5, 6, 7, 2], [8, 9, 2], [10, 11, 12, 2]]), "en")


@pytest.fixture
def pairs(tmp_path):
    """English and German: 4 5 6 | 14, and 7 | 15 16."""
    write_items(tmp_path / "train.en-de.en", [[4, 5, 6, 2], [7, 2]])
    write_items(tmp_path / "train.en-de.de", [[14, 2], [15, 16, 2]])
    return SentencePairs(tmp_path / "train.en-de", "en", "de")


@pytest.fixture
def build(dictionary):
    """build(name, options, framing) -> the objective."""

    def build(name, options="", framing="xl"):
        return build_objectives(name, options, dictionary, Framing.of(framing, dictionary))[name]

    return build


@pytest.fixture
def spec():
    """spec(examples, keys) -> `BatchSpec`."""

    def spec(examples, keys=None):
        keys = np.arange(len(examples)) * 17 + 1000 if keys is None else keys
        return BatchSpec("any", "any", np.asarray(examples), np.asarray(keys, dtype=np.uint64))

    return spec


@pytest.fixture
def model(dictionary):
    """A small encoder with random weights, biases included, without dropout."""
    from fairseq_xl.models.encoder import XLEncoderModel
    from fairseq_xl.models.model_options import EncoderConfig

    torch.manual_seed(1)
    cfg = EncoderConfig(layers=2, **SIZES)
    return randomized(XLEncoderModel(cfg, len(dictionary), dictionary.pad(), dictionary.num_languages))


class FixedLogits:
    """A stand-in for a model: fixed logits (B, T, V), whatever the input."""

    def __init__(self, logits):
        self.logits, self.arguments = logits, None
        self.output = SimpleNamespace(cross_entropy=self._cross_entropy)

    def encode(self, tokens, **others):
        self.arguments = {"tokens": tokens} | others
        return self.logits

    @staticmethod
    def _cross_entropy(predicted, target):
        return -predicted.log_softmax(1)[torch.arange(len(target)), target].sum()


@pytest.fixture
def fixed_logits(dictionary):
    """fixed_logits(batch, probabilities): the model gives each of the batch's targets its probability, in their order.

    All other symbols share the rest. Logits where nothing is predicted are nonsense.
    """

    def build(batch, probabilities):
        rest = 1 - torch.tensor(probabilities, dtype=torch.float64)
        logits = torch.full((*batch["tokens"].shape, len(dictionary)), -50.0, dtype=torch.float64)
        logits[..., 0] = 50
        flat = logits.view(-1, len(dictionary))
        flat[batch["predicted_positions"]] = (rest / (len(dictionary) - 1)).log()[:, None].expand(-1, len(dictionary))
        flat[batch["predicted_positions"], batch["target"]] = torch.tensor(probabilities, dtype=torch.float64).log()
        return FixedLogits(logits)

    return build


@pytest.fixture
def check_sums(model):
    """check_sums(objective, corpus, together, one_by_one): a batch is the sum of its examples, whatever its padding."""

    def gradient(terms):
        model.zero_grad()
        sum(term.sum for term in terms.values()).backward()
        return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()]

    def check(objective, corpus, together, one_by_one):
        batch = objective.collate(together, corpus)
        alone = [objective.collate(spec, corpus) for spec in one_by_one]
        assert batch["tokens"].eq(1).any()
        assert not any(part["tokens"].eq(1).any() for part in alone)
        terms, parts = model(objective.loss, batch), [model(objective.loss, part) for part in alone]
        assert tuple(terms) == objective.terms
        gradients = [gradient(terms), *map(gradient, parts)]
        for name, term in terms.items():
            assert term.count == sum(part[name].count for part in parts) > 0
            assert term.sum.item() == pytest.approx(sum(part[name].sum.item() for part in parts))
        for whole, *single in zip(*gradients):
            torch.testing.assert_close(whole, sum(single))

    return check
