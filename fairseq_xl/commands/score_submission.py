"""Converts predictions of a fine-tuned model to the submission format of XGLUE or XTREME.

    fairseq-xl score submission xglue NER runs/my/ner/predictions submission --split valid

PREDICTIONS is a folder that fairseq-validate wrote with --predictions-to, or of XGLUE's NTG and QG the folder of
LANGUAGE/generate-SPLIT.txt, which fairseq-generate wrote with --results-path FOLDER/LANGUAGE. `fairseq-xl
score BENCHMARK --predictions DEST` scores the result.
"""

import logging
from pathlib import Path

from fairseq_xl.commands import Options, argument, command
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.benchmarks import write_submission
from fairseq_xl.evaluation.score_files import BENCHMARKS

logger = logging.getLogger(__name__)


@command(
    argument("benchmark", "of the task", choices=BENCHMARKS),
    argument("task", "name of the task: NER, XNLI, … or panx, xnli, …"),
    argument("predictions", "folder of SPLIT.LANGUAGE files", type=Path),
    argument("destination", "folder of the submission", type=Path, metavar="DEST"),
    argument("--split", "split of PREDICTIONS", default="test"),
)
def main(options: Options) -> None:
    all_tasks = BENCHMARKS[options.benchmark].tasks
    tasks = {name: task for name, task in all_tasks.items() if task.kinds}  # all but XTREME's retrieval
    if options.task not in all_tasks:
        raise UserError(f"{options.task} is not one of {options.benchmark}'s tasks {', '.join(all_tasks)}")
    if options.task not in tasks:
        raise UserError(
            f"{options.task}: submission converts predictions of {', '.join(tasks)}; write it with `fairseq-xl search "
            "xtreme`"
        )
    paths = write_submission(tasks[options.task], options.predictions, options.destination, options.split)
    logger.info("%s: %d languages, %s", options.task, len(paths), ", ".join(map(str, paths[:3])))
