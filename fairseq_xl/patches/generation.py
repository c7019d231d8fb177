"""Patches of beam search and of the input of fairseq-interactive."""

import functools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

from fairseq.ngram_repeat_block import NGramRepeatBlock

from fairseq_xl.io.lines import read_buffers
from fairseq_xl.io.text import text_of_line


def install() -> None:
    """Makes --no-repeat-ngram-size work without fairseq's CUDA extension, which pip does not build."""
    NGramRepeatBlock._no_repeat_ngram = _without_padding(NGramRepeatBlock._no_repeat_ngram)


def patch_interactive() -> None:
    """Makes fairseq-interactive read text as the commands of this package do, if it is the command of this process."""
    for name in ("__main__", "fairseq_cli.interactive"):  # `python -m fairseq_cli.interactive` runs as __main__
        interactive: Any = sys.modules.get(name)
        if hasattr(interactive, "buffered_read"):
            interactive.buffered_read = _read_input


def _read_input(input: str, buffer_size: int) -> Iterator[list[str]]:
    """Yields buffers of lines of the file `input`, ``-`` for standard input; tabs separate text and constraints."""
    for lines in read_buffers(None if input == "-" else input, buffer_size):
        yield ["\t".join(map(text_of_line, line.split("\t"))) for line in lines]


def _without_padding(original: Callable) -> Callable:
    """Passes the tokens generated so far; fairseq passes its buffer and takes the padded end for the last tokens."""
    if hasattr(original, "__wrapped__"):
        return original

    @functools.wraps(original)
    def block(self: Any, tokens: Any, lprobs: Any, bsz: int, beam_size: int, step: int) -> Any:
        """Blocks repeated n-grams among the tokens (B * beam, step + 1) generated so far."""
        if self.no_repeat_ngram_size == 1:  # fairseq finds no repetition of single tokens
            return lprobs.scatter_(1, tokens[:, 1 : step + 1], -math.inf)
        return original(self, tokens[:, : step + 1], lprobs, bsz, beam_size, step)

    return block
