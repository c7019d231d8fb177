"""One of two processes that run the command lines of FOLDER/jobs.json: python -m tests.distributed.worker FOLDER.

Each writes FOLDER/NAME.RANK.json: {"losses": {update: its micro-steps' losses as float.hex}, "loss": the log's,
"scores": {name in `SCORES`: the log's}, "waits": for each update what would wait for a GPU}. Only the updates of jobs
whose names begin with "sync" are watched for "waits"; those whose names begin with "chunks" read it in chunks, and
those whose names begin with "overflow" have an `overflow`.
"""

import contextlib
import json
import math
import os
import sys
from pathlib import Path

from fairseq import options
from fairseq.distributed import utils as distributed_utils
from fairseq_cli import train

from fairseq_xl.data.plan import passes
from fairseq_xl.engine.trainer import Trainer
from fairseq_xl.objectives import OBJECTIVES
from fairseq_xl.tasks.base import XLTask
from tests.commands import CPU, configuration, one_run
from tests.distributed.headed import Headed
from tests.waits import Waits

#: scores that validation logs: of several tasks in one run, and of unsupervised translation of German and English
SCORES = [
    "score",
    *("bleu", "round_trip_bleu"),
    *(
        f"{name}_{direction}"
        for name in ("bleu", "round_trip_bleu", "wrong_language", "length_ratio")
        for direction in ("de-en", "en-de")
    ),
]


def scores_of(output):
    """{name in `SCORES`: its values in the log, as text}."""
    return {name: output.statistics(name) for name in SCORES}


@contextlib.contextmanager
def chunks():
    """Reads text in chunks of 50 lines."""
    before, passes.CHUNK = passes.CHUNK, 50
    try:
        yield
    finally:
        passes.CHUNK = before


@contextlib.contextmanager
def overflow():
    """Makes the gradients of the second update of pre-training infinite, once, on the last rank only."""
    step, done = XLTask.train_step, []

    class Infinite:
        """The optimizer of the run, with losses that are infinite on the last rank."""

        def __init__(self, optimizer):
            self.optimizer = optimizer

        def __getattr__(self, name):
            return getattr(self.optimizer, name)

        def backward(self, loss):
            self.optimizer.backward(loss * math.inf)

    def step_with_overflow(self, sample, model, criterion, optimizer, update_num, ignore_grad=False):
        last = distributed_utils.get_global_rank() == distributed_utils.get_global_world_size() - 1
        overflows = update_num == 1 and not done
        done.extend([1] * overflows)
        optimizer = Infinite(optimizer) if last and overflows else optimizer
        return step(self, sample, model, criterion, optimizer, update_num, ignore_grad)

    XLTask.train_step = step_with_overflow
    try:
        yield
    finally:
        XLTask.train_step = step


@contextlib.contextmanager
def watched_updates():
    """Yields a list, to which each update of the real trainer adds its `Waits.found`."""
    found, step = [], Trainer.train_step

    def watched_step(self, samples):
        with Waits() as waits:
            output = step(self, samples)
        found.append(waits.found)
        return output

    Trainer.train_step = watched_step
    try:
        yield found
    finally:
        Trainer.train_step = step


def main():
    folder = Path(sys.argv[1])
    OBJECTIVES[Headed.name] = Headed
    for name, line in json.loads((folder / "jobs.json").read_text(encoding="utf-8")).items():
        sys.stderr.write(f"{name}\n")
        sys.stderr.flush()
        watched = watched_updates() if name.startswith("sync") else contextlib.nullcontext([])
        in_chunks = chunks() if name.startswith("chunks") else contextlib.nullcontext()
        overflows = overflow() if name.startswith("overflow") else contextlib.nullcontext()
        with one_run() as output, watched as waits, in_chunks, overflows:
            distributed_utils.call_main(configuration(options.get_training_parser(), [*line, *CPU]), train.main)
        result = {
            "losses": output.updates,
            "loss": output.statistics("loss"),
            "scores": scores_of(output),
            "waits": waits,
        }
        (folder / f"{name}.{os.environ['RANK']}.json").write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
