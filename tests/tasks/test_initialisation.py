"""The grid of initialisations of X11: random, CLM, MLM or embeddings, for the encoder and for the decoder."""

import pytest
import torch

from fairseq_xl.errors import UserError
from tests.commands import load, pretraining, run_train, translation

EMBEDDINGS = {"bank.tokens.weight"}
CROSS = "cross_attention"


@pytest.fixture(scope="module")
def pretrained(data_bin, tmp_path_factory):
    """{"clm", "mlm": path of a checkpoint whose weights left their initial values}."""
    folder = tmp_path_factory.mktemp("pretrained")
    for objective in ("clm", "mlm"):
        seed = ("clm", "mlm").index(objective) + 7
        run_train(
            pretraining(
                data_bin,
                folder / objective,
                "--max-epoch",
                1,
                "--updates-per-epoch",
                3,
                "--disable-validation",
                "--seed",
                seed,
                objectives=objective,
            )  # fmt: skip
        )
    return {objective: folder / objective / "checkpoint_last.pt" for objective in ("clm", "mlm")}


def start(data, folder, *more):
    """Parameters of a translation model before its first update has any effect: the learning rate is 0."""
    run_train(
        translation(data, folder, "-s", "en", "-t", "de", "--max-update", 1, "--disable-validation", "--lr", 0, *more)
    )
    return load(folder / "checkpoint_last.pt")


def stack(state, name):
    return {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}


@pytest.fixture(scope="module")
def untouched(data_bin, tmp_path_factory):
    """Random initial parameters, the same in all runs: they share a seed."""
    return start(data_bin, tmp_path_factory.mktemp("random"))


SOURCES = {"random": None, "clm": "clm", "mlm": "mlm"}


@pytest.mark.parametrize("decoder", SOURCES)
@pytest.mark.parametrize("encoder", SOURCES)
def test_initialisation_by_one_flag_a_side(data_bin, tmp_path, pretrained, untouched, encoder, decoder):
    flags = []
    for side, source in (("encoder", encoder), ("decoder", decoder)):
        flags += [f"--init-{side}-from", pretrained[source]] if source != "random" else []
    state = start(data_bin, tmp_path, *flags)
    assert state.keys() == untouched.keys()
    for side, source in (("encoder", encoder), ("decoder", decoder)):
        found, before = stack(state, side), stack(untouched, side)
        expected = {} if source == "random" else stack(load(pretrained[source]), "encoder")
        for key, value in found.items():
            new = source == "random" or CROSS in key
            assert torch.equal(value, before[key] if new else expected[key]), (side, key)
        if source != "random":
            assert {key for key in found if key not in expected} == {key for key in found if CROSS in key}
            assert not torch.equal(expected["bank.tokens.weight"], before["bank.tokens.weight"])
            missing = {key for key in expected if key not in found}
            assert missing <= ({"bank.bias"} if side == "encoder" else set())  # an encoder predicts nothing


def test_initialisation_of_embeddings_leaves_the_rest_random(data_bin, tmp_path, pretrained, untouched):
    state = start(data_bin, tmp_path, "--init-embeddings-from", pretrained["mlm"])
    donor = stack(load(pretrained["mlm"]), "encoder")
    for side in ("encoder", "decoder"):
        for key, value in stack(state, side).items():
            assert torch.equal(value, donor[key] if key in EMBEDDINGS else stack(untouched, side)[key]), (side, key)


def test_initialisation_reports_what_is_new(data_bin, tmp_path, pretrained):
    output = run_train(translation(data_bin, tmp_path, "-s", "en", "-t", "de", "--max-update", 1, "--no-save",
                                   "--disable-validation", "--init-decoder-from", pretrained["mlm"]))  # fmt: skip
    told = [line for line in output.log.splitlines() if line.startswith("decoder from ")]
    assert len(told) == 1 and str(pretrained["mlm"]) in told[0] and f"layers.0.{CROSS}.query.weight" in told[0]


def test_initialisation_with_shared_embeddings(data_bin, tmp_path, pretrained):
    both = ["--init-encoder-from", pretrained["mlm"], "--init-decoder-from", pretrained["mlm"]]
    state, donor = start(data_bin, tmp_path, "--share-embeddings", *both), load(pretrained["mlm"])
    assert torch.equal(state["encoder.bank.tokens.weight"], donor["encoder.bank.tokens.weight"])
    assert torch.equal(state["encoder.bank.bias"], donor["encoder.bank.bias"])
    assert torch.equal(state["decoder.layers.0.ffn.up.weight"], donor["encoder.layers.0.ffn.up.weight"])


