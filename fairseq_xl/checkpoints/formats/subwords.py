"""The sub-words of a data folder as a tokenizer of the package tokenizers, with the ids of our dictionary.

A SentencePiece model becomes these steps, in which spaces are ▁ at the end:

- NFC and the model's own rules of normalization. The package applies the rules to short graphemes, SentencePiece to the
  longest sequence that has a rule; NFC first makes decomposed text (e + ◌́) equal.
- spaces: removed at both ends, merged, and one put in front of the text, as far as the model does so.
- Unigram or BPE. Words are separated before, which changes no result unless a piece has ▁ inside.

The ids are equal but for
- segmentations of a unigram model with the same pieces in another order (`...` `.` or `.` `...`): their scores are
  equal, and decided by rounding, in 32 bits by SentencePiece and in 64 bits by the package;
- combining marks: not in canonical order, or behind a character that a rule replaces if both have less than 6 bytes;
- text without a piece, which has no ids here and ``<unk>`` in `TextEncoder`;
- text that spells a special symbol, such as ``<mask>`` or ``[en]``, which becomes this symbol here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_xl.checkpoints.formats.sentencepiece_proto import (
    BPE,
    BYTE,
    MODEL_NAMES,
    NORMAL,
    UNIGRAM,
    UNUSED,
    USER_DEFINED,
    Model,
)
from fairseq_xl.data.dictionary import XLDictionary
from fairseq_xl.data.subwords import open_model
from fairseq_xl.data.symbols import SPECIAL, WORD_START
from fairseq_xl.errors import UserError, quoted

if TYPE_CHECKING:
    from tokenizers import Tokenizer, normalizers

UNK = SPECIAL[3]


def sentencepiece_tokenizer(path: Path, dictionary: XLDictionary, suffix: str = "") -> Tokenizer:
    """The tokenizer of a SentencePiece model, whose vocabulary is the dictionary up to the last piece.

    Args:
        path: file of the model, in its data folder.
        dictionary: the joint `XLDictionary`.
        suffix: what the dictionary's pieces of the model end in: `@en` if languages share no piece.

    Raises `UserError` as `open_model` does, for pieces that the dictionary lacks, and for models that the package
    tokenizers cannot express.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    model = Model.of(open_model(path, path.parent).model)
    _check(model, path)
    scores = {piece.text: piece.score for piece in model.pieces if piece.kind in (NORMAL, BYTE)}
    missing = [piece for piece in scores if piece + suffix not in dictionary]
    if missing:
        raise UserError(
            f"{path} has {len(missing)} pieces that the dictionary lacks, such as {quoted(missing[0])}: a transformers "
            f"tokenizer cannot give {UNK} for them"
        )
    symbols = dictionary.symbols[: dictionary.mask_index]
    rows = [symbol[: len(symbol) - len(suffix)] if symbol.endswith(suffix) else symbol for symbol in symbols]
    rows = [row if row in scores else symbol for row, symbol in zip(rows, symbols)]
    lowest = min(scores.values())  # of rows that are no piece of the model: no text should become one
    if model.kind == UNIGRAM:
        vocabulary = [(row, scores.get(row, lowest)) for row in rows]
        tokenizer = Tokenizer(models.Unigram(vocabulary, SPECIAL.index(UNK), byte_fallback=model.byte_fallback))
    else:
        numbers = {row: number for number, row in enumerate(rows)}
        merges = list(bpe_merges({piece: score for piece, score in scores.items() if piece in numbers}))
        tokenizer = Tokenizer(
            models.BPE(numbers, merges, unk_token=UNK, fuse_unk=True, byte_fallback=model.byte_fallback)
        )
    tokenizer.normalizer = _normalizer(model)
    if not any(WORD_START in piece[1:] for piece in scores):
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=True)
    words = decoders.Metaspace(prepend_scheme="always" if model.dummy_prefix else "never")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), words]) if model.byte_fallback else words
    return tokenizer


#: file of a data folder -> function that makes its tokenizer, of the file, the dictionary and the pieces' suffix
KINDS: dict[str, Callable[[Path, XLDictionary, str], Tokenizer]] = {"sentencepiece.model": sentencepiece_tokenizer}


def _check(model: Model, path: Path) -> None:
    """Raises `UserError` for a model that the package tokenizers cannot express."""
    kinds = {piece.kind for piece in model.pieces}
    reasons = {
        f"its type is {MODEL_NAMES.get(model.kind, model.kind)}, unigram and bpe can be": model.kind
        not in (UNIGRAM, BPE),
        "it has user-defined symbols": USER_DEFINED in kinds,
        "it has unused pieces": UNUSED in kinds,
        f"it marks the ends of words by {WORD_START}": model.suffix,
        f"it does not mark words by {WORD_START}": not model.escape_spaces,
    }
    for reason, found in reasons.items():
        if found:
            raise UserError(f"{path} cannot be expressed as a transformers tokenizer: {reason}")


def _normalizer(model: Model) -> normalizers.Normalizer:
    from tokenizers import Regex, normalizers

    steps: list[normalizers.Normalizer] = []
    if model.charsmap:
        steps += [normalizers.NFC(), normalizers.Precompiled(model.charsmap)]
    if model.remove_extra_spaces:
        steps += [normalizers.Replace(Regex(rf"\A +|[ {WORD_START}]+\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    if model.dummy_prefix:
        steps.append(normalizers.Prepend(WORD_START))
    return normalizers.Sequence([*steps, normalizers.Replace(" ", WORD_START)])


def bpe_merges(scores: dict[str, float]) -> Iterator[tuple[str, str]]:
    """Yields the merges of a SentencePiece BPE model with the pieces {piece: score}, the first ones first.

    SentencePiece merges the neighbors whose union has the highest score, the leftmost ones first. So a piece has a
    merge for each pair of pieces that it consists of. The longest left piece is first: in `aaaa`, (aaa, a) is further
    to the left than (a, aaa).
    """
    for piece in sorted(scores, key=lambda piece: -scores[piece]):
        for cut in range(len(piece) - 1, 0, -1):
            if piece[:cut] in scores and piece[cut:] in scores:
                yield piece[:cut], piece[cut:]
