"""Raw text encoded on the fly, as `python -m preprocess` encodes it."""

import functools
import hashlib
import itertools
from pathlib import Path

import numpy as np
import sentencepiece

from fairseq_xl.data import tokenizers
from fairseq_xl.data.manifest import read_manifest
from fairseq_xl.errors import UserError

KEPT, KEPT_SPANS = 1 << 15, 64  # number of texts whose encoding is kept


def open_model(path, folder):
    """A SentencePiece model for the text of a data folder.

    Raises `UserError` for a missing or damaged model, and for another one than the folder's manifest names.
    """
    if not Path(path).is_file():
        raise UserError(f"{path}: no such SentencePiece model; `python -m preprocess` writes it")
    try:
        model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (RuntimeError, OSError):
        raise UserError(f"{path} is not a SentencePiece model, or it is damaged") from None
    written = read_manifest(folder).get("sentencepiece_sha256")
    if written not in (None, hashlib.sha256(Path(path).read_bytes()).hexdigest()):
        raise UserError(
            f"{path} is not the SentencePiece model that the text was encoded with: {Path(folder) / 'manifest.json'}"
        )
    return model


class TextEncoder:
    """Raw text -> indices of the joint dictionary, ended by ``</s>``.

    Args:
        model: file of the SentencePiece model that the dictionary was made with; the manifest beside it names the
            tokenizers of the languages that have one. Where it names languages that share no piece
            (`python -m preprocess.disjoint`), each has a model in a folder of its own instead.
        dictionary: the joint `XLDictionary`.

    Raises `UserError` as `open_model` does, for a model of which the dictionary lacks most pieces, and for a tokenizer
    whose package is not installed.
    """

    def __init__(self, model, dictionary):
        folder = Path(model).parent
        self.tokenizers = tokenizers.named_in(folder)
        apart = read_manifest(folder).get("disjoint")
        named = {language: (folder / language / Path(model).name, f"@{language}") for language in apart or ()}
        named = named or {None: (Path(model), "")}  # one for all languages
        self.models = {language: self._open(*of_it, dictionary) for language, of_it in named.items()}
        self.eos = dictionary.eos()
        self._kept = functools.lru_cache(KEPT)(self._encode)  # words, queries and premises occur several times
        self._kept_spans = functools.lru_cache(KEPT_SPANS)(self._spans)  # a context has several questions

    @staticmethod
    def _open(path, suffix, dictionary):
        """A model and the indices (P,) of its pieces in the dictionary, where they are written with a suffix."""
        processor = open_model(path, path.parent)
        pieces = [processor.id_to_piece(number) + suffix for number in range(len(processor))]
        known = sum(piece in dictionary for piece in pieces)
        if 2 * known < len(pieces):
            raise UserError(
                f"{path} is not the SentencePiece model of the dictionary, which has {known} of its {len(pieces)} "
                "pieces"
            )
        indices = np.array([dictionary.index(piece) for piece in pieces])
        return processor, np.where(dictionary.is_piece[indices], indices, dictionary.unk())

    def __call__(self, text, language):
        """Text of a language -> (t,) int64, the last one ``</s>``; text without a piece is ``<unk>``.

        The array cannot be changed: equal texts may share it.
        """
        return self._kept(text, language)

    def _encode(self, text, language):
        text = tokenizers.tokenize(text, self.tokenizers.get(language), language)
        processor, indices = self.models[language if language in self.models else None]
        pieces = processor.encode(text, out_type=int) or [processor.unk_id()]
        found = np.append(indices[pieces], self.eos)
        found.flags.writeable = False
        return found

    def spans(self, text, language):
        """Text of a language -> ids (t,), without ``</s>``, and the characters [begin, end) of each, (t, 2).

        The arrays cannot be changed: equal texts may share them. Raises `UserError` if the tokenizer changes anything
        but white space.
        """
        return self._kept_spans(text, language)

    def _spans(self, text, language):
        name, raw = self.tokenizers.get(language), text
        text = tokenizers.tokenize(text, name, language)
        processor, indices = self.models[language if language in self.models else None]
        try:
            found = processor.encode(text, return_type="offset_mapping")
            pieces, characters = found["ids"], found["offsets"]
        except TypeError:  # sentencepiece before 0.2.3
            found = processor.encode(text, out_type="immutable_proto").pieces
            pieces, characters = [each.id for each in found], [(each.begin, each.end) for each in found]
        characters = np.array(characters, dtype=np.int64).reshape(-1, 2)
        if name is not None:
            try:
                characters = in_raw(characters, text, raw)
            except ValueError as error:
                raise UserError(
                    f"the tokenizer {name!r} of {language} changes characters of the text ({error}), so answers cannot "
                    "be located; use a data folder whose tokenizer changes only white space"
                ) from None
        ids = indices[np.array(pieces, dtype=np.int64)]
        ids.flags.writeable = characters.flags.writeable = False
        return ids, characters


def in_raw(characters, tokenized, raw):
    """Characters [begin, end) (t, 2) of a tokenized text -> those of the raw text, without spaces around them.

    Both texts must have the same characters except for spaces; raises `ValueError` that names the first difference.
    """
    ours, theirs = ([place for place, each in enumerate(text) if not each.isspace()] for text in (tokenized, raw))
    for one, other in itertools.zip_longest(ours, theirs):
        if one is None or other is None or tokenized[one] != raw[other]:
            sides = ((raw, other), (tokenized, one))
            before, after = ("" if place is None else text[place:][:20] for text, place in sides)
            raise ValueError(f"{before!r} becomes {after!r}")
    begins, ends = np.searchsorted(ours, characters).T  # numbers of characters before, without spaces
    places = np.array([*theirs, len(raw)])
    return np.stack((places[begins], np.where(ends > begins, places[ends - 1] + 1, places[begins])), axis=1)


def cut(ended, room):
    """An ended sentence (t,) -> its first `room` tokens, of which the last is ``</s>`` again."""
    return ended if len(ended) <= room else np.append(ended[: room - 1], ended[-1])
