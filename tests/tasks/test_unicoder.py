"""Unicoder's five tasks through fairseq-train (U2): mined negatives, several languages a batch, all in each update."""

import shutil

import pytest

from fairseq_xl import mining
from fairseq_xl.data.parallel import SentencePairs
from fairseq_xl.errors import UserError
from tests.commands import equal_parameters, load, pretraining, run_train
from tests.tasks.test_mining import MADE_WITH, FixedVectors

FIVE = ["mlm", "tlm", "word_recovery", "paraphrase", "cross_lingual_mlm"]
SETTINGS = " ".join(f"{name}.length=32 {name}.mixed=true {name}.alpha=0" for name in FIVE)


@pytest.fixture(scope="module")
def text(data_bin, tmp_path_factory):
    """A data-bin with two mined negatives for each pair."""
    folder = shutil.copytree(data_bin, tmp_path_factory.mktemp("mined") / "data-bin")
    for name in ("en-de", "en-fr"):
        for split in ("train", "valid"):
            pairs = SentencePairs(folder / name / f"{split}.{name}", *name.split("-"))
            mining.mine(FixedVectors(), pairs, 2, 10**6, 32, MADE_WITH)
    return folder


def line(text, folder, *more, frequency=5):
    return pretraining(text, folder, "--schedule", "cycle", "--update-freq", frequency, "--updates-per-epoch", 3,
                       "--objective-options", SETTINGS, "--no-epoch-checkpoints", *more,
                       objectives=",".join(FIVE))  # fmt: skip


def test_a_stopped_run_goes_on_bit_by_bit(text, tmp_path):
    """Stopped within an epoch and at the end of one."""
    whole = run_train(line(text, tmp_path / "whole", "--max-update", 5))
    parts = [
        run_train(line(text, tmp_path / "parts", "--save-interval-updates", 1, "--max-update", stop))
        for stop in (2, 3, 5)
    ]
    assert [loss for part in parts for loss in part.losses] == whole.losses and len(set(whole.losses)) == 25
    assert equal_parameters(*(load(tmp_path / name / "checkpoint_last.pt") for name in ("whole", "parts")))


def test_every_update_has_each_task_equally_often(text, tmp_path):
    output = run_train(line(text, tmp_path, "--max-update", 2, "--disable-validation", frequency=10))
    for samples in output.samples.values():
        assert [sample["objective"] for sample in samples] == FIVE * 2
        assert {sample["source"] for sample in samples} == {"mixed"}
    assert len(output.updates) == 2
    with pytest.raises(UserError, match="--update-freq that is a multiple of the 5 objectives, not 8"):
        run_train(line(text, tmp_path / "eight", "--max-update", 1, frequency=8))


def test_an_update_is_the_mean_of_its_tasks(text, tmp_path):
    """What is logged for an update is the mean of its ten batches' losses, whatever their sizes."""
    output = run_train(line(text, tmp_path, "--max-update", 1, "--disable-validation", frequency=10))
    losses = [float.fromhex(loss) for loss in output.losses]
    logged = [float(value) for value in output.statistics("loss")][0]
    assert len(losses) == 10 and logged == pytest.approx(sum(losses) / 10 / 0.693147, abs=0.002)
