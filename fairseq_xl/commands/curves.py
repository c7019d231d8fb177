"""Draws training curves from logs of fairseq-train (train.log, or its ``--log-file``)."""

import argparse
import math

from fairseq_xl.errors import UserError, named_values
from fairseq_xl.evaluation.training_curves import draw, validation_curves
from fairseq_xl.io.files import write_json


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser("fairseq-xl curves", description=__doc__)
    parser.add_argument("logs", nargs="+", metavar="NAME=LOG", help="name in the legend and log file")
    parser.add_argument(
        "--output",
        required=True,
        help="picture to write; or FILE.json for validation values: {NAME: {values: {updates: value}, last: value}}",
    )
    parser.add_argument("--metric", default="loss", help="metric to draw: loss, ppl, mlm_loss, …")
    parser.add_argument("--over", default="updates", choices=("updates", "tokens"), help="unit of the horizontal axis")
    parser.add_argument(
        "--line",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a horizontal line, such as the cross-entropy of an n-gram model (pictures only)",
    )
    options = parser.parse_args(arguments)
    logs = named_values("", options.logs, "NAME=LOG")
    if options.output.endswith(".json"):
        if options.line:
            raise UserError(f"--line draws into a picture, and --output {options.output} is none")
        write_json(options.output, validation_curves(logs, options.metric, options.over))
    else:
        draw(logs, options.output, options.metric, options.over, dict(named_number(line) for line in options.line))


def named_number(text: str) -> tuple[str, float]:
    """Reads NAME=VALUE."""
    name, _, digits = text.rpartition("=")
    try:
        value = float(digits)
    except ValueError:
        value = math.nan
    if not name or not math.isfinite(value):
        raise UserError(f"--line {text}: expected NAME=VALUE with a finite number")
    return name, value
