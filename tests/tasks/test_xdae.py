"""xDAE through fairseq's commands: from an encoder's weights, resuming, generation, mistakes (G4, G5)."""

from functools import partial

import pytest
import torch

from fairseq_xl.errors import UserError
from tests.command_line import cli
from tests.commands import (
    denoising,
    equal_parameters,
    load,
    pretraining,
    run_train,
    run_validate,
    trained,
    translation,
    validation,
)
from tests.tasks.resuming import check_stop
from tests.tasks.text_to_text import check_all_trained, check_beam_search

CROSS = "cross_attention"
ALL = "xdae.length=32 xdae.mixed=true xdae.noise=shuffle+drop+mask+infill"


@pytest.fixture(scope="module")
def encoders(data_bin, tmp_path_factory):
    """Checkpoints of two-layer encoders in the forms of XLM and XLM-R, after three updates."""
    root = tmp_path_factory.mktemp("encoders")
    for name in ("xlm", "xlmr"):
        more = cli(arch=f"xl_{name}_tiny", layers=2, max_update=3, updates_per_epoch=3, disable_validation=True)
        run_train(pretraining(data_bin, root / name, *more, objectives="mlm"))
    return {name: root / name / "checkpoint_last.pt" for name in ("xlm", "xlmr")}


def start(data, folder, *more):
    """The initial parameters, from an update with learning rate 0, and the log."""
    output = run_train(denoising(data, folder, "--max-update", 1, "--disable-validation", "--lr", 0, *more))
    return load(folder / "checkpoint_last.pt"), output.log


def line(data, folder, *more):
    return denoising(
        data,
        folder,
        *cli(objective_options=ALL, updates_per_epoch=4, no_epoch_checkpoints=True, save_interval_updates=1),
        *more,
    )


