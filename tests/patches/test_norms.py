"""An update does not wait for the device; gradients that are not finite skip it there and are reported later."""

import contextlib
import functools
import math
from types import SimpleNamespace

import pytest
import torch
from fairseq import trainer as fairseq_trainer, utils
from fairseq.optim import FP16Optimizer

from fairseq_xl.criterions.pretraining import XLPretrainingCriterion
from fairseq_xl.errors import UserError
from fairseq_xl.models.encoder import XLVecoModel
from fairseq_xl.objectives import OBJECTIVES
from fairseq_xl.optimizers.adam import AdamConfig, XLAdam
from fairseq_xl.patches import norms
from tests.commands import ON, equal_parameters, load, pretraining, run_train
from tests.devices import DEVICES, no_sync
from tests.waits import Waits

NO_DROPOUT = ["--dropout", 0, "--attention-dropout", 0]
#: the loop over packed sentences, which runs on CPU only; the norms of the update before, which are on the host
ALLOWED = ("torch.diff(self.offsets).tolist()", "norms = self.host.numpy()")


class Steps:
    """Runs the real trainer's updates under `Waits`; on a GPU, from the third one on, torch fails if they wait."""

    def __init__(self, monkeypatch, device="cpu"):
        self.found = []
        step = fairseq_trainer.Trainer.train_step

        def watched(trainer, samples, raise_oom=False):
            if device == "cuda":
                with no_sync(device) if len(self.found) >= 2 else contextlib.nullcontext():
                    output = step(trainer, samples, raise_oom)
                self.found.append(set())
                return output
            with Waits() as waits:
                output = step(trainer, samples, raise_oom)
            self.found.append({name for name in waits.found if not any(each in name for each in ALLOWED)})
            return output

        monkeypatch.setattr(fairseq_trainer.Trainer, "train_step", watched)


def line(data, folder, *more, objectives="mlm,tlm"):
    command = pretraining(data, folder, "--disable-validation", "--optimizer", "xl_adam", objectives=objectives)
    return [*command, "--clip-norm", 0.1, *more]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("optimizer", ["xl_adam", "xl_lamb"])
@pytest.mark.parametrize("form", ["fp32", "bf16", "memory-efficient-bf16", "fp16", "amp"])
def test_a_training_step_has_no_sync(data_bin, tmp_path, monkeypatch, form, optimizer, device):
    """Forward, loss, backward, accumulation over two batches, clipping and the optimizer, of mlm and tlm."""
    more = ["--max-update", 6, "--update-freq", 2, "--optimizer", optimizer, *([] if form == "fp32" else [f"--{form}"])]
    if device == "cpu":  # where fairseq's --amp has no loss scale
        monkeypatch.setattr(torch.cuda.amp, "GradScaler", functools.partial(torch.amp.GradScaler, "cpu"))
    steps = Steps(monkeypatch, device)
    run_train(line(data_bin, tmp_path, *more), ON[device])
    assert len(steps.found) == 6 and set().union(*steps.found) == set()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("form, error", [("fp32", 1e-4), ("bf16", 1e-2)])
def test_losses_of_updates_without_a_sync(data_bin, tmp_path, form, error, device):
    """They are those of fairseq's `adam`, which waits in each update, on CPU in 32 bits."""
    more = [*NO_DROPOUT, "--max-update", 6]
    expected = run_train(line(data_bin, tmp_path / "cpu", *more, "--optimizer", "adam")).losses
    more += [] if form == "fp32" else [f"--{form}"]
    found = run_train(line(data_bin, tmp_path / "run", *more), ON[device]).losses
    assert len(found) == 6
    assert list(map(float.fromhex, found)) == pytest.approx(list(map(float.fromhex, expected)), rel=error)


