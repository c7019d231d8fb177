"""Normalizes Romanian text from standard input to standard output.

    fairseq-xl data romanian --remove-diacritics

Replaces s and t with a cedilla by the correct letters with a comma below. Some Romanian text has no diacritics;
--remove-diacritics removes them everywhere. The letters are those of the two programs of Sennrich et al. 2016,
*Edinburgh Neural Machine Translation Systems for WMT 16*, which XLM's commands run.
"""

import re
import sys
from pathlib import Path

from fairseq_xl.commands import parser_of
from fairseq_xl.errors import UserError
from fairseq_xl.io.compressed import stored
from preprocess.commands import run
from preprocess.files import read_blocks

LANGUAGE = "ro"
REMOVE_DIACRITICS = "write a, a, i, s, t in place of ă, â, î, ș, ț in Romanian text"  # the option's help
COMMA_BELOW = str.maketrans("\u015f\u0163\u015e\u0162", "\u0219\u021b\u0218\u021a")
DIACRITICS = "ăâîșțşţĂÂÎȘȚŞŢ"
WITHOUT_DIACRITICS = COMMA_BELOW | str.maketrans(DIACRITICS, "aaiststAAISTST")


def normalize(text: str, remove_diacritics: bool = False) -> str:
    """Replaces s and t with a cedilla by those with a comma below, or removes all Romanian diacritics."""
    return text.translate(WITHOUT_DIACRITICS if remove_diacritics else COMMA_BELOW)


def check_without_diacritics(path: Path) -> None:
    """Raises UserError if a text file, compressed or not, has Romanian diacritics or is not UTF-8."""
    line_number, letter = 1, re.compile(f"[{DIACRITICS}]")
    for block in read_blocks(stored(path)):
        try:
            text = block.decode("utf-8")
        except UnicodeDecodeError as error:
            line = line_number + block.count(b"\n", 0, error.start)
            raise UserError(f"{path}, line {line}: not UTF-8") from error
        if match := letter.search(text):
            line_number += text.count("\n", 0, match.start())
            raise UserError(
                f"{path} has {match[0]!r} in line {line_number}: remove its diacritics with `python -m "
                "fairseq-xl data romanian --remove-diacritics`"
            )
        line_number += text.count("\n")


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = parser_of(__name__)
    parser.add_argument("--remove-diacritics", action="store_true", help=REMOVE_DIACRITICS)
    parser.add_argument("--check", type=Path, metavar="FILE", help="fail if the file has diacritics; write nothing")
    options = parser.parse_args(arguments)

    def work() -> None:
        if options.check:
            check_without_diacritics(options.check)
            return
        for line_number, line in enumerate(sys.stdin.buffer, start=1):
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise UserError(f"line {line_number} is not UTF-8") from error
            sys.stdout.buffer.write(normalize(text, options.remove_diacritics).encode())

    return run(work, "standard output", "romanian: ")
