"""Maps embeddings of one language into those of another by VecMap's self-learning (Artetxe et al. 2018)."""

import argparse
import json
import sys

import numpy as np

from fairseq_xl.checkpoints.embedding_files import Vectors, read, space_of, write
from fairseq_xl.embeddings.mapping import STARTS, SelfLearning, first_pairs, learn
from fairseq_xl.errors import UserError, in_range, positive_integer


def main(arguments: list[str] | None = None) -> None:
    """Runs the command; prints one JSON line about the mapping."""
    parser = argparse.ArgumentParser("fairseq-xl map-embeddings", description=__doc__)
    parser.add_argument("source", help="embeddings to map, a file of `fairseq-xl skipgram`")
    parser.add_argument("target", help="embeddings to map into; they are not changed")
    parser.add_argument("output", help="file to write: the mapped source")
    parser.add_argument("--start", choices=STARTS, default="identical", help="how to make the first dictionary")
    parser.add_argument("--ignore-case", action="store_true", help="`identical` ignores case: pairs hotel with Hotel")
    parser.add_argument(
        "--min-length",
        action=positive_integer,
        default=1,
        help="minimum characters of a piece in `identical` (default: 1)",
    )
    parser.add_argument(
        "--seed", action=in_range(int, "0 or more"), default=1, help="seed of the random dropping of similarities"
    )
    options = parser.parse_args(arguments)
    source, target = read(options.source), read(options.target)
    if source.rows.shape[1] != target.rows.shape[1]:
        raise UserError(
            f"{options.source} has {source.rows.shape[1]} channels, {options.target} {target.rows.shape[1]}"
        )
    if options.start == "unsupervised" and (options.ignore_case or options.min_length != 1):
        raise UserError("--ignore-case and --min-length are for --start identical")
    settings = SelfLearning(seed=options.seed)
    pairs = first_pairs(options.start, source, target, settings, options.ignore_case, options.min_length)
    mapping, report = learn(source.rows, target.rows, pairs, settings)
    mapped = (source.rows @ mapping).astype(np.float32)
    write(Vectors(source.symbols, mapped, target.space or space_of(target.rows)), options.output)
    sys.stdout.write(json.dumps({"start": options.start, "pairs": len(pairs[0])} | report) + "\n")
