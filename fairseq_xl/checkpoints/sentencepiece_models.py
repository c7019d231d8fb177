"""Cuts and extends SentencePiece models: their pieces, scores and types, as protobuf messages.

The package protobuf is needed; it is imported where a model is read.
"""

import itertools
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import sentencepiece

from fairseq_xl.errors import UserError

#: types of pieces and of models, numbers of SentencePiece's protobuf messages
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
UNIGRAM, BPE = 1, 2

Proto = Any  # a ModelProto of SentencePiece


def read_model(path: str | Path) -> Proto:
    """Reads a SentencePiece model; raises `UserError` for a file that is missing or not a model."""
    from sentencepiece import sentencepiece_model_pb2

    try:
        content = Path(path).read_bytes()
        sentencepiece.SentencePieceProcessor(model_proto=content)
    except OSError as error:
        raise UserError(f"{path} is not a SentencePiece model: {error.strerror}") from error
    except RuntimeError as error:
        raise UserError(f"{path} is not a SentencePiece model, or it is damaged") from error
    messages: Any = sentencepiece_model_pb2
    model = messages.ModelProto()
    model.ParseFromString(content)
    if not model.pieces:  # as that of an empty file
        raise UserError(f"{path} is not a SentencePiece model: it has no pieces")
    model.DiscardUnknownFields()  # tests of segmentation that some models have do not hold for others
    return model


def pieces_of(model: Proto) -> list[str]:
    """The ordinary pieces of a model in order: those that a dictionary has."""
    return [each.piece for each in model.pieces if each.type not in (UNKNOWN, CONTROL, UNUSED)]


def cut(model: Proto, used: Collection[str], known: Collection[str]) -> Proto:
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
    normal = [each for each in model.pieces if each.type == NORMAL]
    kept = {each.piece for each in normal if each.piece in used or each.piece not in known}
    if model.trainer_spec.model_type == BPE:
        merged = merger(merge_scores(model))
        kept.update(*(merged(piece)[1] for piece in list(kept)))
    elif normal:
        kept |= {min(normal, key=lambda each: each.score).piece, max(normal, key=lambda each: each.score).piece}
    return with_pieces(model, [each for each in model.pieces if each.type != NORMAL or each.piece in kept])


def with_pieces(model: Proto, pieces: list[Any]) -> Proto:
    """A copy of a model with other pieces, messages as in `model.pieces`."""
    changed = type(model)()
    changed.CopyFrom(model)
    del changed.pieces[:]
    changed.pieces.extend(pieces)
    changed.trainer_spec.vocab_size = len(pieces)
    return changed


def merge_scores(model: Proto) -> dict[str, float]:
    """The scores of the pieces that a BPE model may merge: pieces of higher scores are merged first."""
    return {each.piece: each.score for each in model.pieces if each.type in (NORMAL, USER_DEFINED, UNUSED)}


def merger(scores: dict[str, float]) -> Callable[[str], tuple[list[str], list[str]]]:
    """A function that segments a text by the merges of a BPE model: the final pieces, and all pieces merged on the way.

    Text is taken as it is, without normalization. `scores` are those of `merge_scores`; pieces may be added to them.
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


def processor(model: Proto) -> sentencepiece.SentencePieceProcessor:
    """The processor of a model."""
    return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())


def verbatim(model: Proto) -> sentencepiece.SentencePieceProcessor:
    """A processor of a model that segments pieces: it neither normalizes text nor changes or adds spaces."""
    changed = type(model)()
    changed.CopyFrom(model)
    rules = changed.normalizer_spec
    rules.name, rules.precompiled_charsmap = "identity", b""
    rules.add_dummy_prefix = rules.remove_extra_whitespaces = rules.escape_whitespaces = False
    return processor(changed)
