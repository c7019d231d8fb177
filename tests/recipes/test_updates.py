"""The updates that are counted before a fine-tuning are those that fairseq makes."""

import pytest
from fairseq import options

from fairseq_xl.errors import UserError
from recipes import launch, updates
from tests.builders import several
from tests.command_line import cli
from tests.commands import CPU, classification, configuration, pretraining, run_train
from tests.tasks.conftest import write_encoded

LINEAR = cli(lr_scheduler="polynomial_decay", max_epoch=3, no_save=True, disable_validation=True)


@pytest.fixture(scope="module")
def data_bin(tmp_path_factory):
    """A data-bin with its SentencePiece model. Read only."""
    return write_encoded(tmp_path_factory.mktemp("encoded"))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """37 training examples of very different lengths in each of two languages."""
    folder = tmp_path_factory.mktemp("files")
    for code in ("en", "de"):
        lines = [f"{number % 2}\t{'the river ' * (1 + number % 9)}stone\n" for number in range(37)]
        (folder / f"train.{code}.tsv").write_text("".join(lines))
    return folder


def parsed(arguments):
    return configuration(options.get_training_parser(), [*arguments, *CPU])


@pytest.mark.parametrize(
    "limits",
    [
        cli(batch_size=8),
        cli(batch_size=8, max_tokens=90),
        [*cli(batch_size=8), "--update-freq", "[2,3]"],
        cli(batch_size=4, examples_per_epoch=50, max_tokens=60),
    ],
    ids=["examples", "tokens", "accumulated", "drawn"],
)
def test_training_makes_the_counted_updates(data_bin, files, tmp_path, limits):
    """Batches are limited by examples and tokens; without --max-update training ends after --max-epoch."""
    arguments = classification(data_bin, files, tmp_path / "run", *LINEAR, *limits, "--total-num-update", 99)
    counted = updates.count(parsed(arguments))
    assert counted == len(run_train(arguments).updates) > 3


def test_updates_of_several_objectives(data_bin, files, tmp_path):
    """74 examples in 10 batches of 8 and 5 of 16, two of an objective in an update: 5 and 3 updates an epoch."""
    folders, sizes = {"nc": files, "classification": files}, "nc.batch_sentences=8 classification.batch_sentences=16"
    more = cli(update_freq=2, total_num_update=99)
    line = several(data_bin, folders, tmp_path / "run", *LINEAR, *more, options=sizes)
    assert updates.count(parsed(line)) == len(run_train(line).updates) == 3 * (5 + 3)


def test_processes_share_the_batches(data_bin, files, tmp_path, monkeypatch):
    """74 examples in batches of 8 are 10 batches: 5 updates an epoch with two processes, 4 with three."""
    command = [*classification(data_bin, files, tmp_path / "run", *LINEAR, "--total-num-update", 99), "--batch-size", 8]
    counted = {}
    for processes in (1, 2, 3):
        monkeypatch.setenv("WORLD_SIZE", str(processes))
        counted[processes] = updates.count(parsed(command))
    assert counted == {1: 3 * 10, 2: 3 * 5, 3: 3 * 4}
    assert updates.count(parsed([*command, "--update-freq", "[2]"])) == 3 * 2


def test_flags_of_a_share(data_bin, files, tmp_path):
    """74 examples in batches of 16 are 5 updates an epoch; the warm-up is rounded down and leaves an update."""
    command = classification(data_bin, files, tmp_path / "run")
    total = [*LINEAR, "--total-num-update", 99]
    assert updates.flags(parsed([*command, *total]), 0.3) == cli(total_num_update="15", warmup_updates="4")
    assert updates.flags(parsed([*command, *total]), 0.999) == cli(total_num_update="15", warmup_updates="14")
    few = parsed([*command, *total, "--max-update", 2])
    assert updates.flags(few, 0.5) == cli(total_num_update="2", warmup_updates="1")
    other = parsed([*command, *cli(lr_scheduler="inverse_sqrt", max_epoch=3)])
    assert updates.flags(other, 0.3) == cli(warmup_updates="4")


def test_mistakes_are_one_sentence(data_bin, files, tmp_path):
    command = classification(data_bin, files, tmp_path / "run")
    with pytest.raises(UserError, match="--max-epoch is needed"):
        updates.count(parsed(command))
    with pytest.raises(UserError, match="--task xl_pretraining is not fine-tuning of an encoder"):
        updates.count(parsed([*pretraining(data_bin, tmp_path / "run"), "--max-epoch", 1]))
    for share in ("1", "-0.1", "x", "nan"):
        with pytest.raises(UserError, match=f"--warmup-share {share}: expected a number from 0"):
            updates.main(share, [])


def test_the_share_is_replaced_in_its_place(monkeypatch):
    """So that what stands after it overrides it."""
    asked = []

    def run(command, **_):
        asked.append(command[3:])
        return type("Done", (), {"returncode": 0, "stdout": "--warmup-updates 7\n"})

    monkeypatch.setattr(launch.subprocess, "run", run)
    given = ["data", "--warmup-updates", "1", "--warmup-share", "0.5", "--lr", "1", "--warmup-share=0.1", "--cpu"]
    replaced = ["data", "--warmup-updates", "1", "--lr", "1", "--warmup-updates", "7", "--cpu"]
    assert launch.with_counted(given) == replaced
    assert asked == [["0.1", "data", "--warmup-updates", "1", "--lr", "1", "--cpu"]]
    assert launch.with_counted(["data", "--cpu"]) == ["data", "--cpu"] and len(asked) == 1
