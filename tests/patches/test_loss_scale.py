"""The loss scale of --fp16 and --amp on the device: fairseq's values and updates, without reading an overflow."""

import functools
import math
import random
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils, trainer
from fairseq.optim import FP16Optimizer
from fairseq.optim.dynamic_loss_scaler import DynamicLossScaler

from fairseq_xl.criterions.pretraining import XLPretrainingCriterion
from fairseq_xl.criterions.translation import XLTranslationCriterion
from fairseq_xl.errors import UserError
from fairseq_xl.optimizers.adam import Adam, AdamConfig, XLAdam
from fairseq_xl.optimizers.lamb import Lamb
from fairseq_xl.patches import norms
from fairseq_xl.patches.loss_scale import DeferredLossScaler
from tests.commands import equal_parameters, load, pretraining, run_train, translation
from tests.devices import no_sync
from tests.tasks.test_resume import SAVING, losses_after

NO_DROPOUT = ["--dropout", 0, "--attention-dropout", 0]
#: the scale is too high at first, and grows again after every third update
SCALING = ["--fp16-init-scale", 2**24, "--fp16-scale-window", 3]
SKIP = {"xl_adam": Adam, "xl_lamb": Lamb}


@pytest.fixture
def scaled(monkeypatch):
    """Lets --amp scale the loss on CPU, where torch computes in 32 bits."""
    monkeypatch.setattr(torch.cuda.amp, "GradScaler", functools.partial(torch.amp.GradScaler, "cpu"))


@pytest.fixture
def overflowing(monkeypatch):
    """Makes losses and gradients of given batches infinite; yields the set of their numbers, from 1."""
    batches = set()
    for criterion in (XLPretrainingCriterion, XLTranslationCriterion):
        monkeypatch.setattr(criterion, "forward", _infinite(criterion.forward, batches))
    return batches


def _infinite(forward, batches):
    def infinite(self, model, sample, reduce=True):
        loss, size, log = forward(self, model, sample, reduce)
        infinite.seen[0] += model.training
        if model.training and infinite.seen[0] in batches:
            sums = {name: log[name] * math.inf for name in ("loss", "nll_loss", "sums") if name in log}
            return loss * math.inf, size, log | sums
        return loss, size, log

    infinite.seen = [0]
    return infinite


def line(data, folder, *more, optimizer="xl_adam"):
    command = pretraining(data, folder, "--disable-validation", "--optimizer", optimizer, objectives="mlm")
    return [*command, "--clip-norm", 0.1, *more]


def state_of(folder):
    return checkpoint_utils.load_checkpoint_to_cpu(str(folder / "checkpoint_last.pt"))


def scales(output):
    """The lower scales that a run logged."""
    begin = "NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: "
    return [float(each.removeprefix(begin)) for each in output.log.splitlines() if each.startswith(begin)]


# The scale


def update_scaler(scaler, overflow):
    """Updates fairseq's scaler after an update, as its optimizer does."""
    try:
        scaler.check_overflow(math.inf if overflow else 1.0)
        DynamicLossScaler.update(scaler)
    except OverflowError:
        pass


@pytest.mark.parametrize("settings", [{}, {"tolerance": 0.3}, {"threshold": 32.0}])
def test_the_device_has_fairseqs_scale_at_once_and_the_host_one_update_later(settings):
    settings |= dict(init_scale=2.0**7, scale_window=4)
    expected, found = DynamicLossScaler(**settings), DeferredLossScaler(DynamicLossScaler(**settings))
    draw, before, values = random.Random(1), None, set()
    for _ in range(200):
        assert found.current("cpu") == expected.loss_scale
        values.add(expected.loss_scale)
        if before is not None:
            found.record_overflow(before)
        assert vars(found) == vars(expected) | {"on_device": found.on_device}
        before = draw.random() < 0.2
        found.set_next_scale(torch.tensor(before))
        update_scaler(expected, before)
        found.update()  # changes nothing
    assert len(values) > 3


