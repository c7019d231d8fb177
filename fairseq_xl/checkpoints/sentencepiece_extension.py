"""Learns new pieces from text and appends them to a SentencePiece model.

A model is learned on the text alone. Its pieces that the old model lacks are appended until there are enough: single
characters unknown to the old model first, then the others in the order of the new model. Old pieces keep their scores.

- In a unigram model, a new piece gets the sum of the scores of the old pieces that it replaces, and `BONUS` for each of
  them but the first. It therefore replaces a run of old pieces where the old segmentation has boundaries at both of its
  ends, and of overlapping new pieces the longer one wins; all other text keeps its segmentation. A piece with
  characters unknown to the old model gets its score in the new model, at least the minimum of the old one.
- In a BPE model, new pieces are merged after all old ones. Where a piece takes several merges, those on its way are
  appended too.
"""

import io
from collections.abc import Collection

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from fairseq_xl.checkpoints.sentencepiece_surgery import (
    BPE,
    UNIGRAM,
    Piece,
    merge_scores,
    merger,
    model_of,
    normal_pieces,
    verbatim,
    with_pieces,
)
from fairseq_xl.errors import UserError

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


def extend(model: ModelProto, text: list[str], count: int, reserved: Collection[str]) -> ModelProto:
    """Returns a model with new pieces after the old ones.

    Args:
        model: a unigram or BPE model; it stays as it is.
        count: number of new pieces; fewer if the text does not give more.
        reserved: symbols that no piece may be.

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
