"""Learns new pieces from text and appends them to a SentencePiece model.

A model is learned on the text alone. Its pieces that the old model lacks are appended until there are enough: single
characters unknown to the old model first, then the others in the order of the new model. Old pieces keep their scores.

- In a unigram model, a new piece gets the sum of the scores of the old pieces that it replaces, and `BONUS` for each of
  them but the first. It therefore takes their place wherever the old model ends pieces at the same two characters, and
  longer new pieces win over shorter ones; all other text keeps its segmentation. A piece with characters unknown to
  the old model gets its score in the new model, at least the minimum of the old one.
- In a BPE model, new pieces are merged after all old ones. Where a piece takes several merges, those on its way are
  appended too.
"""

import io
from collections.abc import Collection

import sentencepiece

from fairseq_xl.checkpoints.sentencepiece_models import (
    BPE,
    NORMAL,
    UNIGRAM,
    Proto,
    merge_scores,
    merger,
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
    *("split_by_unicode_script", "split_by_number", "split_by_whitespace", "split_digits"),
    *("treat_whitespace_as_suffix", "allow_whitespace_only_pieces", "max_sentencepiece_length"),
)


def extend(model: Proto, text: list[str], count: int, reserved: Collection[str]) -> Proto:
    """Returns a model with new pieces after the old ones.

    Args:
        model: a unigram or BPE model; it stays as it is.
        text: lines to learn from.
        count: number of new pieces; fewer if the text does not give more.
        reserved: symbols that no piece may be.

    Raises `UserError` for another type of model, and if SentencePiece cannot learn from the text.
    """
    if model.trainer_spec.model_type not in (UNIGRAM, BPE):
        raise UserError("the SentencePiece model is neither unigram nor BPE, so pieces cannot be added to it")
    taken, characters = {each.piece for each in model.pieces} | set(reserved), {each for line in text for each in line}
    for attempt in range(ATTEMPTS):
        learned = _learn(model, text, 2 ** (attempt + 1) * count + len(characters))
        found = {each.piece: each.score for each in learned.pieces if each.type == NORMAL and each.piece not in taken}
        if len(found) >= count:
            break
    old = verbatim(model)
    order = sorted(found, key=lambda piece: len(piece) > 1 or is_known(old, piece))  # a stable sort
    if model.trainer_spec.model_type == BPE:
        return _with_merges(model, order, count, reserved)
    return _with_unigrams(model, {piece: found[piece] for piece in order[:count]})


def is_known(model: sentencepiece.SentencePieceProcessor, piece: str) -> bool:
    """Whether a model, made by `verbatim`, has pieces for all characters of a piece."""
    return not any(model.is_unknown(number) or model.is_byte(number) for number in model.encode(piece))


def _learn(model: Proto, text: list[str], size: int) -> Proto:
    """A model of the type and with the normalization of another one, learned on text."""
    rule, kind = model.normalizer_spec.name, model.trainer_spec.model_type
    written = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(text),
            model_writer=written,
            model_type={UNIGRAM: "unigram", BPE: "bpe"}[kind],
            vocab_size=size,
            character_coverage=COVERAGE,
            normalization_rule_name=rule if rule in NORMALIZATIONS else NORMALIZATIONS[0],
            max_sentence_length=LONGEST_SENTENCE,
            hard_vocab_limit=False,
            num_threads=TRAINING_THREADS,
            minloglevel=2,
            **{name: getattr(model.trainer_spec, name) for name in SHARED},
        )
    except (RuntimeError, OSError) as error:
        reason = str(error).splitlines()[-1].rsplit("]", 1)[-1].strip() or str(error)
        raise UserError(f"SentencePiece cannot learn {size} pieces from this text: {reason}") from error
    learned = type(model)()
    learned.ParseFromString(written.getvalue())
    return learned


def _with_unigrams(model: Proto, learned: dict[str, float]) -> Proto:
    """Appends the pieces of a unigram model, with scores as the module says; `learned` has those of the new model."""
    old, new = verbatim(model), []
    least = min(each.score for each in model.pieces if each.type == NORMAL)
    for piece, score in learned.items():
        replaced = [old.get_score(number) for number in old.encode(piece)]
        summed = sum(replaced) + BONUS * (len(replaced) - 1)
        new.append(_piece(model, piece, summed if is_known(old, piece) else max(score, least)))
    return with_pieces(model, [*model.pieces, *new])


def _with_merges(model: Proto, order: list[str], count: int, reserved: Collection[str]) -> Proto:
    """Appends at most `count` pieces to a BPE model, so that each is merged from those before it."""
    scores, added = merge_scores(model), []
    segment, least = merger(scores), min(each.score for each in model.pieces if each.type == NORMAL)
    for piece in order:
        parts, _ = segment(piece)
        wanted = [piece] if len(piece) == 1 else ["".join(parts[:end]) for end in range(2, len(parts) + 1)]
        if len(added) + len(wanted) > count or not set(wanted).isdisjoint(reserved):
            continue
        for each in wanted:
            scores[each] = least - len(added) - 1
            added.append(_piece(model, each, scores[each]))
    return with_pieces(model, [*model.pieces, *added])


def _piece(model: Proto, piece: str, score: float) -> Proto:
    return type(model.pieces[0])(piece=piece, score=score, type=NORMAL)
