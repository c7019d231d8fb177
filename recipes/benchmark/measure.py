"""Measures the training steps of `systems.SYSTEMS` and their matrix products, and writes the results.

python -m recipes.benchmark.measure OUTPUT_DIR [--quick] [--rounds 15] [--device cuda] [--shape layers=12] …
"""

import argparse
import json
import math
import os
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fairseq_xl.io.versions import versions
from recipes.benchmark.report import write_picture, write_profile
from recipes.benchmark.systems import (
    COMPILED,
    LARGE_VOCABULARY,
    OUTPUT_LOSSES,
    PRECISIONS,
    SHAPES,
    SYSTEMS,
    Shape,
    available_losses,
    changed,
    flops,
)
from recipes.benchmark.worker import OUT_OF_MEMORY

WARM_UP = 1  # rounds after the first step that do not count: they allocate memory and load code
STEPS_FOR_MEMORY = 3
PROFILED_BATCH = 10**6
ROUNDS = {"cpu": 15, "cuda": 8}
QUICK_ROUNDS = 5
ELSEWHERE = 0.05  # a round is repeated if other programs use a larger share of the CPUs
ATTEMPTS = 3  # maximum number of rounds per counted round; those with the smallest share of other programs count
EAGER = [system for system in SYSTEMS if system not in COMPILED]
LATE = "not done within --deadline"


class Case(NamedTuple):
    """A shape, a precision, and the systems and alternative losses of the output layer that are measured with them."""

    shape: Shape
    precision: str
    device: str
    systems: list[str]
    output_losses: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The title of the case: ``6 x 512, 8 x 256 tokens, vocabulary 32,000, float32``."""
        shape = self.shape
        sizes = f"{shape.layers} x {shape.embed_dim}, {shape.sentences} x {shape.length} tokens"
        return f"{sizes}, vocabulary {shape.vocabulary:,}, {self.precision}"


class Worker:
    """A process of `recipes.benchmark.worker` for one system.

    It starts with a request. After an error other than too little memory it is ended, since its GPU may stay unusable,
    and the next request starts a new one.

    Args:
        end: the time (`time.monotonic`) at which a request without an answer fails.
    """

    def __init__(self, system: str, device: str, backend: str, log: Path, end: float = math.inf):
        self.arguments, self.log, self.latest = [system, device, backend], log, end
        self.process: Any = None

    def ask(self, do: str, **request: Any) -> dict:
        """Sends a request and waits for its answer, {"failed": the reason} if there is none."""
        if self.process is None and do == "free":
            return {}
        seconds = self.latest - time.monotonic()
        answer = {"failed": LATE} if seconds <= 0 else self._answer(json.dumps({"do": do, **request}), seconds)
        if answer.get("failed", OUT_OF_MEMORY) != OUT_OF_MEMORY:
            self.end()
        return answer

    def _answer(self, request: str, seconds: float) -> dict:
        """Sends a request to the process, which it starts first if none runs; waits for the answer for `seconds`."""
        if self.process is None:
            with open(self.log, "a", encoding="utf-8") as errors:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "recipes.benchmark.worker", *self.arguments],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                )
        try:
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], None if seconds == math.inf else seconds)[0]:
                return {"failed": LATE}
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            return json.loads(line)
        return {"failed": f"the process ended with status {self.process.wait()}, see {self.log.name}"}

    def end(self) -> None:
        """Ends the process, if one runs."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


#: measurements of each system by `_measure_group`
QUANTITIES = ("failed", "rounds", "threads", "seconds", "losses", "parameters", "peak_mib", "output_seconds", "profile")


def measure_speed(case: Case, workers: dict, rounds: int, peak: float | None = None) -> dict:
    """Measures a case: steps, the output layer and its loss alone, peak memory, and a profile of each system.

    On CPU the systems take turns. On CUDA, whose memory they cannot share, one follows the other: --compile is the last
    of the systems, since compiling takes long, and the other losses follow. A system that fails is in `failed` only;
    without fairseq there are no ratios to it.

    Args:
        peak: floating-point operations per second of the GPU; None: unknown, and there are no shares of it.
    """
    names = [*case.systems, "matmul", *case.output_losses]
    names.sort(key=lambda name: (name in case.output_losses, name in COMPILED))
    case_workers = {system: workers[system] for system in names}
    groups = [case_workers] if case.device == "cpu" else [{system: worker} for system, worker in case_workers.items()]
    measured: dict[str, dict] = {quantity: {} for quantity in QUANTITIES}
    for group in groups:
        _measure_group(case, group, rounds, measured)
    seconds, output = measured["seconds"], measured.pop("output_seconds")
    return {
        "shape": asdict(case.shape),
        "precision": case.precision,
        "flops": flops(case.shape),
        "tokens_per_second": {
            system: case.shape.tokens / statistics.median(steps) for system, steps in seconds.items()
        },
        "times_fairseq": _ratios(seconds, "fairseq"),
        "share_of_matmul_bound": _ratios(seconds, "matmul"),
        "share_of_peak": {
            system: flops(case.shape) / statistics.median(steps) / peak for system, steps in seconds.items() if peak
        },
        "output_layer": {"seconds": output, "times_fairseq": _ratios(output, "fairseq")},
        **measured,
    }


