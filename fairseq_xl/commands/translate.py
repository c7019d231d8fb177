"""Translates text: a line of output for each line of input, in order.

    fairseq-xl translate runs/my/en-de/checkpoint_best.pt data-bin/my -s en -t de --input text.en

The checkpoint is one of xl_translation, of xl_unsupervised_translation, or of another training in a direction. A blank
line gets a blank line. The text is read from standard input or --input in buffers, and the translations of a buffer are
written at once: with --buffer-size 1, before the next line is read. Truncated lines are named in a warning.
"""

from fairseq_xl.commands import DATA_OF_CHECKPOINT, Options, argument, command, flag
from fairseq_xl.commands.predict import TEXT, write_predictions


@command(
    argument("checkpoint", "checkpoint of a model that translates"),
    argument("data", DATA_OF_CHECKPOINT, nargs="?"),
    argument("-s --source-lang", "source language (default: as in training)", metavar="XX"),
    argument("-t --target-lang", "target language (default: as in training)", metavar="YY"),
    flag("--json", "write a JSON object for each line; null for a blank one"),
    *TEXT,
)
def main(options: Options) -> None:
    write_predictions(options)
