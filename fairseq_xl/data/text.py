"""Raw text encoded on the fly, as `python -m preprocess` encodes it."""

import hashlib
import json
from pathlib import Path

import numpy as np
import sentencepiece

from fairseq_xl.errors import UserError


class TextEncoder:
    """Raw text -> indices of the joint dictionary, ended by ``</s>``.

    Args:
        model: file of the SentencePiece model that the dictionary was made with.
        dictionary: the joint `XLDictionary`.

    Raises `UserError` for a missing or damaged model, and for another one than the manifest beside it names.
    """

    def __init__(self, model, dictionary):
        if not Path(model).is_file():
            raise UserError(f"{model}: no such SentencePiece model; `python -m preprocess` writes it")
        try:
            self.processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
        except (RuntimeError, OSError):
            raise UserError(f"{model} is not a SentencePiece model") from None
        manifest = Path(model).with_name("manifest.json")
        if manifest.is_file():
            written = json.loads(manifest.read_text(encoding="utf-8")).get("sentencepiece_sha256")
            if written not in (None, hashlib.sha256(Path(model).read_bytes()).hexdigest()):
                raise UserError(f"{model} is not the SentencePiece model that the text was encoded with: {manifest}")
        pieces = [self.processor.id_to_piece(number) for number in range(len(self.processor))]
        indices = np.array([dictionary.index(piece) for piece in pieces])
        self.indices = np.where(dictionary.is_piece[indices], indices, dictionary.unk())  # by SentencePiece id
        self.eos = dictionary.eos()

    def __call__(self, text):
        """Text -> (t,) int64, the last one ``</s>``; text without a piece is ``<unk>``."""
        pieces = self.processor.encode(text, out_type=int) or [self.processor.unk_id()]
        return np.append(self.indices[pieces], self.eos)


def cut(ended, room):
    """An ended sentence (t,) -> its first `room` tokens, of which the last is ``</s>`` again."""
    return ended if len(ended) <= room else np.append(ended[: room - 1], ended[-1])
