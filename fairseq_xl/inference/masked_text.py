"""Encodes the text around a mask as if a word stood in place of the mask. t tokens."""

import string

import numpy as np

from fairseq_xl.data import Numbers
from fairseq_xl.data.vocabulary.special_symbols import MASK
from fairseq_xl.data.vocabulary.text_encoder import TextEncoder
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.text import text_of_line

#: letters that are put in place of the mask: the first one is in no vocabulary, so that no piece joins it with the text
#: beside it; but it may make the whole word unknown, and then one of the others is needed
LETTERS = "\ua66e" + string.ascii_lowercase


def around_mask(encode: TextEncoder, left: str, right: str, language: str) -> tuple[Numbers, Numbers]:
    """Text left and right of a mask -> the ids (t,) of each side, without ``</s>``.

    The mask stands for one piece, which may begin a word or continue the one before it: a ▁ in front of it is on
    neither side. The text on the right continues the word of the mask, unless it begins with a space.
    """
    for letter in LETTERS:
        sides = _around(encode, left, letter, right, language)
        if sides is not None:
            return sides
    raise UserError(f"{quoted(left + MASK + right)}: the vocabulary has no letter that can stand for {MASK} in it")


def _around(encode: TextEncoder, left: str, letter: str, right: str, language: str) -> tuple[Numbers, Numbers] | None:
    """`around_mask` with a letter in place of the mask; None if a piece has the letter and text beside it."""
    raw = text_of_line(left + letter + right)
    text = encode.tokenized(raw, language)
    positions = [position for position, char in enumerate(text) if char == letter]
    if len(positions) != raw.count(letter):  # the tokenizer has changed letters
        return None
    position = positions[left.count(letter)]
    subwords, indices = encode.subwords_of(language)
    pieces, spans = subwords.spans(text)
    if any(text[begin:end].strip() != letter for begin, end in spans if begin <= position < end):
        return None
    before = [index for index, (_, end) in enumerate(spans) if end <= position]
    while before and not text[slice(*spans[before[-1]])].strip():  # the space in front of the mask
        before.pop()
    behind = [index for index, (begin, _) in enumerate(spans) if begin > position]
    first, second = (indices[np.array([pieces[index] for index in side], np.int64)] for side in (before, behind))
    return first, second
