"""Scores of XGLUE from predictions in the form of its submissions.

    fairseq-xl score xglue --predictions submission --references xglue_full_dataset --split dev

Prints for each task with predictions the scores of each language with 95 % bootstrap intervals, their average if no
language is missing, and published averages; averages over tasks if none of them is missing. Averages over some
languages of a task, or some tasks, are under `partial`, with their names. Scores are computed as in XGLUE's own
program.
"""

from functools import partial
from typing import Any

from fairseq_xl.commands import Options, command
from fairseq_xl.evaluation.benchmarks import add_arguments, run
from fairseq_xl.evaluation.xglue import BENCHMARK


@command(partial(add_arguments, benchmark=BENCHMARK))
def main(options: Options) -> dict[str, Any]:
    return run(BENCHMARK, options)
