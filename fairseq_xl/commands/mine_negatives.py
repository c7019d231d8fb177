"""Finds hard negatives for paraphrase classification (Huang et al. 2019, section 3).

Writes DATA/en-de/train.en-de.negatives.npy, which `paraphrase.negatives=mined` reads, and prints one JSON line of
statistics for every pair and split. A stopped run continues; finished files are not mined again.
"""

import argparse
import json
import sys

from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.errors import UserError, in_range, names_of
from fairseq_xl.io import bounds
from fairseq_xl.io.fingerprints import sha256_of
from fairseq_xl.mining.hard_negatives import SentenceVectors, mine, prefixes


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    options = _parser().parse_args(arguments)
    if options.length is not None and options.length < 2:
        raise UserError(f"--length {options.length}: a sentence has two tokens or more, of which </s> is one")
    vectors = SentenceVectors(options.checkpoint, options.data, options.pairs)
    longest = options.length or vectors.task.objectives["paraphrase_similarity"].input_length.text
    made_with = {"checkpoint": sha256_of(options.checkpoint)}
    splits = names_of("--splits", options.splits)
    for prefix in [prefix for split in splits for prefix in prefixes(vectors.task, options.data, split)]:
        pairs = SentencePairs(prefix, *prefix.parent.name.split("-"), len(vectors.task.dictionary))
        result = mine(vectors, pairs, options.count, options.exact_below, longest, made_with)
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("fairseq-xl mine-negatives", description=__doc__)
    parser.add_argument("checkpoint", help="checkpoint of --arch xl_dan")
    parser.add_argument("data", help="folder of binarized text")
    parser.add_argument("--pairs", help="language pairs, separated by commas (default: those of its training)")
    parser.add_argument("--splits", default="train,valid", help="splits, separated by commas (default: train,valid)")
    parser.add_argument(
        "--count",
        action=in_range(int, "1 or more", bounds.LARGEST_BEAM),
        default=1,
        help="negatives for each sentence; training samples one",
    )
    parser.add_argument(
        "--length",
        action=in_range(int),
        help="maximum tokens of a sentence: `paraphrase.length` of the training that uses the negatives (default: 128)",
    )
    parser.add_argument(
        "--exact-below",
        action=in_range(int, "0 or more"),
        default=100000,
        help="use an exact index for fewer distinct sentences than this",
    )
    return parser
