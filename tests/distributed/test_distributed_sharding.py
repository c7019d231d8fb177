"""--zero-sharding os: two processes share the optimizer's state, and train and save as without it."""

import json
from types import SimpleNamespace

import pytest
import torch

from fairseq_xl.errors import UserError
from tests.command_line import cli
from tests.commands import equal_parameters, pretraining, run_train
from tests.distributed.builders import headed  # noqa: F401
from tests.distributed.two_processes import pair, run_jobs, train
from tests.warm_python import python

SHARDED = ["--zero-sharding", "os"]
STOP, LAST, EPOCH = 2, 4, 3  # updates; the first part ends within an epoch
#: two objectives take turns, so that the parameters of a head have no gradient in every other update
CASES = {
    "legacy": ["--ddp-backend", "legacy_ddp"],
    "lamb": ["--ddp-backend", "legacy_ddp", "--optimizer", "xl_lamb"],
    "bf16": ["--ddp-backend", "pytorch_ddp", "--bf16"],
    "fp16": ["--ddp-backend", "legacy_ddp", "--fp16", "--fp16-init-scale", 1],
    "memory-efficient": ["--ddp-backend", "legacy_ddp", "--memory-efficient-bf16"],
}


def line(data, folder, *more):
    settings = cli(
        updates_per_epoch=EPOCH, disable_validation=True, clip_norm=0.5, optimizer="xl_adam", weight_decay=0.1
    )
    settings += cli(dropout=0, attention_dropout=0)
    return [*pretraining(data, folder, *settings, objectives="headed,tlm"), "--no-epoch-checkpoints", *more]


@pytest.fixture(scope="module")
def runs(data_bin, headed, tmp_path_factory):
    """Runs with two processes, the `results` of both and their `folder`.

    CASE-plain and legacy-sharded are whole, CASE-first and CASE-rest two parts; `alone` is a first part of one process.
    """
    root = tmp_path_factory.mktemp("sharding")
    run_train(line(data_bin, root / "alone", "--update-freq", 2, "--max-update", STOP))  # one process
    jobs = {}
    for name, more in CASES.items():
        whole = [("sharded", ["--max-update", LAST, *SHARDED])] if name == "legacy" else []
        for kind, options in (
            ("plain", ["--max-update", LAST]),
            *whole,
            ("first", ["--max-update", STOP, *SHARDED]),
            ("rest", ["--max-update", LAST, *SHARDED, "--restore-file", root / f"{name}-first/checkpoint_last.pt"]),
        ):
            jobs[f"{name}-{kind}"] = line(data_bin, root / f"{name}-{kind}", *more, *options)
    restored = ["--max-update", LAST, "--restore-file", root / "alone/checkpoint_last.pt"]
    jobs["from-one-plain"] = line(data_bin, root / "from-one-plain", *restored)
    jobs["from-one-sharded"] = line(data_bin, root / "from-one-sharded", *restored, *SHARDED)
    return SimpleNamespace(folder=root, results=run_jobs(root / "results", jobs))


