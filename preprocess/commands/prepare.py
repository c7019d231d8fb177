"""Makes a data folder from raw text: sub-words, dictionary and binarized text.

    fairseq-xl data prepare corpora/my.yaml data-bin/my --jobs 16

An interrupted run is resumed. --check-only reads everything and lists what is wrong. --part 3/8 makes the third, 11th,
19th … shard of a description with `shards`: eight jobs of a SLURM array run `--part $SLURM_ARRAY_TASK_ID/8`.
"""

import argparse

from preprocess.commands import parser_of, run
from preprocess.pipeline import prepare


def main(words: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = parser_of(__name__)
    parser.add_argument("data_bin", nargs="?", metavar="DATA", help="folder to write; an interrupted run is resumed")
    parser.add_argument("--check-only", action="store_true", help="report on the input and stop")
    parser.add_argument("--part", type=part, metavar="I/N", help="of every N shards only the I-th, I from 1 to N")
    options = parser.parse_args(words)
    if options.data_bin is None and not options.check_only:
        parser.error("DATA is missing")
    arguments = options.config, options.data_bin, options.jobs, options.vocabulary_from, options.check_only
    return run(lambda: prepare(*arguments, part=options.part), options.data_bin)


def part(text: str) -> tuple[int, int]:
    """Returns 3/8 as (3, 8); raises `argparse.ArgumentTypeError`."""
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 0 < int(index) <= int(count)):
        raise argparse.ArgumentTypeError(f"expected I/N with I from 1 to N, found {text!r}")
    return int(index), int(count)
