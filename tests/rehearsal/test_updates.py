"""Two real updates in two processes, and what ends them."""

import contextlib
import dataclasses
import errno
import json
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import pytest

import fairseq_xl
from fairseq_xl import commands
from fairseq_xl.errors import UserError
from fairseq_xl.rehearsal import launcher, updates
from fairseq_xl.rehearsal.setting import Prepared, Setting, prepare
from tests.rehearsal.builders import PRETRAIN
from tests.warm_python import python

fairseq_xl.register()


def children():
    """Ids of all processes below this one."""
    tree = {}
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            tree.setdefault(int(parent), []).append(int(folder.name))
    found = [os.getpid()]
    for process in found:
        found += tree.get(process, [])
    return set(found[1:])


def test_rehearse_goes_on_after_an_error_of_one_configuration(tmp_path, monkeypatch):
    """The second one fails in the processes, the third one before them, the fourth one while flags are parsed."""
    program = python()  # it writes a folder of its own
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    settings = [
        Setting(PRETRAIN),
        Setting((*PRETRAIN, "--optimizer", "adafactor", "--adafactor-eps", "f()")),
        Setting((*PRETRAIN, "--objectives", "nothing")),
        Setting((*PRETRAIN, "--dropout", "much")),
        Setting((*PRETRAIN, "--bf16", "--update-freq", "8")),
    ]
    first, second, third, fourth, last = updates.run_two_updates(settings, program)
    for found in (first, last):
        assert found.error is None and len(found.losses) == 2 and all(4 < loss < 12 for loss in found.losses)
    assert not second.losses and second.error and "\n" not in second.error
    assert third.error.startswith("--objectives 'nothing': unknown nothing")
    assert "argument --dropout: invalid" in fourth.error and "\n" not in fourth.error
    assert "--update-freq 2" in last.notes[-1] and "one layer, 64 channels, 4 heads" in last.notes[-1]
    assert not list(tmp_path.iterdir())


@pytest.fixture
def open_input():
    """A standard input that nobody closes."""
    reader, writer = os.pipe()
    with open(reader) as stream, open(writer, "w"):
        yield stream


def _fail(made):
    raise UserError("no room")


def _die(made):
    os._exit(3)


def _hang(made):
    signal.pause()


@pytest.mark.parametrize(
    "train, rank, deadline, sentence",
    [
        (_hang, 0, 0.5, "only 1 of 2 processes has finished after 0.5 seconds: all were ended (--deadline)"),
        (_hang, None, 0.5, "no process has finished after 0.5 seconds: all were ended (--deadline)"),
        (_fail, 1, 60, "no room"),
        (_die, 1, 60, "a process ended without a message, with status 3"),
    ],
)
def test_rehearse_ends_all_processes(train, rank, deadline, sentence, open_input, monkeypatch):
    """One process, or each, hangs, fails or dies; the other one is done."""

    def of_rank(made):
        return train(made) if rank is None or os.environ["RANK"] == str(rank) else [8.0, 7.5]

    before = children()
    monkeypatch.setattr(launcher, "_train", of_rank)
    monkeypatch.setattr("sys.stdin", open_input)
    found = launcher.train_together(Prepared(None, None), deadline)
    assert found == updates.UpdateResult(error=sentence)
    assert children() == before


def test_rehearse_ends_at_the_deadline_of_a_configuration(tmp_path, monkeypatch):
    """A real training takes longer than a hundredth of a second, and the next one starts nevertheless."""
    found = updates.run_two_updates([Setting(PRETRAIN)] * 2, python(), deadline=0.01)
    assert [each.error for each in found] == [
        "no process has finished after 0.01 seconds: all were ended (--deadline)"
    ] * 2


def test_rehearse_ranks_end_with_the_launcher(open_input, monkeypatch):
    """A launcher that is killed while its ranks hang leaves none of them."""
    context = multiprocessing.get_context("fork")
    monkeypatch.setattr(launcher, "_train", _hang)
    before = children()

    def launch():
        sys.stdin = open_input  # multiprocessing closes the one of a fork
        launcher.train_together(Prepared(None, None), 60.0)

    process = context.Process(target=launch)
    process.start()
    while len(ranks := children() - before - {process.pid}) < updates.PROCESSES:
        time.sleep(0.01)
    process.kill()
    process.join()
    until = time.monotonic() + 60
    while any(_is_running(rank) for rank in ranks) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(_is_running(rank) for rank in ranks)


def _is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def two_settings(tmp_path, monkeypatch):
    """A folder with two settings for the launcher, which prepares nothing and whose ranks are done at once."""
    monkeypatch.setattr(launcher, "prepare", lambda setting, folder, small: Prepared(None, None))
    monkeypatch.setattr(launcher, "_train", lambda made: [8.0, 7.5])
    settings = [dataclasses.asdict(Setting(PRETRAIN))] * 2
    (tmp_path / updates.SETTINGS).write_text(json.dumps({"deadline": 60, "settings": settings}), encoding="utf-8")
    return tmp_path


