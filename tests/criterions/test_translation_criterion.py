"""The criterion of translation against fairseq's label_smoothed_cross_entropy."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.utils import apply_to_sample

from fairseq_xl.criterions.combined import FairseqCriterionWrapper, XLTranslationCriterion
from fairseq_xl.data.corpora.text_pairs import TextPairs
from fairseq_xl.data.framing import Framing
from fairseq_xl.data.plan.epoch_plan import BatchSpec
from fairseq_xl.engine.metrics import Metrics
from fairseq_xl.errors import UserError
from fairseq_xl.models.denoising import XLBackTranslationModel
from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel
from fairseq_xl.models.model_options import EncoderDecoderConfig
from fairseq_xl.objectives.sequence import with_whole_batch
from fairseq_xl.objectives.translation import DirectedTranslation, TranslationConfig
from fairseq_xl.tasks.planned_batches import EvaluationDataset, PlannedBatches
from tests.command_line import cli
from tests.commands import run_train, translation

SIZES = dict(embed_dim=16, ffn_dim=32, heads=2, encoder_layers=1, decoder_layers=1, max_positions=12)
SPEC = BatchSpec("translation", "en-de", np.arange(3), np.zeros(3, dtype=np.uint64))


@pytest.fixture
def objectives(dictionary):
    framing = Framing.of("xl", dictionary)
    return {"translation": DirectedTranslation(TranslationConfig(directions="en-de"), dictionary, framing, named=False)}


@pytest.fixture
def dataset(objectives):
    sources = [torch.tensor(tokens) for tokens in ([5, 6, 7, 8, 2], [9, 10, 2], [11, 4, 6, 2])]
    targets = [torch.tensor(tokens) for tokens in ([5, 9, 4, 2], [8, 2], [12, 4, 2])]
    sizes = np.array([(len(source), len(target)) for source, target in zip(sources, targets)])
    corpus = TextPairs(sources, targets, sizes, ("en", "de"))
    return EvaluationDataset(objectives, {"translation": {"en-de": corpus}})


@pytest.fixture
def sample(dataset):
    """A batch with padding on both sides: 3 pairs, 4 + 2 + 3 target tokens."""
    return dataset[SPEC]


def make(dictionary, kind=XLEncoderDecoderModel, share=False):
    torch.manual_seed(0)
    model = kind(EncoderDecoderConfig(**SIZES, share_embeddings=share), dictionary).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model


def computed(criterion, statistics, model, sample):
    """Loss, sample size, statistics of two batches, and gradients."""
    model.zero_grad()
    loss, sample_size, log = criterion(model, sample)
    loss.backward()
    metrics = Metrics()
    statistics.log(metrics, [log, log])
    gradients = {name: p.grad for name, p in model.named_parameters()}
    return loss, sample_size, metrics.values(), gradients


def test_a_batch_is_copied_to_the_gpu_once(dataset, sample):
    """Of the tensors that are copied, only those of languages, (B,) and (B, 1), are parts of others."""
    copied = []
    copies = apply_to_sample(lambda tensor: copied.append(tensor) or tensor.clone(), sample)
    places = [tensor.data_ptr() for tensor in copied if len(tensor) < tensor.numel()]
    assert len(places) == len(set(places)) >= 5
    expected = PlannedBatches.__getitem__(dataset, SPEC)["batch"]
    torch.testing.assert_close(with_whole_batch(copies)["batch"], expected, rtol=0, atol=0)


@pytest.mark.parametrize("sentence_avg", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("kind", [XLEncoderDecoderModel, XLBackTranslationModel])
@pytest.mark.parametrize("share", [False, True])
def test_loss_log_and_gradients_are_fairseqs(dictionary, objectives, sample, share, kind, smoothing, sentence_avg):
    model, task = make(dictionary, kind, share), SimpleNamespace(target_dictionary=dictionary)
    criterion = XLTranslationCriterion(task, smoothing, sentence_avg)
    criterion.set_objectives(objectives, {"translation": ["en-de"]})
    objectives["translation"].cfg.label_smoothing = smoothing
    loss, size, logged, gradients = computed(criterion, criterion, model, sample)
    fairseqs = LabelSmoothedCrossEntropyCriterion(task, sentence_avg, smoothing)
    adapted = FairseqCriterionWrapper(fairseqs)
    adapted.set_objectives(objectives, {"translation": ["en-de"]})
    expected_loss, expected_size, expected_logged, expected = computed(adapted, adapted, model, sample)
    assert size == expected_size == (3 if sentence_avg else 9)
    torch.testing.assert_close(loss, expected_loss, rtol=1e-5, atol=1e-5)
    assert logged.keys() == {*expected_logged, "ppl_en-de"} and logged["ppl_en-de"] == logged["ppl"]
    assert {name: logged[name] for name in expected_logged} == pytest.approx(expected_logged, abs=0.006)
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-5, atol=1e-5)


def test_smoothing_is_a_probability(dictionary):
    with pytest.raises(UserError, match="--label-smoothing 2: a probability from 0 to below 1"):
        XLTranslationCriterion(SimpleNamespace(target_dictionary=dictionary), 2, False)


def test_fairseqs_criterions_train_as_well(data_bin, tmp_path):
    """Five updates without dropout: the same losses in training and validation, to the logged digits."""
    found = {}
    for name in ("xl_translation", "label_smoothed_cross_entropy"):
        more = cli(s="en", t="de", max_update=5, dropout=0, attention_dropout=0, label_smoothing=0.1, lr=0.01)
        output = run_train([*translation(data_bin, tmp_path / name, *more, "--no-save"), "--criterion", name])
        training = [float.fromhex(loss) for loss in output.losses]
        valid = [[float(value) for value in output.statistics(key, "valid")] for key in ("loss", "nll_loss", "ppl")]
        found[name] = training, valid
    (losses, valid), (expected, expected_valid) = found.values()
    assert len(losses) == 5 and losses == pytest.approx(expected, rel=1e-4)
    assert np.array(valid) == pytest.approx(np.array(expected_valid), abs=0.006) and all(valid)
