"""Tokens that were added to the tokenizer of a published model, as `add_tokens` of transformers does.

The manifest of a data folder lists them with the flags of the package tokenizers, which finds them in text.
"""

import itertools
from collections.abc import Iterator
from typing import Any

from tokenizers import AddedToken, Tokenizer, models

from fairseq_xl.data.vocabulary.sentencepiece_model import SentencePieces
from fairseq_xl.data.vocabulary.wordpiece import WordPieces
from fairseq_xl.errors import UserError, quoted

#: flags of a token, with their values in a file that lists tokens alone
FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True}


class WithAddedTokens:
    """Sub-words of text between added tokens (`fairseq_xl.data.vocabulary.subwords.Subwords`).

    Args:
        subwords: the sub-words, whose ids come first.
        tokens: {"content": text, flag of `FLAGS`: whether it is set} of each token. A normalized one is looked for in
            text after the rules of normalization of the sub-words.
    """

    def __init__(self, subwords: SentencePieces | WordPieces, tokens: list[dict[str, Any]]):
        self.subwords, self.unknown = subwords, subwords.unknown
        self.title, self.units = subwords.title, subwords.units
        self.symbols = [*subwords.symbols, *(token["content"] for token in tokens)]
        self.tokenizer = Tokenizer(models.WordLevel({"": 0}, unk_token=""))  # text between the tokens is unknown
        if normalizer := subwords.normalizer():
            self.tokenizer.normalizer = normalizer
        self.tokenizer.add_tokens(added_tokens(tokens))

    def encode(self, lines: list[str]) -> list[list[int]]:
        """Lines -> the ids of their pieces and tokens."""
        parts = [[*self._parts(line)] for line in lines]
        texts = iter(self.subwords.encode([text for row in parts for token_id, _, text in row if token_id is None]))
        ids = ([next(texts) if token_id is None else [token_id] for token_id, _, _ in row] for row in parts)
        return [[*itertools.chain.from_iterable(row)] for row in ids]

    def lost(self, line: str) -> list[str]:
        """The characters of a line for which the vocabulary has no piece."""
        parts = (self.subwords.lost(text) for token_id, _, text in self._parts(line) if token_id is None)
        return list(itertools.chain.from_iterable(parts))

    def spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Text -> the ids of its pieces and tokens, and the characters [begin, end) of each."""
        ids: list[int] = []
        characters: list[tuple[int, int]] = []
        for token_id, start, part in self._parts(text):
            pieces, spans = self.subwords.spans(part) if token_id is None else ([token_id], [(0, len(part))])
            ids += pieces
            characters += [(start + begin, start + end) for begin, end in spans]
        return ids, characters

    def _parts(self, text: str) -> Iterator[tuple[int | None, int, str]]:
        """Yields the id of each token, or None for text between tokens, its first character, and its text."""
        encoding, first = self.tokenizer.encode(text), len(self.subwords.symbols) - 1
        for number, (begin, end) in zip(encoding.ids, encoding.offsets):
            yield first + number if number else None, begin, text[begin:end]


def added_tokens(tokens: list[dict[str, Any]]) -> list[AddedToken]:
    """The tokens for a `Tokenizer`."""
    return [AddedToken(token["content"], **{flag: token[flag] for flag in FLAGS}) for token in tokens]


def check_tokens(tokens: Any, origin: object) -> list[dict[str, Any]]:
    """Returns different tokens with all flags; raises `UserError`, with the file `origin`, for anything else."""
    if not isinstance(tokens, list) or not all(
        isinstance(token, dict)
        and isinstance(token.get("content"), str)
        and token["content"]
        and all(isinstance(token.get(flag, default), bool) for flag, default in FLAGS.items())
        for token in tokens
    ):
        raise UserError(f"{origin} is damaged: its added tokens are {quoted(tokens)}, expected texts with flags")
    if len({token["content"] for token in tokens}) != len(tokens):
        raise UserError(f"{origin} is damaged: it has an added token twice")
    return [{"content": token["content"], **{flag: token.get(flag, FLAGS[flag]) for flag in FLAGS}} for token in tokens]