def test_the_rule_is_that_of_torchs_scaler():
    """So --amp has the scales that it has with an optimizer of fairseq's."""
    weight = torch.nn.Parameter(torch.ones(1))
    theirs = torch.amp.GradScaler("cpu", init_scale=2.0**7, growth_interval=4)
    found = DeferredLossScaler(DynamicLossScaler(2.0**7, scale_window=4))
    draw, values = random.Random(1), set()
    for _ in range(100):
        overflow = draw.random() < 0.2
        optimizer = torch.optim.SGD([weight])
        assert theirs.scale(torch.ones(())) == found.scale(torch.ones(()))
        weight.grad = torch.full((1,), math.inf if overflow else 1.0)
        theirs.step(optimizer)
        theirs.update()
        found.set_next_scale(torch.tensor(overflow))
        found.record_overflow(overflow)
        values.add(theirs.get_scale())
    assert len(values) > 3


def test_the_scale_changes_without_a_sync():
    """On the meta device, where numbers of the host that are copied to a GPU are found too."""
    scaler = DeferredLossScaler(DynamicLossScaler())
    with no_sync("meta"):
        loss = scaler.scale(torch.ones((), dtype=torch.float16, device="meta"))
        scaler.set_next_scale(torch.zeros((), dtype=torch.bool, device="meta"))
        scaler.record_overflow(True)
    assert loss.dtype == torch.float16 and scaler.on_device.device.type == "meta"
    assert scaler.on_device.dtype == torch.float32


@pytest.mark.parametrize("limit, factor", [(0.0, 1.0), (1.0, 0.2), (10.0, 1.0)])
def test_clipping_by_hand(limit, factor):
    """Scaled gradients (12, 16) with the scale 4: (3, 4), whose norm is 5."""
    cfg = SimpleNamespace(
        optimizer=AdamConfig(lr=[0.1]),
        common=SimpleNamespace(
            **dict(fp16=True, fp16_scale_window=1, fp16_no_flatten_grads=True, fp16_init_scale=4.0),
            **dict(fp16_scale_tolerance=0.0, threshold_loss_scale=None, min_loss_scale=1e-4),
        ),
        optimization=SimpleNamespace(use_bmuf=False),
        distributed_training=SimpleNamespace(ddp_backend="legacy_ddp"),
    )
    weight = torch.nn.Parameter(torch.zeros(2, dtype=torch.float16))
    masters = FP16Optimizer.build_fp32_params(cfg.optimizer, [weight], flatten=False)
    optimizer = FP16Optimizer(cfg, [weight], XLAdam(cfg.optimizer, masters), masters)
    optimizer.scaler = DeferredLossScaler(optimizer.scaler)
    optimizer.zero_grad()
    optimizer.backward((weight * torch.tensor([3.0, 4.0]).half()).sum())
    assert weight.grad.tolist() == [12, 16]
    with no_sync("cpu"):
        norm = optimizer.clip_grad_norm(limit)
        optimizer.step()
    assert norm == 5
    assert masters[0].grad.tolist() == pytest.approx([3 * factor, 4 * factor], rel=1e-6)


def test_ranks_of_which_one_overflows_have_the_same_scale(monkeypatch):
    """The ranks compare their norms; the patched all-reduce returns an infinite norm for rank 1."""
    optimizer = SimpleNamespace(can_skip=True, found_inf=None, undo_step_count=lambda: taken.append(1))
    taken = []
    run = SimpleNamespace(
        optimizer=SimpleNamespace(optimizer=optimizer, scaler=DeferredLossScaler(DynamicLossScaler(8.0))),
        cfg=SimpleNamespace(common=SimpleNamespace(fp16=True, amp=False)),
        data_parallel_rank=0,
        data_parallel_process_group=None,
        get_num_updates=lambda: 6,
        _grad_norm_buf=torch.zeros(2, dtype=torch.float64),
    )
    reduced = lambda buffer, group: buffer[1].fill_(math.inf)  # noqa: E731
    monkeypatch.setattr(trainer.distributed_utils, "all_reduce", reduced)
    trainer.Trainer._check_grad_norms(run, torch.tensor(3.0))
    assert optimizer.found_inf == 1 and run.optimizer.scaler.on_device == 4 and run.optimizer.scaler.loss_scale == 8
    norms.check_last_update(run)
    assert run.optimizer.scaler.loss_scale == 4 and taken == [1]


