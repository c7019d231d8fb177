"""Cross-lingual denoising auto-encoding (Unicoder for XGLUE, G4): clean text from noised text of the same language.

Legend: B batch, S and T tokens of the noised and of the clean text.
"""

from dataclasses import dataclass

import numpy as np
import torch

from fairseq_xl.data.denoising import dropped, infilled, masked, shuffled, split_into_words
from fairseq_xl.data.framing import decoder_input, pad_rows, padding_mask
from fairseq_xl.errors import UserError
from fairseq_xl.models.denoising import XLDenoisingModel
from fairseq_xl.objectives.base import Objective, ObjectiveConfig
from fairseq_xl.objectives.sequence import sequence_terms

#: kinds of noise, in the order in which they are applied (G4, 1 to 4); the first three are of words, the last of pieces
NOISES = ("shuffle", "drop", "mask", "infill")
UNSEGMENTED = ("zh", "th")  # languages in which each piece is a word (G4); zh_CN is zh
WORD_START = "\u2581"  # what pieces of SentencePiece that begin a word begin with


@dataclass
class XDAEConfig(ObjectiveConfig):
    """Options of `xdae`."""

    length: int = 512  # most tokens of the noised text and of the clean one, symbols around them counted (G5)
    alpha: float = 0.3  # (G2)
    noise: str = "infill"  # kinds of noise, joined by +: shuffle, drop, mask, infill; applied in this order (G4)
    shuffle_distance: float = 3.0  # shuffle: words in the order of their numbers + U(0, this) (G4)
    drop_prob: float = 0.1  # drop: probability of leaving out a word (G4)
    word_mask_prob: float = 0.1  # mask: share of the words replaced by one <mask> each (G4)
    infill_prob: float = 0.3  # infill: share of the tokens that are replaced, in spans (G4: ours, after BART)
    span_length: float = 3.0  # infill: mean of the Poisson lengths of spans, each replaced by one <mask> (G4)

    def __post_init__(self):
        super().__post_init__()
        kinds = self.noise.split("+")
        known = set(kinds) <= set(NOISES) and len(set(kinds)) == len(kinds)
        self.require("noise", known, f"some of {', '.join(NOISES)}, joined by +")
        self.require("length", self.length > 2, "more than 2 tokens")
        for name in ("drop_prob", "word_mask_prob", "infill_prob"):
            self.require(name, 0 <= getattr(self, name) <= 1, "from 0 to 1")
        for name in ("shuffle_distance", "span_length"):
            self.require(name, getattr(self, name) <= self.length, f"at most length, {self.length}")
        self.require("shuffle_distance", self.shuffle_distance >= 0, "0 or more")
        self.require("span_length", self.span_length > 0, "more than 0")


@Objective.register
class XDAE(Objective):
    """An encoder reads a block of noised text and a decoder, from the language's symbol on, predicts it as it was.

    `batch_tokens` counts the clean text, which the decoder predicts; the noised text is never longer.
    """

    Config = XDAEConfig
    name = "xdae"
    reads = "monolingual"
    framed_tokens = 2  # <s> in front of the noised text, [xx] of the clean one; </s> where the block has none
    model_class = XLDenoisingModel

    def __init__(self, cfg, dictionary, framing):
        super().__init__(cfg, dictionary, framing)
        self.kinds = set(cfg.noise.split("+"))
        self.begins_word = np.array([symbol.startswith(WORD_START) for symbol in dictionary.symbols])

    def heads(self, model_cfg):
        """No modules; `UserError` for a model that predicts several tokens at a step."""
        if hasattr(model_cfg, "predicting_streams"):
            raise UserError("xdae predicts a token at a step: --arch xl_xdae_tiny and the like, not xl_xfnp_*")
        return {}

    def check(self, source):
        """`UserError` if words are asked for of a dictionary that doesn't say where they begin."""
        if self.kinds != {"infill"} and not self.begins_word.any():
            raise UserError(
                f"xdae.noise={self.cfg.noise} needs words, and no piece of the dictionary begins with {WORD_START}, "
                "as SentencePiece's do; xdae.noise=infill does not"
            )

    def collate(self, draws, source):
        """Noised tokens (B, S), languages (B, 1), what the decoder reads and its target (B, T)."""
        given, eos = (draws.examples, self.example_length), self.dictionary.eos()
        ended = [block if block[-1] == eos else np.append(block, eos) for (block,) in source.texts(*given)]
        framed = pad_rows([self.framing.sentence(block) for block in ended], self.dictionary.pad())
        tokens = self.noised(framed, draws.keys, [code for (code,) in source.languages(*given)])
        target = torch.from_numpy(pad_rows(ended, self.dictionary.pad()))
        languages = self.languages(draws, source)
        return {
            "tokens": torch.from_numpy(tokens),
            "padding_mask": padding_mask(tokens, self.dictionary.pad()),
            "languages": languages,
            "prev_output_tokens": decoder_input(target, self.dictionary.first_language + languages),
            "target": target,
        }

    def noised(self, tokens, keys, codes):
        """Clean rows (B, T) in languages of these codes -> noised ones (B, S), S <= T; special symbols stay (G4)."""
        cfg, mask, pad = self.cfg, self.dictionary.mask_index, self.dictionary.pad()
        each = np.array([code.split("_")[0].lower() in UNSEGMENTED for code in codes])
        text = split_into_words(tokens, self.dictionary.is_piece, self.begins_word, each)
        if "shuffle" in self.kinds:
            text = shuffled(text, keys, cfg.shuffle_distance)
        if "drop" in self.kinds:
            text = dropped(text, keys, cfg.drop_prob, pad)
        if "mask" in self.kinds:
            text = masked(text, keys, cfg.word_mask_prob, mask, pad)
        if "infill" not in self.kinds:
            return text.tokens
        allowed = self.dictionary.is_piece[text.tokens] | (text.tokens == mask)  # of what is masked already, too
        return infilled(text.tokens, allowed, keys, cfg.infill_prob, cfg.span_length, mask, pad)

    def loss(self, model, batch):
        """{"xdae": `Term` over the tokens of the clean text}, of a decoder that predicts one token at a step."""
        (term,) = sequence_terms(model, batch)
        return {self.name: term}
