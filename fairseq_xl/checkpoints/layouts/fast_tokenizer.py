"""The sub-words of a data folder as a tokenizer of the package tokenizers, with the ids of our dictionary.

A SentencePiece model becomes these steps, in which spaces are ▁ at the end:

- the text of a line: spaces of all kinds, invisible words;
- the model's own rules of normalization;
- spaces: removed at both ends, merged, and one put in front of the text, as far as the model does so;
- Unigram or BPE. Words are separated before, which changes no result unless a piece has ▁ inside.

A WordPiece vocabulary is BERT's tokenizer in the same package. recipes/interchange/README.md lists the texts whose ids
differ from `TextEncoder`'s. The package applies the shortest rule of normalization to graphemes shorter than 6 bytes
and drops the rest, SentencePiece the longest one.
"""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from sentencepiece.sentencepiece_model_pb2 import ModelProto, NormalizerSpec, TrainerSpec
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from fairseq_xl.checkpoints.sentencepiece_surgery import BPE, UNIGRAM, Piece
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.special_symbols import SPECIAL, WORD_START
from fairseq_xl.data.vocabulary.subwords import FILES, open_model, open_pieces
from fairseq_xl.data.vocabulary.wordpiece import CONTINUATION, WordPieces
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.text import BYTE_ORDER_MARK, INVISIBLE, SPACES

UNK = SPECIAL[3]


def sentencepiece_tokenizer(folder: Path, dictionary: XLDictionary, suffix: str = "") -> Tokenizer:
    """The tokenizer of a SentencePiece model, whose vocabulary is the dictionary up to the last piece.

    The dictionary's pieces have the `suffix`, as `@en`. Raises `UserError` as `open_model`, for pieces that it lacks,
    and for models that the package cannot express.
    """
    (path,) = (folder / name for name in FILES["sentencepiece"])
    opened = open_model(path, folder)
    model = ModelProto.FromString(opened.model.serialized_model_proto())
    _check(model, path)
    scores = {piece.piece: piece.score for piece in model.pieces if piece.type in (Piece.NORMAL, Piece.BYTE)}
    rows = names_of_rows(dictionary, scores, suffix)[: dictionary.mask_index]
    _check_complete(rows, scores, dictionary, path)
    byte_fallback = model.trainer_spec.byte_fallback
    lowest = min(scores.values())  # of rows that are no piece of the model: no text should become one
    if model.trainer_spec.model_type == UNIGRAM:
        vocabulary = [(row, scores.get(row, lowest)) for row in rows]
        tokenizer = Tokenizer(models.Unigram(vocabulary, SPECIAL.index(UNK), byte_fallback=byte_fallback))
    else:
        row_ids = {row: row_id for row_id, row in enumerate(rows)}
        merges = list(bpe_merges({piece: score for piece, score in scores.items() if piece in row_ids}))
        tokenizer = Tokenizer(models.BPE(row_ids, merges, unk_token=UNK, fuse_unk=True, byte_fallback=byte_fallback))
    tokenizer.normalizer = _normalizer(model.normalizer_spec, opened.normalizer())
    if not any(WORD_START in piece[1:] for piece in scores):
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=True)
    words = decoders.Metaspace(prepend_scheme="always" if model.normalizer_spec.add_dummy_prefix else "never")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), words]) if byte_fallback else words
    return tokenizer


def wordpiece_tokenizer(folder: Path, dictionary: XLDictionary, suffix: str = "") -> Tokenizer:
    """The tokenizer of a WordPiece vocabulary; arguments and errors as in `sentencepiece_tokenizer`."""
    opened = open_pieces(folder)
    assert isinstance(opened, WordPieces)
    pieces = {piece for piece in opened.symbols if piece != UNK}
    rows = names_of_rows(dictionary, pieces, suffix)[: dictionary.mask_index]
    _check_complete(rows, pieces, dictionary, folder / FILES["wordpiece"][0])
    tokenizer, model = opened.tokenizer, opened.tokenizer.model
    assert isinstance(model, models.WordPiece)
    row_ids = {row: row_id for row_id, row in enumerate(rows)}
    tokenizer.model = models.WordPiece(row_ids, unk_token=UNK, max_input_chars_per_word=model.max_input_chars_per_word)
    tokenizer.normalizer = normalizers.Sequence([*_text_steps(), tokenizer.normalizer])
    tokenizer.decoder = decoders.WordPiece(CONTINUATION, cleanup=False)
    return tokenizer