@pytest.fixture(scope="module")
def whole(data_bin, tmp_path_factory):
    """Folder and output of a run of 7 updates."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, run_train(line(data_bin, folder, "--max-update", 7))


def test_training_mixes_languages_and_validation_tells_them_apart(whole):
    folder, output = whole
    (sample, *_) = output.samples[1]
    starts = sample["batch"]["prev_output_tokens"][:, 0]
    assert sample["corpus"] == "mixed" and len(starts.unique()) > 1
    assert (starts - starts.min() == sample["batch"]["languages"][:, 0] - sample["batch"]["languages"].min()).all()
    assert all(f"xdae_{source}_ppl" in output.log for source in ("mixed", "de", "en", "fr"))
    assert float(output.statistics("ppl")[-1]) > 1


def test_every_parameter_is_trained(data_bin, tmp_path, whole):
    before, _ = start(data_bin, tmp_path)
    check_all_trained(before, load(whole[0] / "checkpoint_last.pt"))


@pytest.mark.parametrize("stop", [2, 4])
def test_a_stopped_run_resumes_bit_by_bit(data_bin, tmp_path, whole, stop):
    """In the middle of an epoch and at its end."""
    check_stop(partial(line, data_bin), tmp_path, whole, stop, 7)


def test_validation_scores_every_token_once(data_bin, whole):
    output = run_validate(validation(data_bin, whole[0] / "checkpoint_last.pt"))
    assert "xdae_de_ppl" in output.log and "xdae_mixed_ppl" not in output.log


def test_it_generates_what_its_decoder_predicts(data_bin, whole):
    check_beam_search(data_bin, whole[0] / "checkpoint_last.pt")


# Initial weights


def copied_from(state, encoder_layers):
    """{parameter of an encoder-decoder: parameter of the encoder that it is copied from}, without new ones."""
    found = {}
    for name in state:
        stack, _, rest = name.partition(".")
        if CROSS in name:
            continue
        found[name] = rest if rest.startswith("output.") else f"encoder.{rest}"
        if stack == "decoder" and rest.startswith("layers."):
            number, rest = rest.split(".", 2)[1:]
            found[name] = f"encoder.layers.{encoder_layers[int(number)]}.{rest}"
    return found


@pytest.mark.parametrize(
    "form, which, layers", [("xlm", None, [0]), ("xlm", "last", [1]), ("xlm", "all", [0, 1]), ("xlmr", "first", [0])]
)
def test_an_encoder_fills_encoder_and_decoder(data_bin, tmp_path, encoders, form, which, layers):
    """All of its layers fill the encoder, by default the first ones the decoder; cross-attention is new (G5)."""
    arch = "xl_xdae_tiny" if form == "xlm" else "xl_xdae_xlmr_tiny"
    size = ["--arch", arch, "--encoder-layers", 2, "--decoder-layers", len(layers)]
    more = ["--init-decoder-layers", which] if which else []
    state, log = start(data_bin, tmp_path, *size, "--init-from", encoders[form], *more)
    pretrained = load(encoders[form])
    filled = copied_from(state, layers)
    for name, source in filled.items():
        assert torch.equal(state[name], pretrained[source]), name
    assert set(filled.values()) == set(pretrained)
    (report,) = [line for line in log.splitlines() if line.startswith("decoder from ")]
    assert set(report.partition("new: ")[2].split(", ")) == {
        name.removeprefix("decoder.") for name in state if name not in filled
    }
    assert f"encoder from {encoders[form]}: " in log and f"{encoders[form]}: not used: none" in log


def test_an_encoder_decoder_is_copied(data_bin, tmp_path, whole):
    path = whole[0] / "checkpoint_last.pt"
    state, log = start(data_bin, tmp_path, "--init-from", path)
    assert equal_parameters(state, load(path))
    assert log.count("new: none") == 2 and f"{path}: not used: none" in log


def test_a_translation_model_starts_from_its_stacks(data_bin, tmp_path, whole):
    path = whole[0] / "checkpoint_last.pt"
    both = ["--share-embeddings", "--init-from", path]
    run_train(
        translation(
            data_bin, tmp_path, "-s", "en", "-t", "de", *both, "--max-update", 1, "--lr", 0, "--disable-validation"
        )
    )
    assert equal_parameters(load(tmp_path / "checkpoint_last.pt"), load(path))


def test_cross_attention_alone_is_trained(data_bin, tmp_path, encoders):
    """As in VECO's first stage."""
    more = ["--encoder-layers", 2, "--init-from", encoders["xlm"], "--train-only", f"*.{CROSS}*"]
    run_train(denoising(data_bin, tmp_path, *more, "--max-update", 2, "--disable-validation"))
    state, pretrained = load(tmp_path / "checkpoint_last.pt"), load(encoders["xlm"])
    for name, source in copied_from(state, [0]).items():
        assert torch.equal(state[name], pretrained[source]), name


# Mistakes: one sentence, before training


@pytest.fixture(scope="module")
def separate(data_bin, tmp_path_factory):
    """A translation model whose encoder and decoder have token embeddings of their own."""
    folder = tmp_path_factory.mktemp("separate")
    return trained(translation(data_bin, folder, "-s", "en", "-t", "de", "--max-update", 1, "--disable-validation"))


def test_two_tables_do_not_fit_into_one(data_bin, tmp_path, separate):
    with pytest.raises(
        UserError, match="--arch xl_xdae_tiny: encoder and decoder of .* have token embeddings of their own"
    ):
        start(data_bin, tmp_path, "--init-from", separate)


def test_models_and_objectives_that_do_not_go_together(data_bin, tmp_path):
    with pytest.raises(UserError, match="xdae needs an encoder-decoder: --arch xl_xdae_tiny, xl_unmt_tiny"):
        run_train(pretraining(data_bin, tmp_path, objectives="xdae"))
    with pytest.raises(UserError, match="xdae predicts one token at a step: --arch xl_xdae_tiny"):
        run_train(denoising(data_bin, tmp_path, "--arch", "xl_xfnp_tiny"))
    with pytest.raises(UserError, match="mlm needs an encoder: --arch xl_xlm_tiny and the like"):
        run_train(denoising(data_bin, tmp_path, objectives="mlm"))
    with pytest.raises(UserError, match="--arch xl_xdae_tiny: xl_translation runs encoder-decoders of xl_mt_"):
        run_train(translation(data_bin, tmp_path, "-s", "en", "-t", "de", "--arch", "xl_xdae_tiny"))
