"""The scripts of recipes/veco."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*command, timeout=600):
    environment = os.environ | {"XL_EXTRAS": "tests", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*map(str, command)],
        cwd=ROOT,
        env=environment,
        text=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=timeout,
    )


def succeeded(done):
    """What was shown on the way, and printed."""
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr, done.stdout
