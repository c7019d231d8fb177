"""xFNP through fairseq's commands: training, resuming, initial weights, generation, errors (G6)."""

from functools import partial

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_xl.engine.initial_weights import transfer_weights
from fairseq_xl.errors import UserError
from tests.commands import denoising, equal_parameters, load, pretraining, run_train, run_validate, validation
from tests.tasks.resuming import check_stop
from tests.tasks.text_to_text import check_all_trained, check_beam_search

FNP = ["--arch", "xl_xfnp_tiny"]
MIXED = ["--objective-options", "xfnp.length=32 xfnp.mixed=true xfnp.span_every=16 xfnp.span_pieces=4"]


def future(data, folder, *more):
    return denoising(data, folder, *FNP, *more, objectives="xfnp")


def line(data, folder, *more):
    return future(
        data, folder, *MIXED, "--updates-per-epoch", 4, "--no-epoch-checkpoints", "--save-interval-updates", 1, *more
    )


def start(data, folder, *more):
    """The initial parameters, from an update with learning rate 0, and the log."""
    output = run_train(future(data, folder, "--max-update", 1, "--disable-validation", "--lr", 0, *more))
    return load(folder / "checkpoint_last.pt"), output.log


@pytest.fixture(scope="module")
def whole(data_bin, tmp_path_factory):
    """Folder and output of a run of 7 updates."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, run_train(line(data_bin, folder, "--max-update", 7))


def test_both_streams_are_trained_and_scored(whole):
    _, output = whole
    (sample, *_) = output.samples[1]
    assert sample["corpus"] == "mixed" and len(sample["batch"]["prev_output_tokens"][:, 0].unique()) > 1
    for stream in (1, 2):
        assert all(f"xfnp_{stream}_{source}_ppl" in output.log for source in ("mixed", "de", "en", "fr"))
    assert float(output.statistics("ppl")[-1]) > 1


def test_every_parameter_is_trained(data_bin, tmp_path, whole):
    before, _ = start(data_bin, tmp_path)
    check_all_trained(before, load(whole[0] / "checkpoint_last.pt"))


@pytest.mark.parametrize("stop", [2, 4])
def test_a_stopped_run_resumes_bit_by_bit(data_bin, tmp_path, whole, stop):
    """In the middle of an epoch and at its end."""
    check_stop(partial(line, data_bin), tmp_path, whole, stop, 7)


def test_validation_scores_every_language(data_bin, whole):
    output = run_validate(validation(data_bin, whole[0] / "checkpoint_last.pt"))
    assert "xfnp_2_de_ppl" in output.log and "xfnp_2_mixed_ppl" not in output.log


def test_it_generates_what_its_first_stream_predicts(data_bin, whole):
    check_beam_search(data_bin, whole[0] / "checkpoint_last.pt")


# Initial weights


def test_its_own_weights_are_copied(data_bin, tmp_path, whole):
    path = whole[0] / "checkpoint_last.pt"
    state, log = start(data_bin, tmp_path, "--init-from", path)
    assert equal_parameters(state, load(path)) and log.count("new: none") == 2


@pytest.mark.parametrize("option, value", [("--relative-distance", 64), ("--relative-buckets", 16)])
def test_an_xfnp_of_another_form(data_bin, tmp_path, whole, option, value):
    path = whole[0] / "checkpoint_last.pt"
    with pytest.raises(UserError, match=f"{path} needs {option} {2 * value}, this run has {value}"):
        start(data_bin, tmp_path, option, value, "--init-from", path)


@pytest.fixture(scope="module")
def encoder(data_bin, tmp_path_factory):
    """Checkpoint of an encoder in xFNP's form."""
    folder, form = tmp_path_factory.mktemp("encoder"), ["--language-embeddings", "none", "--layer-norm-eps", 1e-5]
    run_train(pretraining(data_bin, folder, *form, "--max-update", 1, "--disable-validation", objectives="mlm"))
    return folder / "checkpoint_last.pt"


def test_an_encoder_fills_the_encoder_alone(data_bin, tmp_path, encoder):
    """The decoder keeps its random weights, and the log says so."""
    state, log = start(data_bin, tmp_path / "from", "--init-from", encoder)
    anew, _ = start(data_bin, tmp_path / "anew")
    pretrained = load(encoder)
    for name, value in state.items():
        assert torch.equal(value, (anew if name.startswith("decoder.") else pretrained)[name]), name
    message = "has no decoder with streams as that of --arch xl_xfnp_tiny has: only its encoder is taken"
    assert f"{encoder} {message}" in log


def test_an_encoder_is_no_decoder(whole, encoder):
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(whole[0] / "checkpoint_last.pt")])
    with pytest.raises(UserError, match=f"{encoder} has no decoder with streams: --init-encoder-from"):
        transfer_weights(task, model, {"decoder": str(encoder)})


# Mistakes: one sentence, before training


@pytest.mark.parametrize(
    "more, sentence",
    [
        (["--predicting-streams", 3], "xfnp.stream_weights=1,1 are 2, and the model has --predicting-streams 3"),
        (["--relative-buckets", 1], "--relative-buckets 1 should be from 2 to"),
        (["--objective-options", "xfnp.length=41"], "xfnp.length=41 needs 41 positions"),
        (["--arch", "xl_xdae_tiny"], "xfnp needs an encoder-decoder that predicts several tokens at each position"),
    ],
)
def test_what_does_not_go_together(data_bin, tmp_path, more, sentence):
    with pytest.raises(UserError, match=sentence):
        run_train(future(data_bin, tmp_path, *more))
    assert not list(tmp_path.glob("*.pt"))