# Updates


@pytest.mark.parametrize("optimizer", SKIP)
def test_updates_are_those_of_fairseq_which_waits(data_bin, tmp_path, monkeypatch, optimizer):
    """Losses of all batches, skipped ones included; weights, counts and scale at the end. fairseq does not count the
    updates that it skips, so that it makes fewer in the same batches.
    """
    settings = [*NO_DROPOUT, *SCALING, "--fp16", "--max-update"]
    found = run_train(line(data_bin, tmp_path / "found", *settings, 24, optimizer=optimizer))
    skipped = len(scales(found))
    monkeypatch.setattr(SKIP[optimizer], "can_skip", False)
    expected = run_train(line(data_bin, tmp_path / "expected", *settings, 24 - skipped, optimizer=optimizer))
    assert 5 < skipped < 20 and scales(found) == scales(expected)
    assert found.losses == expected.losses and len(found.losses) == 24
    one, other = state_of(tmp_path / "found"), state_of(tmp_path / "expected")
    assert equal_parameters(one["model"], other["model"])
    one, other = one["last_optimizer_state"], other["last_optimizer_state"]
    assert all(map(torch.equal, one["fp32_params"], other["fp32_params"]))
    assert one["loss_scaler"] == other["loss_scaler"] and one["loss_scale"] == other["loss_scale"]
    for state, of_fairseq in zip(one["state"].values(), other["state"].values(), strict=True):
        assert state["step"] == of_fairseq["step"] == 24 - skipped
        assert torch.equal(state["exp_avg"], of_fairseq["exp_avg"])


@pytest.mark.parametrize("optimizer", SKIP)
@pytest.mark.parametrize("form", ["fp16", "amp"])
def test_resume_is_exact_across_overflows(data_bin, tmp_path, scaled, overflowing, form, optimizer):
    """With dropout; the run stops after an update that was skipped, after which the scale is the lower one."""

    def run(folder, first, last):
        overflowing.clear()
        overflowing.update(number - first + 1 for number in (3, 6))
        XLPretrainingCriterion.forward.seen[0] = 0
        more = [f"--{form}", *SAVING, "--max-update", last]
        return run_train(line(data_bin, tmp_path / folder, *more, optimizer=optimizer))

    whole = run("whole", 1, 8)
    first = run("parts", 1, 3)
    state = state_of(tmp_path / "parts")["last_optimizer_state"]
    assert state["loss_scaler"]["loss_scale"] == 64 and {each["step"] for each in state["state"].values()} == {2}
    rest = run("parts", 4, 8)
    assert scales(first) == [64] and scales(rest) == [32] and scales(whole) == [64, 32]
    assert losses_after(rest, 0) == losses_after(whole, 3) and len(rest.losses) == 5
    one, other = (state_of(tmp_path / folder) for folder in ("whole", "parts"))
    assert equal_parameters(one["model"], other["model"])
    assert one["last_optimizer_state"]["loss_scaler"] == other["last_optimizer_state"]["loss_scaler"]


def test_updates_of_amp_are_those_of_32_bits(data_bin, tmp_path, scaled, overflowing):
    """Losses of --amp equal those of fp32 on CPU, where torch computes it in 32 bits and powers of 2 scale exactly.

    An overflow in the last update leaves the weights of the update before.
    """
    settings = [*NO_DROPOUT, "--max-update", 6]
    expected = run_train(line(data_bin, tmp_path / "fp32", *settings))
    found = run_train(line(data_bin, tmp_path / "amp", *settings, "--amp"))
    assert found.losses == expected.losses
    assert equal_parameters(*(load(tmp_path / run / "checkpoint_last.pt") for run in ("fp32", "amp")))
    overflowing.add(6)
    XLPretrainingCriterion.forward.seen[0] = 0
    run_train(line(data_bin, tmp_path / "five", *settings[:-1], 5))
    XLPretrainingCriterion.forward.seen[0] = 0
    found = run_train(line(data_bin, tmp_path / "six", *settings, "--amp"))
    assert scales(found) == [64] and len(found.losses) == 6
    assert equal_parameters(*(load(tmp_path / run / "checkpoint_last.pt") for run in ("five", "six")))


