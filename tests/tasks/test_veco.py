"""VECO through fairseq's commands: two stages, resuming, models that start from its checkpoint (V7, V9, V10)."""

import itertools
import re

import pytest
import torch

from fairseq_xl.errors import UserError
from tests.builders import write_task
from tests.command_line import cli
from tests.commands import (
    classification,
    evaluated,
    load,
    pretraining,
    run_generate,
    run_train,
    run_validate,
    translation,
    validation,
)
from tests.tasks.initial_weights import initial
from tests.tasks.resuming import check_stop

BOTH = "veco_mono,veco_bi"
LAYERS = 3
CROSS = "cross_attention"
VECO = ["--arch", "xl_veco_tiny", "--layers", LAYERS]
MT = ["--arch", "xl_veco_mt_tiny", "--encoder-layers", LAYERS, "--decoder-layers", 2, "-s", "en", "-t", "de"]


def veco(data, folder, *more, objectives=BOTH):
    often = cli(updates_per_epoch=4, no_epoch_checkpoints=True)
    return pretraining(data, folder, *VECO, *often, *more, objectives=objectives)


@pytest.fixture(scope="module")
def stages(data_bin, tmp_path_factory):
    """Folders of an MLM in place of XLM-R, of the first stage from it, and of the second stage from that."""
    root = tmp_path_factory.mktemp("stages")
    xlmr = cli(arch="xl_xlmr_tiny", max_update=1, disable_validation=True)
    run_train(veco(data_bin, root / "mlm", *xlmr, objectives="mlm"))
    first = ["--init-from", root / "mlm/checkpoint_last.pt", "--train-only", "*.cross_attention*", "--max-update", 6]
    outputs = [run_train(veco(data_bin, root / "first", *first))]
    second = ["--init-from", root / "first/checkpoint_last.pt", "--max-update", 6]
    outputs.append(run_train(veco(data_bin, root / "second", *second)))
    return root, outputs


def test_the_first_stage_trains_cross_attention_alone(stages):
    root, (output, _) = stages
    before, after = load(root / "mlm/checkpoint_last.pt"), load(root / "first/checkpoint_last.pt")
    assert {key for key in after if key not in before} == {key for key in after if CROSS in key}
    for key, value in before.items():
        assert torch.equal(value, after[key]), key
    biases = [after[key] for key in after if re.search(r"cross_attention\.(query|out)\.bias$", key)]
    norms = [after[key] for key in after if key.endswith("cross_attention_norm.weight")]
    assert len(biases) == 2 * len(norms) > 0
    assert all(bias.abs().max() > 0 for bias in biases)  # they begin at 0,
    assert all((norm - 1).abs().max() > 0 for norm in norms)  # and these at 1
    (line,) = [record for record in output.log.splitlines() if record.startswith("model from")]
    assert "new: encoder.layers.0.cross_attention" in line


def test_the_first_stage_logs_what_it_trains(stages):
    for output, inner in zip(stages[1], (0, 1)):
        for name in ("veco_mono_is_x", "veco_mono_is_y", "veco_bi_is_x", "veco_bi_is_y", "veco_bi_tlm"):
            assert bool(output.statistics(f"{name}_ppl", "train")) == bool(inner), name
            assert output.statistics(f"{name}_ppl", "valid"), name
        assert all(output.statistics(f"veco_{name}_ppl", "train") for name in ("mono_cs_xy", "bi_cs_yx"))


def test_the_second_stage_trains_everything(stages):
    root, _ = stages
    before, after = load(root / "first/checkpoint_last.pt"), load(root / "second/checkpoint_last.pt")
    same = [key for key in before if torch.equal(before[key], after[key])]
    assert before.keys() == after.keys() and not same


def test_both_stages_resume_bit_by_bit(data_bin, tmp_path, stages):
    root, outputs = stages
    first = ["--init-from", root / "mlm/checkpoint_last.pt", "--train-only", "*.cross_attention*"]
    second = ["--init-from", root / "first/checkpoint_last.pt"]
    for name, flags, whole in (("first", first, outputs[0]), ("second", second, outputs[1])):

        def line(folder, *more, flags=flags):
            return veco(data_bin, folder, *flags, "--save-interval-updates", 1, "--disable-validation", *more)

        check_stop(line, tmp_path / name, (root / name, whole), 3, 6)


def start(data, folder, *more):
    """Initial parameters of a translation model."""
    return initial(translation(data, folder, *MT, *more))[0]


