"""Divides lines from standard input into sentences, one a line, on standard output.

    fairseq-xl data sentences en

The sentences are those of the package sentencex, which has rules and abbreviations of many languages; the text of
another one is divided at its punctuation, and text without any, such as Thai, is not divided. Empty lines stay.
"""

import sys
from collections.abc import Callable

from fairseq_xl.commands import parser_of
from fairseq_xl.errors import UserError, check_language
from fairseq_xl.io.text import lines_in
from preprocess.commands import run

PACKAGE = "sentencex"


def splitter(language: str) -> Callable[[str], list[str]]:
    """A function from a line of a language to its sentences; raises UserError if sentencex is not installed."""
    try:
        import sentencex
    except ImportError as error:
        raise UserError(f"sentences need a package that is not installed: pip install {PACKAGE}") from error

    def sentences(line: str) -> list[str]:
        return [text for part in sentencex.segment(language.partition("_")[0], line) if (text := part.strip())]

    return sentences


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = parser_of(__name__)
    parser.add_argument("language", metavar="XX", help="language of the text")
    options = parser.parse_args(arguments)

    def work() -> None:
        check_language("language", options.language)
        sentences = splitter(options.language)
        for line_number, raw in enumerate(sys.stdin.buffer, start=1):
            for line in lines_in(raw, "standard input", line_number):
                sys.stdout.buffer.write("".join(f"{text}\n" for text in sentences(line) or [""]).encode())

    return run(work, "standard output", "sentences: ")
