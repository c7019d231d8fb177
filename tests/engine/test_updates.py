"""An update: one read from the device, fairseq's clipping and loss scale, and what it does with infinite gradients."""

import contextlib
import math
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils, utils
from fairseq.optim import FP16Optimizer
from omegaconf import OmegaConf

from fairseq_xl.criterions.combined import XLPretrainingCriterion
from fairseq_xl.engine import divergence
from fairseq_xl.engine.trainer import Trainer
from fairseq_xl.errors import UserError
from fairseq_xl.models.encoder import XLVecoModel
from fairseq_xl.optimizers import precision
from fairseq_xl.optimizers.adam import XLAdam
from tests.commands import ON, equal_parameters, load, pretraining, run_train, translation, unlabelled
from tests.devices import DEVICES, no_sync
from tests.tasks.resuming import SAVING, losses_after
from tests.waits import Waits

NO_DROPOUT = ["--dropout", 0, "--attention-dropout", 0]
FORMS = ["fp32", "bf16", "memory-efficient-bf16", "fp16", "memory-efficient-fp16", "amp"]


def line(data, folder, *more, objectives="mlm,tlm"):
    command = pretraining(data, folder, "--disable-validation", "--optimizer", "xl_adam", objectives=objectives)
    return [*command, "--clip-norm", 0.1, *more]


def in_form(form):
    return [] if form == "fp32" else [f"--{form}"]


@pytest.fixture
def reads(monkeypatch):
    """The lines at which each update of a run would wait for a GPU, without attention's on CPU."""
    found, step = [], Trainer.train_step

    def watched(trainer, samples):
        with Waits() as waits:
            made = step(trainer, samples)
        lines = {name.partition(" at ")[2] for name in waits.found}  # a method, and its operator
        found.append([line for line in lines if "torch.diff(self.offsets).tolist()" not in line])
        return made

    monkeypatch.setattr(Trainer, "train_step", watched)
    return found


@pytest.mark.parametrize("form, optimizer", [*((form, "xl_adam") for form in FORMS), ("fp16", "xl_lamb")])
def test_sync_of_an_update_is_one_read_of_the_norm(data_bin, tmp_path, reads, form, optimizer):
    """Forward, loss, backward, accumulation over two batches, clipping and the optimizer, of mlm and tlm."""
    more = ["--max-update", 2, "--update-freq", 2, "--optimizer", optimizer, *in_form(form), "--no-save"]
    run_train(line(data_bin, tmp_path, *more))
    assert len(reads) == 2 and all("norms = [float(norm)]" in "".join(lines) for lines in reads)
    assert {len(lines) for lines in reads} == {1}


def test_no_objective_of_encoders_reads_more(data_bin, tmp_path, reads):
    """Each makes two updates."""
    names = unlabelled(XLVecoModel)
    more = ["--arch", "xl_veco_tiny", "--max-update", 2 * len(names)]
    run_train(line(data_bin, tmp_path, *more, objectives=",".join(names)))
    assert len(names) >= 8 and [len(names) for names in reads] == [1] * 2 * len(names)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("form, error", [("fp32", 1e-4), ("bf16", 1e-2)])
def test_losses_are_those_of_fairseqs_adam(data_bin, tmp_path, form, error, device):
    """On CPU in 32 bits."""
    more = [*NO_DROPOUT, "--max-update", 6]
    expected = run_train(line(data_bin, tmp_path / "cpu", *more, "--optimizer", "adam")).losses
    found = run_train(line(data_bin, tmp_path / "run", *more, *in_form(form)), ON[device]).losses
    assert len(found) == 6
    assert list(map(float.fromhex, found)) == pytest.approx(list(map(float.fromhex, expected)), rel=error)


def gradients(dtype, device="cpu"):
    """Weights of 0, of which all but the last have gradients."""
    generator = torch.Generator().manual_seed(1)
    shapes = ((3, 4), (5,), (2, 2), ())
    weights = [torch.nn.Parameter(torch.zeros(shape, dtype=dtype, device=device)) for shape in shapes]
    for parameter in weights[:-1]:
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(device, dtype)
    return weights


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("limit", [0.0, 0.5, 100.0])
def test_clipping_is_fairseqs(dtype, limit, device):
    ours, theirs = gradients(dtype, device), gradients(dtype, device)
    expected = utils.clip_grad_norm_(theirs, limit)
    with no_sync(device):
        norm = precision.clip(ours, limit)
    torch.testing.assert_close(norm, expected, rtol=1e-6, atol=0)
    assert norm.dtype == torch.float32 and ours[-1].grad is None
    for one, other in zip(ours[:-1], theirs):
        torch.testing.assert_close(one.grad, other.grad)
    assert precision.clip([torch.nn.Parameter(torch.ones(2))], 1.0) == 0


