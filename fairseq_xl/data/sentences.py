"""Monolingual text as single sentences."""

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

    def __init__(self, path, language, symbols=None):
        self.text = open_text(path, language, symbols)
        self.path, self.language, self.lines = self.text.prefix, language, len(self.text)
        self.sides_of, self.blocks = self.text.sides_of, self.text.blocks
        self.count(f"{path}: the text of language {language!r} has no sentence")

    def __reduce__(self):
        return Sentences, (self.path, self.language, self.text.symbols)

    def texts(self, lines, length):
        """The sentences of these lines: a list of 1-tuples of int64 arrays (t,)."""
        return [(self.text[line].numpy(),) for line in lines]

    def languages(self, lines, length):
        """The language of each sentence, a list of 1-tuples."""
        return [(self.language,)] * len(lines)
