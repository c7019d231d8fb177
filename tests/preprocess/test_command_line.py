"""The command as a user runs it."""

import contextlib
import fcntl
import logging
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from tiny_corpus import change, content

from fairseq_xl.errors import UserError
from preprocess import binarize
from preprocess.commands import Formatter
from preprocess.commands.prepare import main
from tests.warm_python import python

ROOT = Path(__file__).resolve().parents[2]


def command(corpus, data_bin, *options, **more):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [python(), "-m", "fairseq_xl", "data", "prepare", str(corpus), str(data_bin), *options]
    return subprocess.Popen(words, cwd=ROOT, env=environment, **more)


def test_from_text_to_data_bin(corpus, whole, tmp_path):
    run = command(corpus, tmp_path / "data-bin", "--jobs", "2", stderr=subprocess.PIPE, text=True)
    shown = run.communicate()[1]
    assert run.returncode == 0, shown
    assert content(tmp_path / "data-bin") == content(whole)
    assert "\r" not in shown and "it/s" not in shown  # no bars where nobody watches


def test_a_terminal_shows_rate_and_time_left(corpus, tmp_path):
    change(corpus, monolingual={})
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("4H", 40, 120, 0, 0))
    run = command(corpus, tmp_path / "data-bin", stdout=its, stderr=its)
    os.close(its)
    shown = b""
    with contextlib.suppress(OSError):  # how the end of a terminal shows on Linux
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    shown = shown.decode("utf-8")
    assert run.wait() == 0, shown
    assert re.search(r"check:.*\[\d\d:\d\d<.*B/s\]", shown), shown
    assert re.search(r"encode:.*\[\d\d:\d\d<.*lines/s\]", shown), shown


def test_check_only(corpus, tmp_path, capsys, caplog):
    with caplog.at_level(logging.INFO, logger="preprocess"):
        assert main([str(corpus), "--check-only"]) == 0
    lines = sum(path.read_bytes().count(b"\n") for path in corpus.parent.glob("*.*") if path != corpus)
    assert caplog.messages[-1] == f"no errors found: 10 files, {lines} lines"
    assert main([str(corpus), str(tmp_path / "data-bin"), "--check-only"]) == 0
    assert content(tmp_path / "data-bin") == {}
    (corpus.parent / "train.en").unlink()
    assert main([str(corpus), "--check-only"]) == 1
    assert "there is no such file" in capsys.readouterr().err


def test_the_console_marks_warnings():
    records = [
        logging.LogRecord("preprocess", level, "", 0, "%s", ("text",), None)
        for level in (logging.INFO, logging.WARNING)
    ]
    assert list(map(Formatter().format, records)) == ["text", "warning: text"]


def test_a_data_bin_that_is_a_file(corpus, tmp_path, capsys):
    (tmp_path / "data-bin").touch()
    assert main([str(corpus), str(tmp_path / "data-bin")]) == 1
    assert f"{tmp_path / 'data-bin' / '.stages'}: Not a directory" in capsys.readouterr().err


def test_arguments(capsys):
    for arguments, expected in (
        ([], "the following arguments are required: CONFIG.yaml"),
        (["c.yaml"], "DATA is missing"),
    ):
        with pytest.raises(SystemExit):
            main(arguments)
        assert expected in capsys.readouterr().err


def test_failure_of_fairseq_shows_its_last_line(tmp_path):
    with pytest.raises(UserError, match="fairseq-preprocess failed .*en.log.*: AssertionError: --trainpref must"):
        binarize.run_fairseq([], tmp_path, tmp_path / "logs" / "en.log")
    log = (tmp_path / "logs" / "en.log").read_text(encoding="utf-8")
    assert log.startswith("Traceback") or "Namespace" in log.splitlines()[0]
    with pytest.raises(UserError, match="de.log.*: .*no-such-dict"):  # a second process of the same server
        options = ["--only-source", "--trainpref", "train", "--srcdict", "no-such-dict", "--destdir", str(tmp_path)]
        binarize.run_fairseq(options, tmp_path, tmp_path / "logs" / "de.log")
    assert (tmp_path / "logs" / "en.log").read_text(encoding="utf-8") == log


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the processes in /proc")
def test_no_process_outlives_a_killed_run(tmp_path):
    program = (
        "import time\nfrom preprocess.files import Workers\n"
        "with Workers(2) as workers:\n    list(workers.map(time.sleep, [0.01] * 100000))"
    )
    run = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    children = []
    while len(children) < 2:
        time.sleep(0.05)
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text(encoding="utf-8").split()
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    for _ in range(200):
        if not any(map(_alive, children)):
            return
        time.sleep(0.05)
    pytest.fail("a process is alive")


def _alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_ctrl_c_while_fairseq_is_imported_shows_nothing(tmp_path):
    """SIGINT reaches all processes of a terminal; the one that imports fairseq would show a traceback."""
    (tmp_path / "fairseq_cli").mkdir()
    (tmp_path / "fairseq_cli/__init__.py").touch()
    (tmp_path / "fairseq_cli/preprocess.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\ndef cli_main(): print('imported')\n"
    )
    (tmp_path / "run.py").write_text(
        "from pathlib import Path\nfrom preprocess import binarize\n"
        "if __name__ == '__main__':\n    binarize.run_fairseq([], Path('.'), Path('log'))\n"
    )
    done = subprocess.run(
        [sys.executable, "run.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "log").read_text() == "imported\n"