@pytest.mark.parametrize("which, layers", [("first", (0, 1)), ("last", (1, 2))])
def test_a_translation_model_from_one_checkpoint(data_bin, tmp_path, stages, which, layers):
    """V10: all layers without cross-attention are the encoder; the first or last ones, whole, the decoder."""
    checkpoint = stages[0] / "second/checkpoint_last.pt"
    flags = ["--init-from", checkpoint, "--init-decoder-layers", which]
    state, pretrained = start(data_bin, tmp_path, *flags), load(checkpoint)
    for key, value in state.items():
        stack, _, name = key.partition(".")
        if name.startswith("layers.") and stack == "decoder":
            number, rest = name.split(".")[1], name.split(".", 2)[2]
            name = f"layers.{layers[int(number)]}.{rest}"
        source = f"output.{name.removeprefix('output.')}" if name.startswith("output.") else f"encoder.{name}"
        assert torch.equal(value, pretrained[source]), key
    assert not [key for key in state if key.startswith("encoder.") and CROSS in key]
    assert {key.split(".")[2] for key in state if key.startswith("encoder.layers.")} == {"0", "1", "2"}


def test_a_decoder_with_random_cross_attention(data_bin, tmp_path, stages):
    """All but cross-attention and its norm are the checkpoint's; a checkpoint without cross-attention is refused."""
    checkpoint = stages[0] / "second/checkpoint_last.pt"
    flags = ["--init-from", checkpoint, "--init-decoder-layers", "last"]
    state = start(data_bin, tmp_path / "random", *flags, "--random-cross-attention")
    whole = start(data_bin, tmp_path / "whole", *flags)
    same = {key for key, value in state.items() if torch.equal(value, whole[key])}
    weights = {key for key in state if CROSS in key and key.endswith("weight")}
    assert weights and not weights & same and {key for key in state if CROSS not in key} <= same
    deeper = cli(init_decoder_from=checkpoint, init_decoder_layers="last", decoder_layers=4)
    mlm = ["--init-from", stages[0] / "mlm/checkpoint_last.pt"]
    for more, words in (
        (["--random-cross-attention"], "--random-cross-attention needs --init-from or --init-decoder-from"),
        ([*mlm, "--random-cross-attention"], "has no cross-attention, which is random anyway"),
        (deeper, "has 3 layers, 4 are needed"),
    ):
        with pytest.raises(UserError, match=words):
            start(data_bin, tmp_path / "refused", *more)


def test_it_trains_and_translates(data_bin, tmp_path, stages):
    checkpoint = stages[0] / "second/checkpoint_last.pt"
    flags = ["--init-from", checkpoint, "--init-decoder-layers", "last"]
    run_train(translation(data_bin, tmp_path, *MT, *flags, "--max-update", 2, "--disable-validation"))
    state = load(tmp_path / "checkpoint_last.pt")
    name = "layers.1.ffn.up.weight"  # copied from one place to two that are trained apart
    assert not torch.equal(state[f"encoder.{name}"], state[f"decoder.{name.replace('1', '0')}"])
    search = cli(s="en", t="de", beam=2)
    generated = run_generate(evaluated(data_bin, "translation", tmp_path / "checkpoint_last.pt", *search))
    assert len(generated.lines("H")) == len(generated.lines("S")) > 10


def test_the_checkpoint_is_an_encoder_too(data_bin, tmp_path, stages):
    """V9: --init-from leaves out cross-attention, and the rest is fine-tuned."""
    checkpoint = stages[0] / "second/checkpoint_last.pt"
    encoder = ["--arch", "xl_xlmr_tiny", "--layers", LAYERS, "--init-from", checkpoint]
    files = write_task(tmp_path / "task", 1)
    state, pretrained = initial(classification(data_bin, files, tmp_path, *encoder))[0], load(checkpoint)
    shared = {key: value for key, value in state.items() if key.startswith("encoder.")}
    assert {key for key in pretrained if key.startswith("encoder.") and key not in shared} == {
        key for key in pretrained if CROSS in key
    }
    assert all(torch.equal(value, pretrained[key]) for key, value in shared.items())


def test_other_models_cannot_train_it(data_bin, tmp_path):
    with pytest.raises(UserError, match="veco_mono needs layers with cross-attention: --arch xl_veco_tiny"):
        run_train(pretraining(data_bin, tmp_path, objectives=BOTH))


def test_validation_scores_every_term_of_every_source(data_bin, tmp_path, stages):
    output = run_validate(validation(data_bin, stages[0] / "second/checkpoint_last.pt"))
    sources = {"mono": ("en", "de", "fr"), "bi": ("en-de", "en-fr")}
    terms = {"mono": ("is_x", "is_y", "cs_xy", "cs_yx"), "bi": ("is_x", "is_y", "cs_xy", "cs_yx", "tlm")}
    for kind in sources:
        for name in itertools.product(terms[kind], sources[kind]):
            assert f"veco_{kind}_{'_'.join(name)}_ppl" in output.log, name
