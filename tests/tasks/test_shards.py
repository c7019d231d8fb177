"""Shards of `fairseq-xl data prepare` in training, evaluation and the commands that read a data folder."""

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from fairseq import options

import fairseq_xl
from fairseq_xl.commands import embed, embeddings_skipgram, model_show, search_negatives
from fairseq_xl.data.plan import passes
from fairseq_xl.errors import UserError
from tests.commands import (
    configuration,
    dan,
    pretraining,
    run_generate,
    run_train,
    run_validate,
    translation,
    validation,
)
from tests.tasks.conftest import write_encoded
from tests.tasks.resuming import check_stop
from tests.warm_python import python

ROOT = Path(__file__).parents[2]
SHARDS = 3
UPDATES = 5  # updates of an epoch


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """The folder of three shards. Read only."""
    return write_encoded(tmp_path_factory.mktemp("shards"), shards=SHARDS)


def line_of(kind, data, folder, *more):
    if kind == "pretraining":
        return pretraining(data, folder, "--updates-per-epoch", UPDATES, "--disable-validation", *more)
    return translation(data, folder, "-s", "en", "-t", "de", "--batch-size", 6, "--disable-validation", *more)


@pytest.fixture(scope="module")
def whole(shards, tmp_path_factory):
    """A function: kind of training -> save folder and output of an uninterrupted run over four epochs."""

    @functools.cache
    def run(kind):
        folder = tmp_path_factory.mktemp(kind)
        return folder, run_train(line_of(kind, shards, folder, "--max-epoch", 4, "--no-epoch-checkpoints"))

    return run


def test_the_first_shard_says_which_languages_there_are(shards, tmp_path):
    """A later one that lacks a language is refused before training; one that has more of them is read without."""
    copies = [shutil.copytree(shards / str(number), tmp_path / str(number)) for number in range(2)]
    for path in (copies[1] / "de").glob("train*"):
        path.unlink()
    data = f"{copies[0]}:{copies[1]}"
    with pytest.raises(UserError, match=f"{copies[1]}/de/train.*: no binarized text of language 'de'"):
        run_train(line_of("pretraining", data, tmp_path / "run", "--max-epoch", 2))
    data = f"{copies[1]}:{copies[0]}"
    output = run_train(line_of("pretraining", data, tmp_path / "run", "--max-epoch", 2))
    assert not {sample["corpus"] for update in output.samples.values() for sample in update} & {"de"}


def tokens(output, update):
    return [sample["batch"]["tokens"].tolist() for sample in output.samples[update]]


def test_shards_may_be_named_one_by_one(shards, tmp_path, whole):
    """`DATA/*` is read when runs are resumed."""
    data = ":".join(f"{shards}/{number}" for number in range(SHARDS))
    found = run_train(line_of("pretraining", data, tmp_path, "--max-epoch", 2))
    assert [found.updates[number] for number in range(1, 11)] == [
        whole("pretraining")[1].updates[number] for number in range(1, 11)
    ]
    logged = [line for line in found.log.splitlines() if ", shard " in line]
    assert logged == [f"epoch {epoch} reads {shards / str(epoch - 1)}, shard {epoch} of 3" for epoch in (1, 2)]


def test_an_epoch_reads_one_shard(shards, tmp_path, whole):
    """Epochs 2 and 4 have the batches of runs on shards 1 and 0 alone, whose plans go over the whole shard."""
    output = whole("pretraining")[1]
    for epoch, shard in ((1, 1), (3, 0)):
        alone = run_train(line_of("pretraining", shards / str(shard), tmp_path / str(epoch), "--max-epoch", epoch + 1))
        numbers = range(UPDATES * epoch + 1, UPDATES * (epoch + 1) + 1)
        assert [tokens(output, number) for number in numbers] == [tokens(alone, number) for number in numbers]
    samples = [samples[0] for samples in whole("translation")[1].samples.values()]
    for epoch in range(SHARDS):  # the pairs of each shard, each once
        numbers = [number for sample in samples[UPDATES * epoch : UPDATES * (epoch + 1)] for number in sample["id"]]
        assert sorted(map(int, numbers)) == list(range(30))


@pytest.mark.parametrize(
    "kind, stop", [("pretraining", UPDATES), ("pretraining", 2 * UPDATES + 4), ("translation", UPDATES + 2)]
)
def test_resume_is_exact_in_every_shard(shards, tmp_path, whole, kind, stop):
    def line(folder, *more):
        return line_of(kind, f"{shards}/*", folder, "--save-interval-updates", 1, "--no-epoch-checkpoints", *more)

    assert len(whole(kind)[1].updates) == 4 * UPDATES
    check_stop(line, tmp_path, whole(kind), stop, 4 * UPDATES)


def test_long_bitext_resumes_in_every_shard(shards, tmp_path, monkeypatch):
    """It is planned in chunks, here of 15 pairs."""
    monkeypatch.setattr(passes, "CHUNK", 15)

    def line(folder, *more):
        more = ["--save-interval-updates", 1, "--no-epoch-checkpoints", *more]
        return line_of("translation", f"{shards}/*", folder, *more)

    output = run_train(line(tmp_path / "whole", "--max-epoch", 4))
    updates = len(output.updates) // 4
    lines = [number for update in range(1, updates + 1) for number in output.samples[update][0]["id"].tolist()]
    assert sorted(lines) == list(range(30))
    check_stop(line, tmp_path / "parts", (tmp_path / "whole", output), 2 * updates + 4, 4 * updates)


