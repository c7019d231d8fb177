"""Cuts and extends the files of SentencePiece models: their pieces change, their settings stay as they are."""

import itertools
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TypeAlias

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from fairseq_xl.data.vocabulary.sentencepiece_model import open_sentencepiece
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import read_whole

UNIGRAM, BPE = TrainerSpec.UNIGRAM, TrainerSpec.BPE
Piece: TypeAlias = ModelProto.SentencePiece
#: of rounded scores; sums down to -16384 are exact in 32 bits
SCORE_STEP = 2.0**-10


def read_model(path: str | Path) -> ModelProto:
    """Reads a SentencePiece model; raises `UserError` for a file that is missing or not a model."""
    open_sentencepiece(Path(path))
    model = model_of(read_whole(path))
    if not model.pieces:  # as that of an empty file
        raise UserError(f"{path} is not a SentencePiece model: it has no pieces")
    return model


def model_of(content: bytes) -> ModelProto:
    """The model in the content of a file, without tests of its segmentation: they would not hold for other pieces."""
    fields = {field.name: value for field, value in ModelProto.FromString(content).ListFields()}
    return ModelProto(**{name: value for name, value in fields.items() if name != "self_test_data"})


def ordinary_pieces(model: ModelProto) -> list[str]:
    """The pieces, in order, that a dictionary lists: all but unknown, control and unused ones."""
    special = (Piece.UNKNOWN, Piece.CONTROL, Piece.UNUSED)
    return [piece.piece for piece in model.pieces if piece.type not in special]


def normal_pieces(model: ModelProto) -> list[Piece]:
    """The pieces that are neither special nor user-defined nor bytes."""
    return [piece for piece in model.pieces if piece.type == Piece.NORMAL]


def with_pieces(model: ModelProto, pieces: Iterable[Piece]) -> ModelProto:
    """A copy of the model with other pieces."""
    changed = ModelProto()
    changed.CopyFrom(model)
    del changed.pieces[:]
    changed.pieces.extend(pieces)
    changed.trainer_spec.vocab_size = len(changed.pieces)
    return changed


def processor(model: ModelProto) -> sentencepiece.SentencePieceProcessor:
    """The model's processor."""
    return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())


def verbatim(model: ModelProto) -> sentencepiece.SentencePieceProcessor:
    """A processor that segments pieces: it neither normalizes text nor changes or adds spaces."""
    copy = with_pieces(model, model.pieces)
    rules = copy.normalizer_spec
    rules.name, rules.precompiled_charsmap = "identity", b""
    rules.add_dummy_prefix = rules.remove_extra_whitespaces = rules.escape_whitespaces = False
    return processor(copy)


def with_rounded_scores(content: bytes) -> bytes:
    """The content of a model's file with scores that are multiples of `SCORE_STEP`; a BPE model is returned as it is.

    Sums of such scores are exact in 32 and in 64 bits. SentencePiece adds scores in 32 bits, the package tokenizers in
    64; with rounded scores both choose the same segmentation among those whose scores are nearly equal.
    """
    model = model_of(content)
    if model.trainer_spec.model_type != UNIGRAM:
        return content
    for piece in model.pieces:
        piece.score = round(piece.score / SCORE_STEP) * SCORE_STEP
    return model.SerializeToString()


def remove_pieces(model: ModelProto, used: Collection[str], dictionary_pieces: Collection[str]) -> ModelProto:
    """Returns a model without unused pieces, which segments any text of `used` pieces as before.

    Kept besides `used`:

    - special, user-defined and byte pieces;
    - pieces that the dictionary lacks: text in which they occur has ``<unk>`` there;
    - of a unigram model the pieces of minimum and maximum score: scores of unknown characters and of user-defined
      pieces depend on them. The best segmentation stays the best one when others become impossible;
    - of a BPE model the pieces from which used ones are merged. All merges of a text are inside of its final pieces.
    """
    normal = normal_pieces(model)
    final = {piece.piece for piece in normal if piece.piece in used or piece.piece not in dictionary_pieces}
    if model.trainer_spec.model_type == BPE:
        merged = merger(merge_scores(model))
        final.update(*(merged(piece)[1] for piece in list(final)))
    elif normal:
        final |= {choose(normal, key=lambda piece: piece.score).piece for choose in (min, max)}
    return with_pieces(model, (piece for piece in model.pieces if piece.type != Piece.NORMAL or piece.piece in final))


def merge_scores(model: ModelProto) -> dict[str, float]:
    """The scores of the pieces that a BPE model may merge: pieces of higher scores are merged first."""
    types = (Piece.NORMAL, Piece.USER_DEFINED, Piece.UNUSED)
    return {piece.piece: piece.score for piece in model.pieces if piece.type in types}


def merger(scores: dict[str, float]) -> Callable[[str], tuple[list[str], list[str]]]:
    """Returns a function that segments text by the merges of a BPE model.

    Text is taken as it is, without normalization. `scores` come from `merge_scores`; pieces may be added to them.
    """

    def segment(text: str) -> tuple[list[str], list[str]]:
        """The pieces of a text, and the pieces that were merged on the way, in the order of the merges."""
        parts, merged = list(text), []
        while True:
            pairs = [left + right for left, right in itertools.pairwise(parts)]
            positions = [position for position, pair in enumerate(pairs) if pair in scores]
            if not positions:
                return parts, merged
            position = max(positions, key=lambda position: scores[pairs[position]])  # the first of equals
            merged.append(pairs[position])
            parts[position : position + 2] = [pairs[position]]

    return segment
