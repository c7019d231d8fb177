"""Measures one system in its own process: reads requests as JSON lines and answers each with a JSON line.

    python -m recipes.benchmark.worker '{"system": "fairseq", "shape": {…}, "device": "cpu", "optimize": true}'

Requests: {"do": "step", "batch": 3}, {"do": "peak"}, {"do": "profile", "batch": 3}. The first answer, without a
request, has the number of parameters.
"""

import json
import os
import sys
import time

import torch

from recipes.benchmark.breakdown import profiled
from recipes.benchmark.systems import NANO, SYSTEMS, Products, Shape, Trainer, batch_of

MEBIBYTE = 2**20


class Worker:
    """Builds the system and measures it."""

    def __init__(self, system: str, shape: dict, device: str, optimize: bool):
        self.shape, self.device = Shape(**shape), device
        self.trainer: Products | Trainer
        torch.manual_seed(1)
        if system == "matmul":
            self.trainer, self.parameters = Products(self.shape, device), 0
            return
        Trainer(SYSTEMS[system](NANO), device).step(batch_of(NANO, 0, device))  # loads code, which uses memory too
        self.before = _memory("VmRSS")
        trainer = Trainer(SYSTEMS[system](self.shape), device, optimize)
        self.trainer, self.parameters = trainer, sum(weights.numel() for weights in trainer.model.parameters())

    def step(self, batch: int) -> dict:
        """Takes a step and returns its seconds and loss (nats per prediction). Making the batch is not timed.

        `processor_seconds` is the CPU time of all threads of this process since its start.
        """
        made = batch_of(self.shape, batch, self.device)
        self._synchronize()
        start = time.perf_counter()
        loss = self.trainer.step(made)
        self._synchronize()
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "loss": None if loss != loss else loss, "processor_seconds": time.process_time()}

    def peak(self) -> dict:
        """Peak memory in MiB: resident memory minus that before the model was built; on CUDA memory of tensors."""
        if self.device == "cuda":
            return {"mib": torch.cuda.max_memory_allocated() / MEBIBYTE}
        return {"mib": _memory("VmHWM") - self.before}

    def profile(self, batch: int) -> dict:
        """Profiles a step: milliseconds by kind of operation and by operator (`breakdown.profiled`)."""
        made = batch_of(self.shape, batch, self.device)
        return profiled(lambda: self.trainer.step(made), self.device)

    def _synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def _memory(line: str) -> float:
    """Resident memory of this process in MiB as the kernel counts it: VmRSS, now, or VmHWM, the peak."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(found.split()[1]) for found in status if found.startswith(line)) / 1024


def main() -> None:
    """Answers requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries may print to stdout, which is for answers
    worker = Worker(**json.loads(sys.argv[1]))
    answer = {"parameters": worker.parameters, "threads": torch.get_num_threads()}
    while True:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        request = sys.stdin.readline()
        if not request:
            return
        request = json.loads(request)
        answer = getattr(worker, request.pop("do"))(**request)


if __name__ == "__main__":
    main()
