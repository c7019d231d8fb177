"""Draws training curves from logs of fairseq-train (train.log, or its ``--log-file``)."""

import math

from fairseq_xl.commands import Options, argument, command, several
from fairseq_xl.errors import UserError, named_values
from fairseq_xl.evaluation.training_curves import draw, validation_curves
from fairseq_xl.io.files import write_json


@command(
    argument("logs", "name in the legend and log file", nargs="+", metavar="NAME=LOG"),
    argument(
        "--output",
        "picture to write; or FILE.json for validation values: {NAME: {values: {updates: value}, last: value}}",
        required=True,
    ),
    argument("--metric", "metric to draw: loss, ppl, mlm_loss, …", default="loss"),
    argument("--over", "unit of the horizontal axis", default="updates", choices=("updates", "tokens")),
    several("--line", "a horizontal line of a picture, such as the loss of an n-gram model", "NAME=VALUE", "append"),
)
def main(options: Options) -> None:
    logs = named_values("", options.logs, "NAME=LOG")
    if options.output.endswith(".json"):
        if options.line:
            raise UserError(f"--line draws into a picture, and --output {options.output} is none")
        write_json(options.output, validation_curves(logs, options.metric, options.over))
    else:
        draw(logs, options.output, options.metric, options.over, dict(map(_named_number, options.line)))


def _named_number(text: str) -> tuple[str, float]:
    """Reads NAME=VALUE."""
    name, _, digits = text.rpartition("=")
    try:
        value = float(digits)
    except ValueError:
        value = math.nan
    if not name or not math.isfinite(value):
        raise UserError(f"--line {text}: expected NAME=VALUE with a finite number")
    return name, value
