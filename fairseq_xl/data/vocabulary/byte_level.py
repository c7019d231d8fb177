"""Byte-level BPE, the sub-words of GPT-2 and RoBERTa: merges of bytes, so that no text is unknown.

A character stands for each byte, ``Ġ`` for the space, which belongs to the word behind it.
"""

from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from tokenizers.decoders import ByteLevel

from fairseq_xl.data.vocabulary.special_symbols import MASK, SPECIAL
from fairseq_xl.data.vocabulary.wordpiece import TokenizerPieces
from fairseq_xl.data.vocabulary.xlm_bpe import read_codes, read_numbered
from fairseq_xl.errors import UserError

SPACE = "Ġ"
UNKNOWN = SPECIAL[3]
ALPHABET = frozenset(pre_tokenizers.ByteLevel.alphabet())  # the characters of the 256 bytes


class BytePieces(TokenizerPieces):
    """The pieces of a byte-level BPE (`fairseq_xl.data.vocabulary.subwords.Subwords`).

    `merges` and `vocab` are merges.txt and vocab.json of transformers; with `add_prefix_space`, the first word of a
    text has a space in front of it too. Raises `UserError` for files that are missing, damaged or not of each other.
    """

    title, units = "byte-level vocabulary", "characters"

    def __init__(self, merges: Path, vocab: Path, add_prefix_space: bool):
        self.pieces, self.merges = read_numbered(vocab), [*read_codes(merges)]
        missing = sorted({UNKNOWN, *ALPHABET} - {*self.pieces})
        if missing:
            raise UserError(f"{vocab} is not a byte-level vocabulary: it has no {missing[0]}")
        self.unknown = self.pieces.index(UNKNOWN)
        self.symbols = [UNKNOWN if piece in (*SPECIAL, MASK) else piece for piece in self.pieces]
        ids = {piece: index for index, piece in enumerate(self.pieces)}
        for left, right in self.merges:
            if lacking := [piece for piece in (left, right, left + right) if piece not in ids]:
                raise UserError(f"{merges} is not of {vocab}, which lacks {lacking[0]} of the merge {left} {right}")
        # without special symbols: <mask> in text is ordinary text
        self.tokenizer = Tokenizer(models.BPE(ids, self.merges, unk_token=UNKNOWN))
        self.tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
        self.tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)

    def lost(self, line: str) -> list[str]:
        """Nothing: there is a piece for each byte."""
        return []


def text_of_pieces(pieces: str) -> str:
    """Pieces, separated by spaces -> their text; incomplete characters are U+FFFD."""
    return str(ByteLevel().decode(pieces.split(" "))).strip(" ")
