"""Cross-lingual denoising auto-encoding, xDAE (Liang et al. 2020, section 4.1): clean text from corrupted text.

Legend: B batch, S and T tokens of the corrupted and of the clean text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fairseq_xl.data import Numbers
from fairseq_xl.data.corpora.base import Texts
from fairseq_xl.data.corpora.token_stream import TokenStream
from fairseq_xl.data.framing import Framing, InputLength, find_padding, pad_rows
from fairseq_xl.data.noise.text_noise import dropped, infilled, masked, shuffled, split_into_words
from fairseq_xl.data.plan.epoch_plan import BatchSpec
from fairseq_xl.data.vocabulary.joint_dictionary import BPE, UNMARKED, XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.modules.packing import find_packings
from fairseq_xl.objectives.base import Batch, BlockConfig, Objective, Term
from fairseq_xl.objectives.sequence import SequenceObjective, decoder_input, decoder_target, sequence_terms

#: kinds of noise, in the order in which they are applied; the first three change words, the last one changes pieces
NOISES = ("shuffle", "drop", "mask", "infill")
# languages in which each piece of SentencePiece is a word, with and without a region: zh_CN
UNSEGMENTED = ("zh", "th")


@dataclass
class XDAEConfig(BlockConfig):
    """Options of `xdae`; noise as in Liang et al. 2020, section 4.1."""

    # maximum length of corrupted and clean text, in tokens, with special symbols (Liang et al. 2020, section 6.1)
    length: int = 512
    alpha: float = 0.3  # exponent of the sampling shares (ours: the paper has 0.3 for MLM and TLM)
    noise: str = "infill"  # kinds of noise, joined by +: shuffle, drop, mask, infill; applied in this order
    shuffle_distance: float = 3.0  # shuffle: words are sorted by their position + U(0, shuffle_distance)
    drop_prob: float = 0.1  # drop: probability of leaving out a word
    word_mask_prob: float = 0.1  # mask: share of the words that are replaced, each by one <mask>
    infill_prob: float = 0.3  # infill: share of the tokens that spans cover (BART's; not given in the paper)
    span_length: float = 3.0  # infill: mean of the Poisson lengths of spans; one <mask> replaces a span

    def __post_init__(self) -> None:
        super().__post_init__()
        kinds = self.noise.split("+")
        valid = set(kinds) <= set(NOISES) and len(set(kinds)) == len(kinds)
        self.require("noise", valid, f"some of {', '.join(NOISES)}, joined by +")
        self.require("length", self.length > 2, "more than 2 tokens")
        for name in ("drop_prob", "word_mask_prob", "infill_prob"):
            self.require(name, 0 <= getattr(self, name) <= 1, "from 0 to 1")
        for name in ("shuffle_distance", "span_length"):
            self.require(name, getattr(self, name) <= self.length, f"at most length, {self.length}")
        self.require("shuffle_distance", self.shuffle_distance >= 0, "0 or more")
        self.require("span_length", self.span_length > 0, "more than 0")


@Objective.register
class XDAE(SequenceObjective):
    """Predicts a block of text from the corrupted block; `batch_tokens` counts the clean text, the longer one."""

    Config = XDAEConfig
    name = "xdae"
    corpus_class = TokenStream
    restores_text = True

    def __init__(self, cfg: Any, dictionary: XLDictionary, framing: Framing):
        super().__init__(cfg, dictionary, framing)
        self.kinds = set(cfg.noise.split("+"))

    @property
    def input_length(self) -> InputLength:
        """`InputLength` of a block with ``<s>`` or ``[xx]`` and, if it ends inside a sentence, ``</s>``."""
        return InputLength(text=self.cfg.length - 2, symbols=2, positions=self.cfg.length)

    def check(self, corpus: Texts) -> None:
        """Raises `UserError` if the noise changes words and the dictionary does not mark them."""
        if self.kinds != {"infill"} and self.dictionary.word_mark is None:
            raise UserError(
                f"xdae.noise={self.cfg.noise} needs words, and {UNMARKED}; xdae.noise=infill works without words"
            )

    def collate(self, batch_spec: BatchSpec, corpus: Texts) -> Batch:
        """Corrupted tokens (B, S), languages (B, 1), decoder input and target (B, T)."""
        texts, eos = self.texts(batch_spec, corpus), self.dictionary.eos()
        ended = [block if block[-1] == eos else np.append(block, eos) for (block,) in texts]
        framed = pad_rows([self.framing.sentence(block) for block in ended], self.dictionary.pad())
        codes = [code for (code,) in self.language_codes(batch_spec, corpus)]
        tokens = self.corrupted(framed, batch_spec.keys, codes)
        target = torch.from_numpy(pad_rows(ended, self.dictionary.pad()))
        languages = self.languages(batch_spec, corpus)
        return {
            "tokens": torch.from_numpy(tokens),
            "padding_mask": find_padding(tokens, self.dictionary.pad()),
            **find_packings(self.dictionary.pad(), packing=tokens, target_packing=target.numpy()),
            "languages": languages,
            "prev_output_tokens": decoder_input(target, self.dictionary.first_language + languages),
            **decoder_target(target, self.dictionary.pad()),
        }

    def corrupted(self, tokens: Numbers, keys: np.ndarray, codes: Sequence[str]) -> Numbers:
        """Corrupts clean rows (B, T) in the languages `codes`: (B, S), S <= T. Special symbols stay."""
        cfg, mask, pad = self.cfg, self.dictionary.mask_index, self.dictionary.pad()
        unsegmented = UNSEGMENTED if self.dictionary.word_mark != BPE else ()  # BPE's text has spaces between words
        is_unsegmented = np.array([code.split("_")[0].lower() in unsegmented for code in codes])
        text = split_into_words(tokens, self.dictionary.is_piece, *self.dictionary.word_boundaries, is_unsegmented)
        if "shuffle" in self.kinds:
            text = shuffled(text, keys, cfg.shuffle_distance)
        if "drop" in self.kinds:
            text = dropped(text, keys, cfg.drop_prob, pad)
        if "mask" in self.kinds:
            text = masked(text, keys, cfg.word_mask_prob, mask, pad)
        if "infill" not in self.kinds:
            return text.tokens
        allowed = self.dictionary.is_piece[text.tokens] | (text.tokens == mask)  # masked words may be covered, too
        return infilled(text.tokens, allowed, keys, cfg.infill_prob, cfg.span_length, mask, pad)

    def loss(self, model: Any, batch: Batch) -> dict[str, Term]:
        """{"xdae": `Term` over the tokens of the clean text}."""
        (term,) = sequence_terms(model, batch)
        return {self.name: term}
