"""Measures one system in its own process: reads requests as JSON lines and answers each with a JSON line.

    python -m recipes.benchmark.worker SYSTEM DEVICE BACKEND

Requests: {"do": "build", "shape": {…}, "precision": "float32", "optimize": true}, {"do": "step", "batch": 3},
{"do": "output_step", "batch": 3}, {"do": "peak"}, {"do": "profile", "batch": 3}, {"do": "free"}; on a GPU also
{"do": "peak_of_products", "precision": "float32"}. A request that fails gets the answer {"failed": FIRST_LINE}, the
error's first line; its traceback goes to standard error.
"""

import functools
import gc
import json
import logging
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch

from recipes.benchmark.breakdown import profiled
from recipes.benchmark.systems import (
    COMPILED,
    NANO,
    SYSTEMS,
    Batch,
    Products,
    Shape,
    System,
    Trainer,
    batch_of,
    with_loss,
)

MEBIBYTE = 2**20
OUT_OF_MEMORY = "out of memory"
PEAK_SIZE, PEAK_PRODUCTS = 8192, 20  # size and number of the matrix products that measure the peak of a GPU


class Worker:
    """Builds a system and measures it."""

    def __init__(self, system: str, device: str, backend: str):
        self.system, self.device, self.backend = system, device, backend
        self.trainer: Any = None
        self.before = 0.0  # MiB before the first system was built

    def build(self, shape: dict, precision: str, optimize: bool) -> dict:
        """Builds the system; returns the counts of its parameters and of threads."""
        self.shape = Shape(**shape)
        torch.manual_seed(1)
        if self.system == "matmul":
            self.trainer = Products(self.shape, self.device, precision)
            return {"parameters": 0, "threads": torch.get_num_threads()}
        make: Callable[..., System] = SYSTEMS.get(self.system) or functools.partial(with_loss, self.system)
        if self.system in COMPILED:
            make = functools.partial(make, backend=self.backend)
        if not self.before:  # the memory of code is not counted
            Trainer(make(NANO), self.device, optimize, precision).step(batch_of(NANO, 0, self.device))
            self.before = _memory("VmRSS")
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        self.trainer = Trainer(make(self.shape), self.device, optimize, precision)
        parameters = sum(weights.numel() for weights in self.trainer.model.parameters())
        return {"parameters": parameters, "threads": torch.get_num_threads()}

    def free(self) -> dict:
        """Frees the system and, on CUDA, all of its memory."""
        self.trainer = None
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()
        return {}

    def step(self, batch: int) -> dict:
        """Takes a step; returns its seconds, without making the batch, and its loss (nats per prediction).

        `processor_seconds` is the CPU time of all threads of this process since its start.
        """
        return self._timed(self.trainer.step, batch)

    def output_step(self, batch: int) -> dict:
        """Takes a step of the output layer and its loss alone; returns the values of `step`."""
        return self._timed(self.trainer.output_step, batch)

    def _timed(self, step: Callable[[Batch], float], batch: int) -> dict:
        inputs = batch_of(self.shape, batch, self.device)
        self._synchronize()
        start = time.perf_counter()
        loss = step(inputs)
        self._synchronize()
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "loss": None if loss != loss else loss, "processor_seconds": time.process_time()}

    def peak(self) -> dict:
        """Returns peak memory in MiB: resident memory minus that before the model was built; on CUDA of tensors."""
        if self.device == "cuda":
            return {"mib": torch.cuda.max_memory_allocated() / MEBIBYTE}
        return {"mib": _memory("VmHWM") - self.before}

    def profile(self, batch: int) -> dict:
        """Profiles a step: milliseconds by kind of operation and by operator (`breakdown.profiled`)."""
        inputs = batch_of(self.shape, batch, self.device)
        return profiled(lambda: self.trainer.step(inputs), self.device)

    def peak_of_products(self, precision: str) -> dict:
        """Returns the floating-point operations per second of a large matrix product on the GPU, a median."""
        options: Any = {"device": self.device, "dtype": getattr(torch, precision)}
        left, right = (torch.randn(PEAK_SIZE, PEAK_SIZE, **options) for _ in range(2))
        seconds = []
        for _ in range(PEAK_PRODUCTS):
            self._synchronize()
            start = time.perf_counter()
            torch.mm(left, right)
            self._synchronize()
            seconds.append(time.perf_counter() - start)
        return {"flops_per_second": 2 * PEAK_SIZE**3 / statistics.median(seconds)}

    def _synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def _memory(name: str) -> float:
    """Returns the resident memory of this process in MiB: VmRSS, now, or VmHWM, the peak."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(entry.split()[1]) for entry in status if entry.startswith(name)) / 1024


def is_out_of_memory(error: Exception) -> bool:
    """Tells whether memory ran out, on a GPU or on CPU, where torch raises a RuntimeError."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)


def failure(error: Exception) -> str:
    """Returns the first line of an error, with its type, or `OUT_OF_MEMORY`."""
    return OUT_OF_MEMORY if is_out_of_memory(error) else f"{type(error).__name__}: {error}".strip().splitlines()[0]


def main() -> None:
    """Answers requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries may print to stdout, which is for answers
    logging.getLogger("filelock").setLevel(logging.WARNING)  # fairseq leaves the root logger at DEBUG
    worker = Worker(*sys.argv[1:])
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(worker, request.pop("do"))(**request)
        except Exception as error:  # of any system; the others continue
            traceback.print_exc()
            answer = {"failed": failure(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