def test_no_objective_of_encoders_has_a_sync(data_bin, tmp_path, monkeypatch):
    """Each makes two updates."""
    names = [name for name, each in OBJECTIVES.items() if issubclass(XLVecoModel, each.model_class)]
    steps = Steps(monkeypatch)
    more = ["--arch", "xl_veco_tiny", "--max-update", 2 * len(names)]
    run_train(line(data_bin, tmp_path, *more, objectives=",".join(names)))
    assert len(names) >= 8 and len(steps.found) == 2 * len(names) and set().union(*steps.found) == set()


@pytest.mark.parametrize(
    "more, times", [(["--optimizer", "adam"], 2), (["--memory-efficient-fp16", "--fp16-init-scale", 1], 5)]
)
def test_what_keeps_its_syncs(data_bin, tmp_path, monkeypatch, more, times):
    """fairseq's: two checks of the norm with an optimizer that cannot skip, three more with a loss scale of its own."""
    steps = Steps(monkeypatch)
    run_train(line(data_bin, tmp_path, "--max-update", 2, *more, objectives="mlm"))
    assert all(sum("_local_scalar_dense" in name for name in found) <= times for found in steps.found)
    assert all(any("trainer.py" in name for name in found) for found in steps.found)


@pytest.fixture
def poisoned(monkeypatch):
    """Makes the gradients of update 3 NaN."""
    forward = XLPretrainingCriterion.forward

    def nan(self, model, sample, reduce=True):
        loss, size, log = forward(self, model, sample, reduce)
        return loss * (math.nan if model.training and self.task.update_num == 2 else 1.0), size, log

    monkeypatch.setattr(XLPretrainingCriterion, "forward", nan)


@pytest.mark.parametrize(
    "optimizer, form, last",
    [
        ("xl_adam", "fp32", 3),
        ("xl_adam", "fp32", 6),
        ("xl_adam", "bf16", 6),
        ("xl_adam", "memory-efficient-bf16", 6),
        ("xl_lamb", "bf16", 6),
    ],
)
def test_an_update_that_diverges_is_named_and_changes_nothing(data_bin, tmp_path, poisoned, optimizer, form, last):
    """It is noticed in the next update, or before the next checkpoint."""
    more = ["--optimizer", optimizer, *([] if form == "fp32" else [f"--{form}"])]
    run_train(line(data_bin, tmp_path / "before", "--max-update", 2, *more))
    with pytest.raises(
        UserError, match=r"^update 3 \([mt]lm of .*\): gradients are NaN or infinite; no checkpoint has"
    ):
        run_train(line(data_bin, tmp_path / "run", "--max-update", last, *more))
    assert not (tmp_path / "run" / "checkpoint_last.pt").exists()
    if last == 6:  # what fairseq saves when a training fails
        assert equal_parameters(load(tmp_path / "run" / "crash.pt"), load(tmp_path / "before" / "checkpoint_last.pt"))


@pytest.mark.parametrize("more", [["--max-update", 3, "--no-save"], ["--max-epoch", 1, "--save-interval", 2]])
def test_a_last_update_that_diverges_ends_a_run_that_does_not_save(data_bin, tmp_path, poisoned, more):
    with pytest.raises(
        UserError, match=r"^update 3 \([mt]lm of .*\): gradients are NaN or infinite; no checkpoint has"
    ):
        run_train(line(data_bin, tmp_path, "--updates-per-epoch", 3, *more))


def test_an_error_after_an_update_that_diverges_is_the_one_that_is_raised(data_bin, tmp_path, monkeypatch, poisoned):
    """Though the update is checked before crash.pt is written."""
    forward = XLPretrainingCriterion.forward

    def failing(self, model, sample, reduce=True):
        if self.task.update_num == 3:
            raise LookupError("no batch")
        return forward(self, model, sample, reduce)

    monkeypatch.setattr(XLPretrainingCriterion, "forward", failing)
    with pytest.raises(LookupError, match="no batch"):
        run_train(line(data_bin, tmp_path, "--max-update", 4))
    assert (tmp_path / "crash.pt").is_file()


