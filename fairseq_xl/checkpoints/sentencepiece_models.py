"""Cuts and extends the files of SentencePiece models: their pieces change, their settings stay as they are.

A file is a protocol buffer, described by SentencePiece's sentencepiece_model.proto.
"""

import itertools
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import sentencepiece

from fairseq_xl.checkpoints.formats import sentencepiece_proto as proto
from fairseq_xl.checkpoints.formats.sentencepiece_proto import BPE, NORMAL, UNIGRAM, Piece
from fairseq_xl.data.sentencepiece_model import opened
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import read_whole
from fairseq_xl.io.protobuf import field, fields

_PIECE, _TRAINER, _NORMALIZER, _SELF_TEST = 1, 2, 3, 4  # fields of a model
_MODEL_TYPE, _VOCAB_SIZE = 3, 4  # fields of the settings of training
_RULE, _CHARSMAP, _DUMMY_PREFIX, _REMOVE_EXTRA_SPACES, _ESCAPE_SPACES = 1, 2, 3, 4, 5  # fields of the normalizer

#: of rounded scores; sums down to -16384 are exact in 32 bits
SCORE_STEP = 2.0**-10


@dataclass(frozen=True)
class ModelFile:
    """The content of a model's file.

    Attributes:
        pieces: in the order of their ids.
        trainer, normalizer: the messages with the settings of training and of normalization. Of a field that occurs
            several times the last value counts, so that a setting is changed by a field at the end.
        others: the other fields as they are.
    """

    pieces: list[Piece]
    trainer: bytes
    normalizer: bytes
    others: bytes = b""

    @property
    def settings(self) -> dict[int, Any]:
        """The settings of training by number."""
        return dict(fields(self.trainer))

    @property
    def kind(self) -> int:
        """The type of model: `UNIGRAM`, `BPE` or another one."""
        return self.settings.get(_MODEL_TYPE, UNIGRAM)

    @property
    def rule(self) -> str:
        """The name of the rule of normalization."""
        return dict(fields(self.normalizer)).get(_RULE, b"").decode("utf-8")

    @property
    def ordinary(self) -> list[str]:
        """The ordinary pieces in order: those that a dictionary has."""
        special = (proto.UNKNOWN, proto.CONTROL, proto.UNUSED)
        return [piece.text for piece in self.pieces if piece.kind not in special]

    @property
    def normal(self) -> list[Piece]:
        """The pieces that are neither special nor user-defined nor bytes."""
        return [piece for piece in self.pieces if piece.kind == NORMAL]

    def with_pieces(self, pieces: list[Piece]) -> "ModelFile":
        """The model with other pieces."""
        return replace(self, pieces=pieces, trainer=self.trainer + field(_VOCAB_SIZE, len(pieces)))

    def serialized(self) -> bytes:
        """The content of the file."""
        pieces = (field(1, text) + field(2, float(score)) + field(3, kind) for text, score, kind in self.pieces)
        settings = field(_TRAINER, self.trainer) + field(_NORMALIZER, self.normalizer)
        return b"".join(field(_PIECE, piece) for piece in pieces) + settings + self.others

    def processor(self) -> sentencepiece.SentencePieceProcessor:
        """The model's processor."""
        return sentencepiece.SentencePieceProcessor(model_proto=self.serialized())

    def verbatim(self) -> sentencepiece.SentencePieceProcessor:
        """A processor that segments pieces: it neither normalizes text nor changes or adds spaces."""
        unchanged = field(_RULE, "identity") + field(_CHARSMAP, b"")
        unchanged += b"".join(field(number, 0) for number in (_DUMMY_PREFIX, _REMOVE_EXTRA_SPACES, _ESCAPE_SPACES))
        return replace(self, normalizer=self.normalizer + unchanged).processor()


def read_model(path: str | Path) -> ModelFile:
    """Reads a SentencePiece model; raises `UserError` for a file that is missing or not a model."""
    opened(Path(path))
    model = model_of(read_whole(path))
    if not model.pieces:  # as that of an empty file
        raise UserError(f"{path} is not a SentencePiece model: it has no pieces")
    return model


def model_of(content: bytes) -> ModelFile:
    """The model in the content of a file, without tests of its segmentation: they would not hold for other pieces."""
    found = list(fields(content))
    pieces = [proto.piece_of(value) for number, value in found if number == _PIECE]
    trainer, normalizer = (b"".join(value for number, value in found if number == of) for of in (_TRAINER, _NORMALIZER))
    known = (_PIECE, _TRAINER, _NORMALIZER, _SELF_TEST)
    others = b"".join(field(number, value) for number, value in found if number not in known)
    return ModelFile(pieces, trainer, normalizer, others)


def with_rounded_scores(content: bytes) -> bytes:
    """The content of a model's file with scores that are multiples of `SCORE_STEP`; a BPE model is returned as it is.

    Sums of such scores are exact in 32 and in 64 bits. SentencePiece adds scores in 32 bits, the package tokenizers in
    64; with rounded scores both choose the same segmentation among those whose scores are nearly equal.
    """
    model = model_of(content)
    if model.kind != UNIGRAM:
        return content
    rounded = [piece._replace(score=round(piece.score / SCORE_STEP) * SCORE_STEP) for piece in model.pieces]
    return replace(model, pieces=rounded).serialized()


def cut(model: ModelFile, used: Collection[str], known: Collection[str]) -> ModelFile:
    """Returns a model without unused pieces, which segments any text of `used` pieces as before.

    Kept besides `used`:

    - special, user-defined and byte pieces;
    - pieces that the dictionary lacks: text in which they occur has ``<unk>`` there;
    - of a unigram model the pieces of minimum and maximum score: scores of unknown characters and of user-defined
      pieces depend on them. The best segmentation stays the best one when others become impossible;
    - of a BPE model the pieces from which used ones are merged. All merges of a text are inside of its final pieces.

    Args:
        model: stays as it is.
        used: pieces that the text has.
        known: pieces of the dictionary.
    """
    normal = model.normal
    kept = {piece.text for piece in normal if piece.text in used or piece.text not in known}
    if model.kind == BPE:
        merged = merger(merge_scores(model))
        kept.update(*(merged(piece)[1] for piece in list(kept)))
    elif normal:
        kept |= {choose(normal, key=lambda piece: piece.score).text for choose in (min, max)}
    return model.with_pieces([piece for piece in model.pieces if piece.kind != NORMAL or piece.text in kept])


def merge_scores(model: ModelFile) -> dict[str, float]:
    """The scores of the pieces that a BPE model may merge: pieces of higher scores are merged first."""
    kinds = (NORMAL, proto.USER_DEFINED, proto.UNUSED)
    return {piece.text: piece.score for piece in model.pieces if piece.kind in kinds}


def merger(scores: dict[str, float]) -> Callable[[str], tuple[list[str], list[str]]]:
    """A function that segments a text by the merges of a BPE model: the final pieces, and all pieces merged on the way.

    Text is taken as it is, without normalization. `scores` come from `merge_scores`; pieces may be added to them.
    """

    def segment(text: str) -> tuple[list[str], list[str]]:
        parts, merged = list(text), []
        while True:
            pairs = [one + other for one, other in itertools.pairwise(parts)]
            places = [place for place, pair in enumerate(pairs) if pair in scores]
            if not places:
                return parts, merged
            place = max(places, key=lambda place: scores[pairs[place]])  # the first of equals
            merged.append(pairs[place])
            parts[place : place + 2] = [pairs[place]]

    return segment
