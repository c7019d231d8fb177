"""``--bpe xl_subwords``: the sub-words of the data folder, of any kind, for raw text in fairseq's commands."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq.data.encoders import register_bpe
from fairseq.dataclass import FairseqDataclass

from fairseq_xl.data.dictionary import XLDictionary, joined
from fairseq_xl.data.subwords import open_subwords
from fairseq_xl.errors import UserError


@dataclass
class XLSubwordsConfig(FairseqDataclass):
    """`xl_subwords` has no options: the data folder says which sub-words it has."""


@register_bpe("xl_subwords", dataclass=XLSubwordsConfig)
class XLSubwords:
    """fairseq's BPE with the sub-words of a data folder.

    Args:
        cfg: the config, without options.
        folder: the data folder.
        dictionary: the joint dictionary, whose word mark joins pieces.
    """

    def __init__(self, cfg: Any, folder: Path | None = None, dictionary: XLDictionary | None = None):
        if folder is None or dictionary is None:
            raise UserError("--bpe xl_subwords is for the tasks of this package: it reads their data folder")
        self.subwords, self.mark = open_subwords(folder), dictionary.word_mark

    def encode(self, line: str) -> str:
        """Words -> pieces, separated by spaces."""
        (ids,) = self.subwords.encode([line])
        return " ".join(self.subwords.symbols[number] for number in ids)

    def decode(self, pieces: str) -> str:
        """Pieces, separated by spaces -> words."""
        return joined(pieces, self.mark)
