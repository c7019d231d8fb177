"""Online back-translation: literal batches, whose translation is read, gradients, languages of the run."""

import numpy as np
import pytest
import torch
from tiny_data import write_dictionary, write_items
from tiny_models import SIZES, randomized

from fairseq_xl.data.corpora.mixed_corpus import MixedCorpus
from fairseq_xl.data.corpora.sentences import Sentences
from fairseq_xl.data.framing import Framing
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.models.denoising import XLBackTranslationModel, XLDenoisingModel
from fairseq_xl.models.model_options import DenoisingConfig, EncoderDecoderConfig
from fairseq_xl.objectives import build_objectives
from fairseq_xl.objectives.sequence import sequence_terms

BOS, PAD, EOS, DE, EN = 0, 1, 2, 21, 22


@pytest.fixture
def english(tmp_path):
    return Sentences(write_items(tmp_path / "train", [[4, 5, 6, EOS], [EOS], [8, EOS], [9, 10, 11, EOS]]), "en")


@pytest.fixture(params=["separate", "shared"])
def model(request, dictionary):
    """Embeddings of encoder and decoder are separate or shared; dropout tells training from evaluation."""
    torch.manual_seed(1)
    sizes = SIZES | dict(dropout=0.3, attention_dropout=0.3, encoder_layers=2, decoder_layers=1)
    if request.param == "shared":
        return randomized(XLDenoisingModel(DenoisingConfig(**sizes), dictionary))
    return randomized(XLBackTranslationModel(EncoderDecoderConfig(**sizes), dictionary))


@pytest.fixture
def objective(build):
    """Between English and German; the dictionary has French too."""
    objective = build("back_translation")
    objective.set_languages(["de", "en"])
    return objective


def test_batch(objective, english, spec):
    batch = objective.collate(spec([0, 2]), english)
    assert batch["tokens"].tolist() == [[BOS, 4, 5, 6, EOS], [BOS, 8, EOS, PAD, PAD]]
    assert batch["target"].tolist() == [[4, 5, 6, EOS], [8, EOS, PAD, PAD]]
    assert batch["prev_output_tokens"].tolist() == [[EN, 4, 5, 6], [EN, 8, EOS, PAD]]
    assert batch["languages"].tolist() == [[1], [1]] and batch["other_languages"].tolist() == [[0], [0]]
    assert torch.equal(batch["padding_mask"], batch["tokens"].eq(PAD))


def test_the_framing_of_published_weights(build, english, spec, model):
    objective = build("back_translation", framing="xlm")
    batch = objective.collate(spec([0]), english)
    assert batch["tokens"].tolist() == [[EOS, 4, 5, 6, EOS]]
    assert objective.translated(model, batch)["tokens"][:, 0].tolist() == [EOS]


def test_the_model_learns_from_its_own_translation(objective, english, spec, model):
    """The loss is the cross-entropy of the sentence, given the translation that `translate` makes."""
    batch = objective.collate(spec([0, 2, 3]), english)
    translation = model.translate(batch, torch.full((3, 1), DE), torch.from_numpy(objective.dictionary.is_output))
    made = objective.translated(model, batch)
    assert torch.equal(made["tokens"][:, 1:], translation) and (made["tokens"][:, 0] == BOS).all()
    assert made["languages"].tolist() == [[0]] * 3 and torch.equal(made["padding_mask"], made["tokens"].eq(PAD))
    assert torch.equal(made["target"], batch["target"])
    (expected,) = sequence_terms(model.eval(), made)
    for given in (batch, batch | {"source": made}):
        (term,) = model(objective.loss, given).values()
        torch.testing.assert_close(term.sum, expected.sum)
        assert term.count == batch["target"].ne(PAD).sum()


def test_gradients_flow_through_the_loss_only(objective, english, spec, model):
    batch = objective.collate(spec([0, 2, 3]), english)
    made = objective.translated(model, batch)
    gradients = []
    for compute, given in ((objective.loss, batch), (lambda m, b: {"": sequence_terms(m, b)[0]}, made)):
        model.eval().zero_grad()
        sum(term.sum for term in model(compute, given).values()).backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    for found, expected in zip(*gradients):
        torch.testing.assert_close(found, expected)


def test_translations_are_made_without_dropout_and_training_goes_on(objective, english, spec, model):
    batch = objective.collate(spec([0, 2, 3]), english)
    expected = objective.translated(model.eval(), batch)["tokens"]
    model.train()
    for _ in range(3):
        assert torch.equal(objective.translated(model, batch)["tokens"], expected)
    assert model.training and model.encoder.layers[0].training
    losses = {model(objective.loss, batch)["back_translation"].sum.item() for _ in range(3)}
    assert len(losses) == 3  # dropout


def test_only_pieces_are_generated(objective, english, spec, model, dictionary):
    made = objective.translated(model, objective.collate(spec([0, 2, 3]), english))["tokens"][:, 1:]
    assert set(made[~(made.eq(EOS) | made.eq(PAD))].tolist()) <= set(dictionary.pieces.tolist())
    ends = made.eq(EOS).sum(1)
    assert (ends == 1).all()


def test_with_several_languages_the_other_one_is_drawn_by_sentence(tmp_path, spec):
    words = XLDictionary.load(write_dictionary(tmp_path / "words.txt", {"▁a": 1}, ["en", "th", "zh"]))
    texts = {code: Sentences(write_items(tmp_path / code, [[4, EOS]] * 600), code) for code in ("en", "th", "zh")}
    objective = build_objectives("back_translation", "", words, Framing.of("xl", words))["back_translation"]
    corpus = MixedCorpus(texts, 0.0)
    examples, _ = corpus.sample(np.random.default_rng(0), 600, 99)
    batch = objective.collate(spec(examples), corpus)
    pairs, counts = torch.cat((batch["languages"], batch["other_languages"]), dim=1).unique(dim=0, return_counts=True)
    assert pairs.tolist() == [[0, 1], [0, 2], [1, 0], [1, 2], [2, 0], [2, 1]]
    assert counts.min() > 70 and counts.max() < 130  # 100 each
    objective.set_languages(["th", "zh"])
    batch = objective.collate(spec(np.arange(5)), texts["zh"])
    assert batch["other_languages"].tolist() == [[1]] * 5


def test_fewer_than_two_languages(build):
    with pytest.raises(UserError, match="back_translation needs two languages, this run has en"):
        build("back_translation").set_languages(["en"])
