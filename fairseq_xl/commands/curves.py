"""Draws training curves from logs of fairseq-train (its output or its ``--log-file``, with ``--log-format json``)."""

import argparse

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.curves import draw


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser("fairseq-xl curves", description=__doc__)
    parser.add_argument("logs", nargs="+", metavar="NAME=LOG", help="name in the legend and log file")
    parser.add_argument("--output", required=True, help="picture to write")
    parser.add_argument("--metric", default="loss", help="metric to draw: loss, ppl, mlm_loss, …")
    options = parser.parse_args(arguments)
    if any("=" not in log for log in options.logs):
        raise UserError(f"expected NAME=LOG, not {' '.join(options.logs)}")
    draw(dict(log.split("=", 1) for log in options.logs), options.output, options.metric)
