"""Writes the sentence embeddings of lines of text, a row of a NumPy file (.npy, float32) for each line.

A sentence embedding is the mean of one layer's hidden states over the tokens, or the hidden state of the first token.
The text is read from standard input or --input, any number of lines; a part of it is in memory at a time. A blank line
has a row of zeros, and a line that is longer than the model's positions is truncated, with a warning. FILE.npy.json
names the checkpoint, layer, pooling and language. Prints one JSON line.
"""

import argparse
import json
import sys
from pathlib import Path

from tqdm import tqdm

from fairseq_xl.errors import positive_integer
from fairseq_xl.evaluation.prediction_folders import Origin, write_origin
from fairseq_xl.inference.embedder import BATCH_TOKENS, POOLINGS, add_choice, embedder_of
from fairseq_xl.io.checkpoints import found_in
from fairseq_xl.io.lines import read_buffers
from fairseq_xl.io.matrices import growing_matrix

BUFFERED = 10000  # lines; those of a buffer are sorted by length and batched


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    options = _parser().parse_args(arguments)
    embed = embedder_of(options, options.fp16)
    choice = embed.choice(options.layer, options.pooling)
    file, _ = found_in(options.checkpoint)
    origin = Origin.from_checkpoint(file, f"layer {choice[0]}, {choice[1]}")
    Path(f"{options.output}.json").unlink(missing_ok=True)  # of an earlier file
    lines = 0
    with (
        growing_matrix(options.output, embed.channels) as append,
        tqdm(unit=" lines", desc=options.output, disable=None) as progress,  # None: shown in a terminal only
    ):
        for sentences in read_buffers(options.input, options.buffer_size):
            append(embed(sentences, options.lang, [choice], options.max_tokens)[choice])
            lines += len(sentences)
            progress.update(len(sentences))
    write_origin(options.output, origin, language=options.lang)
    result = {"lines": lines, "channels": embed.channels, "layer": choice[0], "pooling": choice[1]}
    sys.stdout.write(json.dumps(result) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("fairseq-xl embed", description=__doc__)
    parser.add_argument("checkpoint", help="checkpoint of any task with an encoder")
    parser.add_argument(
        "data",
        nargs="?",
        help="its data folder (default: the checkpoint's folder if it has a dict.txt, else that of the training)",
    )
    parser.add_argument("--lang", required=True, help="language of the text")
    parser.add_argument("--output", required=True, metavar="FILE.npy", help="file to write")
    parser.add_argument("--input", metavar="FILE", help="text, plain or compressed (default: standard input)")
    parser.add_argument(
        "--language-module", metavar="FILE", help="language module in place of the checkpoint's (MonoTrans)"
    )
    add_choice(parser, ("default: the last", "default: mean"), POOLINGS[0])
    parser.add_argument("--fp16", action="store_true", help="16-bit weights: faster on a GPU")
    parser.add_argument(
        "--max-tokens",
        action=positive_integer,
        default=BATCH_TOKENS,
        help="tokens of a batch, with padding (default: %(default)s)",
    )
    parser.add_argument(
        "--buffer-size",
        action=positive_integer,
        default=BUFFERED,
        help="lines in memory at a time (default: %(default)s)",
    )
    return parser
