"""Holds out lines of a fine-tuning task's training file, by a hash of their text.

    fairseq-xl data split xqa/train.en.tsv xqa/train.fr.tsv xqa/train.de.tsv corpora/xqa --count 5000

DEST gets train.en.tsv and valid.en.tsv; a FILE may be of any split, such as test.en.tsv. Lines with the same first
text, the one after the label, stay together: those with the smallest hashes are held out. Further files are
translations of the first one, line by line, and are split at the same lines. A line is an example of classification or
ranking, or a source or target (train.en.src, train.en.tgt).
"""

import hashlib
import logging
import re
from pathlib import Path

from fairseq_xl.commands import parser_of
from fairseq_xl.errors import UserError, in_range
from fairseq_xl.io.compressed import without_suffix
from fairseq_xl.io.files import write_lines
from fairseq_xl.io.lines import read_lines
from fairseq_xl.io.text import is_blank
from preprocess.commands import run

SPLITS = ("train", "valid")
FILE = re.compile(r"[^.]+(\.[^.]+\.(?:tsv|src|tgt))")


def held_out_lines(lines: list[str], count: int) -> set[int]:
    """Returns the indices of `count` lines or, since those of one text stay together, of a few more."""
    groups: dict[str, list[int]] = {}
    for i, line in enumerate(lines):
        _, tab, texts = line.partition("\t")
        groups.setdefault(texts.partition("\t")[0] if tab else line, []).append(i)
    held_out: set[int] = set()
    for text in sorted(groups, key=lambda text: hashlib.sha256(text.encode()).digest()):
        if len(held_out) >= count:
            break
        held_out.update(groups[text])
    return held_out


def split(paths: list[Path], destination: Path, count: int) -> None:
    """Writes the files of both splits to the folder `destination`; raises UserError for files that it cannot split."""
    endings: dict[str, Path] = {}
    for path in paths:
        match = FILE.fullmatch(without_suffix(path.name))
        if match is None:
            raise UserError(f"{path}: expected a file SPLIT.LANGUAGE.tsv, .src or .tgt")
        if match[1] in endings:
            raise UserError(f"{path}: {endings[match[1]]} too would become train{match[1]} and valid{match[1]}")
        endings[match[1]] = path
    files = {path: read_lines(path) for path in paths}
    for path, lines in files.items():
        if path.resolve().parent == destination.resolve():
            raise UserError(f"{path} would be replaced: DEST must be another folder than that of the file")
        if len(lines) != len(files[paths[0]]):
            raise UserError(f"{path} has {len(lines)} lines but {paths[0]} has {len(files[paths[0]])}")
        if blank := next((number for number, line in enumerate(lines, start=1) if is_blank(line)), 0):
            raise UserError(f"{path}, line {blank}: an empty line; expected an example on each line")
    held_out = held_out_lines(files[paths[0]], count)
    if len(held_out) == len(files[paths[0]]):
        raise UserError(f"--count {count}: {paths[0]} has no line left to train on")
    for ending, path in endings.items():
        lines = files[path]
        for name in SPLITS:
            part = [line for i, line in enumerate(lines) if (i in held_out) == (name == "valid")]
            write_lines(destination / f"{name}{ending}", part)
    more = f": --count {count}, and lines with the same first text stay together" if len(held_out) > count else ""
    logging.getLogger("preprocess").info(
        "%s: %d of %d lines are held out%s", paths[0], len(held_out), len(files[paths[0]]), more
    )


def main(words: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = parser_of(__name__)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="SPLIT.LANGUAGE.SUFFIX")
    parser.add_argument("destination", type=Path, metavar="DEST", help="folder to write")
    count = in_range(int, "1 or more")
    parser.add_argument("--count", action=count, required=True, metavar="N", help="lines of the validation file")
    options = parser.parse_args(words)
    return run(lambda: split(options.files, options.destination, options.count), options.destination)
