"""Normalizes Romanian text: ``python -m preprocess.readers.romanian [--remove-diacritics] <TEXT >NORMALIZED``.

Romanian text has s and t with a cedilla beside the correct letters with a comma below, and lacks diacritics in places.
Both are made uniform as in Sennrich et al. 2016, *Edinburgh Neural Machine Translation Systems for WMT 16*, whose
programs XLM's commands use.
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
    """Text with a comma below s and t in place of a cedilla, or without diacritics."""
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
