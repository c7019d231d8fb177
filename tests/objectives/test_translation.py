"""Supervised translation as an objective: literal batches, passes, and the loss of fairseq's cross-entropy."""

from types import SimpleNamespace

import pytest
import torch
from tiny_models import SIZES, randomized
from torch.nn import functional as F

from fairseq_xl.data.framing import Framing
from fairseq_xl.models.denoising import XLBackTranslationModel
from fairseq_xl.models.model_options import EncoderDecoderConfig
from fairseq_xl.objectives.translation import DirectedTranslation, TranslationConfig

BOS, PAD, EOS, DE, EN = 0, 1, 2, 21, 22


@pytest.fixture
def model(dictionary):
    torch.manual_seed(1)
    cfg = EncoderDecoderConfig(encoder_layers=2, decoder_layers=1, **SIZES)
    return randomized(XLBackTranslationModel(cfg, dictionary))


def test_batch(build, pairs, spec):
    """English 4 5 6 with German 14, and 7 with 15 16: first from English, then from German."""
    batch = build("translation").collate(spec([0, 1]), pairs)
    assert batch["tokens"].tolist() == [
        [BOS, 4, 5, 6, EOS],
        [BOS, 7, EOS, PAD, PAD],
        [BOS, 14, EOS, PAD, PAD],
        [BOS, 15, 16, EOS, PAD],
    ]
    assert batch["target"].tolist() == [[14, EOS, PAD, PAD], [15, 16, EOS, PAD], [4, 5, 6, EOS], [7, EOS, PAD, PAD]]
    starts = batch["prev_output_tokens"][:, 0].tolist()
    assert starts == [DE, DE, EN, EN]
    assert batch["prev_output_tokens"][2].tolist() == [EN, 4, 5, 6]
    assert batch["languages"].tolist() == [[1], [1], [0], [0]]
    assert batch["other_languages"].tolist() == [[0], [0], [1], [1]]
    assert torch.equal(batch["padding_mask"], batch["tokens"].eq(PAD))


def test_the_loss_is_the_cross_entropy_of_the_logits(build, pairs, spec, model):
    objective = build("translation")
    batch = objective.collate(spec([0, 1]), pairs)
    term = model(objective.loss, batch)["translation"]
    encoder_out = model.encoder(batch["tokens"], None, batch["languages"][:, 0])
    logits, _ = model.decoder(batch["prev_output_tokens"], encoder_out)
    expected = F.cross_entropy(logits.transpose(1, 2), batch["target"], ignore_index=PAD, reduction="sum")
    torch.testing.assert_close(term.sum, expected, check_dtype=False)
    assert term.count == 11


def test_a_batch_is_the_sum_of_its_pairs(build, pairs, spec, model):
    objective = build("translation")
    together = model(objective.loss, objective.collate(spec([0, 1]), pairs))["translation"]
    alone = [model(objective.loss, objective.collate(spec([line]), pairs))["translation"] for line in (0, 1)]
    torch.testing.assert_close(together.sum, sum(term.sum for term in alone))
    assert together.count == sum(term.count for term in alone)


@pytest.mark.parametrize(
    "options, expected",
    [
        ({}, {"en-de": 1, "back en-de": 1, "en-fr": 1}),
        ({"upsample_primary": 3}, {"en-de": 3, "back en-de": 1, "en-fr": 1}),  # without generated pairs: once
        # 80 + 10 and 10 of 100 pairs: shares of 3 to 1, so that 75 and 25 are read
        ({"sampling_temperature": 2}, {"en-de": 75 / 90, "back en-de": 75 / 90, "en-fr": 2.5}),
    ],
)
def test_how_often_a_pass_reads_the_pairs(dictionary, options, expected):
    sizes = {"en-de": 80, "back en-de": 10, "en-fr": 10}
    parts = {name: SimpleNamespace(sentences=count) for name, count in sizes.items()}
    config = TranslationConfig(directions="en-de,en-fr", back_translated=True, **options)
    objective = DirectedTranslation(config, dictionary, Framing.of("xl", dictionary))
    assert objective.repeats({"mixed": SimpleNamespace(parts=parts)}) == pytest.approx(expected)
    assert objective.repeats(parts) == pytest.approx(expected)


def test_the_directions_of_a_split(dictionary):
    objective = DirectedTranslation(TranslationConfig(directions="en-de,de-en"), dictionary, None, named=False)
    objective.test_direction = "en-fr"
    assert objective.corpora(None, "train") == objective.corpora(None, "valid1") == ["en-de", "de-en"]
    assert objective.corpora(None, "test") == ["en-fr"] and objective.corpora(None) == ["en-de", "de-en", "en-fr"]
