"""Beam search as fairseq's options say."""

import functools
from collections.abc import Callable
from typing import Any

from fairseq.ngram_repeat_block import NGramRepeatBlock


def install() -> None:
    """Let --no-repeat-ngram-size hold without fairseq's CUDA extension, which pip does not build."""
    NGramRepeatBlock._no_repeat_ngram = _among_written_tokens(NGramRepeatBlock._no_repeat_ngram)


def _among_written_tokens(original: Callable) -> Callable:
    """fairseq takes the end of a buffer that is not full yet for the last tokens, and so never finds a repetition."""
    if hasattr(original, "__wrapped__"):
        return original

    @functools.wraps(original)
    def block(self: Any, tokens: Any, lprobs: Any, bsz: int, beam_size: int, step: int) -> Any:
        return original(self, tokens[:, : step + 1], lprobs, bsz, beam_size, step)

    return block
