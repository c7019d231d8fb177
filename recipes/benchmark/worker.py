"""One system in a process of its own: it takes requests as JSON lines and answers each with one.

    python -m recipes.benchmark.worker '{"system": "fairseq", "shape": {…}, "device": "cpu", "optimise": true}'

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

    def __init__(self, system: str, shape: dict, device: str, optimise: bool):
        self.shape, self.device = Shape(**shape), device
        self.trainer: Products | Trainer
        torch.manual_seed(1)
        if system == "matmul":
            self.trainer, self.parameters = Products(self.shape, device), 0
            return
        Trainer(SYSTEMS[system](NANO), device).step(batch_of(NANO, 0, device))  # imports, code that is read when used
        self.before = _memory("VmRSS")
        trainer = Trainer(SYSTEMS[system](self.shape), device, optimise)
        self.trainer, self.parameters = trainer, sum(weights.numel() for weights in trainer.model.parameters())

    def step(self, batch: int) -> dict:
        """Seconds and loss (nats a prediction) of a step; its batch is made before the clock starts.

        `processor_seconds` are of this process from its start, over all of its threads.
        """
        made = batch_of(self.shape, batch, self.device)
        self._synchronise()
        start = time.perf_counter()
        loss = self.trainer.step(made)
        self._synchronise()
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "loss": None if loss != loss else loss, "processor_seconds": time.process_time()}

    def peak(self) -> dict:
        """Most memory so far, in MiB: resident, beyond what was there before the model; on CUDA, of tensors."""
        if self.device == "cuda":
            return {"mib": torch.cuda.max_memory_allocated() / MEBIBYTE}
        return {"mib": _memory("VmHWM") - self.before}

    def profile(self, batch: int) -> dict:
        """Milliseconds by kind of operation and by operator, see `breakdown.profiled`."""
        made = batch_of(self.shape, batch, self.device)
        return profiled(lambda: self.trainer.step(made), self.device)

    def _synchronise(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def _memory(line: str) -> float:
    """MiB that the kernel counts for this process: VmRSS, resident now, or VmHWM, the most so far."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(found.split()[1]) for found in status if found.startswith(line)) / 1024


def main() -> None:
    """The command."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
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
