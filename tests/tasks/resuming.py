"""Stopped runs that are resumed bit-identically: checks for the tests of several tasks."""

from tests.commands import CPU, equal_parameters, load, run_train

WITH_WORKERS = ["--cpu", "--num-workers", "2", "--no-progress-bar"]
SAVING = ["--save-interval-updates", 1, "--disable-validation", "--no-epoch-checkpoints"]

LAST = "checkpoint_last.pt"


def check_epochs_of_examples(line, folder):
    """Compares a run stopped within epochs 1 and 2 and at an epoch's end with a whole one; an epoch is 5 updates.

    Args:
        line: (name of a save folder in `folder`, options) -> a command line of fairseq-train.
    """

    def run(name, last):
        more = ["--examples-per-epoch", 70, "--max-update", last, "--disable-validation", "--no-epoch-checkpoints"]
        return run_train(line(folder / name, *more, "--save-interval-updates", 1))

    whole = run("whole", 12)
    assert len(whole.updates) == 12 and len(set(whole.losses)) == 12
    drawn = [
        sorted(index for number in epoch for index in whole.samples[number][0]["id"].tolist())
        for epoch in (range(1, 6), range(6, 11))
    ]
    assert len(drawn[0]) == len(set(drawn[0])) == 70 and drawn[0] != drawn[1]
    updates = {}
    for stop in (3, 5, 8, 12):
        updates |= run("parts", stop).updates
    assert updates == whole.updates
    assert equal_parameters(*(load(folder / name / LAST) for name in ("whole", "parts")))


def check_stop(line, folder, whole, stop, last, defaults=CPU):
    """Compares a run stopped after `stop` of `last` updates with `whole`, folder and output of an uninterrupted one.

    Args:
        line: (save folder, options) -> a command line of fairseq-train.
    """
    parts = [run_train(line(folder, "--max-update", end), defaults) for end in (stop, last)]
    assert parts[0].losses + parts[1].losses == whole[1].losses
    assert "other settings" not in parts[1].log
    assert equal_parameters(load(folder / LAST), load(whole[0] / LAST))


def losses_after(output, update):
    return [output.updates[number] for number in sorted(output.updates) if number > update]
