"""xFNP (G6): which spans are masked, what both sides read, and the loss step by step."""

import math

import numpy as np
import pytest
import torch
from tiny_data import write_items
from tiny_models import SIZES, randomized

from fairseq_xl.data.corpora.token_stream import TokenStream
from fairseq_xl.errors import UserError
from fairseq_xl.models.model_options import NgramDecoderConfig
from fairseq_xl.models.ngram_decoder import XLNgramDecoderModel

BOS, PAD, EOS, MASK, DE, EN = 0, 1, 2, 20, 21, 22
SPANS = "xfnp.span_every=4 xfnp.span_pieces=2 "
ALL_MASKED = "xfnp.mask_token_prob=1 xfnp.random_token_prob=0 "


def make(dictionary, streams=2):
    torch.manual_seed(1)
    form = dict(predicting_streams=streams, relative_buckets=6, relative_distance=8)
    cfg = NgramDecoderConfig(encoder_layers=2, decoder_layers=2, **SIZES, **form)
    return randomized(XLNgramDecoderModel(cfg, dictionary))


@pytest.fixture
def model(dictionary):
    return make(dictionary)


@pytest.fixture
def long(tmp_path):
    """A text of 6000 pieces in sentences of 1 to 30, 16 different ones."""
    rng = np.random.default_rng(1)
    items = [[*rng.integers(4, 20, size=rng.integers(1, 31)).tolist(), EOS] for _ in range(400)]
    return TokenStream(write_items(tmp_path / "long", items), "en")


def clean(corpus, objective, examples):
    """The framed blocks."""
    return [[BOS, *block.tolist()] for (block,) in corpus.texts(np.asarray(examples), objective.input_length.text)]


# Both sides


def test_a_batch_worked_out_by_hand(build, stream, spec, monkeypatch):
    """Blocks 4 5 6 7 2 8 9 2 and 12 2: pieces 4 5 6 7 | 8 9 and 12; a span of 2 in four, of 1 in two, of 1/2 in one.

    With every number drawn 0.6: the first starts at floor(3 * 0.6) = 1, so that 5 6 are masked; of 8 9 it is
    floor(1 + 0.6) = 1, the one at floor(2 * 0.6) = 1; of 12 floor(0.5 + 0.6) = 1, at 0.
    """
    monkeypatch.setattr(
        "fairseq_xl.data.noise.masking.uniforms", lambda keys, count, purpose: np.full((len(keys), count), 0.6)
    )
    batch = build("xfnp", f"{SPANS} {ALL_MASKED} xfnp.length=9").collate(spec([0, 10]), stream)
    assert batch["tokens"].tolist() == [
        [BOS, 4, MASK, MASK, 7, EOS, 8, MASK, EOS],
        [BOS, MASK, EOS, PAD, PAD, PAD, PAD, PAD, PAD],
    ]
    assert batch["target"].tolist() == [[5, 6, 9, EOS], [12, EOS, PAD, PAD]]
    assert batch["prev_output_tokens"].tolist() == [[EN, 5, 6, 9], [EN, 12, EOS, PAD]]
    assert torch.equal(batch["padding_mask"], batch["tokens"].eq(PAD))
    assert batch["languages"].tolist() == [[1], [1]]


def test_nine_of_64_pieces_are_predicted(build, long, spec):
    """512 tokens are 511 and <s>; of their pieces 14.06 % are predicted, the share of every block."""
    objective = build("xfnp", ALL_MASKED)
    assert objective.input_length == (511, 1, 512)
    examples = range(0, 5600, 7)
    batch = objective.collate(spec(examples), long)
    masked, originals = batch["tokens"].eq(MASK), clean(long, objective, examples)
    pieces = 0
    for row, original in enumerate(originals):
        original = torch.tensor(original)
        assert batch["tokens"][row, : len(original)][~masked[row, : len(original)]].tolist() == (
            original[~masked[row, : len(original)]].tolist()
        )
        hidden = original[masked[row, : len(original)]]
        assert hidden.min() > 3  # no special symbol
        assert batch["target"][row, : len(hidden) + 1].tolist() == [*hidden.tolist(), EOS]
        whole, left = divmod(int(original.gt(3).sum()), 64)
        assert 9 * whole <= len(hidden) <= 9 * whole + math.ceil(9 * left / 64)
        pieces += int(original.gt(3).sum())
    assert masked.sum().item() / pieces == pytest.approx(9 / 64, abs=0.0005)