def _ratios(seconds: dict, baseline: str) -> dict:
    """Returns {system: speed as a multiple of the baseline's}; {} if the baseline has failed."""
    systems = [system for system in seconds if system != "matmul" and baseline in seconds]
    return {system: ratio(seconds[baseline], seconds[system]) for system in systems}


def _ask_each(workers: dict, failed: dict, do: str, **request: Any) -> dict:
    """Returns {system: answer}; moves a system that fails from `workers` to `failed`."""
    answers = {system: worker.ask(do, **request) for system, worker in workers.items()}
    for system, answer in answers.items():
        if "failed" in answer:
            failed[system] = answer["failed"]
            _say(f"{system}: {do}: {answer['failed']}")
            workers.pop(system).ask("free")
    return {system: answers[system] for system in workers}


def _measure_group(case: Case, group: dict, rounds: int, measured: dict) -> None:
    """Measures systems that take turns, and adds {quantity: {system: value}} to `measured`.

    For `OUTPUT_LOSSES`, only the output layer is measured.
    """
    running, failed = dict(group), measured["failed"]
    _say(case.name)
    build = {"shape": asdict(case.shape), "precision": case.precision, "optimize": True}
    born = _ask_each(running, failed, "build", **build)
    losses = {loss: running.pop(loss) for loss in case.output_losses if loss in running}
    _ask_each(running, failed, "step", batch=0)
    taken = _alternate(running, failed, rounds, "step")
    peaks = _ask_each({system: worker for system, worker in running.items() if system != "matmul"}, failed, "peak")
    layers = {system: running[system] for system in peaks} | losses
    _ask_each(layers, failed, "output_step", batch=0)
    outputs = _quietest(_alternate(layers, failed, rounds, "output_step")[WARM_UP:], rounds)
    systems = {system: worker for system, worker in layers.items() if system in peaks}
    profiles = _ask_each(systems, failed, "profile", batch=PROFILED_BATCH)
    counted = _quietest(taken[WARM_UP:], rounds)
    for system in [system for system in group if system not in failed and system not in case.output_losses]:
        steps = [round[system] for round in taken]
        results = {
            "threads": born[system]["threads"],
            "seconds": [round[system]["seconds"] for round in counted],
            "rounds": {"run": len(taken), "counted": len(counted), "most_elsewhere": counted[-1]["elsewhere"]},
        }
        if system in systems:
            results |= {
                "losses": [step["loss"] for step in steps],
                "parameters": born[system]["parameters"],
                "peak_mib": peaks[system]["mib"],
                "profile": profiles[system],
            }
        for quantity, value in results.items():
            measured[quantity][system] = value
        group[system].ask("free")
    for system in [system for system in [*systems, *losses] if system not in failed]:
        measured["output_seconds"][system] = [round[system]["seconds"] for round in outputs]
    for loss in losses.keys() - failed.keys():
        losses[loss].ask("free")


def _alternate(workers: dict, failed: dict, rounds: int, do: str) -> list:
    """Runs rounds of one step per system on the same batch, until `rounds` of them had few other programs.

    Returns:
        for each round {system: its answer, "elsewhere": share of the machine's CPUs that other programs used}
    """
    taken, quiet = [], 0
    last = _ask_each(workers, failed, do, batch=0)
    while workers and quiet < rounds and len(taken) < WARM_UP + ATTEMPTS * rounds:
        start, busy = time.perf_counter(), _busy()
        steps = _ask_each(workers, failed, do, batch=len(taken) + 1)
        spent, busy = time.perf_counter() - start, _busy() - busy
        used = sum(steps[system]["processor_seconds"] - last[system]["processor_seconds"] for system in workers)
        elsewhere, last = max(busy - used, 0) / spent / os.cpu_count(), steps
        quiet += len(taken) >= WARM_UP and elsewhere <= ELSEWHERE
        taken.append(steps | {"elsewhere": elsewhere})
        shown = ", ".join(f"{system} {step['seconds']:.3f} s" for system, step in steps.items())
        _say(f"{do} {len(taken)}: {shown}; other programs {elsewhere:.0%} of the machine")
    return taken


def _quietest(taken: list, rounds: int) -> list:
    """Returns the `rounds` rounds with the smallest share of other programs, in order of that share."""
    return sorted(taken, key=lambda answers: answers["elsewhere"])[:rounds]


def measure_memory(case: Case, backend: str, log: Path, end: float = math.inf) -> dict:
    """Measures the peak in MiB of model, gradients and activations: steps without update, one process at a time."""
    peaks, failed = {}, {}
    for system in case.systems:
        worker = Worker(system, case.device, backend, log, end)
        running = {system: worker}
        _ask_each(running, failed, "build", shape=asdict(case.shape), precision=case.precision, optimize=False)
        for batch in range(STEPS_FOR_MEMORY):
            _ask_each(running, failed, "step", batch=batch)
        for answer in _ask_each(running, failed, "peak").values():
            peaks[system] = answer["mib"]
            _say(f"vocabulary {case.shape.vocabulary}: {system} {peaks[system]:.0f} MiB")
        worker.end()
    return {
        "vocabulary": case.shape.vocabulary,
        "peak_mib": peaks,
        "times_fairseq": {system: peak / peaks["fairseq"] for system, peak in peaks.items() if "fairseq" in peaks},
        "failed": failed,
    }


