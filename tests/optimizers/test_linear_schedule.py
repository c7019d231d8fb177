"""`xl_linear` counts the updates of a training; its learning rates are those of fairseq's linear decay."""

import pytest
import torch

from fairseq_xl.errors import UserError
from tests.builders import several
from tests.command_line import cli
from tests.commands import classification, load, pretraining, run_train
from tests.tasks.conftest import write_encoded

LINEAR = cli(lr_scheduler="xl_linear", warmup_share=0.3, disable_validation=True)


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


def check(line, folder, updates, warmup):
    """The training makes `updates`, and its weights are those of fairseq's schedule with both numbers."""
    run = run_train([*line(folder / "ours"), *LINEAR])
    fairseq = cli(lr_scheduler="polynomial_decay", total_num_update=updates, warmup_updates=warmup)
    run_train([*line(folder / "fairseq"), *fairseq, "--disable-validation"])
    ours, theirs = (load(folder / name / "checkpoint_last.pt") for name in ("ours", "fairseq"))
    assert len(run.updates) == updates and all(torch.equal(ours[name], theirs[name]) for name in theirs)
    return run


@pytest.mark.parametrize(
    "options, updates, epochs",
    [
        (cli(batch_size=8, max_epoch=3), 30, 3),  # 74 examples: 10 batches
        ([*cli(batch_size=8, max_epoch=3), "--update-freq", "[2,3]"], 5 + 4 + 4, 3),
        ([*cli(batch_size=8, max_epoch=2, update_freq=4), "--skip-remainder-batch"], 2 + 2, 2),
        (cli(batch_size=8, max_epoch=3, max_update=7), 7, 1),
    ],
    ids=["epochs", "accumulated", "whole updates", "updates"],
)
def test_passes_over_the_data(data_bin, files, tmp_path, options, updates, epochs):
    """Epochs that are only counted are not logged."""
    run = check(
        lambda folder: [*classification(data_bin, files, folder), *options], tmp_path, updates, updates * 3 // 10
    )
    assert run.log.count("batches of epoch ") == epochs


def test_batches_of_several_objectives(data_bin, files, tmp_path):
    """74 examples in 10 batches of 8 and 5 of 16, two of an objective in an update: 5 and 3 updates an epoch."""
    folders, sizes = {"nc": files, "classification": files}, "nc.batch_sentences=8 classification.batch_sentences=16"
    more = cli(update_freq=2, max_epoch=2)
    check(lambda folder: several(data_bin, folders, folder, *more, options=sizes), tmp_path, 16, 4)


def test_sampled_epochs_and_a_resume(data_bin, tmp_path):
    """Two epochs of four updates; stopped after the third, it ends with the weights of the whole training."""

    def line(folder, *more):
        return pretraining(data_bin, folder, *cli(updates_per_epoch=4, max_epoch=2, save_interval_updates=3), *more)

    check(line, tmp_path, 8, 2)
    restored = ["--restore-file", tmp_path / "ours/checkpoint_1_3.pt"]
    run_train([*line(tmp_path / "resumed", *restored), *LINEAR])
    whole, resumed = (load(tmp_path / name / "checkpoint_last.pt") for name in ("ours", "resumed"))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_what_is_refused(data_bin, files, tmp_path):
    line = classification(data_bin, files, tmp_path / "run", *LINEAR)
    with pytest.raises(UserError, match="xl_linear needs --max-update or --max-epoch: it decays to the last update"):
        run_train(line)
    for share in (1, -0.1):
        with pytest.raises(UserError, match=f"--warmup-share {float(share)}: a probability"):
            run_train([*line, "--max-epoch", 1, "--warmup-share", share])
