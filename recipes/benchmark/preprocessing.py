"""Measures `fairseq-xl data prepare` with shards: ``python -m recipes.benchmark.preprocessing FOLDER``.

Writes text of --megabytes in FOLDER (the sample corpus of `preprocess.sample`, repeated: monolingual English and
German, and their bitext, a third each), prepares it, and prints one JSON object:

    seconds     wall time of each stage, and CPU seconds of the parent process and of all its processes
    peak_mib    peak memory (VmHWM) of the parent process, and of the largest process
    bytes       size of the raw text, of the shards, and of .stages (encoded text, which may be deleted)
    estimate    hours on --cores cores and bytes for --of gigabytes of raw text

Estimate: the seconds of learning the sub-words are constant; all others grow with the text. A stage takes the CPU
seconds of all its processes divided by the cores, but at least those of the parent. There is no estimate with --jobs 1,
where the parent does all the work.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import yaml

from preprocess.sample.corpus import write

TICKS = os.sysconf("SC_CLK_TCK")
CONSTANT = ("vocabulary",)  # stages whose time does not depend on the size of the text
ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> None:
    """Runs the measurement."""
    parser = argparse.ArgumentParser("python -m recipes.benchmark.preprocessing", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder for the text and the shards; both are kept")
    parser.add_argument("--megabytes", type=int, default=1000, help="size of the raw text (default: 1000)")
    parser.add_argument("--shards", type=int, default=8, help="number of shards (default: 8)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="processes; 2 or more for an estimate (default: all cores)"
    )
    parser.add_argument("--cores", type=int, default=16, help="cores of the estimate (default: 16)")
    parser.add_argument("--of", type=int, default=100, help="gigabytes of the estimate (default: 100)")
    options = parser.parse_args(arguments)
    description = write_text(options.folder, options.megabytes, options.shards)
    shutil.rmtree(options.folder / "data-bin", ignore_errors=True)
    command = [
        sys.executable,
        "-m",
        "fairseq_xl",
        "data",
        "prepare",
        description,
        options.folder / "data-bin",
        "--jobs",
        options.jobs,
    ]
    measured = measure([str(word) for word in command])
    sizes = {
        "raw": size_of(options.folder / "text"),
        "shards": sum(size_of(options.folder / "data-bin" / str(shard)) for shard in range(options.shards)),
        "stages": size_of(options.folder / "data-bin" / ".stages"),
    }
    settings = {"megabytes": options.megabytes, "shards": options.shards, "jobs": options.jobs}
    result = {**settings, **measured, "bytes": sizes}
    if options.jobs > 1:
        result["estimate"] = estimated(measured["seconds"], sizes, options.of, options.cores)
    sys.stdout.write(json.dumps(result, indent=1) + "\n")


def write_text(folder: Path, megabytes: int, shards: int) -> Path:
    """Writes the text and its description; returns the path of the latter."""
    if not (folder / "sample").exists():
        write(folder / "sample")
    text = folder / "text"
    shutil.rmtree(text, ignore_errors=True)
    text.mkdir(parents=True)
    for names in (["mono/train.en"], ["mono/train.de"], ["bitext/train.en-de.en", "bitext/train.en-de.de"]):
        parts = [(folder / "sample" / name).read_bytes().rstrip(b"\n") + b"\n\n" for name in names]
        repetitions = max(1, round(megabytes * 1e6 / 3 / sum(map(len, parts))))
        for name, part in zip(names, parts):
            with open(text / Path(name).name, "wb") as file:
                file.writelines(part for _ in range(repetitions))
    content: dict[str, Any] = {
        "languages": ["en", "de"],
        "vocabulary": {"size": 8000, "sentences": 100000},
        "shards": shards,
        "monolingual": {
            code: {"train": f"text/train.{code}", "valid": f"sample/mono/valid.{code}"} for code in ("en", "de")
        },
        "bitext": {"en-de": {"train": "text/train.en-de", "valid": "sample/bitext/valid.en-de"}},
    }
    path = folder / "corpus.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def measure(command: list[str]) -> dict[str, Any]:
    """Runs the command; returns seconds by stage and peak memory, read from /proc five times a second."""
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    peaks, ended = {"parent": 0.0, "largest": 0.0}, threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            for pid in tree(process.pid):
                size = peak(pid)
                peaks["largest"] = max(peaks["largest"], size)
                if pid == process.pid:
                    peaks["parent"] = max(peaks["parent"], size)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    seconds: dict[str, dict[str, float]] = defaultdict(lambda: {"wall": 0.0, "parent": 0.0, "all": 0.0})
    stage, before = "check", (time.monotonic(), 0.0, 0.0)
    assert process.stderr is not None
    for line in process.stderr:
        name = line.split()[0].rstrip(":\n") if line.strip() else ""
        if name in ("overlap", "sample", "vocabulary", "divide", "encode", "dictionary", "binarize", "manifest.json"):
            now = (time.monotonic(), *times(process.pid))
            for key, new, old in zip(seconds[stage], now, before):
                seconds[stage][key] += new - old
            stage, before = name, now
        elif not re.match(r"\d+/manifest", line):
            sys.stderr.write(line)
    status = process.wait()
    ended.set()
    watcher.join()
    if status:
        raise SystemExit(status)
    rounded = {name: {key: round(value, 2) for key, value in parts.items()} for name, parts in seconds.items()}
    return {"seconds": rounded, "peak_mib": {name: round(value) for name, value in peaks.items()}}


def estimated(
    seconds: dict[str, dict[str, float]], sizes: dict[str, int], gigabytes: int, cores: int
) -> dict[str, Any]:
    """Estimates hours by stage and bytes for more text."""
    ratio = gigabytes * 1e9 / sizes["raw"]
    hours = {}
    for name, parts in seconds.items():
        needed = parts["wall"] if name in CONSTANT else ratio * max(parts["parent"], parts["all"] / cores)
        hours[name] = round(needed / 3600, 3)
    grown = {name: round(ratio * size) for name, size in sizes.items()}
    total = round(sum(hours.values()), 2)
    return {"gigabytes": gigabytes, "cores": cores, "hours": total, "by_stage": hours, "bytes": grown}


def size_of(folder: Path) -> int:
    """Returns the bytes of all files of a folder; a file with several names counts once."""
    sizes = {
        (stat.st_dev, stat.st_ino): stat.st_size
        for path in folder.rglob("*")
        if (stat := path.lstat()) and path.is_file()
    }
    return sum(sizes.values())


def tree(pid: int) -> list[int]:
    """Returns a process and all its descendants."""
    pids = [pid]
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            pids += [descendant for child in path.read_text().split() for descendant in tree(int(child))]
        except OSError:  # it has ended
            continue
    return pids


def peak(pid: int) -> float:
    """Returns VmHWM of a process in MiB; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(match[1]) / 1024 if match else 0


def times(pid: int) -> tuple[float, float]:
    """Returns CPU seconds of a process, and of it with its descendants, including those that ended."""
    first_seconds = total = 0.0
    for member in tree(pid):
        try:
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        live, ended = (sum(map(int, fields[first : first + 2])) / TICKS for first in (11, 13))
        total += live + ended
        if member == pid:
            first_seconds = live
    return first_seconds, total


if __name__ == "__main__":
    main()
