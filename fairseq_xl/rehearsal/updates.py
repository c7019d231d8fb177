"""Two real updates of trainings with tiny models and generated text, in processes that train together."""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_xl.rehearsal import DEADLINE
from fairseq_xl.rehearsal.setting import Setting

PROCESSES = 2
SETTINGS, RESULTS, LOG = "settings.json", "results.jsonl", "log"  # files of the launcher's folder


@dataclass(frozen=True)
class UpdateResult:
    """Result of two updates: their losses in bits, or the error."""

    losses: tuple[float, ...] = ()
    error: str | None = None
    notes: tuple[str, ...] = ()  # how the training differs from its flags


def run_two_updates(
    settings: Sequence[Setting], python: str = sys.executable, deadline: float = DEADLINE
) -> list[UpdateResult]:
    """Makes two updates of each setting in `PROCESSES` processes of `python`, ended after `deadline` seconds each."""
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as name:
        folder = Path(name)
        content = {"deadline": deadline, "settings": list(map(dataclasses.asdict, settings))}
        (folder / SETTINGS).write_text(json.dumps(content), encoding="utf-8")
        last_line = _launch(folder, python)
        lines = (folder / RESULTS).read_text(encoding="utf-8").splitlines() if (folder / RESULTS).is_file() else []
    results = [UpdateResult(**json.loads(line)) for line in lines]
    return results + [UpdateResult(error=last_line)] * (len(settings) - len(results))


def _launch(folder: Path, python: str) -> str:
    """Runs `rehearsal/launcher.py` for the settings of a folder; returns the last line that it or a rank printed."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "XL_STOPPED"))}
    paths = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    # NVML: looking for GPUs in the launcher must not initialize CUDA, which would then not work in its forks
    environment |= {"PYTHONPATH": paths, "PYTHONWARNINGS": "ignore", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    environment["OMP_NUM_THREADS"] = "1"
    with open(folder / LOG, "wb") as log:
        process = subprocess.Popen(
            [python, "-m", "fairseq_xl.rehearsal.launcher", str(folder)],
            env=environment,
            stdin=subprocess.PIPE,  # the launcher ends when this process has ended
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            process.wait()
        finally:
            process.kill()
            process.communicate()
    lines = (folder / LOG).read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line for line in reversed(lines) if line.strip()), "the processes ended without a message")