#: kind of vocabulary -> function that makes its tokenizer of the data folder, the dictionary and the pieces' suffix
KINDS: dict[str, Callable[[Path, XLDictionary, str], Tokenizer]] = {
    "sentencepiece": sentencepiece_tokenizer,
    "wordpiece": wordpiece_tokenizer,
}


def names_of_rows(dictionary: XLDictionary, pieces: Collection[str], suffix: str) -> list[str]:
    """The names of the dictionary's rows in a tokenizer: the symbols; for its `pieces`, without the suffix."""
    stripped = [symbol.removesuffix(suffix) for symbol in dictionary.symbols]
    return [
        name if name in pieces and name + suffix == symbol else symbol
        for name, symbol in zip(stripped, dictionary.symbols)
    ]


def _check_complete(rows: list[str], pieces: Collection[str], dictionary: XLDictionary, path: Path) -> None:
    """Raises `UserError` if the dictionary lacks pieces; those that are spelled as a special symbol do not count."""
    missing = sorted({*pieces} - {*rows} - {*dictionary.symbols})
    if missing:
        raise UserError(
            f"{path} has {len(missing)} pieces that the dictionary lacks, such as {quoted(missing[0])}: a transformers "
            f"tokenizer cannot give {UNK} for them"
        )


def _check(model: ModelProto, path: Path) -> None:
    kind, types = model.trainer_spec.model_type, {piece.type for piece in model.pieces}
    name = TrainerSpec.ModelType.Name(kind).lower()
    reasons = {
        f"its type is {name}, unigram and bpe can be": kind not in (UNIGRAM, BPE),
        "it has user-defined symbols": Piece.USER_DEFINED in types,
        "it has unused pieces": Piece.UNUSED in types,
        f"it marks the ends of words by {WORD_START}": model.trainer_spec.treat_whitespace_as_suffix,
        f"it does not mark words by {WORD_START}": not model.normalizer_spec.escape_whitespaces,
    }
    for reason, applies in reasons.items():
        if applies:
            raise UserError(f"{path} cannot be expressed as a transformers tokenizer: {reason}")


def _text_steps() -> list[normalizers.Normalizer]:
    """The steps from a line to its text (`fairseq_xl.io.text.text_of_line`)."""
    spaces, invisible = (
        "".join(char if char == "-" else f"\\x{{{ord(char):X}}}" for char in ranges) for ranges in (SPACES, INVISIBLE)
    )
    replaced = {
        rf"\A\x{{{ord(BYTE_ORDER_MARK):X}}}+": "",
        f"[{spaces}]+": " ",
        f"[{invisible}](?<![^ ][{invisible}])[{invisible}]*(?![^ ])": "",
        " {2,}": " ",
        r"\A | \z": "",
    }
    return [normalizers.Replace(Regex(pattern), content) for pattern, content in replaced.items()]


def _normalizer(rules: NormalizerSpec, characters: normalizers.Normalizer | None) -> normalizers.Normalizer:
    steps = [*_text_steps(), *filter(None, [characters])]
    if rules.remove_extra_whitespaces:
        steps += [normalizers.Replace(Regex(rf"\A +|[ {WORD_START}]+\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    if rules.add_dummy_prefix:
        steps.append(normalizers.Prepend(WORD_START))
    return normalizers.Sequence([*steps, normalizers.Replace(" ", WORD_START)])


def bpe_merges(scores: dict[str, float]) -> Iterator[tuple[str, str]]:
    """Yields the merges of a SentencePiece BPE model with the pieces {piece: score}, the first ones first.

    SentencePiece merges the neighbors whose union has the highest score, the leftmost ones first. So a piece has a
    merge for each pair of pieces that it consists of. The longest left piece is first: in `aaaa`, (aaa, a) is further
    to the left than (a, aaa).
    """
    for piece in sorted(scores, key=lambda piece: -scores[piece]):
        for end in range(len(piece) - 1, 0, -1):
            if piece[:end] in scores and piece[end:] in scores:
                yield piece[:end], piece[end:]
