"""Monolingual text as single sentences."""

from pathlib import Path
from typing import Any

from fairseq_xl.data.corpus import Numbers
from fairseq_xl.data.indexed import open_text
from fairseq_xl.data.lines import LineCorpus


class Sentences(LineCorpus):
    """The sentences of one language; empty lines and sentences of more than `length` tokens are left out.

    An example is a line.

    Args:
        path: prefix of the ``.bin`` and ``.idx`` files.
        language: code of the language.
        symbols: size of the dictionary that token ids are checked against; None: no check.
    """

    def __init__(self, path: str | Path, language: str, symbols: int | None = None):
        self.text, self.language, self.codes = open_text(path, language, symbols), language, (language,)
        none = f"{path}: the text of language {language!r} has no sentence"
        super().__init__(self.text.prefix, len(self.text), self.text.sides_of, self.text.blocks, none)

    def __reduce__(self) -> tuple[Any, ...]:
        return Sentences, (self.path, self.language, self.text.symbols)

    def texts(self, lines: Numbers, length: int) -> list[tuple[Numbers, ...]]:
        """The sentences of these lines: a list of 1-tuples of int64 arrays (t,)."""
        return [(self.text[line].numpy(),) for line in lines.tolist()]
