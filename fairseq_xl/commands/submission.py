"""Converts predictions of a fine-tuned model to the submission format of XGLUE or XTREME.

PREDICTIONS is a folder that fairseq-validate wrote with --predictions-to. `fairseq-xl score BENCHMARK --predictions
DEST` scores the result.
"""

import argparse
import logging
from pathlib import Path

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.benchmarks import write_submission
from fairseq_xl.evaluation.score_files import BENCHMARKS

logger = logging.getLogger(__name__)

WITHOUT = ("QG", "NTG", "bucc2018", "tatoeba")  # tasks that fairseq-validate does not predict


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser("fairseq-xl submission", description=__doc__)
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parser.add_argument("task", help="name of the task: NER, XNLI, … or panx, xnli, …")
    parser.add_argument("predictions", type=Path, metavar="PREDICTIONS", help="folder of SPLIT.LANGUAGE files")
    parser.add_argument("destination", type=Path, metavar="DEST", help="folder of the submission")
    parser.add_argument("--split", default="test", help="split of PREDICTIONS (default: %(default)s)")
    options = parser.parse_args(arguments)
    all_tasks = BENCHMARKS[options.benchmark].tasks
    tasks = {name: task for name, task in all_tasks.items() if name not in WITHOUT}
    if options.task not in all_tasks:
        raise UserError(f"{options.task} is not one of {options.benchmark}'s tasks {', '.join(all_tasks)}")
    if options.task not in tasks:
        elsewhere = {"xglue": "fairseq-xl score bleu --save", "xtreme": "fairseq-xl retrieve-xtreme"}
        raise UserError(
            f"{options.task}: submission converts predictions of fairseq-validate, for {', '.join(tasks)}; write it "
            f"with `{elsewhere[options.benchmark]}`"
        )
    paths = write_submission(tasks[options.task], options.predictions, options.destination, options.split)
    logger.info("%s: %d languages, %s", options.task, len(paths), ", ".join(map(str, paths[:3])))
