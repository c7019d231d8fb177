"""A body that languages share and a bank for each (MonoTrans, M1-M5). Shapes: B batch, T time, C channels, V symbols.

A bank is what a language owns: tokens, output bias, the embedding of the language, and optionally positions (M3) and
adapters (M5). The model in memory has one, that of its dictionary. `fairseq_xl.checkpoints.banks` says which
parameters these are, and puts another language's in their place.
"""

from dataclasses import dataclass, field
from typing import Optional

import torch
from fairseq.dataclass import ChoiceEnum
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_xl.errors import check_ranges
from fairseq_xl.models.config import EncoderConfig
from fairseq_xl.models.encoder import Encoder, XLEncoderModel
from fairseq_xl.modules.embeddings import Bank, Embeddings

#: initial standard deviation of an adapter's weights: adapters start near the identity, as in Houlsby et al. 2019
ADAPTER_STD = 0.01
#: segments of an input: a sentence or the first of a pair, the second of a pair
SEGMENTS = 2


@dataclass
class MonoTransConfig(EncoderConfig):
    """An encoder and what MonoTrans adds to it."""

    segment_embeddings: ChoiceEnum(["added", "none"]) = field(
        default="added", metadata={"help": "add an embedding of which of a pair a token is in (BERT) or none (XLM-R)"}
    )
    language_positions: bool = field(
        default=False,
        metadata={
            "help": "positions belong to a language's bank, and the first symbol has no position and no segment (M3)"
        },
    )
    adapters: int = field(
        default=0,
        metadata={
            "help": "channels inside the adapters, which belong to a language's bank; 0: none (M5)",
            "range": "0 or more",
        },
    )
    embedding_noise: float = field(
        default=0.0,
        metadata={
            "help": "in training, standard deviation of the noise on each embedding of word, position, segment (M4)",
            "range": "0 or more",
        },
    )


class SharedSpecialBank(Bank):
    """A bank whose special symbols are a table of their own (5, C): every language shares it (M2).

    Their rows in the token table are never read. The output bias is the language's, that of special symbols too.

    Args:
        special: ids of the special symbols; that of `pad` is one of them
    """

    def __init__(self, vocab_size: int, embed_dim: int, pad: int, special):
        super().__init__(vocab_size, embed_dim, pad, bias=True)
        self.special = nn.Embedding(len(special), embed_dim, padding_idx=special.index(pad))
        places = torch.full((vocab_size,), -1)  # of each symbol in the table of special ones
        places[special] = torch.arange(len(special))
        self.register_buffer("places", places, persistent=False)
        self.register_buffer("ids", torch.tensor(special), persistent=False)

    @property
    def output_table(self) -> Tensor:
        """The table (V, C) with the special symbols in their places."""
        return super().output_table.index_copy(0, self.ids, self.special.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) -> (B, T, C)"""
        places = self.places[tokens][..., None]  # (B, T, 1)
        return torch.where(places < 0, super().forward(tokens), self.special(places.squeeze(-1).clamp(min=0)))


class PlacedEmbeddings(Embeddings):
    """Embeddings with segments, M3's first symbol and M4's noise.

    Noise is drawn by torch, as dropout is, for every token of a batch anew. That of k embeddings, which are summed, is
    one draw of k times the variance.
    """

    def __init__(self, cfg: MonoTransConfig, bank: Bank, num_languages: int):
        super().__init__(cfg, bank, num_languages)
        self.segments = None
        if str(cfg.segment_embeddings) == "added":
            self.segments = nn.Embedding(SEGMENTS, cfg.embed_dim)
        self.first_is_plain, self.noise = cfg.language_positions, cfg.embedding_noise

    def placed(self, rows: Tensor, positions: Tensor, segments: Optional[Tensor]) -> Tensor:
        """Embeddings of tokens (B, T, C) and of positions (B, T, C) or (T, C), segments (B, T) -> (B, T, C).

        Without `segments` everything is in the first one.
        """
        summed = torch.full((rows.size(1), 1), 2.0, device=rows.device)  # embeddings of each token
        if self.segments is not None:
            positions = positions + (self.segments.weight[0] if segments is None else self.segments(segments))
            summed += 1
        if self.first_is_plain:
            positions = torch.cat((torch.zeros_like(positions[..., :1, :]), positions[..., 1:, :]), dim=-2)
            summed[0] = 1
        hidden = rows + positions
        if self.training and self.noise:
            hidden = hidden + (self.noise * summed.sqrt()).type_as(hidden) * torch.randn_like(hidden)
        return hidden


class Adapter(nn.Module):
    """A bottleneck after a part of a layer, with a residual: x + up(GELU(down(x))) (M5; Houlsby et al. 2019)."""

    def __init__(self, embed_dim: int, channels: int):
        super().__init__()
        self.down = nn.Linear(embed_dim, channels)
        self.up = nn.Linear(channels, embed_dim)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., C) -> (..., C)"""
        return hidden + self.up(F.gelu(self.down(hidden)))


class XLMonoTransModel(XLEncoderModel):
    """An encoder whose bank can be replaced by another language's.

    Names in the state dict as in `XLEncoderModel`, and

        encoder.bank.special.weight (5, C)     encoder.embeddings.segments.weight (2, C)
        encoder.layers.N.{attention,ffn}_adapter.{down,up}.*
    """

    described = "an encoder with banks: --arch xl_monotrans_tiny and the like"
    #: what is done to each state dict before it is loaded: another bank may be put in (M1, step 4)
    before_loading = None

    def __init__(self, cfg: MonoTransConfig, vocab_size: int, pad: int, num_languages: int, special):
        check_ranges(MonoTransConfig, cfg)
        self._special = special
        super().__init__(cfg, vocab_size, pad, num_languages)
        for name, parameter in self.named_parameters():
            if "_adapter." in name and name.endswith("weight"):
                nn.init.normal_(parameter, std=ADAPTER_STD)

    @classmethod
    def build_model(cls, cfg: MonoTransConfig, task) -> "XLMonoTransModel":
        """The model for `task.dictionary`."""
        dictionary = task.dictionary
        return cls(cfg, len(dictionary), dictionary.pad(), dictionary.num_languages, dictionary.shared)

    def load_state_dict(self, state_dict, *args, **kwargs):
        """fairseq's, after what is to be done before."""
        if self.before_loading is not None:
            state_dict = self.before_loading(state_dict)
        return super().load_state_dict(state_dict, *args, **kwargs)

    def make_encoder(self, vocab_size: int, pad: int, num_languages: int) -> Encoder:
        """The encoder with banks, embeddings and adapters of ours."""
        cfg = self.cfg
        encoder = Encoder(
            cfg, SharedSpecialBank(vocab_size, cfg.embed_dim, pad, self._special), cfg.layers, num_languages
        )
        encoder.embeddings = PlacedEmbeddings(cfg, encoder.bank, num_languages)
        for layer in encoder.layers if cfg.adapters else ():
            layer.attention_adapter = Adapter(cfg.embed_dim, cfg.adapters)
            layer.ffn_adapter = Adapter(cfg.embed_dim, cfg.adapters)
        return encoder
