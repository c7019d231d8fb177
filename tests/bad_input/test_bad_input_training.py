"""Trainings and validations that go wrong."""

import math
import shutil

import pytest
import torch

from fairseq_xl.criterions.combined import CombinedCriterion
from tests.bad_input.builders import changed, one_direction, refused
from tests.bad_input.every_command import line_of
from tests.commands import dan, pretraining, run_train, trained, translation


@pytest.mark.parametrize(
    "more",
    [
        [],
        ["--optimizer", "xl_adam", "--bf16"],
        ["--fp16"],
        ["--amp"],
        ["--disable-validation", "--fp16", "--save-interval-updates", 1],
    ],
)
def test_training_that_explodes_keeps_the_last_good_checkpoint(place, tmp_path, more):
    last = tmp_path / "checkpoint_last.pt"
    shutil.copy(place.pretraining, last)
    line = line_of("pretraining", place, tmp_path, "--updates-per-epoch", 50, "--max-update", 60, "--reset-optimizer")
    saves = "--save-interval-updates" in more
    found = ["update 1: encoder.token_embeddings"] if saves else ["update 2 (", " of ", "gradients are"]
    refused([*line, "--lr", 1e9, *more], *found, "NaN or infinite", f"; {last} is unchanged; a lower --lr")
    assert last.read_bytes() == place.pretraining.read_bytes()
    names = {path.name for path in tmp_path.iterdir()} - {"crash.pt"}
    assert names == {last.name, "train.log"}


def test_directions_of_a_translation_that_explodes_are_named(data_bin, tmp_path):
    alone = ["--disable-validation", "--no-save", "--lr", 1e9, "--max-update", 3]
    pair = [*one_direction(data_bin, tmp_path), *alone]
    refused(pair, "(xl_translation of en-de): gradients are NaN or infinite")
    both = translation(data_bin, tmp_path, "--lang-pairs", "de-en,en-de", *alone)
    refused(both, "(xl_translation of en-de,de-en): gradients are NaN or infinite")


def test_validation_that_has_no_value(place, tmp_path):
    """Nothing is masked: the 0 of fairseq would stay the best value."""
    settings = ["--objective-options", "mlm.length=32 mlm.mask_prob=1e-7", "--best-checkpoint-metric", "ppl"]
    line = pretraining(place.data, tmp_path, *settings, "--updates-per-epoch", 1, "--patience", 1, objectives="mlm")
    seen = run_train([*line, "--max-update", 2])
    sentence = "validation predicted nothing: ppl has no value, and no checkpoint becomes the best"
    assert seen.log.count(sentence) == 2 and len(seen.updates) == 2
    assert not seen.statistics("loss") and not seen.statistics("ppl") and not (tmp_path / "checkpoint_best.pt").exists()
    assert "best" not in torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)["extra_state"]
    seen = run_train([*line, "--objective-options", "mlm.length=32", "--max-update", 3])
    assert seen.statistics("ppl") and (tmp_path / "checkpoint_best.pt").exists()


def test_validation_that_ends_before_the_text_of_its_metric(place, tmp_path):
    metric = ["--best-checkpoint-metric", "clm_ppl", "--updates-per-epoch", 1, "--max-update", 1]
    line = pretraining(place.data, tmp_path, *metric, objectives="mlm,clm")
    refused([*line, "--max-valid-steps", 1], "--max-valid-steps 1 ends validation before the text of clm_ppl")
    assert run_train(line).statistics("clm_ppl")


def test_validation_that_is_nan(place, tmp_path, monkeypatch):
    metric = ["--best-checkpoint-metric", "mlm_ppl", "--updates-per-epoch", 1, "--max-update", 2]
    line = pretraining(place.data, tmp_path, *metric, objectives="mlm")
    run_train([*line, "--max-update", 1])
    before = (tmp_path / "checkpoint_last.pt").read_bytes()
    monkeypatch.setattr(CombinedCriterion, "log", nan_perplexity)
    refused(line, "validation after update 2: mlm_ppl is NaN", tmp_path / "checkpoint_last.pt", "is unchanged")
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == before


def nan_perplexity(criterion, metrics, logging_outputs):
    metrics.average("loss", 1.0)
    metrics.average("mlm_ppl", math.nan)


def test_metric_that_is_not_logged(data_bin, tmp_path):
    metric = ["--best-checkpoint-metric"]
    refused(pretraining(data_bin, tmp_path, *metric, "pppl"), "--best-checkpoint-metric pppl: choose one of ppl, loss")
    for known in ("loss", "tlm_en-de_loss"):
        run_train(pretraining(data_bin, tmp_path / known, "--updates-per-epoch", 1, "--max-update", 1, *metric, known))
        assert (tmp_path / known / "checkpoint_best.pt").exists()
    translated = one_direction(data_bin, tmp_path, *metric, "bleu", "--maximize-best-checkpoint-metric")
    refused(translated, "--best-checkpoint-metric bleu: choose one of loss, nll_loss, ppl")


def test_selection_of_the_worst_checkpoint(data_bin, place, tmp_path):
    metric, maximize = "--best-checkpoint-metric", "--maximize-best-checkpoint-metric"
    needs, without = f"higher is better, so it needs {maximize}", f"lower is better, so leave out {maximize}"
    refused(one_direction(data_bin, tmp_path, "--eval-bleu", metric, "bleu"), f"{metric} bleu: {needs}")
    refused(one_direction(data_bin, tmp_path, metric, "nll_loss", maximize), f"{metric} nll_loss: {without}")
    one_update = ["--criterion", "cross_entropy", "--sentence-avg", "--max-update", 1]
    run_train(one_direction(data_bin, tmp_path / "averaged", metric, "nll_loss", *one_update))
    refused(pretraining(data_bin, tmp_path, metric, "tlm_en-de_ppl", maximize), f"{metric} tlm_en-de_ppl: {without}")
    for name in ("accuracy", "accuracy_de"):
        refused(line_of("classification", place, tmp_path, metric, name), f"{metric} {name}: {needs}")


def test_line_that_is_longer_than_a_batch_of_translation(data_bin, tmp_path):
    refused(
        changed(one_direction(data_bin, tmp_path, "--max-update", 1), "--max-tokens", 5),
        "more than --max-tokens 5: raise it",
    )
    alone = one_direction(data_bin, tmp_path, "--disable-validation", "--max-update", 1)
    refused(changed(alone, "--max-tokens", 2), "no training pair fits 2 tokens, the smaller of --max-tokens and")


def test_averaging_network_that_cannot_be(data_bin, tmp_path):
    flags = ["--objective-options", "paraphrase_similarity.scale=-1"]
    refused(dan(data_bin, tmp_path, *flags), "scale=-1.0 should be more than 0")


def test_averaging_network_in_place_of_an_encoder(data_bin, place, tmp_path):
    network = trained(dan(data_bin, tmp_path / "dan", "--max-update", 1, "--disable-validation"))
    sentence = "dan/checkpoint_last.pt holds a deep averaging network, this model is a Transformer"
    for more in (
        ["--init-from", network],
        ["--init-from", network, "--init-across-heads"],
        ["--restore-file", network],
    ):
        refused(pretraining(data_bin, tmp_path / "other", *more), sentence)
    for side in ("--init-encoder-from", "--init-embeddings-from"):
        refused([*one_direction(data_bin, tmp_path / "mt"), side, network], sentence)
    sentence = "checkpoint_last.pt holds a Transformer, this model is a deep averaging network"
    refused(dan(data_bin, tmp_path / "another", "--init-from", place.pretraining), sentence)
