"""With --batches-per-update, one process and two make the same updates, with the same dropout."""

import itertools
from pathlib import Path

import pytest

from tests.command_line import cli
from tests.commands import load, pretraining, run_train, translation
from tests.distributed.builders import UNEVEN
from tests.distributed.two_processes import run_jobs

BATCHES = 4
LAST, STOP = 6, 3  # updates of whole runs, and where two processes stop, within an epoch
EXACT = cli(batches_per_update=BATCHES, disable_validation=True, no_epoch_checkpoints=True, save_interval_updates=1)


def lines(data, folder):
    """{name: a command line}; batches differ in size, the epochs of translation end with a part of an update."""
    planned = [*cli(updates_per_epoch=4, objective_options=UNEVEN), *EXACT]
    pairs = cli(s="de", t="en", max_tokens=84)  # 7 batches an epoch
    return {
        "random": pretraining(data, folder / "random", *planned, "--schedule", "random"),
        "cycle": pretraining(data, folder / "cycle", *planned, "--schedule", "cycle"),
        "translation": translation(data, folder / "translation", *pairs, *EXACT),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("update-size")


@pytest.fixture(scope="module")
def two(data_bin, folder):
    """{name: {update: losses of its micro-batches in order} of two processes}; "NAME-part" stops after `STOP`."""
    whole, parts = lines(data_bin, folder / "two"), lines(data_bin, folder / "parts")
    jobs = {name: [*line, "--max-update", LAST] for name, line in whole.items()}
    jobs |= {f"{name}-part": [*line, "--max-update", STOP] for name, line in parts.items()}
    results = run_jobs(folder / "results", jobs)
    return {name: in_order([rank["losses"] for rank in ranks]) for name, ranks in results.items()}


def in_order(ranks):
    """Micro-batch k is in step k // 2 of rank k % 2."""
    steps = {update: itertools.zip_longest(*(rank.get(update, []) for rank in ranks)) for update in ranks[0]}
    return {int(update): [loss for step in pair for loss in step if loss] for update, pair in steps.items()}


def numbers(updates, first=1):
    return [float.fromhex(loss) for update, losses in updates.items() if update >= first for loss in losses]


@pytest.mark.parametrize("name", list(lines("", Path())))
def test_distributed_updates_of_a_size_are_those_of_one_process(data_bin, folder, two, name):
    """The first update bit for bit; later ones but for the rounding of sums of gradients, also from two to one."""
    one = run_train([*lines(data_bin, folder / "one")[name], "--max-update", LAST])
    sizes = {len(sample["id"]) for samples in one.samples.values() for sample in samples}
    assert len(sizes) > 1 and f"an update: {BATCHES} batches" in one.log
    assert {update: len(losses) for update, losses in two[name].items()} == {
        update: len(losses) for update, losses in one.updates.items()
    }
    assert (name == "translation") == any(len(losses) < BATCHES for losses in one.updates.values())
    assert two[name][1] == one.updates[1] == two[f"{name}-part"][1]
    assert numbers(two[name]) == pytest.approx(numbers(one.updates), rel=1e-5)
    rest = run_train([*lines(data_bin, folder / "parts")[name], "--max-update", LAST])
    assert list(rest.updates) == list(range(STOP + 1, LAST + 1)) and "other settings" not in rest.log
    assert numbers(rest.updates) == pytest.approx(numbers(one.updates, STOP + 1), rel=1e-5)
    expected = load(folder / "one" / name / "checkpoint_last.pt")
    for run in ("two", "parts"):
        for key, values in load(folder / run / name / "checkpoint_last.pt").items():
            assert values.numpy() == pytest.approx(expected[key].numpy(), abs=1e-4), (run, key)