def settings(**common):
    """The options that a precision reads."""
    names = dict(fp16_scale_window=3, fp16_init_scale=2.0**7, fp16_scale_tolerance=0.0, threshold_loss_scale=None)
    names |= dict(min_loss_scale=1e-4, fp16=False, bf16=False, fp16_no_flatten_grads=True) | common
    optimizer = dict(_name="xl_adam", lr=[0.1], adam_betas="(0.9, 0.98)", adam_eps=1e-8, weight_decay=0.0)
    return OmegaConf.create(
        dict(
            optimizer=optimizer,
            common=names,
            optimization=dict(update_freq=[1], use_bmuf=False),
            distributed_training=dict(distributed_world_size=1),
        )
    )


def test_gradients_of_32_bits_exist_only_from_the_backward_pass_to_the_update():
    """Those of parameters that an update does not use do not exist at all."""
    weights = gradients(torch.bfloat16)
    updates = precision.MasterWeightsOptimizer(settings(bf16=True), weights)
    updates.clip_grad_norm(0)
    updates.step()
    masters = updates.masters
    assert [master.grad is None for master in masters] == [False, False, False, True]
    assert all(torch.equal(master.grad, weight.grad.float()) for master, weight in zip(masters[:-1], weights))
    assert all(torch.equal(master.bfloat16(), weight) for master, weight in zip(masters, weights))
    assert all((weight != 0).all() for weight in weights[:-1]) and weights[-1] == 0
    updates.zero_grad()
    assert all(each.grad is None for each in [*masters, *weights])


def fairseqs(cfg, weights):
    masters = FP16Optimizer.build_fp32_params(cfg.optimizer, weights, flatten=False)
    return FP16Optimizer(cfg, weights, XLAdam(cfg.optimizer, masters), masters)


def test_the_loss_scale_and_the_updates_are_fairseqs():
    """Over 60 updates, of which every seventh overflows; state and weights go through a checkpoint in between."""
    cfg = settings(fp16=True, fp16_scale_tolerance=0.3)
    ours, theirs = gradients(torch.float16), gradients(torch.float16)
    updates, expected, skipped = precision.MasterWeightsOptimizer(cfg, ours), fairseqs(cfg, theirs), []
    draw = torch.Generator().manual_seed(2)
    for number in range(1, 61):
        if number == 30:
            state = updates.state_dict()
            updates = precision.MasterWeightsOptimizer(cfg, ours)
            updates.load_state_dict(state, {})
        updates.zero_grad()
        expected.zero_grad()
        assert updates.loss_scale == expected.scaler.loss_scale
        value = torch.randn(5, generator=draw).half() * (math.inf if number % 7 == 0 else 1)
        updates.backward((ours[1] * value).sum())
        expected.backward((theirs[1] * value).sum())
        try:
            theirs_norm = expected.clip_grad_norm(0.5)
        except OverflowError:
            with pytest.raises(precision.Overflow, match="setting loss scale to"):
                updates.check(float(updates.clip_grad_norm(0.5)))
            skipped.append(number)
            continue
        norm = updates.clip_grad_norm(0.5)
        updates.check(float(norm))
        torch.testing.assert_close(norm, theirs_norm, rtol=1e-6, atol=0)
        for other in theirs[:1] + theirs[2:]:  # fairseq moves parameters without a gradient
            other.grad = None
        updates.step()
        expected.step()
        torch.testing.assert_close(updates.masters[1], expected.fp32_params[1], rtol=1e-4, atol=1e-5)
    assert {*range(7, 61, 7)} <= {*skipped} and vars(updates.scaler) == vars(expected.scaler)


@pytest.fixture
def overflowing(monkeypatch):
    """Makes losses and gradients of given updates infinite; the set of their numbers, from 1, as they are tried."""
    updates, forward, tried = set(), XLPretrainingCriterion.forward, []

    def infinite(self, model, sample, reduce=True):
        loss, size, log = forward(self, model, sample, reduce)
        if not model.training:
            return loss, size, log
        tried.append(1)
        return loss * (math.inf if len(tried) in updates else 1.0), size, log

    monkeypatch.setattr(XLPretrainingCriterion, "forward", infinite)
    return SimpleNamespace(updates=updates, tried=tried)


@pytest.mark.parametrize("form", ["fp32", "bf16", "amp"])
def test_an_update_that_diverges_is_named_and_changes_nothing(data_bin, tmp_path, overflowing, form):
    overflowing.updates.add(3)
    with pytest.raises(
        UserError, match=r"^update 3 \([mt]lm of .*\): gradients are NaN or infinite; no checkpoint has"
    ):
        run_train(line(data_bin, tmp_path, "--max-update", 6, *in_form(form)))
    assert not list(tmp_path.glob("*.pt"))