@pytest.mark.parametrize("data", ["*", "0"])
def test_an_epoch_without_a_batch_left_is_followed_by_the_next(shards, tmp_path, data):
    """A checkpoint that says that five processes have read a batch each: these are all batches of the epoch."""

    def run(folder, *more):
        more = ["--save-interval-updates", 1, "--no-epoch-checkpoints", *more]
        return run_train(line_of("translation", f"{shards}/{data}", tmp_path / folder, *more))

    whole, last = run("whole", "--max-epoch", 2), tmp_path / "part" / "checkpoint_last.pt"
    run("part", "--max-update", 1)
    state = torch.load(last, weights_only=False)
    assert state["extra_state"]["train_iterator"]["iterations_in_epoch"] == 1
    state["cfg"]["distributed_training"]["distributed_world_size"] = UPDATES
    torch.save(state, last)
    rest = run("part", "--max-epoch", 2)
    assert "epoch 1 has no batch left for 1 processes: epoch 2 begins" in rest.log
    expected = [whole.samples[update][0]["id"].tolist() for update in range(UPDATES + 1, 2 * UPDATES + 1)]
    assert [samples[0]["id"].tolist() for samples in rest.samples.values()] == expected
    position = torch.load(last, weights_only=False)["extra_state"]["train_iterator"]
    assert position["epoch"] == 3 and position["iterations_in_epoch"] == 0


def test_evaluation_reads_the_first_shard(shards, tmp_path, whole):
    checkpoint = whole("pretraining")[0] / "checkpoint_last.pt"
    for data in (shards, f"{shards}/*"):
        text = [run_validate(validation(folder, checkpoint)).statistics("ppl") for folder in (data, shards / "0")]
        assert text[0] == text[1] != []
    line = ["--task", "xl_translation", "--user-dir", "fairseq_xl", "-s", "en", "-t", "de", "--gen-subset", "test"]
    line += ["--path", whole("translation")[0] / "checkpoint_last.pt"]
    one, other = (run_generate([data, *line]).lines("H") for data in (shards, shards / "0"))
    assert one == other and len(one) == 13
    model, task = fairseq_xl.load(checkpoint)  # the folders of its training
    assert task.folder() == shards / "0" and task.folder(3) == shards / "2" and task.has_sharded_data("train")
    _, task = fairseq_xl.load(checkpoint, shards)
    assert task.folder() == shards / "0"


def test_commands_that_read_a_data_folder(shards, tmp_path, whole, capsys):
    checkpoint = str(whole("pretraining")[0] / "checkpoint_last.pt")
    (tmp_path / "text").write_text("the house\n", encoding="utf-8")
    for data in (shards, shards / "0"):
        files = ["--input", str(tmp_path / "text"), "--output", str(tmp_path / f"{data.name}.npy")]
        embed.main([checkpoint, str(data), "--lang", "en", *files])
    assert (tmp_path / "0.npy").read_bytes() == (tmp_path / f"{shards.name}.npy").read_bytes()
    with pytest.raises(UserError, match=f"^{shards}: read one data folder at a time$"):
        embeddings_skipgram.main([str(shards), "en", str(tmp_path / "out.npz")])
    capsys.readouterr()
    model_show.main([str(shards)])
    said = capsys.readouterr().out
    assert "3 shards" in said and "en/train" in said


def test_negatives_are_mined_in_every_shard(shards, tmp_path, capsys):
    run_train(dan(shards, tmp_path, "--max-update", 1, "--updates-per-epoch", 1, "--pairs", "en-de"))
    capsys.readouterr()
    search_negatives.main([str(tmp_path / "checkpoint_last.pt"), str(shards)])
    found = sorted(str(path.relative_to(shards)) for path in shards.glob("*/en-de/*.negatives.npy"))
    expected = [f"{shard}/en-de/train.en-de.negatives.npy" for shard in range(SHARDS)]
    assert found == sorted([*expected, "0/en-de/valid.en-de.negatives.npy"])


def test_a_pattern_without_quotes_is_one_sentence(shards, tmp_path):
    line = pretraining(shards / "0", tmp_path / "run", "--cpu")
    line = [python(), "-m", "fairseq_cli.train", *map(str, [line[0], shards / "1", shards / "2", *line[1:]])]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    error = f"error: unrecognized arguments: {shards}/1 {shards}/2: DATA is one argument; quote a pattern, 'DATA/*'"
    assert done.stderr.strip().splitlines()[-1].endswith(error)


def test_a_checkpoint_names_all_shards(shards, whole):
    state = fairseq_xl.io.checkpoints.load_plain(whole("pretraining")[0] / "checkpoint_last.pt")
    assert state["cfg"]["task"]["data"] == os.pathsep.join(str(shards / str(shard)) for shard in range(SHARDS))
    cfg = configuration(options.get_training_parser(), pretraining(f"{shards}/*", "run")).task
    assert cfg.data == f"{shards}/*"
