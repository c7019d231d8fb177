"""Full disks, folders that are not writable, and kills: no file is lost."""

import errno
import multiprocessing
import os
import signal

import pytest
import torch

from fairseq_xl.commands import plot_curves, score_bleu
from fairseq_xl.io.checkpoints import save_checkpoint
from preprocess import binarize, files
from preprocess.commands.prepare import main as preprocess
from preprocess.pipeline import prepare
from tests.bad_input.builders import one_line
from tests.bad_input.every_command import COMMANDS, fails, line_of, with_small_files
from tests.commands import run_train
from tests.preprocess.tiny_corpus import change, content, write_corpus
from tests.tasks.conftest import preprocess_here

LIMIT = "the limit on file sizes (ulimit -f) is reached"  # which `with_small_files` sets
SAVING = ["--save-interval-updates", 1, "--disable-validation", "--no-epoch-checkpoints"]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """Of torch, since some of these tests fork; fairseq-preprocess runs here too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(binarize, "run_fairseq", preprocess_here)
    yield
    torch.set_num_threads(threads)


def test_checkpoint(place, tmp_path):
    last = tmp_path / "run" / "checkpoint_last.pt"
    last.parent.mkdir()
    last.write_bytes(place.pretraining.read_bytes())
    line = line_of("pretraining", place, last.parent, *SAVING, "--max-update", 2)
    status, shown = with_small_files(lambda: run_train(line), 20_000)
    assert status == 1
    one_line(shown, "fairseq_xl: error: ", "checkpoint_1_2.pt was not written", LIMIT)
    assert last.read_bytes() == place.pretraining.read_bytes()
    assert {path.name for path in last.parent.iterdir()} == {last.name, "train.log"}
    assert list(run_train(line).updates) == [2]  # with room again it goes on


@pytest.mark.parametrize("written", [1, 2, 3])
def test_a_full_disk_between_the_files_of_the_first_checkpoint(place, tmp_path, monkeypatch, written):
    """The same command then goes on, or begins again."""
    files, replace = [], os.replace

    def full(source, target):
        files.append(target)
        if len(files) == written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    line = line_of("pretraining", place, tmp_path / "run", "--save-interval-updates", 1, "--max-update", 2)
    monkeypatch.setattr(os, "replace", full)
    fails(lambda: run_train(line), "was not written", "no room is left")
    monkeypatch.undo()
    assert list(run_train(line).updates) == ([2] if written > 1 else [1, 2])
    assert {"checkpoint_last.pt", "checkpoint_best.pt"} <= {path.name for path in (tmp_path / "run").iterdir()}


def test_hypotheses(place, tmp_path):
    status, shown = with_small_files(lambda: COMMANDS["generate"](place, tmp_path), 500)
    assert status == 1
    one_line(shown, f"fairseq_xl: error: {LIMIT}", "cut short")
    (tmp_path / "reference").write_text("\n" * 13)
    line = [str(tmp_path / "generate-test.txt"), str(tmp_path / "reference"), "--lang", "de"]
    fails(lambda: score_bleu.main(line), "generate-test.txt")  # what is there is not scored


@pytest.mark.parametrize("name", ["validate classification", "average"])
def test_other_results(place, tmp_path, name):
    for kept in ("average.pt", "predictions/valid.en.tsv"):
        (tmp_path / kept).parent.mkdir(exist_ok=True)
        (tmp_path / kept).write_text("old")
    status, shown = with_small_files(lambda: COMMANDS[name](place, tmp_path), 200)
    assert status == 1
    kept = " and the previous file is kept" if name == "average" else ""  # the note of predictions is written first
    one_line(shown, "fairseq_xl: error: ", f"was not written{kept}: {LIMIT}")
    assert {path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == {"old"}


def test_saved_hypotheses_and_curves(tmp_path):
    (tmp_path / "lines").write_text("a line of some words\n" * 50)
    (tmp_path / "log").write_text('{"epoch": 1, "loss": "2", "num_updates": "5"}\n')
    lines = str(tmp_path / "lines")
    for call in (
        lambda: score_bleu.main([lines, lines, "--plain", "--lang", "en", "--save-hypotheses", str(tmp_path / "out")]),
        lambda: plot_curves.main([f"a={tmp_path / 'log'}", "--output", str(tmp_path / "out")]),
    ):
        status, shown = with_small_files(call, 100)
        assert status == 1
        one_line(shown, f"fairseq_xl: error: {tmp_path / 'out'} was not written: {LIMIT}")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["lines", "log"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The content of a data-bin made by a run that was not stopped."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binarize, "run_fairseq", preprocess_here)
        prepare(write_corpus(folder / "corpus"), folder / "data-bin")
    return content(folder / "data-bin")


@pytest.mark.parametrize("most", [100, 2_000, 4_000])
def test_preparation(whole, tmp_path, most):
    """While it checks, learns or binarizes; with room again the result is that of a run that was not stopped."""
    corpus = write_corpus(tmp_path / "corpus")
    command = [str(corpus), str(tmp_path / "data-bin")]

    def run():
        if preprocess(command):
            os._exit(1)

    status, shown = with_small_files(run, most)
    assert status == 1
    one_line(shown, f"{tmp_path / 'data-bin'}: {LIMIT}: raise it, and run the same command to continue")
    assert not (tmp_path / "data-bin" / "manifest.json").exists()
    assert not list((tmp_path / "data-bin").rglob("*.tmp"))
    prepare(corpus, tmp_path / "data-bin")
    assert content(tmp_path / "data-bin") == whole


def test_fairseq_preprocess_on_a_full_disk(tmp_path, monkeypatch, capsys):
    """It runs in a process of its own, of which only the last line is known."""

    def full(options, cwd, log):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("OSError: [Errno 28] No space left on device\n")
        binarize.check_end(1, log)

    monkeypatch.setattr(binarize, "run_fairseq", full)
    assert preprocess([str(write_corpus(tmp_path / "corpus")), str(tmp_path / "data-bin")]) == 1
    one_line(capsys.readouterr().err, "The disk of", "is full: make room")


def test_save_dir_that_cannot_be(place, tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        fails(lambda: run_train(line_of("pretraining", place, folder, "--max-update", 1)), "--save-dir", folder)


def test_other_places_that_cannot_be(place, tmp_path):
    (tmp_path / "file").touch()
    for name in ("generate", "validate classification", "average"):
        fails(lambda: COMMANDS[name](place, tmp_path / "file" / "out"), tmp_path / "file" / "out")
    log = tmp_path / "file" / "log"
    line = line_of("pretraining", place, tmp_path / "run", "--log-file", log, "--max-update", 1)
    fails(lambda: run_train(line), f"--log-file {log}", "File exists")


def test_what_is_no_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    fails(lambda: save_checkpoint({}, tmp_path / "pipe"), tmp_path / "pipe", "is there and not a file")
    assert (tmp_path / "pipe").is_fifo()


def test_preparation_killed_and_run_again(whole, tmp_path, monkeypatch):
    """kill -9 when every third file is renamed, until a run completes."""
    corpus = write_corpus(tmp_path / "corpus")
    replace, kills = os.replace, 0

    def killing(left):
        def killed(source, target):
            left.append(1)
            if len(left) > 8:
                os.kill(os.getpid(), signal.SIGKILL)
            replace(source, target)

        return killed

    while not (tmp_path / "data-bin" / "manifest.json").exists():
        monkeypatch.setattr(files.os, "replace", killing([]))
        process = multiprocessing.get_context("fork").Process(target=prepare, args=(corpus, tmp_path / "data-bin"))
        process.start()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
        assert process.exitcode in (0, -signal.SIGKILL) and kills < 20
    monkeypatch.setattr(files.os, "replace", replace)
    assert kills > 2
    assert content(tmp_path / "data-bin") == whole


def test_another_description_for_the_same_destination(tmp_path):
    """The result is that of an empty folder; records that a crash of the machine emptied are written again."""
    corpus = write_corpus(tmp_path / "corpus")
    prepare(corpus, tmp_path / "data-bin")
    change(corpus, vocabulary={"size": 50})
    for record in (tmp_path / "data-bin" / ".stages").rglob("*.json"):
        record.write_bytes(b"")
    (tmp_path / "data-bin" / "manifest.json").write_bytes(b"{")
    prepare(corpus, tmp_path / "data-bin")
    prepare(corpus, tmp_path / "fresh")
    assert content(tmp_path / "data-bin") == content(tmp_path / "fresh")
