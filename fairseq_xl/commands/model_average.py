"""Averages checkpoints of one model, which often scores higher than the last one (Vaswani et al. 2017, section 6.1).

    fairseq-xl model average --last 5 runs/my/en-de --output runs/my/average.pt

fairseq has such a script in its repository, but pip does not install it, and it reads checkpoints unchecked.
"""

import logging
import os
from typing import Any

from fairseq_xl.commands import Options, argument, command, flag
from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)


def _inputs(parser: Any) -> None:
    inputs = parser.add_mutually_exclusive_group(required=True)
    argument("--inputs", "the checkpoints, oldest first", action="extend", nargs="+", metavar="FILE")(inputs)
    argument("--last", "the newest N checkpoints of a run", nargs=2, metavar=("N", "FOLDER"))(inputs)


@command(
    _inputs,
    flag("--updates", "with --last: checkpoints of --save-interval-updates, not of epochs"),
    argument("--output", "where to write the average", required=True, metavar="FILE"),
)
def main(options: Options) -> None:
    from fairseq_xl.checkpoints.averaging import average, last_checkpoints
    from fairseq_xl.io.checkpoints import save_checkpoint

    if options.last:
        if not options.last[0].isdigit():
            raise UserError(f"--last takes a number and a folder, not {options.last[0]!r}")
        paths = last_checkpoints(options.last[1], int(options.last[0]), by_update=options.updates)
    elif options.updates:
        raise UserError("--updates chooses among the files of --last; --inputs names them")
    else:
        paths = options.inputs
    folder = os.path.dirname(options.output) or "."
    if not os.path.isdir(folder):
        raise UserError(f"--output {options.output}: there is no folder {folder}")
    save_checkpoint(average(paths), options.output)
    logger.info("averaged %s into %s", ", ".join(paths), options.output)
