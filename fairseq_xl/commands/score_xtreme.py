"""Scores of XTREME from predictions in the form of its submissions.

    fairseq-xl score xtreme --predictions submission --references labels

XTREME distributes no labels of its test files: `labels` has them in the form of submissions, TASK/test-XX.tsv or .json.
Prints a table, in a pipe and with --json JSON: for each task with predictions, scores of each language with 95 %
bootstrap intervals, as XTREME's own program computes them. Averages stand beside published ones; those over some
languages or tasks are under `partial`. --compare gives the differences from figures of papers.
"""

from functools import partial
from typing import Any

from fairseq_xl.commands import Options, command
from fairseq_xl.evaluation.benchmarks import add_arguments, run, table
from fairseq_xl.evaluation.xtreme import BENCHMARK


@command(partial(add_arguments, benchmark=BENCHMARK), show=partial(table, benchmark=BENCHMARK))
def main(options: Options) -> dict[str, Any]:
    return run(BENCHMARK, options)
