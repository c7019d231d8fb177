"""SentencePiece as the sub-words of a data folder."""

import contextlib
from pathlib import Path

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tokenizers import normalizers

from fairseq_xl.errors import UserError
from fairseq_xl.io import bounds
from fairseq_xl.io.text import check_growth


class SentencePieces:
    """The pieces of a SentencePiece model (`fairseq_xl.data.vocabulary.subwords.Subwords`).

    Raises `UserError` for a missing or damaged file.
    """

    title, units = "SentencePiece model", "characters"

    def __init__(self, file: Path):
        self.file, self.model = file, open_sentencepiece(file)
        self.unknown = self.model.unk_id()
        self.symbols = symbols_of(self.model)

    def normalizer(self) -> normalizers.Normalizer | None:
        """The model's rules for characters in the package tokenizers; None without rules, `UserError` for damage."""
        rules = ModelProto.FromString(self.model.serialized_model_proto()).normalizer_spec.precompiled_charsmap
        if not rules:
            return None
        try:
            normalizer = normalizers.Precompiled(rules)
            normalizer.normalize_str("".join(map(chr, range(1, 0xD800))))  # a damaged table fails at a character
            return normalizer
        except KeyboardInterrupt:
            raise
        except BaseException:  # PanicException of tokenizers is not an Exception
            raise UserError(f"{self.file} is damaged: its rules of normalization cannot be read") from None

    def encode(self, lines: list[str]) -> list[list[int]]:
        """Lines -> the ids of their pieces; raises `UserError` as `check_growth`."""
        check_growth(lines)
        return self.model.encode(lines, out_type=int, num_threads=1)

    def lost(self, line: str) -> list[str]:
        """The characters of a line, after normalization, for which the model has no piece."""
        pieces, ids = (self.model.encode(line, out_type=kind) for kind in (str, int))
        return [char for piece, piece_id in zip(pieces, ids) if piece_id == self.unknown for char in piece]

    def spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Text -> the ids of its pieces, and the characters [begin, end) of each; raises `UserError` as `encode`."""
        check_growth([text])
        try:
            mapping = self.model.encode(text, return_type="offset_mapping")
            return mapping["ids"], mapping["offsets"]
        except TypeError:  # sentencepiece before 0.2.3
            pieces = self.model.encode(text, out_type="immutable_proto").pieces  # type: ignore[arg-type]
            return [piece.id for piece in pieces], [(piece.begin, piece.end) for piece in pieces]


def open_sentencepiece(file: Path) -> sentencepiece.SentencePieceProcessor:
    """The model in a file; raises `UserError` for a missing or damaged one."""
    if not file.is_file():
        raise UserError(f"{file}: no such SentencePiece model; `fairseq-xl data prepare` writes it")
    if file.stat().st_size > bounds.LARGEST_FILE:
        raise UserError(f"{file}: more than {bounds.LARGEST_FILE >> 20} MiB, which no SentencePiece model has")
    with contextlib.suppress(RuntimeError, OSError):
        if content := file.read_bytes():  # from nothing SentencePiece makes a model that encodes nothing
            return sentencepiece.SentencePieceProcessor(model_proto=content)
    raise UserError(f"{file} is not a SentencePiece model, or it is damaged")


def symbols_of(model: sentencepiece.SentencePieceProcessor) -> list[str]:
    """The symbol of each id of the model; ids that are not ordinary pieces become <unk>.

    A piece may look like a symbol of the dictionary, since text may have "[en]"; callers must not take it for one.
    """
    kinds = (model.is_unknown, model.is_control, model.is_unused)
    ids = range(model.get_piece_size())
    return ["<unk>" if any(is_kind(index) for is_kind in kinds) else model.id_to_piece(index) for index in ids]
