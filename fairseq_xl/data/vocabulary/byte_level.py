"""Byte-level BPE, the sub-words of GPT-2 and RoBERTa: merges of bytes, so that no text is unknown.

A character stands for each byte, ``Ġ`` for the space, which belongs to the word behind it.
"""

from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from tokenizers.decoders import ByteLevel

from fairseq_xl.data.vocabulary.special_symbols import MASK, SPECIAL
from fairseq_xl.data.vocabulary.xlm_bpe import read_numbered
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.files import read_whole
from fairseq_xl.io.text import decoded

SPACE = "Ġ"
UNKNOWN = SPECIAL[3]


class BytePieces:
    """The pieces of a byte-level BPE (`fairseq_xl.data.vocabulary.subwords.Subwords`).

    Args:
        merges: merges.txt of transformers.
        vocab: vocab.json of transformers.
        add_prefix_space: whether the first word of a text has a space in front of it too.

    Raises `UserError` for files that are missing or damaged, or do not fit each other.
    """

    title, units = "byte-level vocabulary", "characters"

    def __init__(self, merges: Path, vocab: Path, add_prefix_space: bool):
        self.pieces, self.merges = read_numbered(vocab), read_merges(merges)
        missing = sorted({UNKNOWN, *pre_tokenizers.ByteLevel.alphabet()} - {*self.pieces})
        if missing:
            raise UserError(f"{vocab} is not a byte-level vocabulary: it has no {missing[0]}")
        self.unknown = self.pieces.index(UNKNOWN)
        self.symbols = [UNKNOWN if piece in (*SPECIAL, MASK) else piece for piece in self.pieces]
        ids = {piece: index for index, piece in enumerate(self.pieces)}
        for pair in self.merges:
            if lacking := next((piece for piece in (*pair, "".join(pair)) if piece not in ids), None):
                raise UserError(
                    f"{merges} is not of {vocab}: it merges {' and '.join(pair)}, and {lacking} is no piece"
                )
        # without special symbols: <mask> in text is ordinary text
        self.tokenizer = Tokenizer(models.BPE(ids, self.merges, unk_token=UNKNOWN))
        self.tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
        self.tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)

    def normalizer(self) -> normalizers.Normalizer | None:
        """No rules for characters."""
        return None

    def encode(self, lines: list[str]) -> list[list[int]]:
        """Lines -> the ids of their pieces."""
        return [self.tokenizer.encode(line).ids for line in lines]

    def lost(self, line: str) -> list[str]:
        """Nothing: there is a piece for each byte."""
        return []

    def spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Text -> the ids of its pieces, and the characters [begin, end) of each, without the space in front."""
        encoding = self.tokenizer.encode(text)
        return encoding.ids, encoding.offsets


def read_merges(path: Path) -> list[tuple[str, str]]:
    """The pairs of merges.txt, the first ones first; raises `UserError` for a missing or damaged file."""
    if not path.is_file():
        raise UserError(f"{path}: no such file, expected the merges of a byte-level BPE")
    lines = decoded(read_whole(path, vocabulary=True), path).split("\n")
    if lines.pop():
        raise UserError(f"{path} is cut short: its last line has no end")
    first = int(lines[:1] != [] and lines[0].startswith("#version"))
    pairs = []
    for number, line in enumerate(lines[first:], start=first + 1):
        left, space, right = line.rstrip("\r").partition(" ")
        if not left or not right or " " in right:
            raise UserError(f"{path}, line {number}: expected two pieces, found {quoted(line)}")
        pairs.append((left, right))
    return pairs


def text_of_pieces(pieces: str) -> str:
    """Pieces, separated by spaces -> their text; incomplete characters are U+FFFD."""
    return str(ByteLevel().decode(pieces.split(" "))).strip(" ")
