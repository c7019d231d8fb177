"""Monolingual text as single sentences."""

from pathlib import Path

from fairseq_xl.data.corpora.line_corpus import LineCorpus
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.io.arrays import Reopened


@LineCorpus.register
class Sentences(Reopened, LineCorpus):
    """The sentences of one language; empty lines and sentences of more than `length` tokens are left out.

    An example is a line. Arguments are those of `open_text`.
    """

    break_mode = "eos"

    def __init__(self, path: str | Path, language: str, symbols: int | None = None):
        self.text, self.language, self.codes = open_text(path, language, symbols), language, (language,)
        super().__init__(self.text.prefix, [self.text], f"{path}: the text of language {language!r} has no sentence")
