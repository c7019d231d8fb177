"""Writes the sentence embeddings of lines of text, a row of a NumPy file (.npy, float32) for each line.

    fairseq-xl embed runs/my/pretrain/checkpoint_best.pt data-bin/my --lang de --input text.de --output de.npy

A sentence embedding is the mean of one layer's hidden states over the tokens, or the hidden state of the first token.
The text is read from standard input or --input, any number of lines; a part of it is in memory at a time. A blank line
has a row of zeros, and a line that is longer than the model's positions is truncated, with a warning. FILE.npy.json
names the checkpoint, layer, pooling and language. Of a model that was a folder of sentence-transformers, pooling,
length, normalization and the default prompt are those of the folder.
"""

from pathlib import Path
from typing import Any

from tqdm import tqdm

from fairseq_xl.commands import DATA_OF_CHECKPOINT, ENCODER, MODULE, Options, argument, command, embedding_options
from fairseq_xl.errors import positive_integer
from fairseq_xl.evaluation.prediction_folders import Origin, write_origin
from fairseq_xl.io.arrays import growing_matrix
from fairseq_xl.io.lines import read_buffers

BUFFERED = 10000  # lines; those of a buffer are sorted by length and batched


@command(
    ENCODER,
    argument("data", DATA_OF_CHECKPOINT, nargs="?"),
    argument("--lang", "language of the text", required=True),
    argument("--output", "file to write", required=True, metavar="FILE.npy"),
    argument("--input", "text, plain or compressed (default: standard input)", metavar="FILE"),
    *embedding_options("default: the last layer; mean, or as in sentence-transformers", MODULE),
    argument("--max-tokens", "tokens of a batch, with padding", positive_integer, 4096),
    argument("--buffer-size", "lines in memory at a time", positive_integer, BUFFERED),
)
def main(options: Options) -> dict[str, Any]:
    from fairseq_xl.checkpoints.identity import found_in
    from fairseq_xl.inference.embedder import embedder_of

    embed = embedder_of(options, options.fp16, options.prompt)
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
            rows = embed.sentence_embeddings(sentences, options.lang, [choice], batch_tokens=options.max_tokens)
            append(rows[choice])
            lines += len(sentences)
            progress.update(len(sentences))
    write_origin(options.output, origin, language=options.lang)
    return {"lines": lines, "channels": embed.channels, "layer": choice[0], "pooling": choice[1]}
