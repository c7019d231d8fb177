"""Normalizes Romanian text: ``python -m preprocess.readers.romanian [--remove-diacritics] <TEXT >NORMALIZED``.

Replaces s and t with a cedilla by the correct letters with a comma below. Some Romanian text has no diacritics; with
--remove-diacritics none has. Same letters as in the two programs of Sennrich et al. 2016, *Edinburgh Neural Machine
Translation Systems for WMT 16*, which XLM's commands run.
"""

import argparse
import sys

from fairseq_xl.errors import UserError
from preprocess.readers import command

LANGUAGE = "ro"
REMOVE_DIACRITICS = "write a, a, i, s, t in place of ă, â, î, ș, ț in Romanian text"  # the option's help
COMMA_BELOW = str.maketrans("\u015f\u0163\u015e\u0162", "\u0219\u021b\u0218\u021a")
WITHOUT_DIACRITICS = COMMA_BELOW | str.maketrans("ăâîșțşţĂÂÎȘȚŞŢ", "aaiststAAISTST")


def normalize(text: str, remove_diacritics: bool = False) -> str:
    """Replaces s and t with a cedilla by those with a comma below, or removes all Romanian diacritics."""
    return text.translate(WITHOUT_DIACRITICS if remove_diacritics else COMMA_BELOW)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m preprocess.readers.romanian", description="Normalizes Romanian text, from stdin to stdout."
    )
    parser.add_argument("--remove-diacritics", action="store_true", help=REMOVE_DIACRITICS)
    options = parser.parse_args(arguments)

    def work() -> None:
        for number, line in enumerate(sys.stdin.buffer, start=1):
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise UserError(f"line {number} is not UTF-8") from error
            sys.stdout.buffer.write(normalize(text, options.remove_diacritics).encode())

    return command.run("romanian", work)


if __name__ == "__main__":
    sys.exit(main())
