"""Scripts of recipes, run on small text."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*command, folder=ROOT, timeout=900, **environment):
    environment = os.environ | {"XL_EXTRAS": "tests", "OMP_NUM_THREADS": "1"} | environment
    options = dict(text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=timeout)
    return subprocess.run([*map(str, command)], cwd=folder, env=environment, **options)


def succeeded(done):
    """What was shown on the way, and printed."""
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr, done.stdout


def write_pairs(folder):
    """tasks/qam of a corpus folder from its tasks/nc: label, first words of the passage, passage."""
    for path in (folder / "tasks/nc").rglob("*.tsv"):
        rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
        target = folder / "tasks/qam" / path.relative_to(folder / "tasks/nc")
        target.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"{label}\t{' '.join(text.split()[:3])}\t{text}\n" for label, text in rows]
        target.write_text("".join(lines), encoding="utf-8")