def same(one, other):
    """Whether two values of a checkpoint are bit-identical."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def checkpoint(folder):
    return torch.load(folder / "checkpoint_last.pt", weights_only=False)


@pytest.mark.parametrize("name, kind", [("legacy", "sharded"), *((name, "rest") for name in CASES)])
def test_sharded_training_is_that_without_sharding(runs, name, kind):
    """Weights and the state of all parameters, which is in one file, bit-identical; at once and resumed."""
    expected, found = checkpoint(runs.folder / f"{name}-plain"), checkpoint(runs.folder / f"{name}-{kind}")
    assert equal_parameters(found["model"], expected["model"])
    assert same(found["last_optimizer_state"], expected["last_optimizer_state"])
    counts = {state["step"] for state in found["last_optimizer_state"]["state"].values()}
    assert counts == {LAST // 2, LAST}  # those of the head, and of the rest


def micro_steps(*processes):
    """{update: the losses of all processes' micro-steps in increasing order}, of {update: losses as float.hex}."""
    return {
        int(update): sorted(float.fromhex(loss) for losses in processes for loss in losses[update])
        for update in processes[0]
    }


def test_a_checkpoint_of_one_process_resumes_in_two(runs, data_bin, tmp_path):
    """In the middle of an epoch, after the batches that were read; up to rounding as in one process."""
    whole = run_train(line(data_bin, tmp_path / "whole", "--update-freq", 2, "--max-update", LAST))
    found = micro_steps(*(rank["losses"] for rank in runs.results["from-one-sharded"]))
    assert list(found) == [STOP + 1, LAST]
    for update, losses in found.items():
        assert losses == pytest.approx(micro_steps(whole.updates)[update], rel=1e-6)
    found, expected = (checkpoint(runs.folder / f"from-one-{kind}") for kind in ("sharded", "plain"))
    assert equal_parameters(found["model"], expected["model"])
    assert same(found["last_optimizer_state"], expected["last_optimizer_state"])


@pytest.mark.parametrize("name, precision", [("legacy", 1e-6), ("bf16", 1e-2)])
def test_a_sharded_checkpoint_resumes_in_one_process(runs, data_bin, tmp_path, name, precision):
    """The losses of the updates that follow are those of two processes, up to rounding."""
    restored = [*CASES[name][2:], *cli(update_freq=2, restore_file=runs.folder / f"{name}-first/checkpoint_last.pt")]
    output = run_train(line(data_bin, tmp_path / "run", *restored, *SHARDED, "--max-update", LAST))
    expected = micro_steps(*(rank["losses"] for rank in runs.results[f"{name}-rest"]))
    assert list(output.updates) == [STOP + 1, LAST]
    for update, losses in micro_steps(output.updates).items():
        assert losses == pytest.approx(expected[update], rel=precision)


CODE = """
import json, sys, torch
from types import SimpleNamespace
import fairseq_xl
fairseq_xl.register()
from fairseq_xl.optimizers.adam import AdamConfig, XLAdam
from fairseq_xl.optimizers._sharded import shard
torch.distributed.init_process_group("gloo")
weights = [torch.nn.Parameter(torch.ones(size)) for size in (6, 5, 4, 3)]
optimizer = XLAdam(AdamConfig(lr=[0.1]), weights)
shard(optimizer)
for weight in weights[:3]:
    weight.grad = torch.ones_like(weight)
optimizer.step()
held = sum(state["exp_avg"].numel() for state in optimizer.optimizer.optim.state.values())
found = {"held": held, "weights": [weight[0].item() for weight in weights]}
open(f"{sys.argv[1]}/{torch.distributed.get_rank()}.json", "w").write(json.dumps(found))
"""


def test_each_process_holds_a_part_of_the_state(tmp_path):
    """Of 6 + 5 + 4 numbers with a gradient one holds 6, with the 3 without one, and the other 5 + 4."""
    with pair(tmp_path / "logs", [python(), "-W", "ignore", "-c", CODE, tmp_path]) as launch:
        assert launch.statuses() == [0, 0], launch.text
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert sorted(each["held"] for each in found) == [6, 9]
    for each in found:
        assert each["weights"] == pytest.approx([0.9, 0.9, 0.9, 1.0]) and each["weights"][3] == 1.0


def test_distributed_sharded_training_that_explodes_ends(data_bin, tmp_path):
    more = ["--optimizer", "xl_adam", "--lr", 1e9, "--max-update", 9, "--cpu", "--num-workers", 0, *SHARDED]
    command = train(pretraining(data_bin, tmp_path / "run", "--disable-validation", *more))
    with pair(tmp_path / "logs", command) as launch:
        assert launch.statuses() == [1, 1], launch.text
    assert "gradients are NaN or infinite" in launch.text and "Traceback" not in launch.text


@pytest.mark.parametrize(
    "more, sentence",
    [
        (["--optimizer", "adam"], "--zero-sharding os needs --optimizer xl_adam or xl_lamb, not adam"),
        (["--amp"], "--zero-sharding os does not support --amp: it needs fp32, --fp16 or --bf16"),
        (["--ddp-backend", "slowmo"], "--ddp-backend slowmo is not supported by the tasks of this package"),
    ],
)
def test_options_that_sharding_does_not_work_with(data_bin, headed, tmp_path, more, sentence):
    with pytest.raises(UserError, match=sentence):
        run_train(line(data_bin, tmp_path, *SHARDED, "--max-update", 1, *more))
