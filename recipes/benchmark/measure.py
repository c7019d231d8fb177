"""Measures the training steps of `systems.SYSTEMS` and their matrix products, and writes the results.

python -m recipes.benchmark.measure OUTPUT_DIR [--rounds 15] [--device cuda] [--shape layers=12] …
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path

import numpy as np

from fairseq_xl.versions import versions
from recipes.benchmark.report import write_picture, write_profile
from recipes.benchmark.systems import LARGE_VOCABULARY, SHAPES, SYSTEMS, Shape, with_vocabulary

WARM_UP = 1  # rounds after the first step that do not count: they allocate memory and load code
STEPS_FOR_MEMORY = 3
PROFILED_BATCH = 10**6
ELSEWHERE = 0.05  # a round is repeated if other programs use a larger share of the processors
ATTEMPTS = 3  # maximum of rounds run per counted round; those with the smallest share of other programs count


class Worker:
    """A process of `recipes.benchmark.worker` for one system."""

    def __init__(self, system: str, shape: Shape, device: str, log: Path, optimize: bool = True):
        job = {"system": system, "shape": asdict(shape), "device": device, "optimize": optimize}
        self.log = log
        with open(log, "a", encoding="utf-8") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "recipes.benchmark.worker", json.dumps(job)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def answer(self) -> dict:
        """Waits for the next answer."""
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"benchmark: a system failed, see {self.log}")
        return json.loads(line)

    def ask(self, do: str, **request) -> dict:
        """Sends a request and waits for its answer."""
        self.process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        """Closes the pipe, which ends the process."""
        self.process.stdin.close()
        self.process.wait()


def measure_speed(shape: Shape, device: str, rounds: int, log: Path) -> dict:
    """Measures seconds, losses, ratios, peaks with the optimizer's state, and profiles, with a process per system."""
    workers = {system: Worker(system, shape, device, log) for system in [*SYSTEMS, "matmul"]}
    born = {system: worker.answer() for system, worker in workers.items()}
    taken = _alternate(workers, rounds)
    counted = sorted(taken[WARM_UP:], key=lambda found: found["elsewhere"])[:rounds]
    seconds = {system: [found[system]["seconds"] for found in counted] for system in workers}
    found = {
        "threads": born["fairseq"]["threads"],
        "parameters": {system: born[system]["parameters"] for system in SYSTEMS},
        "rounds": {"run": len(taken), "counted": len(counted), "most_elsewhere": counted[-1]["elsewhere"]},
        "seconds": seconds,
        "losses": {system: [found[system]["loss"] for found in taken] for system in SYSTEMS},
        "tokens_per_second": {system: shape.tokens / statistics.median(steps) for system, steps in seconds.items()},
        "times_fairseq": {system: ratio(seconds["fairseq"], seconds[system]) for system in SYSTEMS},
        "share_of_matmul_bound": {system: ratio(seconds["matmul"], seconds[system]) for system in SYSTEMS},
        "peak_mib": {system: workers[system].ask("peak")["mib"] for system in SYSTEMS},
        "profile": {system: workers[system].ask("profile", batch=PROFILED_BATCH) for system in SYSTEMS},
    }
    for worker in workers.values():
        worker.end()
    return found


def _alternate(workers: dict, rounds: int) -> list:
    """Runs rounds of one step per system on the same batch, until `rounds` of them had few other programs.

    Returns:
        for each round {system: its answer, "elsewhere": share of the machine's processors that other programs used}
    """
    taken, quiet = [], 0
    last = {system: worker.ask("step", batch=0) for system, worker in workers.items()}
    while quiet < rounds and len(taken) < WARM_UP + ATTEMPTS * rounds:
        start, busy = time.perf_counter(), _busy()
        steps = {system: worker.ask("step", batch=len(taken) + 1) for system, worker in workers.items()}
        spent, busy = time.perf_counter() - start, _busy() - busy
        own = sum(steps[system]["processor_seconds"] - last[system]["processor_seconds"] for system in workers)
        elsewhere, last = max(busy - own, 0) / spent / os.cpu_count(), steps
        quiet += len(taken) >= WARM_UP and elsewhere <= ELSEWHERE
        taken.append(steps | {"elsewhere": elsewhere})
        shown = ", ".join(f"{system} {step['seconds']:.2f} s" for system, step in steps.items())
        _say(f"round {len(taken)}: {shown}; other programs {elsewhere:.0%} of the machine")
    return taken


def measure_memory(shape: Shape, device: str, log: Path) -> dict:
    """Measures the peak in MiB of model, gradients and activations: steps without update, one process at a time."""
    peaks = {}
    for system in SYSTEMS:
        worker = Worker(system, shape, device, log, optimize=False)
        worker.answer()
        for number in range(STEPS_FOR_MEMORY):
            worker.ask("step", batch=number)
        peaks[system] = worker.ask("peak")["mib"]
        worker.end()
        _say(f"vocabulary {shape.vocabulary}: {system} {peaks[system]:.0f} MiB")
    return {
        "vocabulary": shape.vocabulary,
        "peak_mib": peaks,
        "times_fairseq": {system: peaks[system] / peaks["fairseq"] for system in SYSTEMS},
    }


def ratio(over: list, under: list) -> dict:
    """The median over the rounds of over / under, and its 95 % interval from 10000 resamplings of the rounds."""
    ratios = np.array(over) / np.array(under)
    drawn = np.random.default_rng(0).choice(ratios, (10000, len(ratios)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return {"median": float(np.median(ratios)), "low": float(low), "high": float(high)}


def _busy() -> float:
    """Busy seconds of all processors together since the machine's start."""
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, _, _, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def surroundings(device: str) -> dict:
    """The machine and the versions of packages, as results have them."""
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
        machine = {"device": device, "processor": next(names, "unknown")}
    used = {name: versions()[name] for name in ("python", "torch", "fairseq", "numpy")}
    return {"machine": machine, "versions": used | {"transformers": version("transformers")}}


def _shape(device: str, changes: list) -> Shape:
    types = {field.name: field.type for field in fields(Shape)}
    values = dict(change.split("=", 1) for change in changes)
    unknown = sorted(values.keys() - types)
    if unknown:
        sys.exit(f"benchmark: --shape {unknown[0]}: expected one of {', '.join(types)}")
    return Shape(**asdict(SHAPES[device]) | {name: types[name](value) for name, value in values.items()})


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(prog="bash recipes/benchmark/run.sh", description=__doc__.split("\n")[0])
    parser.add_argument("output", type=Path, help="folder for benchmark.json, benchmark.png and profile.txt")
    parser.add_argument("--rounds", type=int, default=15, help="counted steps of each system (default: %(default)s)")
    parser.add_argument("--device", choices=SHAPES, default="cpu")
    parser.add_argument(
        "--shape", action="extend", nargs="*", default=[], metavar="KEY=VALUE", help="other sizes: layers=12 …"
    )
    parser.add_argument("--large-vocabulary", type=int, default=LARGE_VOCABULARY, help="second vocabulary, for memory")
    options = parser.parse_args()
    shape, log = _shape(options.device, options.shape), options.output / "workers.log"
    options.output.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    large = with_vocabulary(shape, options.large_vocabulary)
    found = surroundings(options.device) | {
        "shape": asdict(shape),
        "speed": measure_speed(shape, options.device, options.rounds, log),
        "memory": measure_memory(large, options.device, log),
    }
    (options.output / "benchmark.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    write_profile(found, options.output / "profile.txt")
    write_picture(found, options.output / "benchmark.png")


if __name__ == "__main__":
    main()