@pytest.mark.parametrize("form", ["fp16", "amp"])
@pytest.mark.parametrize("last", [2, 5])
def test_the_smallest_scale_ends_the_training(data_bin, tmp_path, scaled, overflowing, form, last):
    """In the next update or before the next checkpoint, with the number of the update that overflowed."""
    overflowing.add(2)
    more = [f"--{form}", "--fp16-init-scale", 1, "--min-loss-scale", 0.5, "--max-update", last]
    with pytest.raises(UserError, match=r"^update 2 \(mlm of .*\): gradients are NaN or infinite even with the sma"):
        run_train(line(data_bin, tmp_path, *more))
    assert not (tmp_path / "checkpoint_last.pt").exists()


@pytest.mark.parametrize("form", ["fp16", "amp"])
@pytest.mark.parametrize("task", ["pretraining", "translation"])
def test_a_skipped_update_is_not_in_the_logged_means(data_bin, tmp_path, scaled, overflowing, task, form):
    """Loss, perplexity, gradient norm and the tokens of a batch, of four updates of which the second is skipped."""
    overflowing.add(2)
    settings = ["--optimizer", "xl_adam", f"--{form}", "--max-update", 4, "--no-save", "--log-interval", 1]
    more = ["--disable-validation", *settings]
    command = (
        pretraining(data_bin, tmp_path, *more, objectives="mlm")
        if task == "pretraining"
        else translation(data_bin, tmp_path, "--lang-pairs", "en-de", "--max-tokens", 100, *more)
    )
    output = run_train(command)
    samples = [sample for batches in output.samples.values() for sample in batches]
    tokens = [sample["ntokens"] for sample in samples]
    sizes = [1] * 4 if task == "pretraining" else tokens  # of which a batch's loss is the sum
    kept = [(float.fromhex(loss), size) for loss, size in zip(output.losses, sizes, strict=True)]
    assert (len(set(tokens)) > 1) == (task == "translation")
    assert math.isinf(kept.pop(1)[0]) and tokens.pop(1)
    expected = sum(loss for loss, _ in kept) / sum(size for _, size in kept) / math.log(2)
    found = {name: output.statistics(name, "train") for name in ("loss", "ppl", "gnorm", "wpb")}
    found = {name: float(value) for name, (value,) in found.items()}  # one line, of the epoch
    assert found["loss"] == pytest.approx(expected, abs=2e-3)
    assert found["ppl"] == pytest.approx(2**expected, rel=0.02) and 0 < found["gnorm"] < 100
    assert found["wpb"] == pytest.approx(sum(tokens) / 3, abs=0.1)


@pytest.mark.parametrize("form", ["fp16", "amp"])
def test_a_crash_checkpoint_counts_an_overflow_in_the_update_before(data_bin, tmp_path, scaled, overflowing, form):
    overflowing.add(2)
    forward = XLPretrainingCriterion.forward

    def failing(self, model, sample, reduce=True):
        if self.task.update_num == 2:
            raise LookupError("no batch")
        return forward(self, model, sample, reduce)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(LookupError, match="no batch"):
        patch.setattr(XLPretrainingCriterion, "forward", failing)
        run_train(line(data_bin, tmp_path, f"--{form}", "--max-update", 4))
    state = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "crash.pt"))["last_optimizer_state"]
    assert state["loss_scaler"]["loss_scale"] == 64 and {each["step"] for each in state["state"].values()} == {1}


@pytest.mark.parametrize("more", [["--memory-efficient-fp16"], ["--optimizer", "adam", "--fp16"]])
def test_what_keeps_fairseqs_scale(data_bin, tmp_path, overflowing, more):
    """An update that is skipped does not count."""
    overflowing.add(2)
    output = run_train(line(data_bin, tmp_path, *more, "--max-update", 3))
    assert scales(output) == [64] and len(output.losses) == 4
