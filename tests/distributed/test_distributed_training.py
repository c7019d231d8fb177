"""Two processes train as one process with twice the accumulation does, whatever the data and the objectives."""

import contextlib
import re
import shutil

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils

from tests.command_line import cli
from tests.commands import equal_parameters, load, pretraining, run_train, translation, unsupervised
from tests.distributed.builders import DDP, EPOCH, folders, headed, runs  # noqa: F401
from tests.distributed.two_processes import run_jobs
from tests.distributed.worker import overflow, scores_of

LAST, STOPS = 7, (3, EPOCH)  # updates of the whole runs, and where others stop: within an epoch, and at its end


def resumed(data, root):
    """Jobs that train to `LAST` at once, and stop on the way and go on; dropout is on."""
    copied = shutil.copytree(data, root / "data-bin")  # tables are written beside its text
    lines = {
        "chunks": lambda folder: translation(copied, folder, "--lang-pairs", "en-de,de-en", "--max-tokens", 320),
        "pretraining": lambda folder: pretraining(data, folder, "--updates-per-epoch", EPOCH),
        "unsupervised": lambda folder: unsupervised(data, folder, "--updates-per-epoch", EPOCH),
    }
    jobs = {}
    for name, line in lines.items():
        every = ["--save-interval-updates", 1, "--no-epoch-checkpoints", "--disable-validation"]
        jobs[f"{name}-whole"] = [*line(root / f"{name}-whole"), *every, "--max-update", LAST]
        for end in (*STOPS, LAST):
            jobs[f"{name}-{end}"] = [*line(root / f"{name}-parts"), *every, "--max-update", end]
    return jobs


def watched(data):
    """Jobs whose updates are watched for what would wait for a GPU; one of two objectives leaves a head unused."""
    short = [*cli(optimizer="xl_adam", clip_norm=0.1, update_freq=2, max_update=2), "--disable-validation", "--no-save"]
    pretrain = [*pretraining(data, "unused", *short, objectives="headed,tlm"), "--updates-per-epoch", 2]
    return {
        "sync-legacy": [*pretrain, *DDP["legacy"], "--bf16"],
        "sync-fp16": [*pretrain, *DDP["legacy"], "--fp16"],
        "sync-pytorch": [*pretrain, *DDP["pytorch"]],
        "sync-translation": [*translation(data, "unused", "--lang-pairs", "en-de,de-en", *short), *DDP["legacy"]],
    }


@pytest.fixture(scope="module")
def two(data_bin, folders, tmp_path_factory):
    """{name: both ranks' results} of all runs with two processes; and, as "folder", where checkpoints are."""
    root = tmp_path_factory.mktemp("two")
    jobs = {}
    for name, (line, frequency, backends) in runs(*folders).items():
        for backend in backends:
            folder = ["--save-dir", root / f"{name}-{backend}", "--no-epoch-checkpoints"]
            jobs[f"{name}-{backend}"] = [*line, *DDP[backend], *folder, "--update-freq", frequency]
    return run_jobs(root / "results", jobs | resumed(data_bin, root) | watched(data_bin)) | {"folder": root}


@pytest.fixture(scope="module")
def one(folders, headed, tmp_path_factory):
    """A function: name of a run -> (its output in one process with twice the accumulation, its last checkpoint)."""
    made = {}

    def run(name):
        if name not in made:
            line, frequency, _ = runs(*folders)[name]
            folder = tmp_path_factory.mktemp(name)
            more = ["--update-freq", 2 * frequency, "--save-dir", folder, "--no-epoch-checkpoints"]
            with overflow() if name == "overflow" else contextlib.nullcontext():
                output = run_train([*line, *more])
            made[name] = output, checkpoint_utils.load_checkpoint_to_cpu(str(folder / "checkpoint_last.pt"))
        return made[name]

    return run


def floats(losses):
    """{update: losses of its micro-steps, in increasing order} of float.hex."""
    return {int(update): sorted(map(float.fromhex, values)) for update, values in losses.items()}


def of_both(ranks):
    """The micro-steps' losses of both ranks together."""
    updates = ranks[0]["losses"].keys() | ranks[1]["losses"].keys()
    return floats({key: sum((rank["losses"].get(key, []) for rank in ranks), []) for key in updates})


CASES = [(name, backend) for name, (_, _, backends) in runs(*[None] * 5).items() for backend in backends]


@pytest.mark.parametrize("name, backend", CASES)
def test_distributed_losses_are_those_of_one_process(two, one, name, backend):
    ranks, (output, _) = two[f"{name}-{backend}"], one(name)
    expected, found = floats(output.updates), of_both(ranks)
    assert found.keys() == expected.keys() and len(expected) >= 3
    for update, losses in expected.items():
        assert found[update] == pytest.approx(losses, rel=1e-5), update
    # what is logged is reduced over ranks, validation included
    assert len(ranks[0]["loss"]) == len(output.statistics("loss"))
    np.testing.assert_allclose(
        *(np.array(log, float) for log in (ranks[0]["loss"], output.statistics("loss"))), atol=2e-3
    )


