"""Patches of beam search."""

import functools
import math
from collections.abc import Callable
from typing import Any

from fairseq.ngram_repeat_block import NGramRepeatBlock


def install() -> None:
    """Makes --no-repeat-ngram-size work without fairseq's CUDA extension, which pip does not build."""
    NGramRepeatBlock._no_repeat_ngram = _without_padding(NGramRepeatBlock._no_repeat_ngram)


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
