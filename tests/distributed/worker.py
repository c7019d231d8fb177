"""One of two processes that run the command lines of FOLDER/jobs.json: python -m tests.distributed.worker FOLDER.

Each writes FOLDER/NAME.RANK.json: {"losses": {update: its micro-steps' losses as float.hex}, "loss": the log's,
"scores": {name in `SCORES`: the log's}, "waits": for each update what would wait for a GPU}. Only the updates of jobs
whose names begin with "sync" are watched for "waits"; those whose names begin with "mapped" map their bitext, and those
whose names begin with "overflow" have an `overflow`.
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

from fairseq_xl.criterions.pretraining import XLPretrainingCriterion
from fairseq_xl.engine.trainer import Trainer
from fairseq_xl.objectives import OBJECTIVES
from fairseq_xl.tasks import translation
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
def mapped_bitext():
    """Maps the lengths of bitext of any size, as of more than `IN_MEMORY_LINES` lines."""
    before, translation.IN_MEMORY_LINES = translation.IN_MEMORY_LINES, 0
    try:
        yield
    finally:
        translation.IN_MEMORY_LINES = before


@contextlib.contextmanager
def overflow():
    """Makes the gradients of the second update of pre-training infinite, once, on the last rank only."""
    forward, done = XLPretrainingCriterion.forward, []

    def infinite(self, model, sample, reduce=True):
        loss, size, log = forward(self, model, sample, reduce)
        last = distributed_utils.get_global_rank() == distributed_utils.get_global_world_size() - 1
        overflows = model.training and self.task.update_num == 1 and not done
        done.extend([1] * overflows)
        return loss * (math.inf if last and overflows else 1.0), size, log

    XLPretrainingCriterion.forward = infinite
    try:
        yield
    finally:
        XLPretrainingCriterion.forward = forward


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
        mapped = mapped_bitext() if name.startswith("mapped") else contextlib.nullcontext()
        overflows = overflow() if name.startswith("overflow") else contextlib.nullcontext()
        with one_run() as output, watched as waits, mapped, overflows:
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
