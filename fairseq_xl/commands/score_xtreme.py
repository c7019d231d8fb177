"""Scores of XTREME from predictions in the form of its submissions.

Prints one JSON line: for each task with predictions the scores of each language with 95 % bootstrap intervals, their
average if no language is missing, and published averages; averages over tasks if none of them is missing. Averages over
some languages of a task, or some tasks, are under `partial`, with their names. Scores are computed as in
XTREME's own program.
"""

from fairseq_xl.evaluation.benchmarks import run
from fairseq_xl.evaluation.xtreme import BENCHMARK


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    run(BENCHMARK, __doc__, arguments)
