"""Cuts and extends the files of SentencePiece models: their pieces change, their settings stay as they are.

`extend` learns a model on text alone. Its pieces that the old model lacks are appended until there are enough: single
characters unknown to the old model first, then the others in the order of the new model. Old pieces keep their scores.

- In a unigram model, a new piece gets the sum of the scores of the old pieces that it replaces, and `BONUS` for each of
  them but the first. It therefore replaces a run of old pieces where the old segmentation has boundaries at both of its
  ends, and of overlapping new pieces the longer one wins; all other text keeps its segmentation. A piece with
  characters unknown to the old model gets its score in the new model, at least the minimum of the old one.
- In a BPE model, new pieces are merged after all old ones. Where a piece takes several merges, those on its way are
  appended too.
"""

import io
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
BONUS = 0.1  # added to the score of a new unigram piece for each old piece that it saves
COVERAGE = 0.9995  # share of the characters of the text that a model learns; SentencePiece's own default
TRAINING_THREADS = 16  # fixed, so that the model does not depend on the machine
LONGEST_SENTENCE = 1 << 16  # bytes of a sentence; SentencePiece leaves out longer ones
ATTEMPTS = 3  # maximum number of models that are learned, each twice as large, to get enough new pieces
NORMALIZATIONS = ("nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity")
#: settings of the old model's training that a new one shares
SHARED = (
    "max_sentencepiece_length split_by_unicode_script split_by_whitespace split_by_number treat_whitespace_as_suffix "
    "split_digits allow_whitespace_only_pieces"
).split()


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


def extend(model: ModelProto, text: list[str], count: int, reserved: Collection[str]) -> ModelProto:
    """A unigram or BPE model with up to `count` more pieces learned from text, none of them in `reserved`.

    Raises `UserError` for another type of model, and if SentencePiece cannot learn from the text.
    """
    if model.trainer_spec.model_type not in (UNIGRAM, BPE):
        raise UserError("the SentencePiece model is neither unigram nor BPE, so pieces cannot be added to it")
    taken, characters = {piece.piece for piece in model.pieces} | set(reserved), set().union(*text)
    for attempt in range(ATTEMPTS):
        learned = _learn(model, text, 2 ** (attempt + 1) * count + len(characters))
        learned_scores = {piece.piece: piece.score for piece in normal_pieces(learned) if piece.piece not in taken}
        if len(learned_scores) >= count:
            break
    old = verbatim(model)
    order = sorted(learned_scores, key=lambda piece: len(piece) > 1 or is_known(old, piece))  # a stable sort
    if model.trainer_spec.model_type == BPE:
        return _with_merges(model, order, count, reserved)
    return _with_unigrams(model, {piece: learned_scores[piece] for piece in order[:count]})


def is_known(model: sentencepiece.SentencePieceProcessor, piece: str) -> bool:
    """Whether a model, made by `verbatim`, has pieces for all characters of a piece."""
    return not any(model.is_unknown(piece_id) or model.is_byte(piece_id) for piece_id in model.encode(piece))


def _learn(model: ModelProto, text: list[str], size: int) -> ModelProto:
    """A model of the type and with the normalization of another one, learned on text."""
    settings, rule, written = model.trainer_spec, model.normalizer_spec.name, io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(text),
            model_writer=written,
            model_type=TrainerSpec.ModelType.Name(settings.model_type).lower(),
            vocab_size=size,
            character_coverage=COVERAGE,
            normalization_rule_name=rule if rule in NORMALIZATIONS else NORMALIZATIONS[0],
            max_sentence_length=LONGEST_SENTENCE,
            hard_vocab_limit=False,
            num_threads=TRAINING_THREADS,
            minloglevel=2,
            **{name: getattr(settings, name) for name in SHARED},
        )
    except (RuntimeError, OSError) as error:
        reason = str(error).splitlines()[-1].rsplit("]", 1)[-1].strip() or str(error)
        raise UserError(f"SentencePiece cannot learn {size} pieces from this text: {reason}") from error
    return model_of(written.getvalue())


def _with_unigrams(model: ModelProto, learned: dict[str, float]) -> ModelProto:
    """Appends pieces to a unigram model, with the scores of the module's docstring; `learned` has the new model's."""
    old, least, new = verbatim(model), min(piece.score for piece in normal_pieces(model)), []
    for piece, score in learned.items():
        replaced = [old.get_score(piece_id) for piece_id in old.encode(piece)]
        summed = sum(replaced) + BONUS * (len(replaced) - 1)
        new.append(Piece(piece=piece, score=summed if is_known(old, piece) else max(score, least)))
    return with_pieces(model, [*model.pieces, *new])


def _with_merges(model: ModelProto, order: list[str], count: int, reserved: Collection[str]) -> ModelProto:
    """Appends at most `count` pieces to a BPE model, so that each is merged from those before it."""
    scores, added = merge_scores(model), []
    segment, least = merger(scores), min(piece.score for piece in normal_pieces(model))
    for piece in order:
        parts, _ = segment(piece)
        merges = [piece] if len(piece) == 1 else ["".join(parts[:end]) for end in range(2, len(parts) + 1)]
        if len(added) + len(merges) > count or not set(merges).isdisjoint(reserved):
            continue
        for merge in merges:
            scores[merge] = least - len(added) - 1
            added.append(Piece(piece=merge, score=scores[merge]))
    return with_pieces(model, [*model.pieces, *added])