def measure_peaks(worker: Worker, precisions: list[str]) -> dict:
    """Returns {precision: floating-point operations per second of a large matrix product on the GPU}."""
    peaks = {}
    for precision in precisions:
        answer = worker.ask("peak_of_products", precision=precision)
        _say(f"peak, {precision}: {answer.get('flops_per_second', answer.get('failed'))}")
        if "failed" not in answer:
            peaks[precision] = answer["flops_per_second"]
    worker.ask("free")
    return peaks


def ratio(over: list, under: list) -> dict:
    """Returns the median of over / under, and its 95 % interval from 10000 resamplings of the rounds."""
    ratios = np.array(over) / np.array(under)
    resamples = np.random.default_rng(0).choice(ratios, (10000, len(ratios)))
    low, high = np.percentile(np.median(resamples, axis=1), [2.5, 97.5])
    return {"median": float(np.median(ratios)), "low": float(low), "high": float(high)}


def _busy() -> float:
    """Returns the busy seconds of all CPUs together since the machine's start."""
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, _, _, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def surroundings(device: str) -> dict:
    """Returns the machine and the versions of packages for results."""
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
        machine = {"device": device, "processor": next(names, "unknown")}
    if device == "cuda":
        import torch

        machine["gpu"] = torch.cuda.get_device_name()
    used = {name: versions()[name] for name in ("python", "torch", "fairseq", "numpy")}
    return {"machine": machine, "versions": used | {"transformers": version("transformers")}}


def cases(device: str, changes: list, precisions: list | None = None) -> list[Case]:
    """Lists the cases of a device; with `changes` (KEY=VALUE) one shape, the default with other sizes.

    --compile and other losses are measured in the first precision only: compiling takes a minute for each case.
    """
    losses = available_losses(device)
    shapes = [changed(SHAPES[device][0], changes)] if changes else SHAPES[device]
    return [
        Case(shape, precision, device, EAGER if i else list(SYSTEMS), [] if i else losses)
        for i, precision in enumerate(precisions or PRECISIONS[device])
        for shape in shapes
    ]


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(prog="bash recipes/benchmark/run.sh", description=__doc__.split("\n")[0])
    parser.add_argument("output", type=Path, help="folder for benchmark.json, benchmark.png and profile.txt")
    parser.add_argument("--rounds", type=int, help="counted steps of each system (default: 15, on CUDA 8)")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} counted steps of each system")
    parser.add_argument("--compile-backend", default="inductor", help="backend of --compile (default: %(default)s)")
    parser.add_argument("--device", choices=SHAPES, default="cpu")
    parser.add_argument("--precision", nargs="*", choices=("float32", "bfloat16"), help="default: that of the device")
    parser.add_argument(
        "--shape", action="extend", nargs="*", default=[], metavar="KEY=VALUE", help="other sizes: layers=12 …"
    )
    parser.add_argument(
        "--deadline",
        type=float,
        default=math.inf,
        metavar="SECONDS",
        help="unfinished measurements fail then (default: none; run.sh --device cuda: 460, with beam search)",
    )
    parser.add_argument("--large-vocabulary", type=int, default=LARGE_VOCABULARY, help="second vocabulary, for memory")
    options = parser.parse_args()
    end = time.monotonic() + options.deadline
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS[options.device])
    selected, log = cases(options.device, options.shape, options.precision), options.output / "workers.log"
    options.output.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    settings = (options.device, options.compile_backend, log, end)
    workers = {system: Worker(system, *settings) for system in [*SYSTEMS, "matmul", *OUTPUT_LOSSES]}
    results, peaks = surroundings(options.device) | {"cases": {}}, {}
    if options.device == "cuda":
        precisions = list(dict.fromkeys(case.precision for case in selected))
        results["peak_flops_per_second"] = peaks = measure_peaks(workers["matmul"], precisions)
    for case in selected:
        results["cases"][case.name] = measure_speed(case, workers, rounds, peaks.get(case.precision))
        _write(options.output, results)  # results stay if the program is stopped
    for worker in workers.values():
        worker.end()
    if options.device == "cpu":  # on CUDA each case has its own peak
        large = Case(replace(selected[0].shape, vocabulary=options.large_vocabulary), "float32", "cpu", EAGER)
        results["memory"] = measure_memory(large, options.compile_backend, log, end)
    _write(options.output, results)


def _write(output: Path, results: dict) -> None:
    """Writes all results so far."""
    (output / "benchmark.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    write_profile(results, output / "profile.txt")
    write_picture(results, output / "benchmark.png")


if __name__ == "__main__":
    main()
