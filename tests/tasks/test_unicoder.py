"""Unicoder's five tasks through fairseq-train (U2): mined negatives, several languages a batch, all in each update."""

import shutil

import pytest
from fairseq import options, tasks

from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.errors import UserError
from fairseq_xl.mining import hard_negatives
from tests.command_line import cli
from tests.commands import configuration, equal_parameters, load, pretraining, run_train
from tests.mining.builders import MADE_WITH, FixedVectors
from tests.tiny_data import write_items

FIVE = ["mlm", "tlm", "word_recovery", "paraphrase", "cross_lingual_mlm"]
SETTINGS = " ".join(f"{name}.length=32 {name}.mixed=true {name}.alpha=0" for name in FIVE)


@pytest.fixture(scope="module")
def text(data_bin, tmp_path_factory):
    """A data-bin with documents of ten pairs, and two mined negatives for each pair."""
    folder = shutil.copytree(data_bin, tmp_path_factory.mktemp("mined") / "data-bin")
    (folder / "manifest.json").unlink()
    for name in ("en-de", "en-fr"):
        for split in ("train", "valid"):
            pairs = SentencePairs(folder / name / f"{split}.{name}", *name.split("-"))
            for side, language in zip(pairs.sides, name.split("-")):
                items = [side[line].tolist() for line in range(len(side))]
                documents = [item for line in range(0, len(items), 10) for item in [*items[line : line + 10], [2]]]
                write_items(folder / name / f"{split}.{name}.{language}", documents)
            pairs = SentencePairs(pairs.prefix, *name.split("-"))
            hard_negatives.mine(FixedVectors(), pairs, 2, 10**6, 32, MADE_WITH)
    return folder


def line(text, folder, *more, frequency=5):
    often = cli(schedule="cycle", update_freq=frequency, updates_per_epoch=3, no_epoch_checkpoints=True)
    return pretraining(text, folder, *often, *cli(objective_options=SETTINGS), *more, objectives=",".join(FIVE))


def test_a_stopped_run_resumes_bit_by_bit(text, tmp_path):
    """Stopped within an epoch and at the end of one."""
    often = ["--disable-validation", "--save-interval-updates", 1]
    whole = run_train(line(text, tmp_path / "whole", "--max-update", 5, *often))
    parts = [run_train(line(text, tmp_path / "parts", "--max-update", stop, *often)) for stop in (2, 3, 5)]
    assert [loss for part in parts for loss in part.losses] == whole.losses and len(set(whole.losses)) == 25
    assert equal_parameters(*(load(tmp_path / name / "checkpoint_last.pt") for name in ("whole", "parts")))


def test_every_update_has_each_task_equally_often(text, tmp_path):
    """The logged loss of an update is the mean of its ten batches' losses, whatever their sizes."""
    output = run_train(line(text, tmp_path, "--max-update", 1, "--disable-validation", frequency=10))
    (samples,) = output.samples.values()
    assert [sample["objective"] for sample in samples] == FIVE * 2
    assert {sample["corpus"] for sample in samples} == {"mixed"}
    assert all(len(sample["batch"]["languages"].unique()) > 1 for sample in samples)
    losses = [float.fromhex(loss) for loss in output.losses]
    logged = next(float(value) for value in output.statistics("loss"))
    assert len(losses) == 10 and logged == pytest.approx(sum(losses) / 10 / 0.693147, abs=0.002)
    with pytest.raises(UserError, match="--update-freq that is a multiple of the 5 objectives, not 8"):
        run_train(line(text, tmp_path / "eight", "--max-update", 1, frequency=8))


def without_documents(text, folder, pair, *sides):
    """A copy of the data-bin in which some sides of a pair have no empty line."""
    folder = shutil.copytree(text, folder)
    for split in ("train", "valid"):
        for language in sides:
            prefix = folder / pair / f"{split}.{pair}.{language}"
            items = [item.tolist() for item in open_text(prefix, language)]
            write_items(prefix, [item if len(item) > 1 else [4, 2] for item in items])
    return folder


@pytest.mark.parametrize("sides", [("en", "fr"), ("fr",)])
def test_a_pair_without_documents_is_refused_or_left_out_of_one_task(text, tmp_path, sides):
    """U6: cross-lingual MLM reads documents, the other tasks sentence pairs."""
    data = without_documents(text, tmp_path / "data", "en-fr", *sides)
    line = ["--max-update", 1, "--disable-validation", "--no-save"]
    both = {"objectives": "tlm,cross_lingual_mlm"}
    message = rf"{data}/en-fr/train.en-fr: no line is empty on both sides.*with cross_lingual_mlm.leave_out=en-fr"
    with pytest.raises(UserError, match=message):
        run_train(pretraining(data, tmp_path / "run", *line, **both))
    settings = "tlm.length=32 cross_lingual_mlm.length=32 cross_lingual_mlm.leave_out="
    task = tasks_of(pretraining(data, tmp_path, "--objective-options", f"{settings}en-fr", **both))
    task.load_dataset("train")
    read = {name: set(sources) for name, sources in task.datasets["train"].corpora.items()}
    assert read == {"tlm": {"en-de", "en-fr"}, "cross_lingual_mlm": {"en-de"}}
    corpora = task.objective_corpora()
    assert "en-fr" in corpora["tlm"] and "en-fr" not in corpora["cross_lingual_mlm"]
    for wrong, sentence in (
        ("en-xx", "has no text of en-xx; expected one of en-de, en-fr"),
        ("en-fr,en", "has no text of en; expected one of en-de, en-fr"),
        ("en-de,en-fr", "no parallel text of documents .* which the objective cross_lingual_mlm reads"),
    ):
        with pytest.raises(UserError, match=sentence):
            run_train(pretraining(data, tmp_path, *line, "--objective-options", settings + wrong, **both))


def test_a_language_is_left_out_of_one_task_beside_those_that_are_chosen(data_bin, tmp_path):
    settings = ["--objective-options", "mlm.length=32 clm.length=32 clm.leave_out=fr,de"]
    for chosen, left in (([], {"en"}), (["--langs", "en,de"], {"en"}), (["--langs", "de,en,fr"], {"en"})):
        task = tasks_of(pretraining(data_bin, tmp_path, *settings, *chosen, objectives="mlm,clm"))
        task.load_dataset("train")
        assert set(task.datasets["train"].corpora["clm"]) == left
        assert set(task.datasets["train"].corpora["mlm"]) > left


def tasks_of(line):
    """The task of a command line of fairseq-train, without its text."""
    cfg = configuration(options.get_training_parser(), line)
    return tasks.setup_task(cfg.task)
