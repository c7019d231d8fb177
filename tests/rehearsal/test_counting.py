"""Counts of a training: memory by part, tokens of an update, updates of an epoch."""

import math

import pytest

import fairseq_xl
from fairseq_xl.errors import UserError
from fairseq_xl.io.flags import overridden
from fairseq_xl.rehearsal.counting import count
from fairseq_xl.rehearsal.setting import Setting, parse_flags
from tests.rehearsal.builders import PRETRAIN

fairseq_xl.register()


def counted(folder, *more, **values):
    return count(Setting((*PRETRAIN, *more), **({"vocabulary": 1000, "languages": 3} | values)), folder / "text")


def parameters(layers=3, channels=128, ffn=512, vocabulary=1000, positions=64, languages=3):
    """Of XLM's form: table, output bias, positions, languages, LayerNorm; layers."""
    layer = 4 * channels * channels + 4 * channels + 2 * channels * ffn + ffn + channels + 4 * channels
    return vocabulary * (channels + 1) + (positions + languages + 2) * channels + layers * layer


@pytest.mark.parametrize(
    "precision, bytes_each",
    [
        ([], (4, 4, 0, 8)),
        (["--fp16"], (2, 2, 8, 8)),
        (["--bf16"], (2, 2, 8, 8)),
        (["--memory-efficient-fp16"], (2, 2, 0, 8)),
    ],
)
def test_rehearse_counts_weights_gradients_masters_and_adam(precision, bytes_each, tmp_path):
    found = counted(tmp_path, *precision)
    size = parameters()
    assert found.parameters == found.trained == size
    parts = (found.weights, found.gradients, found.master_weights, found.optimizer)
    assert parts == tuple(size * each for each in bytes_each)
    (batch,) = found.batches.values()
    assert (batch.examples, batch.tokens, found.buckets) == (4, 256, 0)
    assert batch.activations > 0 and batch.loss > 0
    assert found.peak <= sum(parts) + batch.activations + batch.loss + max(parts)
    # gradients in 32 bits may be made for the step only
    assert found.peak >= found.weights + found.master_weights // 2 + found.optimizer + batch.activations


def test_rehearse_counts_what_is_trained_and_shared_between_processes(tmp_path):
    sharded = counted(
        tmp_path,
        *("--train-only", "*.ffn.*", "--zero-sharding", "os", "--distributed-world-size", "4", "--update-freq", "3"),
    )
    trained = 3 * (2 * 128 * 512 + 512 + 128)
    assert sharded.trained == trained and sharded.parameters == parameters()
    assert sharded.gradients == sharded.buckets == 4 * trained
    assert sharded.optimizer == 8 * 2 * 128 * 512  # of the 6 matrices two processes hold two each
    assert (sharded.processes, sharded.micro_steps, sharded.tokens) == (4, 3, {"mlm": 4 * 3 * 256})
    assert (sharded.updates, sharded.read_tokens, sharded.read_bytes) == (10, 10 * 4 * 3 * 256, 2 * 10 * 4 * 3 * 256)


def test_rehearse_writes_pairs_of_the_directions(tmp_path):
    """Neither language is one of the default pair."""
    options = "translation.directions=fr-ru translation.length=30 translation.batch_sentences=4"
    found = counted(
        tmp_path, *("--objectives", "translation", "--arch", "xl_unmt_tiny", "--objective-options", options)
    )
    assert found.batches["translation"].examples == 4


def test_rehearse_counts_lamb(tmp_path):
    found = counted(tmp_path, "--optimizer", "xl_lamb")
    assert (found.master_weights, found.optimizer) == (0, 8 * parameters())


@pytest.mark.parametrize("schedule", ["alternate", "cycle"])
def test_rehearse_counts_tokens_by_schedule(schedule, tmp_path):
    """Two micro-steps of 4 x 64 tokens, or of 2 pairs of 2 x (32 + 1); large vocabularies have four bytes a token."""
    settings = "tlm.length=32 tlm.batch_sentences=2"
    more = ("--objectives", "mlm,tlm", "--objective-options", f"mlm.length=64 mlm.batch_sentences=4 {settings}")
    found = counted(tmp_path, *more, "--schedule", schedule, "--update-freq", "2", vocabulary=70000)
    mlm, tlm = 4 * 64, 2 * 2 * 33
    assert {name: each.tokens for name, each in found.batches.items()} == {"mlm": mlm, "tlm": tlm}
    expected = {"all": mlm + tlm} if schedule == "cycle" else {"mlm": 2 * mlm, "tlm": 2 * tlm}
    assert found.tokens == expected
    assert found.read_tokens == 10 * (mlm + tlm) and found.read_bytes == 4 * found.read_tokens


def test_rehearse_counts_updates_of_an_epoch_of_bitext(tmp_path):
    arguments = (
        *("--task", "xl_translation", "--criterion", "label_smoothed_cross_entropy", "--arch", "xl_mt_tiny"),
        *("-s", "de", "-t", "en", "--max-tokens", "320", "--optimizer", "adam", "--lr", "0.1", "--update-freq", "2"),
    )
    found = count(Setting(arguments, examples=1000, line_tokens=20), tmp_path / "text")
    (batch,) = found.batches.values()
    assert batch.tokens == 20 * batch.examples and 300 <= batch.tokens <= 320
    assert found.updates == math.ceil(math.ceil(1000 / batch.examples) / 2) and found.read_tokens == 20 * 1000
    unknown = count(Setting(arguments), tmp_path / "again")
    assert unknown.updates is unknown.read_tokens is unknown.read_bytes is None


def test_rehearse_checkpointing_of_the_model_shrinks_activations_not_gradients(tmp_path, monkeypatch):
    """Whatever recomputes layers in the backward pass is seen: here torch's checkpoint around each layer."""
    from torch.utils.checkpoint import checkpoint

    from fairseq_xl.modules.layer import Layer

    whole = counted(tmp_path / "whole")
    forward = Layer.forward
    monkeypatch.setattr(
        Layer, "forward", lambda self, hidden, **more: checkpoint(forward, self, hidden, use_reentrant=False, **more)
    )
    saved = counted(tmp_path / "checkpointed")
    assert saved.gradients == whole.gradients
    (before,), (after,) = whole.batches.values(), saved.batches.values()
    assert after.activations < before.activations / 3 and saved.peak < whole.peak


@pytest.mark.parametrize(
    "more, sentence",
    [
        (["--embed-dim", "100", "--heads", "8"], "--embed-dim 100 is not a multiple of --heads 8"),
        (["--adam-betas", "__import__('os').getcwd()"], "--adam-betas .*: expected two numbers"),
        (["--amp"], "--amp: its memory cannot be counted"),
        (["--schedule", "cycle", "--objectives", "mlm,clm", "--update-freq", "3"], "a multiple of the 2 objectives"),
        (["--objective-options", "mlm.length=65"], "needs 65 positions"),
    ],
)
def test_rehearse_refuses_in_one_sentence(more, sentence, tmp_path):
    with pytest.raises(UserError, match=sentence):
        counted(tmp_path, *more)


def test_rehearse_refuses_other_tasks_and_files(tmp_path):
    with pytest.raises(UserError, match="--task masked_lm: a rehearsal is of this package's tasks"):
        parse_flags(["--task", "masked_lm", "--arch", "roberta", "--optimizer", "adam"])
    with pytest.raises(UserError, match="absent.yaml: no such file"):
        overridden([str(tmp_path / "absent.yaml")], [])
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("lr: [1, 2]\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"wrong.yaml: lr: a flag has one value"):
        overridden([str(wrong)], [])
