"""Counts of a training: memory by part, tokens of an update, updates of an epoch."""

import math

import pytest

import fairseq_xl
from fairseq_xl.errors import UserError
from fairseq_xl.planning.counting import count
from fairseq_xl.planning.setting import Setting, configuration
from tests.planning.builders import PRETRAIN

fairseq_xl.register()


def counted(folder, *more, memory=None, **values):
    values = {"vocabulary": 1000, "languages": 3} | values
    return count(Setting(flags=(*PRETRAIN, *more), **values), folder / "text", memory)


def parts_of(found):
    return [found["memory"][part] for part in ("weights", "gradients", "fp32_master_weights", "optimizer_state")]


def parameters(layers=3, channels=128, ffn=512, vocabulary=1000, positions=64, languages=3):
    """Of XLM's form: table, output bias, positions, languages, LayerNorm; layers."""
    layer = 4 * channels * channels + 4 * channels + 2 * channels * ffn + ffn + channels + 4 * channels
    return vocabulary * (channels + 1) + (positions + languages + 2) * channels + layers * layer


@pytest.mark.parametrize(
    "precision, bytes_each",
    [
        ([], (4, 4, 0, 8)),
        (["--bf16"], (2, 2, 8, 8)),
        (["--memory-efficient-fp16"], (2, 2, 0, 8)),
    ],
)
def test_plan_counts_weights_gradients_masters_and_adam(precision, bytes_each, tmp_path):
    found = counted(tmp_path, *precision)
    size = parameters()
    assert found["parameters"] == found["trained_parameters"] == size
    weights, _, masters, state = parts = parts_of(found)
    assert parts == [size * each for each in bytes_each]
    (batch,) = found["batches"].values()
    assert (batch["examples"], batch["tokens"], found["memory"]["ddp_buckets"]) == (4, 256, 0)
    assert batch["activations"] > 0 and batch["loss"] > 0
    assert found["memory"]["peak"] <= sum(parts) + batch["activations"] + batch["loss"] + max(parts)
    # gradients in 32 bits may be made for the step only
    assert found["memory"]["peak"] >= weights + masters // 2 + state + batch["activations"]


def test_plan_counts_what_is_trained_and_shared_between_processes(tmp_path):
    sharded = counted(
        tmp_path,
        *("--train-only", "*.ffn.*", "--zero-sharding", "os", "--optimizer", "xl_adam"),
        *("--distributed-world-size", "4", "--update-freq", "3"),
    )
    trained = 3 * (2 * 128 * 512 + 512 + 128)
    assert sharded["trained_parameters"] == trained and sharded["parameters"] == parameters()
    assert sharded["memory"]["gradients"] == sharded["memory"]["ddp_buckets"] == 4 * trained
    assert sharded["memory"]["optimizer_state"] == 8 * 2 * 128 * 512  # of 6 matrices two processes hold two each
    assert (sharded["gpus"], sharded["batches_per_update"]) == (4, 4 * 3)
    assert (sharded["tokens_per_update"], sharded["updates_per_epoch"]) == (4 * 3 * 256, 10)


def test_plan_writes_pairs_of_the_directions(tmp_path):
    """Neither language is one of the default pair."""
    options = "translation.directions=fr-ru translation.length=30 translation.batch_sentences=4"
    found = counted(
        tmp_path, *("--objectives", "translation", "--arch", "xl_unmt_tiny", "--objective-options", options)
    )
    assert found["batches"]["translation"]["examples"] == 4


def test_plan_counts_lamb(tmp_path):
    found = counted(tmp_path, "--optimizer", "xl_lamb")
    assert parts_of(found)[2:] == [0, 8 * parameters()]


@pytest.mark.parametrize("schedule", ["alternate", "cycle"])
def test_plan_counts_tokens_of_all_updates(schedule, tmp_path):
    """Two micro-steps of 4 x 64 tokens, or of 2 pairs of 2 x (32 + 1); --max-epoch 3 ends before --max-update."""
    settings = "tlm.length=32 tlm.batch_sentences=2"
    more = ("--objectives", "mlm,tlm", "--objective-options", f"mlm.length=64 mlm.batch_sentences=4 {settings}")
    ends = ("--max-epoch", "3", "--max-update", "31")
    found = counted(tmp_path, *more, *ends, "--schedule", schedule, "--update-freq", "2")
    mlm, tlm = 4 * 64, 2 * 2 * 33
    assert {name: each["tokens"] for name, each in found["batches"].items()} == {"mlm": mlm, "tlm": tlm}
    assert (found["tokens_per_update"], found["updates"], found["tokens"]) == (mlm + tlm, 30, 30 * (mlm + tlm))
    assert found["flops"] == 30 * sum(each["flops"] for each in found["batches"].values())


