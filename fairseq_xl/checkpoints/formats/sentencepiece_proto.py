"""Models of SentencePiece: what their encoding depends on, and their file.

The file is a protocol buffer, described by SentencePiece's sentencepiece_model.proto.
"""

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

import sentencepiece

from fairseq_xl.io.protobuf import field, fields

UNIGRAM, BPE = 1, 2  # types of model
MODEL_NAMES = {UNIGRAM: "unigram", BPE: "bpe", 3: "word", 4: "char"}
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # types of pieces
#: the first pieces of a model that `python -m preprocess` or fairseq's models have
FIRST = (("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL))

_PIECE, _TRAINER, _NORMALIZER = 1, 2, 3  # fields of a model
_TRAINER_FIELDS = {"kind": 3, "suffix": 24, "byte_fallback": 35}
_NORMALIZER_FIELDS = {"charsmap": 2, "dummy_prefix": 3, "remove_extra_spaces": 4, "escape_spaces": 5}


class Piece(NamedTuple):
    """A piece, its score (a log probability, or minus the number of a BPE merge) and its type."""

    text: str
    score: float
    kind: int = NORMAL


@dataclass(frozen=True)
class Model:
    """A SentencePiece model, as far as encoding depends on it.

    Attributes:
        pieces: in the order of their ids.
        kind: `UNIGRAM`, `BPE` or another type.
        charsmap: compiled rules of normalization; empty for the rule "identity".
        dummy_prefix: whether a space is put in front of the text.
        remove_extra_spaces: whether spaces at both ends are removed and others are merged.
        escape_spaces: whether spaces become ▁.
        suffix: whether ▁ is behind a word.
        byte_fallback: whether an unknown character becomes the pieces of its bytes.
    """

    pieces: list[Piece]
    kind: int = UNIGRAM
    charsmap: bytes = b""
    dummy_prefix: bool = True
    remove_extra_spaces: bool = True
    escape_spaces: bool = True
    suffix: bool = False
    byte_fallback: bool = False

    @classmethod
    def of(cls, processor: sentencepiece.SentencePieceProcessor) -> "Model":
        """The model that a processor has loaded."""
        pieces, settings = [], {}
        for number, content in fields(processor.serialized_model_proto()):
            if number == _PIECE:
                pieces.append(piece_of(content))
            elif number in (_TRAINER, _NORMALIZER):
                names = _TRAINER_FIELDS if number == _TRAINER else _NORMALIZER_FIELDS
                found = dict(fields(content))
                settings |= {name: found[place] for name, place in names.items() if place in found}
        flags = {name: bool(value) for name, value in settings.items() if name not in ("kind", "charsmap")}
        return cls(pieces, settings.get("kind", UNIGRAM), settings.get("charsmap", b""), **flags)

    def serialized(self) -> bytes:
        """The content of its file; its first pieces must be those of `FIRST`."""
        pieces = (field(1, text) + field(2, float(score)) + field(3, kind) for text, score, kind in self.pieces)
        trainer: dict[int, Any] = {number: int(getattr(self, name)) for name, number in _TRAINER_FIELDS.items()}
        trainer |= {4: len(self.pieces), 40: 0, 41: 1, 42: 2, 43: -1}  # vocab_size; ids of <unk> <s> </s>, no padding
        rules: dict[int, Any] = {number: getattr(self, name) for name, number in _NORMALIZER_FIELDS.items()}
        content = [field(_PIECE, piece) for piece in pieces]
        content.append(field(_TRAINER, _message(trainer)))
        content.append(field(_NORMALIZER, _message(rules)))
        return b"".join(content)


def piece_of(content: bytes) -> Piece:
    """The piece in the message of a file."""
    found = dict(fields(content))
    (score,) = struct.unpack("<f", found.get(2, bytes(4)))
    return Piece(found[1].decode("utf-8"), score, found.get(3, NORMAL))


def _message(values: dict[int, Any]) -> bytes:
    return b"".join(field(number, value) for number, value in sorted(values.items()))
