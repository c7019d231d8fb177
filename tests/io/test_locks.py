"""Locks on files: another process is refused or waits."""

import subprocess
import sys
import time

import pytest

from fairseq_xl.errors import UserError
from fairseq_xl.io.folders import locked

WAITS = """
import sys
from pathlib import Path
from fairseq_xl.io.folders import locked
print("ready", flush=True)
with locked(sys.argv[1], None):
    print(Path(sys.argv[2]).read_text(), flush=True)
"""


def test_a_second_lock_is_refused_with_the_message(tmp_path):
    path = tmp_path / "x.lock"
    with locked(path, "x: busy"), pytest.raises(UserError, match="^x: busy$"), locked(path, "x: busy"):
        pytest.fail("two have the lock")
    with locked(path, "x: busy"):
        assert path.exists()  # the lock of a run that is over is no obstacle


def test_without_a_message_another_process_waits(tmp_path):
    """It reads the text that is written before the lock is released."""
    path, text = tmp_path / "x.lock", tmp_path / "text"
    with locked(path, None):
        text.write_text("before")
        command = [sys.executable, "-c", WAITS, str(path), str(text)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)  # without the lock it would have read by now
        text.write_text("after")
    assert process.communicate(timeout=60)[0] == "after\n" and process.returncode == 0
