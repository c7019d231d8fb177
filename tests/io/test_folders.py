"""Temporary folders: removed at the end, after a signal, and after a process that was killed; locks on files."""

import multiprocessing
import os
import signal

import pytest

from fairseq_xl.errors import UserError
from fairseq_xl.io.folders import locked, new_folder
from fairseq_xl.io.signals import ENDING, ending_by_exception
from tests.io.builders import in_a_fork


def below(folder):
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize("number", [*ENDING, signal.SIGINT])
def test_a_signal_removes_the_folder(tmp_path, number):
    before = signal.getsignal(number)
    with pytest.raises((SystemExit, KeyboardInterrupt)) as ended, ending_by_exception(), new_folder(tmp_path / "out"):
        assert len(below(tmp_path)) == 1
        signal.raise_signal(number)
    assert below(tmp_path) == [] and signal.getsignal(number) is before
    assert number == signal.SIGINT or ended.value.code == 128 + number


def test_an_ignored_signal_stays_ignored(monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending_by_exception():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_a_killed_process_left_is_removed(tmp_path):
    def killed():
        with new_folder(tmp_path / "out") as folder:
            (folder / "file").write_text("text")
            os.kill(os.getpid(), signal.SIGKILL)

    (tmp_path / ".out.unfinished").mkdir()  # a folder of the user
    assert in_a_fork(killed) == -signal.SIGKILL and len(below(tmp_path)) == 2
    with new_folder(tmp_path / "out"):
        assert len(below(tmp_path)) == 2
    assert sorted(below(tmp_path)) == [".out.unfinished", "out"] and below(tmp_path / "out") == []


def test_two_processes_do_not_write_one_folder(tmp_path):
    def other():
        sentence = "out was not written: another process is writing it"
        with pytest.raises(UserError, match=sentence), new_folder(tmp_path / "out"):
            pass

    with new_folder(tmp_path / "out") as folder:
        assert in_a_fork(other) == 0
        (folder / "file").touch()
    assert below(tmp_path / "out") == ["file"]
    with pytest.raises(UserError, match="late was not written: Directory not empty"), new_folder(tmp_path / "late"):
        (tmp_path / "late").mkdir()
        (tmp_path / "late/file").touch()


def test_a_second_lock_is_refused_or_waits(tmp_path):
    """A process that waits reads the text that is written before the lock is released."""
    path, text, (reading, writing) = tmp_path / "x.lock", tmp_path / "text", os.pipe()

    def waiting():
        os.read(reading, 1)
        with locked(path, None):
            os._exit(int(text.read_text()))

    process = multiprocessing.get_context("fork").Process(target=waiting)
    process.start()  # before the lock, whose descriptor it would inherit
    with locked(path, "x: busy"), pytest.raises(UserError, match="^x: busy$"), locked(path, "x: busy"):
        pytest.fail("two have the lock")
    with locked(path, None):  # the lock of a run that is over is no obstacle
        text.write_text("1")
        os.write(writing, b".")
        process.join(0.2)  # without the lock it would have read by now
        text.write_text("2")
    process.join()
    assert process.exitcode == 2