def launched(folder, stream):
    """Runs the launcher in a fork with a standard input; its status, and the results that it wrote."""

    def launch():
        sys.stdin = stream  # multiprocessing closes the one of a fork
        launcher.main(str(folder))

    process = multiprocessing.get_context("fork").Process(target=launch)
    process.start()
    process.join(60)
    results = folder / updates.RESULTS
    return process.exitcode, [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def test_rehearse_launcher_ends_when_its_input_is_closed(two_settings, monkeypatch):
    """It begins no other training, and leaves no rank."""
    monkeypatch.setattr(launcher, "_train", _hang)
    before = children()
    reader, writer = os.pipe()
    os.close(writer)
    with open(reader) as stream:
        assert launched(two_settings, stream) == (1, [])
    assert children() == before


@pytest.mark.parametrize(
    "error, sentence",
    [
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "no room is left on the disk: what was being written is cut",
        ),
        (KeyError("en"), "KeyError: 'en'"),
    ],
)
def test_rehearse_goes_on_after_an_unexpected_error_before_the_processes(
    error, sentence, two_settings, open_input, monkeypatch
):
    errors = [error]

    def prepare(setting, folder, small):
        if errors:
            raise errors.pop()
        return Prepared(None, None)

    monkeypatch.setattr(launcher, "prepare", prepare)
    status, (first, second) = launched(two_settings, open_input)
    assert status == 0 and first["error"].startswith(sentence) and "\n" not in first["error"]
    assert second["error"] is None and second["losses"] == [8.0, 7.5]


def test_rehearse_shrinks_model_and_batches_and_keeps_the_rest(tmp_path):
    made = prepare(Setting((*PRETRAIN, "--init-from", "absent.pt", "--dropout", "0.3")), tmp_path / "text", small=True)
    cfg = made.cfg
    model = cfg.model
    assert (model.layers, model.embed_dim, model.ffn_dim, model.heads, model.dropout) == (1, 64, 256, 4, 0.3)
    assert cfg.task.objective_options == "mlm.length=64 mlm.batch_sentences=2" and cfg.task.init_from is None
    assert cfg.optimization.max_update == 2 and cfg.optimization.lr == [0.001]
    assert made.notes[0] == "random weights: --init-from left out"


def test_rehearse_command_counts_and_updates(tmp_path, monkeypatch, capsys):
    lines = zip(PRETRAIN[::2], PRETRAIN[1::2])
    config, more = tmp_path / "config.yaml", tmp_path / "more.yaml"
    config.write_text("".join(f"{key[2:]}: {value}\n" for key, value in lines), encoding="utf-8")
    more.write_text("objective-options: mlm.batch_sentences=8\nfp16: true\n", encoding="utf-8")
    monkeypatch.setattr(updates.run_two_updates, "__defaults__", (python(), 0.0))
    words = ["rehearse", str(config), str(more), "--vocabulary", "1000", "--update-freq", "3", "--deadline", "100"]
    commands.main(words)
    shown = capsys.readouterr().out
    assert "tokens of an update    1,536 mlm (1 process, --update-freq 3)" in shown  # 3 x 8 x 64
    assert "epoch                  10 updates, which read 15,360 tokens" in shown
    assert "two updates done in 2 processes: loss " in shown


def test_rehearse_command_names_itself_and_the_file_of_a_wrong_key(tmp_path, capsys):
    (tmp_path / "my.yaml").write_text("max-tokn: 5\n", encoding="utf-8")
    words = ["rehearse", "recipes/xlm/config/pretrain.yaml", "--no-updates"]
    with pytest.raises(UserError, match="my.yaml: max-tokn: fairseq-train has no flag --max-tokn"):
        commands.main([*words[:2], str(tmp_path / "my.yaml")])
    before = sys.argv[0]
    for wrong, sentence in (("--max-tokn", "unrecognized arguments: --max-tokn 5"), ("--clip-norm", None)):
        with contextlib.suppress(SystemExit):
            commands.main([*words, wrong, "5" if sentence else "x"])
        shown = capsys.readouterr().err
        assert shown.startswith("fairseq-xl rehearse: error: ") and (sentence or "--clip-norm: invalid float") in shown
    assert sys.argv[0] == before


@pytest.mark.parametrize(
    "words, sentence",
    [
        ([], "name CONFIG.yaml …, or --list LIST.yaml"),
        (["absent.yaml"], "absent.yaml: no such file"),
        (["--list", "absent.yaml"], "absent.yaml: no such file"),
        (
            ["--list", "recipes/papers.yaml", "--lr", "1"],
            "unexpected --lr: with --list, flags come from the list's 'flags'",
        ),
        (["--list", "recipes/papers.yaml", "--only", "bert"], "has no bert: expected some of xlm, unicoder, veco"),
        (["recipes/xlm/config/pretrain.yaml", "--languages", "0"], "--languages 0: 1 or more is needed"),
        (["recipes/xlm/config/pretrain.yaml", "--deadline", "0"], "--deadline 0.0: more than 0 is needed"),
        (["recipes/xlm/config/pretrain.yaml", "--write"], "--only and --write need --list"),
    ],
)
def test_rehearse_command_refuses_in_one_sentence(words, sentence):
    with pytest.raises(UserError, match=sentence):
        commands.main(["rehearse", *words])
