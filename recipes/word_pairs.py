"""Makes dictionaries of words from aligned lines of one word in both languages.

    python -m recipes.word_pairs FOLDER OUTPUT --pairs en-de,en-fr

Reads all splits of FOLDER/bitext: in LibreOffice help, one-word lines are headings and names of menus, buttons and
options. Writes OUTPUT/en-de.txt with a pair of words on each line, separated by a tab. Two words are a pair if each is
the most frequent translation, the first of equally frequent ones, of the other word.
"""

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

from fairseq_xl.errors import UserError, names_of
from fairseq_xl.io import error_reporting
from fairseq_xl.io.compressed import stored
from fairseq_xl.io.files import replacing
from fairseq_xl.io.lines import read_lines

WORD = re.compile(r"[^\W\d_][\w'’·\u0900-\u0dff-]*")  # begins with a letter; vowel signs of Indic scripts are no \w
SPLITS = ("train", "valid", "test")


def word_pairs(folder: Path, pair: str) -> list[tuple[str, str]]:
    """Returns the pairs of words of two languages; raises `UserError` if there is none."""
    if pair.count("-") != 1:
        raise UserError(f"--pairs {pair}: expected a pair such as en-de")
    counts: Counter[tuple[str, str]] = Counter()
    for split in SPLITS:
        paths = [folder / f"bitext/{split}.{pair}.{code}" for code in pair.split("-")]
        if all(stored(path).is_file() for path in paths):
            sides = [read_lines(path) for path in paths]
            if len(sides[0]) != len(sides[1]):
                raise UserError(f"{paths[0]} has {len(sides[0])} lines, {paths[1]} has {len(sides[1])}")
            lines = zip(*([line.strip() for line in side] for side in sides))
            counts.update(line for line in lines if all(WORD.fullmatch(word) for word in line))
    best: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for first, second in sorted(counts, key=lambda words: -counts[words]):  # a stable order
        best[0].setdefault(first, second)
        best[1].setdefault(second, first)
    pairs = [(first, second) for first, second in best[0].items() if best[1][second] == first]
    if not pairs:
        raise UserError(f"{folder}/bitext: no aligned lines of {pair} are one word in both languages")
    return pairs


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m recipes.word_pairs", description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="the corpus folder")
    parser.add_argument("output", type=Path, help="folder to write to")
    parser.add_argument("--pairs", required=True, help="pairs of languages, separated by commas")
    options = parser.parse_args(arguments)
    error_reporting.install()
    options.output.mkdir(parents=True, exist_ok=True)
    for pair in names_of("--pairs", options.pairs):
        words = word_pairs(options.folder, pair)
        with replacing(options.output / f"{pair}.txt") as file:
            file.write("".join(f"{first}\t{second}\n" for first, second in words).encode("utf-8"))
        sys.stderr.write(f"{pair}: {len(words)} pairs of words\n")


if __name__ == "__main__":
    main(sys.argv[1:])