def test_initialisation_is_not_repeated_on_resume(data_bin, tmp_path, pretrained):
    """A resumed run needs the pre-trained file no more than generation does."""
    donor = tmp_path / "donor.pt"
    donor.write_bytes(pretrained["mlm"].read_bytes())
    line = translation(
        data_bin, tmp_path / "run", "-s", "en", "-t", "de", "--disable-validation", "--init-encoder-from", donor
    )
    run_train([*line, "--max-update", 2])
    saved = load(tmp_path / "run" / "checkpoint_last.pt")
    resumed = run_train([*line, "--max-update", 3])
    assert list(resumed.updates) == [3]
    whole = run_train([*translation(data_bin, tmp_path / "whole", "-s", "en", "-t", "de", "--disable-validation",
                                    "--init-encoder-from", donor), "--max-update", 3])  # fmt: skip
    assert (
        resumed.updates[3] == whole.updates[3]
        and saved.keys() == load(tmp_path / "whole" / "checkpoint_last.pt").keys()
    )


# Mistakes: one sentence, before training


@pytest.fixture(scope="module")
def others(data_bin, pretrained, tmp_path_factory):
    """Checkpoints that do not fit, by what is wrong with them."""
    folder = tmp_path_factory.mktemp("others")

    def trained(name, *more):
        run_train(
            pretraining(
                data_bin,
                folder / name,
                "--max-update",
                1,
                "--updates-per-epoch",
                1,
                "--disable-validation",
                *more,
                objectives="mlm",
            )  # fmt: skip
        )
        return folder / name / "checkpoint_last.pt"

    found = {
        "heads": trained("heads", "--heads", 4),
        "layers": trained("layers", "--layers", 2),
        "width": trained("width", "--embed-dim", 8),
        "positions": trained("positions", "--max-positions", 50),
        "framing": trained("framing", "--framing", "xlm"),
    }
    state = torch.load(pretrained["mlm"], weights_only=True)
    state["task_state"]["fairseq_xl"]["dictionary"] = "0" * 64
    found["dictionary"] = folder / "dictionary.pt"
    torch.save(state, found["dictionary"])
    del state["task_state"]["fairseq_xl"]
    found["foreign"] = folder / "foreign.pt"
    torch.save(state, found["foreign"])
    found["damaged"] = folder / "damaged.pt"
    found["damaged"].write_bytes(pretrained["mlm"].read_bytes()[:1000])
    found["missing"] = folder / "missing.pt"
    return found


SENTENCES = {
    "heads": "has 4 attention heads, this model 2",
    "layers": "has 2 layers, the encoder to initialise has 1",
    "width": "has shape .*, the encoder to initialise needs",
    "positions": r"embeddings.positions.weight has shape \(50, 16\), the encoder to initialise needs \(40, 16\)",
    "framing": "was trained with --framing xlm, this run has xl",
    "dictionary": "was trained with another dictionary",
    "foreign": "was not written by fairseq_xl",
    "damaged": "is not a checkpoint, or it is damaged or cut short",
    "missing": "missing.pt cannot be read as a checkpoint: No such file or directory",
}


@pytest.mark.parametrize("mistake", SENTENCES)
def test_initialisation_from_a_checkpoint_that_does_not_fit(data_bin, tmp_path, others, mistake):
    with pytest.raises(UserError, match=SENTENCES[mistake]) as error:
        start(data_bin, tmp_path, "--init-encoder-from", others[mistake])
    assert str(others[mistake]) in str(error.value) and "\n" not in str(error.value)
    assert not list(tmp_path.glob("*.pt"))


def test_initialisation_of_shared_embeddings_from_two_checkpoints(data_bin, tmp_path, pretrained):
    with pytest.raises(UserError, match="--share-embeddings: encoder and decoder must be initialised from the same"):
        start(data_bin, tmp_path, "--share-embeddings", "--init-encoder-from", pretrained["mlm"], "--init-decoder-from",
              pretrained["clm"])  # fmt: skip
