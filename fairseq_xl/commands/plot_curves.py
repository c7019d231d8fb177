"""Draws training curves from logs of fairseq-train.

    fairseq-xl plot curves --metric ppl --output curves.png pretraining=runs/my/pretrain/train.log

A log is train.log, or the file of its ``--log-file``.
"""

from fairseq_xl.commands import Options, argument, command
from fairseq_xl.errors import named_values
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
)
def main(options: Options) -> None:
    logs = named_values("", options.logs, "NAME=LOG")
    if options.output.endswith(".json"):
        write_json(options.output, validation_curves(logs, options.metric))
    else:
        draw(logs, options.output, options.metric)
