"""Measures opening a text and reading an epoch: ``python -m recipes.benchmark.opening FOLDER``.

Writes texts in FOLDER whose .bin files are sparse, so that they take no room: their .idx files distribute --lines
sentences of 2 to 40 tokens over --gigabytes, monolingual text or both sides of bitext. For each type of corpus
--processes start at once; each opens the text, plans an epoch of --examples examples and reads its texts, with a cold
page cache. `translation` plans a pass over all pairs and reads --examples. Prints one JSON object for each type:

    open, plan, texts    seconds of the slowest process
    read_mb              bytes of the files in the system's cache, which all processes together have read
    peak_mb              resident memory (VmHWM) of the largest process, minus that before it opened the text
    allocated_mb         maximum that Python and numpy allocated in a process
"""

import argparse
import ctypes
import importlib
import json
import os
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_xl.io.indexed_text import Header

ROOT = Path(__file__).resolve().parents[2]
CORPORA = {
    "monolingual": ("fairseq_xl.data.corpora.token_stream", "TokenStream"),
    "sentences": ("fairseq_xl.data.corpora.sentences", "Sentences"),
    "parallel": ("fairseq_xl.data.corpora.sentence_pairs", "SentencePairs"),
    "translation": ("fairseq_xl.data.corpora.sentence_pairs", "SentencePairs"),
}
BITEXT = ("parallel", "translation")
LENGTH, TOGETHER = 64, 20  # maximum tokens of a text, and examples of a batch
MB = 10**6
CACHESTAT = 451  # number of the system call


def main(arguments: list[str] | None = None) -> None:
    """Runs the measurement, or one of its processes."""
    parser = argparse.ArgumentParser("python -m recipes.benchmark.opening", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder for the texts, which are removed")
    parser.add_argument("--gigabytes", type=float, default=200, help="size of the text (default: 200)")
    parser.add_argument("--lines", type=int, default=8_000_000, help="number of lines (default: 8,000,000)")
    parser.add_argument("--examples", type=int, default=2000, help="examples of the epoch (default: 2000)")
    parser.add_argument("--processes", type=int, default=2, help="number of processes (default: 2)")
    parser.add_argument("--kind", choices=CORPORA, help=argparse.SUPPRESS)  # of a process
    options = parser.parse_args(arguments)
    if options.kind:
        json.dump(read_epoch(options.kind, options.folder, options.examples), sys.stdout)
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    for kind in CORPORA:
        files = write_sparse(kind, options.folder / "train", options.lines, int(options.gigabytes * 1e9))
        try:
            forget(files)
            processes = run(kind, options.folder / "train", options.examples, options.processes)
            result: dict[str, Any] = {"corpus": kind, "gigabytes": options.gigabytes, "lines": options.lines}
            for name in ("open", "plan", "texts"):
                result[name] = round(max(seconds[name] for seconds in processes), 3)
            result["read_mb"] = round(sum(cached(file) for file in files) / MB, 1)
            for name in ("peak", "allocated"):
                result[f"{name}_mb"] = round(max(sizes[name] for sizes in processes) / MB, 1)
            sys.stdout.write(json.dumps(result) + "\n")
        finally:
            for file in [*files, *options.folder.glob("*.table")]:
                file.unlink(missing_ok=True)


def write_sparse(kind: str, prefix: Path, lines: int, size: int) -> list[Path]:
    """Writes a text of `size` bytes with sparse .bin files; returns its files."""
    prefixes = [f"{prefix}.{code}" for code in ("en", "de")] if kind in BITEXT else [str(prefix)]
    sizes = (np.arange(lines) % 39 + 2).astype(np.int32)
    step = size // len(prefixes) // lines // 2 * 2
    for side in prefixes:
        with open(f"{side}.idx", "wb") as file:
            file.write(Header(8, lines).packed() + sizes.tobytes())
            file.write((np.arange(lines, dtype=np.int64) * step).tobytes())
            os.fsync(file.fileno())
        with open(f"{side}.bin", "wb") as file:
            file.truncate((lines - 1) * step + 2 * int(sizes[-1]))
    return [Path(f"{side}.{end}") for side in prefixes for end in ("idx", "bin")]


def forget(files: list[Path]) -> None:
    """Drops files from the system's cache."""
    for path in files:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached(path: Path) -> int:
    """Returns the bytes of a file in the system's cache. Raises `OSError` if Linux is older than 6.5."""
    whole, status = (ctypes.c_uint64 * 2)(), (ctypes.c_uint64 * 5)()
    library = ctypes.CDLL(None, use_errno=True)
    with open(path, "rb") as file:
        if library.syscall(CACHESTAT, file.fileno(), whole, status, 0):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "cachestat")
    return int(status[0]) * os.sysconf("SC_PAGESIZE")


def run(kind: str, prefix: Path, examples: int, processes: int, python: str = sys.executable) -> list[dict[str, Any]]:
    """Runs `read_epoch` in several processes at once; returns its results."""
    command = [python, "-m", "recipes.benchmark.opening", str(prefix), "--kind", kind, "--examples", str(examples)]
    runs = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    outputs = [process.communicate()[0] for process in runs]
    if failed := [process.returncode for process in runs if process.returncode]:
        raise SystemExit(f"{' '.join(command)}: exit status {failed[0]}")
    return [json.loads(output) for output in outputs]


def read_epoch(kind: str, prefix: Path, count: int) -> dict[str, Any]:
    """Opens a text, plans an epoch of `count` examples and reads them; returns measurements and counts."""
    module, name = CORPORA[kind]
    opened = getattr(importlib.import_module(module), name)
    names = ("framing", "plan.epoch_plan", "plan.passes")
    framing, plans, passes = (importlib.import_module(f"fairseq_xl.data.{name}") for name in names)
    before, times = _memory("VmRSS"), [time.perf_counter()]
    tracemalloc.start()
    corpus = opened(prefix, *(["en", "de"] if kind in BITEXT else ["en"]), symbols=100)
    times.append(time.perf_counter())
    lengths = framing.InputLength(LENGTH, 1, LENGTH + 1)
    sampler = plans.ObjectiveSampler("mlm", {"": corpus}, lengths, None, TOGETHER, 1.0)
    if kind == "translation":
        plan = passes.ObjectivePass(sampler, 1, 1, 1)[: count // TOGETHER]
    else:
        plan = plans.training_plan([sampler], "alternate", 1, 1, count // TOGETHER, 1, 1)
    times.append(time.perf_counter())
    texts = [text for batch in plan for texts in corpus.texts(batch.examples, LENGTH) for text in texts]
    times.append(time.perf_counter())
    examples = [example for batch in plan for example in batch.examples.tolist()]
    return dict(zip(("open", "plan", "texts"), np.diff(times).tolist(), strict=True)) | {
        "peak": _memory("VmHWM") - before,
        "allocated": tracemalloc.get_traced_memory()[1],
        "sentences": corpus.sentences,
        "tokens": sum(map(len, texts)),
        "examples": examples,
    }


def _memory(name: str) -> int:
    """Returns an entry of this process's memory, in bytes."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith(name)) * 1024


if __name__ == "__main__":
    main()