def test_of_the_spans_80_percent_are_masked_and_10_are_random(build, long, spec):
    objective = build("xfnp")
    examples = list(range(0, 5500)) * 2
    found, hidden = [], []
    for start in range(0, len(examples), 1000):
        drawn = spec(examples[start : start + 1000], range(start, start + 1000))
        batch = objective.collate(drawn, long)
        reference = build("xfnp", ALL_MASKED).collate(drawn, long)
        assert torch.equal(batch["target"], reference["target"])
        chosen = reference["tokens"].eq(MASK)
        assert torch.equal(batch["tokens"][~chosen], reference["tokens"][~chosen])
        found.append(batch["tokens"][chosen])
        hidden.append(reference["target"][reference["target"].gt(3)])
    found, hidden = torch.cat(found), torch.cat(hidden)
    assert len(found) > 500_000
    assert found.eq(MASK).double().mean().item() == pytest.approx(0.8, abs=0.003)
    assert found.eq(hidden).double().mean().item() == pytest.approx(0.1 + 0.1 / 16, abs=0.003)
    assert set(found.tolist()) == {MASK, *range(4, 20)}


def test_a_block_may_have_nothing_to_predict(build, stream, spec, model):
    """12 2 with nine in 64 mostly has no masked piece: only </s> is predicted, by the first stream."""
    objective = build("xfnp", "xfnp.length=8")
    batch = objective.collate(spec([10], [3]), stream)
    assert batch["tokens"].tolist() == [[BOS, 12, EOS]] and batch["target"].tolist() == [[EOS]]
    terms = model(objective.loss, batch)
    assert [(term.count, term.weight) for term in terms.values()] == [(1, 1.0), (0, 0.0)]
    assert terms["xfnp_2"].sum.item() == 0


# Loss


def total(terms):
    """The loss as the criterion computes it."""
    return sum(term.weight * term.sum / max(term.count, 1) for term in terms.values())


def log_probabilities(model, batch, row, known):
    """log p of every stream given X' and the first tokens of Y, computed for these alone."""
    source = batch["tokens"][row][batch["tokens"][row].ne(PAD)][None]
    prefix = batch["prev_output_tokens"][row : row + 1, : known + 1]
    encoder_out = model.encoder(source, None, batch["languages"][row])
    hidden = model.decoder.streams(prefix, encoder_out)[0, 1:, -1]
    return model.decoder.output(hidden).log_softmax(-1)


@pytest.mark.parametrize(
    "options, streams, weights",
    [
        ("", 2, [1, 1]),
        ("xfnp.stream_weights=1,0.5", 2, [1, 0.5]),
        ("xfnp.stream_weights=1,0.5 xfnp.mean_of_streams=true", 2, [1 / 1.5, 0.5 / 1.5]),
        ("xfnp.mean_of_streams=true", 2, [0.5, 0.5]),
        ("xfnp.stream_weights=2", 1, [2]),
        ("xfnp.stream_weights=1,1,3", 3, [1, 1, 3]),
    ],
)
def test_loss_step_by_step(build, stream, spec, dictionary, options, streams, weights):
    """α_0 sum over t <= |Y| of -log p(y_t | y_<t, X') + α_1 sum over t <= |Y| - 1 of -log p(y_{t+1} | y_<t, X') + …"""
    model, objective = make(dictionary, streams), build("xfnp", f"{SPANS} xfnp.length=12 {options}")
    batch = objective.collate(spec([0, 5]), stream)
    expected, predicted, counts = 0.0, 0, [0] * streams
    for row in range(2):
        target = batch["target"][row][batch["target"][row].ne(PAD)].tolist()
        predicted += len(target)
        for known in range(len(target)):
            found = log_probabilities(model, batch, row, known)
            for ahead in range(min(streams, len(target) - known)):
                expected -= weights[ahead] * found[ahead, target[known + ahead]].item()
                counts[ahead] += 1
    terms = model(objective.loss, batch)
    assert tuple(terms) == objective.terms == tuple(f"xfnp_{number + 1}" for number in range(streams))
    assert [term.count for term in terms.values()] == counts == [predicted - 2 * ahead for ahead in range(streams)]
    assert total(terms).item() == pytest.approx(expected / predicted)


def test_a_batch_is_the_sum_of_its_examples(build, stream, spec, check_sums):
    objective = build("xfnp", SPANS + "xfnp.length=8")
    check_sums(objective, stream, spec([0, 5, 10], [1, 2, 3]), [spec([e], [k]) for e, k in ((0, 1), (5, 2), (10, 3))])


# Users' mistakes


@pytest.mark.parametrize(
    "setting",
    (
        "span_every=0 span_pieces=0 span_pieces=65 mask_token_prob=2.0 random_token_prob=0.3 "
        "stream_weights=much stream_weights=1, stream_weights=0,0 stream_weights=-1,2 "
        "stream_weights=nan,1 stream_weights=1,inf length=1"
    ).split(),
)
def test_values_out_of_range(build, setting):
    key, value = setting.split("=")
    with pytest.raises(UserError) as refused:
        build("xfnp", f"xfnp.{setting}")
    assert str(refused.value).startswith(f"--objective-options: xfnp.{key}={value} should be ")


def test_weights_of_another_number_of_streams(build, model):
    assert build("xfnp").heads(model.cfg) == {}
    with pytest.raises(UserError, match="xfnp.stream_weights=1 are 1, and the model has --predicting-streams 2"):
        build("xfnp", "xfnp.stream_weights=1").heads(model.cfg)