def test_plan_counts_updates_of_an_epoch_of_bitext(tmp_path):
    arguments = (
        *("--task", "xl_translation", "--criterion", "label_smoothed_cross_entropy", "--arch", "xl_mt_tiny"),
        *("-s", "de", "-t", "en", "--max-tokens", "320", "--optimizer", "adam", "--lr", "0.1", "--update-freq", "2"),
    )
    found = count(Setting(flags=arguments, examples=1000, line_tokens=20), tmp_path / "text")
    (batch,) = found["batches"].values()
    assert batch["tokens"] == 20 * batch["examples"] and 300 <= batch["tokens"] <= 320
    assert found["updates_per_epoch"] == math.ceil(math.ceil(1000 / batch["examples"]) / 2)
    options = ("-s", "de", "-t", "en", "--lang-pairs", "de-en,en-de")
    both = count(Setting(flags=(*arguments, *options), examples=1000, line_tokens=20), tmp_path / "both")
    assert both["updates_per_epoch"] == math.ceil(math.ceil(2000 / batch["examples"]) / 2)
    unknown = count(Setting(flags=(*arguments, "--max-epoch", "2")), tmp_path / "again")
    assert unknown["updates_per_epoch"] is unknown["updates"] is unknown["tokens"] is unknown["flops"] is None
    assert "no end: set --max-update" in unknown["notes"][0]


@pytest.mark.parametrize("more, size", [(["--update-freq", "2", "--fp16"], 100), (["--bf16"], 8000)])
def test_plan_finds_the_largest_batch(more, size, tmp_path):
    """It fills the memory to 99 % or more, also where it starts from one example; a training with it has this peak."""
    memory, one = size << 20, ("--objective-options", "mlm.length=64 mlm.batch_sentences=1")
    (found,) = counted(tmp_path / "found", *more, *one, memory=memory)["batches"].values()
    options = ("--objective-options", f"mlm.length=64 mlm.batch_sentences={found['most_examples']}")
    again = counted(tmp_path / "again", *more, *options)
    assert again["batches"]["mlm"]["tokens"] == found["most_tokens"]
    assert 0.985 * memory < again["memory"]["peak"] <= memory


@pytest.mark.parametrize("room, fits", [(-1, False), (0, True)])
def test_plan_finds_no_batch_where_the_optimizers_step_does_not_fit(room, fits, tmp_path):
    """With one example the step has the peak."""
    one = ("--bf16", "--objective-options", "mlm.length=64 mlm.batch_sentences=1")
    step = counted(tmp_path / "first", *one)["memory"]["peak"]
    (batch,) = counted(tmp_path / "again", *one, memory=step + room)["batches"].values()
    assert batch["peak"] < step and (batch["most_examples"] > 0) == (batch["most_tokens"] > 0) == fits


def test_plan_checkpointing_of_the_model_shrinks_activations_not_gradients(tmp_path, monkeypatch):
    """Whatever recomputes layers in the backward pass is seen: here torch's checkpoint around each layer."""
    from torch.utils.checkpoint import checkpoint

    from fairseq_xl.modules.layer import Layer

    whole = counted(tmp_path / "whole")
    forward = Layer.forward
    monkeypatch.setattr(
        Layer, "forward", lambda self, hidden, **more: checkpoint(forward, self, hidden, use_reentrant=False, **more)
    )
    saved = counted(tmp_path / "checkpointed")
    assert saved["memory"]["gradients"] == whole["memory"]["gradients"]
    assert saved["memory"]["activations"] < whole["memory"]["activations"] / 3
    assert saved["memory"]["peak"] < whole["memory"]["peak"]


@pytest.mark.parametrize(
    "more, sentence",
    [
        (["--embed-dim", "100", "--heads", "8"], "--embed-dim 100 is not a multiple of --heads 8"),
        (["--adam-betas", "__import__('os').getcwd()"], "--adam-betas .*: expected two numbers"),
        (["--lr-scheduler", "polynomial_decay"], "--total-num-update is missing"),
        (["--max-update", "-3"], "--max-update -3: 0 or more is needed"),
        (["--amp"], "--amp: its memory cannot be counted"),
        (["--ddp-backend", "slowmo"], "--ddp-backend slowmo is not supported"),
        (["--schedule", "cycle", "--objectives", "mlm,clm", "--update-freq", "3"], "a multiple of the 2 objectives"),
        (["--objective-options", "mlm.length=65"], "needs 65 positions"),
    ],
)
def test_plan_refuses_in_one_sentence(more, sentence, tmp_path):
    with pytest.raises(UserError, match=sentence):
        counted(tmp_path, *more)


def test_plan_refuses_other_tasks_and_files(tmp_path):
    with pytest.raises(UserError, match="--task masked_lm: expected a task of this package"):
        configuration(Setting(flags=("--task", "masked_lm", "--arch", "roberta", "--optimizer", "adam")))
    with pytest.raises(UserError, match="--vocabulary 206: 208 or more is needed"):
        counted(tmp_path, vocabulary=206)
    with pytest.raises(UserError, match="^--line-tokens 500: every pair has a side of more than"):
        counted(tmp_path / "tlm", "--objectives", "tlm", "--objective-options", "tlm.length=32", line_tokens=500)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("lr: [1, 2]\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"wrong.yaml: lr: a flag has one value"):
        configuration(Setting(files=(str(wrong),)))