@pytest.mark.parametrize("name", ["translations", "supervised"])
def test_distributed_scores_of_translations_are_those_of_one_process(two, one, name):
    """Each process translates a part of the validation text."""
    ranks, (output, _) = two[f"{name}-legacy"], one(name)
    expected = scores_of(output)
    assert ranks[0]["scores"] == expected
    kinds = ["bleu", "wrong_language", "length_ratio", *(["round_trip_bleu"] if name == "translations" else [])]
    for kind in kinds:  # not all are 0 or 100
        assert any(
            0 < float(value) < 100 for direction in ("de-en", "en-de") for value in expected[f"{kind}_{direction}"]
        )


def test_distributed_metrics_are_those_of_one_process(two, one):
    """F1 of spans that depend on the sentence before is in the score: each process needs the predictions of all."""
    output, _ = one("labelled")
    expected = output.statistics("score")
    found = two["labelled-legacy"][0]["scores"]["score"]  # the first rank logs
    assert found == expected and float(expected[0]) > 10


def test_distributed_ranks_draw_different_batches(two):
    ranks = two["headed-alternate-legacy"]
    for update, losses in ranks[0]["losses"].items():
        assert losses != ranks[1]["losses"][update]


def test_distributed_run_with_nothing_left_for_a_rank(two):
    """The runs odd and single-pair have the batches that their names describe."""
    counts = [len(rank["losses"]) for rank in two["odd-legacy"]]
    assert counts[0] == counts[1] + 2  # once in each of two epochs
    assert [len(rank["losses"]) for rank in two["single-pair-pytorch"]] == [3, 0]


def test_distributed_body_stays_bit_by_bit(two, folders):
    """The second step of M1 changes the language module alone: the tokens and the bias of the output."""
    body, learned = load(folders[-1]), load(two["folder"] / "language-module-pytorch/checkpoint_last.pt")
    moved = {name for name in body if not torch.equal(body[name], learned[name])}
    assert moved == {"encoder.token_embeddings.table.weight", "encoder.token_embeddings.output_bias"}


@pytest.mark.parametrize(
    "schedule, backend, steps",
    [("alternate", "legacy", [3, 6]), ("alternate", "pytorch", [3, 6]), ("cycle", "legacy", [6])],
)
def test_distributed_parameters_without_gradient_do_not_move(two, one, schedule, backend, steps):
    """The parameters of headed are used in every second update; Adam would change them in the others too."""
    path = two["folder"] / f"headed-{schedule}-{backend}" / "checkpoint_last.pt"
    state, expected = checkpoint_utils.load_checkpoint_to_cpu(str(path)), one(f"headed-{schedule}")[1]["model"]
    for key in ("heads.headed.weight", "heads.headed.bias"):
        assert state["model"][key].numpy() == pytest.approx(expected[key].numpy(), abs=1e-5)
    assert sorted({int(of["step"]) for of in state["last_optimizer_state"]["state"].values()}) == steps


def test_distributed_overflow_on_one_rank_skips_the_update_on_both(two, one):
    """The loss scale and the counts of updates are those of one process."""
    path = two["folder"] / "overflow-pytorch/checkpoint_last.pt"
    found = checkpoint_utils.load_checkpoint_to_cpu(str(path))["last_optimizer_state"]
    expected = one("overflow")[1]["last_optimizer_state"]
    assert found["loss_scaler"] == expected["loss_scaler"] and found["loss_scaler"]["loss_scale"] == 64
    steps = [{state["step"] for state in each["state"].values()} for each in (found, expected)]
    assert steps == [{5}, {5}]  # the skipped one does not count


#: most reads of torch's DDP in the backward passes of the job "sync-pytorch", by update: whether each of the 20
#: parameters is used, from a tensor on the host; the second update, which leaves two unused, reads three times more
READS_OF_DDP = [20, 20 + 3]


@pytest.mark.parametrize("name", ["legacy", "fp16", "pytorch", "translation"])
def test_distributed_update_has_no_other_sync(two, name):
    """Also where a parameter is unused. torch's DDP may read in its backward pass what `READS_OF_DDP` says."""
    packed = "torch.diff(self.offsets).tolist()"  # attention of packed sequences, on CPU only
    checked = "if wrong.any()"  # language symbols, which training checks on CPU only
    norm = "norms = [float(norm)]"  # the one read of an update
    others = [packed, checked, norm, "tests/commands.py"]
    updates = [found for rank in two[f"sync-{name}"] for found in rank["waits"]]
    assert len(updates) == 4 and all(any(norm in each for each in found) for found in updates)
    assert any(packed in each or checked in each for found in updates for each in found)
    left = [{each: found[each] for each in found if not any(other in each for other in others)} for found in updates]
    if name == "pytorch":
        for found, most in zip(left, READS_OF_DDP * 2):
            reads = [each for each in found if re.fullmatch(r"_local_scalar_dense at .* loss\.backward\(\)", each)]
            assert sum(found.pop(each) for each in reads) <= most
    assert left == [{}] * 4


@pytest.mark.parametrize("name", ["chunks", "pretraining", "unsupervised"])
def test_distributed_resume_is_exact(two, name):
    for rank in range(2):
        whole, *parts = (two[f"{name}-{end}"][rank]["losses"] for end in ("whole", *STOPS, LAST))
        assert [*whole] == [str(update + 1) for update in range(LAST)]
        assert [len(part) for part in parts] == [3, EPOCH - 3, LAST - EPOCH]
        assert parts[0] | parts[1] | parts[2] == whole
    ends = [load(two["folder"] / f"{name}-{run}" / "checkpoint_last.pt") for run in ("whole", "parts")]
    assert equal_parameters(*ends)