def test_ranks_that_differ_end_the_training():
    divergence.check_equal([3.0, 3.0 + 1e-7])
    with pytest.raises(precision.Diverged, match="rank 0 = 3.00000000, rank 1 = 3.10000000"):
        divergence.check_equal([3.0, 3.1])


@pytest.mark.parametrize("form", ["fp16", "memory-efficient-fp16"])
def test_resume_is_exact_across_overflows(data_bin, tmp_path, overflowing, form):
    """With dropout; an update that is skipped does not count, and leaves no trace in weights, means and log."""
    scaling = ["--fp16-init-scale", 128, "--fp16-scale-window", 3, *in_form(form), *SAVING]

    def run(folder, *updates, last):
        overflowing.updates.clear()
        overflowing.updates.update(updates)
        overflowing.tried.clear()
        return run_train(line(data_bin, tmp_path / folder, *scaling, "--max-update", last, objectives="mlm"))

    whole, first = run("whole", 3, 7, last=8), run("parts", 3, last=2)
    assert first.log.count("gradient overflow detected") == 0  # it would be the third
    rest = run("parts", 1, 5, last=8)
    assert whole.log.count("gradient overflow detected") == rest.log.count("gradient overflow detected") == 2
    assert losses_after(rest, 0) == losses_after(whole, 2)
    states = [
        checkpoint_utils.load_checkpoint_to_cpu(tmp_path / folder / "checkpoint_last.pt")
        for folder in ("whole", "parts")
    ]
    one, other = (state["last_optimizer_state"] for state in states)
    assert equal_parameters(*(state["model"] for state in states)) and one["loss_scaler"] == other["loss_scaler"]
    assert {each["step"] for each in one["state"].values()} == {8}
    (logged,) = whole.statistics("gnorm", "train")
    assert math.isfinite(float(logged))


def test_the_smallest_scale_ends_the_training(data_bin, tmp_path, overflowing):
    overflowing.updates.add(2)
    more = ["--fp16", "--fp16-init-scale", 1, "--min-loss-scale", 0.5, "--max-update", 5]
    with pytest.raises(UserError, match=r"^update 2 \(mlm of .*\): gradients are NaN or infinite even with the sma"):
        run_train(line(data_bin, tmp_path, *more, objectives="mlm"))
    assert not (tmp_path / "checkpoint_last.pt").exists()


def test_amp_tries_a_batch_again_with_lower_scales(data_bin, tmp_path, overflowing, monkeypatch):
    """As in fairseq: --amp-batch-retries times, and then goes on with the next; in 32 bits on CPU, exactly."""
    scaler = torch.amp.GradScaler
    monkeypatch.setattr(torch.amp, "GradScaler", lambda device, **options: scaler("cpu", **options | {"enabled": True}))
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
    plain = [*NO_DROPOUT, "--max-update", 6]
    expected = run_train(line(data_bin, tmp_path / "fp32", *plain))
    overflowing.tried.clear()
    overflowing.updates.update({2, 3})
    found = run_train(line(data_bin, tmp_path / "amp", *plain, "--amp"))
    assert found.log.count("gradient overflow detected") == 2 and len(overflowing.tried) == 8
    assert equal_parameters(*(load(tmp_path / run / "checkpoint_last.pt") for run in ("fp32", "amp")))
    assert [losses[-1] for losses in found.updates.values()] == [losses[-1] for losses in expected.updates.values()]


def test_a_skipped_update_is_neither_validated_nor_saved(data_bin, tmp_path, overflowing):
    """The number of updates is still that of the last save."""
    overflowing.updates.add(3)
    more = ["--fp16", "--fp16-init-scale", 128, "--save-interval-updates", 2, "--max-update", 3]
    log = run_train(line(data_bin, tmp_path, *more, objectives="mlm")).log
    assert log.count("gradient overflow detected") == 1 and log.count("@ 2 updates, score") == 1


def test_an_epoch_without_an_update_ends_the_run(data_bin, tmp_path):
    """Another epoch would have none either, and --max-update would never be reached."""
    more = ["--lang-pairs", "en-de", "--update-freq", 1000, "--skip-remainder-batch", "--max-update", 1]
    with pytest.raises(UserError, match="epoch 1 has no update: there are fewer batches than an update needs"):
        run_train(translation(data_bin, tmp_path, *more))


def test_stop_time_hours_end_a_run_with_a_checkpoint(data_bin, tmp_path):
    hours = ["--updates-per-epoch", 5, "--max-update", 10, "--stop-time-hours", 1e-9]
    assert list(run_train(line(data_bin, tmp_path, *hours)).updates) == [1]
    assert checkpoint_utils.load_checkpoint_to_cpu(tmp_path / "checkpoint_last.pt")["extra_state"][
        "previous_training_time"
    ]
    assert list(run_train(line(data_bin, tmp_path, *hours)).updates) == [2]  # an update after each start
