"""Averages checkpoints of one model, which often scores higher than the last one (Vaswani et al. 2017, section 6.1).

fairseq has such a script in its repository, but pip does not install it, and it reads checkpoints unchecked.
"""

import argparse
import logging
import os

from fairseq_xl import register
from fairseq_xl.checkpoints.averaging import average, last_checkpoints
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import save_checkpoint

logger = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser("fairseq-xl average", description=__doc__)
    inputs = parser.add_mutually_exclusive_group(required=True)
    inputs.add_argument("--inputs", action="extend", nargs="+", metavar="FILE", help="the checkpoints, oldest first")
    inputs.add_argument("--last", nargs=2, metavar=("N", "FOLDER"), help="the newest N checkpoints of a run")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--epochs", action="store_true", help="with --last: checkpoints of epochs (the default)")
    kind.add_argument("--updates", action="store_true", help="with --last: checkpoints of --save-interval-updates")
    parser.add_argument("--output", required=True, metavar="FILE", help="where to write the average")
    options = parser.parse_args(arguments)
    if options.last:
        if not options.last[0].isdigit():
            parser.error(f"--last takes a number and a folder, not {options.last[0]!r}")
        paths = last_checkpoints(options.last[1], int(options.last[0]), by_update=options.updates)
    elif options.epochs or options.updates:
        parser.error("--epochs and --updates choose among the files of --last; --inputs names them")
    else:
        paths = options.inputs
    register()  # architectures say which of their options change the meaning of weights
    folder = os.path.dirname(options.output) or "."
    if not os.path.isdir(folder):
        raise UserError(f"--output {options.output}: there is no folder {folder}")
    save_checkpoint(average(paths), options.output)
    logger.info("averaged %s into %s", ", ".join(paths), options.output)