def test_ranks_that_differ_are_reported_one_update_later(monkeypatch):
    """On CUDA the ranks compare their norms; here rank 1 is played by the reduction."""
    optimizer = SimpleNamespace(can_skip=True, found_inf=None)
    run = SimpleNamespace(
        optimizer=SimpleNamespace(optimizer=optimizer),
        cfg=SimpleNamespace(common=SimpleNamespace(fp16=False, amp=False)),
        data_parallel_rank=0,
        data_parallel_process_group=None,
        get_num_updates=lambda: 6,
        _grad_norm_buf=torch.zeros(2, dtype=torch.float64),
    )
    for other, skipped in ((3.0, 0), (3.1, 1)):
        reduced = lambda buffer, group, other=other: buffer[1].fill_(other)  # noqa: E731
        monkeypatch.setattr(fairseq_trainer.distributed_utils, "all_reduce", reduced)
        fairseq_trainer.Trainer._check_grad_norms(run, torch.tensor(3.0))
        assert optimizer.found_inf == skipped
    with pytest.raises(norms.Diverged, match="rank 0 = 3.00000000, rank 1 = 3.10000000") as raised:
        norms.check_last_update(run)
    assert raised.value.update == 7
    norms.check_last_update(run)  # once


def model_gradients(dtype, device="cpu"):
    generator = torch.Generator().manual_seed(1)
    shapes = ((3, 4), (5,), (2, 2), ())
    weights = [torch.nn.Parameter(torch.zeros(shape, dtype=dtype, device=device)) for shape in shapes]
    for parameter in weights[:-1]:
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(device, dtype)
    return weights


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("limit", [0.0, 0.5, 100.0])
def test_clipping_without_a_sync_is_fairseqs(dtype, limit, device, monkeypatch):
    """Gradients and norm equal fairseq's; one parameter has no gradient."""
    ours, theirs = model_gradients(dtype, device), model_gradients(dtype, device)
    if device == "cpu":  # where there is a GPU, fairseq's own computes every norm on it
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    expected = utils.clip_grad_norm_.__wrapped__(theirs, limit)
    with no_sync(device):
        norm = utils.clip_grad_norm_(ours, limit)
    torch.testing.assert_close(norm, expected, rtol=1e-6, atol=0)
    assert norm.dtype == torch.float32 and ours[-1].grad is None
    for one, other in zip(ours[:-1], theirs):
        torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("norm, error", [(3.0, None), (math.nan, "gradients are Nan/Inf")])
def test_the_norm_is_copied_without_a_sync(norm, error, device):
    norm = torch.tensor([norm], device=device)
    with no_sync(device):
        copied = norms._Norms(norm, 6, [])
    assert copied.host.is_pinned() == (device == "cuda")
    with pytest.raises(norms.Diverged, match=error) if error else contextlib.nullcontext():
        copied.check()


def test_clipping_without_gradients():
    assert utils.clip_grad_norm_([torch.nn.Parameter(torch.ones(2))], 1.0) == 0


def test_gradients_of_32_bits_exist_only_from_the_backward_pass_to_the_update():
    """Those of parameters that an update does not use do not exist at all; the rest is copied by one operation."""
    cfg = SimpleNamespace(
        optimizer=AdamConfig(lr=[0.1]),
        common=SimpleNamespace(bf16=True, fp16_scale_window=1, fp16_no_flatten_grads=True),
    )
    weights = model_gradients(torch.bfloat16)
    masters = FP16Optimizer.build_fp32_params(cfg.optimizer, weights, flatten=False)
    optimizer = FP16Optimizer(cfg, weights, XLAdam(cfg.optimizer, masters), masters)
    optimizer._needs_sync = True
    optimizer.step()
    assert [master.grad is None for master in masters] == [False, False, False, True]
    assert all(torch.equal(master.grad, weight.grad.float()) for master, weight in zip(masters[:-1], weights))
    assert all(torch.equal(master.bfloat16(), weight) for master, weight in zip(masters, weights))
    assert all((weight != 0).all() for weight in weights[:-1]) and weights[-1] == 0
    optimizer.zero_grad()
    assert all(each.grad is None for each in [*masters, *weights])
