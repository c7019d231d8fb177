"""Predicts unlabeled text with a fine-tuned model: a line of output for each line of input, in order.

    fairseq-xl predict runs/my/nc/checkpoint_best.pt data-bin/my --lang de --input text.de

Fields are separated by tabs. By the task of the checkpoint, a line of input and of output has

xl_classification, one to three texts as in training: class, probability;
xl_ranking, a query and one or two texts as in training: score;
xl_tagging, words separated by spaces or tabs (other white space is part of a word): tags separated by spaces;
xl_question_answering, a context and a question: answer;
xl_generation, a text: title or other text.

A blank line gets a blank line. The text is read from standard input or --input in buffers, and the predictions of a
buffer are written at once: with --buffer-size 1, before the next line is read. Truncated lines are named in a warning.
`fairseq-xl translate` translates.
"""

import json
import sys
from typing import Any

from fairseq_xl import register
from fairseq_xl.commands import BEAM_SIZE, DATA_OF_CHECKPOINT, FP16, MODULE, Options, argument, command, flag
from fairseq_xl.errors import UserError, in_range, natural_number, positive_integer
from fairseq_xl.inference.decoding_options import check_options
from fairseq_xl.io.lines import BUFFERED, STANDARD_INPUT, read_buffers
from fairseq_xl.io.options import option_name

#: options of generation, which are those of fairseq-generate
GENERATION = ("beam", "max_len_a", "max_len_b", "lenpen", "no_repeat_ngram_size")


#: of `fairseq-xl translate` too
TEXT = (
    argument("--input", f"text, plain or compressed (default: {STANDARD_INPUT})", metavar="FILE"),
    FP16,
    argument("--max-tokens", "tokens of a batch, with padding", positive_integer, 4096),
    argument("--batch-size", "lines of a batch (default: any number)", positive_integer),
    argument("--buffer-size", f"lines read at a time (default: {BUFFERED}; 1 at a terminal)", positive_integer),
    argument("--beam", "beam size (default: 5)", BEAM_SIZE),
    argument(
        "--max-len-a",
        "a generated text has at most A * S + B tokens, where S is the number of tokens of the source (default: 0)",
        in_range(float, "0 or more"),
        metavar="A",
    ),
    argument("--max-len-b", "B in this number (default: 200)", natural_number, metavar="B"),
    argument("--lenpen", "length penalty; above 1 favors longer text (default: 1)", in_range(float)),
    argument("--no-repeat-ngram-size", "generate no n-gram of this size twice", natural_number),
)


@command(
    argument("checkpoint", "checkpoint of a fine-tuning task, of labelled objectives or xl_generation"),
    argument("data", DATA_OF_CHECKPOINT, nargs="?"),
    argument("--lang", "language of the text"),
    argument("--objective", "one of several labelled objectives of the model", metavar="NAME"),
    MODULE,
    flag("--json", "write a JSON object for each line; null for a blank one"),
    flag("--probabilities", "write all classes and their probabilities, in descending order"),
    *TEXT,
)
def main(options: Options) -> None:
    if options.json and options.probabilities:
        raise UserError("--probabilities: leave it out, --json has the probabilities of all classes")
    write_predictions(options)


def write_predictions(options: Options) -> None:
    """Writes what `fairseq_xl.inference.predictors.choose` predicts for the lines of the input."""
    generation = {name: getattr(options, name) for name in GENERATION if getattr(options, name) is not None}
    check_options(generation, option_name)
    register()
    from fairseq_xl.inference.predictors import choose

    predictor, first = choose(options, generation), 1
    for lines in read_buffers(options.input, options.buffer_size):
        for record in predictor(lines, first):
            sys.stdout.write(_shown(record, predictor, options) + "\n")
        sys.stdout.flush()
        first += len(lines)


def _shown(record: Any, predictor: Any, options: Options) -> str:
    if options.json:
        return json.dumps(record, ensure_ascii=False)
    if record is None:
        return ""
    if getattr(options, "probabilities", False):  # which translate lacks
        if "probabilities" not in record:
            raise UserError("--probabilities: the model has no classes")
        return "\t".join(f"{label}\t{probability:.6f}" for label, probability in record["probabilities"].items())
    return str(predictor.to_line(record))
