"""MonoTrans: a Transformer body shared by all languages, and one language module per language (Artetxe et al. 2020).

A language module has token embeddings, output bias, language embedding and, where they are chosen, positions and
adapters (section 2). The model in memory has one module, that of its dictionary.
`fairseq_xl.checkpoints.language_modules` says which parameters belong to it, and replaces it by another one.

Shapes: B batch, T time, C channels, V vocabulary.
"""

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional

import torch
from fairseq.dataclass import ChoiceEnum
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_xl.errors import check_ranges
from fairseq_xl.io.options import option
from fairseq_xl.models.encoder import Encoder, XLEncoderModel
from fairseq_xl.models.model_options import EncoderConfig
from fairseq_xl.modules.embeddings import Embeddings, TokenEmbeddings

#: initial standard deviation of an adapter's weights: adapters start near the identity (Houlsby et al. 2019)
ADAPTER_STD = 0.01
PROJECTION = "encoder.token_embeddings.projection.weight"


@dataclass
class MonoTransConfig(EncoderConfig):
    """Options of an encoder, with segment embeddings, and those that MonoTrans adds."""

    segment_embeddings: ChoiceEnum(["added", "first", "none"]) = field(  # type: ignore[valid-type]  # at run time
        default="added", metadata=EncoderConfig.__dataclass_fields__["segment_embeddings"].metadata
    )
    language_positions: bool = option(
        False,
        "position embeddings belong to the language module, and the first token has neither position nor "
        "segment embedding (Artetxe et al. 2020, section 2)",
        transfer="encoder",
        absent=False,
        added=True,
    )
    adapters: int = option(
        0,
        "channels inside the adapters, which belong to the language module (Artetxe et al. 2020, section "
        "2); 0: no adapters",
        range="0 or more",
        transfer="encoder",
        absent=0,
        in_module=True,
    )
    token_embed_dim: int = option(
        0,
        "channels of the token embeddings, which a linear layer of the body projects to --embed-dim, as for mapped "
        "embeddings of 300 channels (Artetxe et al. 2020, section 3.1, do not say how); 0: --embed-dim",
        range="0 or more",
        transfer="embeddings",
        absent=0,
    )
    embedding_noise: float = option(
        0.0,
        "standard deviation of Gaussian noise added in training to each token, position and segment "
        "embedding (Artetxe et al. 2020, appendix A: 0.075)",
        range="0 or more",
    )


class SpecialTokenEmbeddings(TokenEmbeddings):
    """Token embeddings with a separate matrix (5, C) for the symbols `special`, which all languages share.

    Their rows in the other matrix are not used; if that has other `channels`, it is projected to C. The output bias,
    also that of the special symbols, belongs to the language (Artetxe et al. 2020, section 3.2).
    """

    special_rows: Tensor  # (V,) row of each special symbol, else -1
    ids: Tensor  # (5,)

    def __init__(self, vocab_size: int, embed_dim: int, pad: int, special: List[int], channels: int = 0):
        super().__init__(vocab_size, channels or embed_dim, pad, output_bias=True)
        self.projection = nn.Linear(channels, embed_dim, bias=False) if channels else nn.Identity()
        self.special = nn.Embedding(len(special), embed_dim, padding_idx=special.index(pad))
        special_rows = torch.full((vocab_size,), -1)
        special_rows[special] = torch.arange(len(special))
        self.register_buffer("special_rows", special_rows, persistent=False)
        self.register_buffer("ids", torch.tensor(special), persistent=False)

    @property
    def output_matrix(self) -> Tensor:
        """The embedding matrix (V, C) with the special symbols in their rows."""
        return self.projection(super().output_matrix).index_copy(0, self.ids, self.special.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) -> (B, T, C)"""
        rows = self.special_rows[tokens]  # (B, T)
        return torch.where(rows[..., None] < 0, self.projection(super().forward(tokens)), self.special(rows.clamp(0)))


class MonoTransEmbeddings(Embeddings):
    """Embeddings with MonoTrans's options: a first token without position and segment, and noise.

    Noise is drawn for every token of a batch by torch's generator, like dropout. The sum of k embeddings has noise of k
    times the variance, drawn at once.
    """

    def __init__(self, cfg: MonoTransConfig, token_embeddings: TokenEmbeddings, num_languages: int):
        super().__init__(cfg, token_embeddings, num_languages)
        self.first_without_position, self.noise = cfg.language_positions, cfg.embedding_noise

    def add_positions(self, inputs_embeds: Tensor, positions: Tensor, segments: Optional[Tensor]) -> Tensor:
        """As in `Embeddings`, with noise; the first token may have neither position nor segment: -> (B, T, C)."""
        summed = torch.full((inputs_embeds.size(1), 1), 2.0, device=inputs_embeds.device)  # embeddings of each token
        if self.segments is not None:
            positions = positions + self.embed_segments(segments)
            summed += 1
        if self.first_without_position:
            positions = torch.cat((torch.zeros_like(positions[..., :1, :]), positions[..., 1:, :]), dim=-2)
            summed[0] = 1
        hidden = inputs_embeds + positions
        if self.training and self.noise:
            hidden = hidden + (self.noise * summed.sqrt()).type_as(hidden) * torch.randn_like(hidden)
        return hidden


class Adapter(nn.Module):
    """A bottleneck after a sublayer, with a residual: x + up(GELU(down(x))) (Houlsby et al. 2019)."""

    def __init__(self, embed_dim: int, channels: int):
        super().__init__()
        self.down = nn.Linear(embed_dim, channels)
        self.up = nn.Linear(channels, embed_dim)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.up(F.gelu(self.down(hidden)))


class XLMonoTransModel(XLEncoderModel):
    """An encoder whose language module can be replaced by that of another language.

    Names in the state dict as in `XLEncoderModel`, and

        encoder.token_embeddings.special.weight (5, C)     encoder.embeddings.segments.weight (2, C)
        encoder.layers.N.{attention,ffn}_adapter.{down,up}.*      encoder.token_embeddings.projection.weight (C, E)
    """

    description = "an encoder with language modules: --arch xl_monotrans_tiny and the like"
    #: function that replaces the language module of a state dict before it is loaded
    before_loading: Optional[Callable[[Dict[str, Tensor]], Dict[str, Tensor]]] = None

    def __init__(self, cfg: MonoTransConfig, vocab_size: int, pad: int, num_languages: int, special: List[int]):
        check_ranges(MonoTransConfig, cfg)
        self._special = special
        super().__init__(cfg, vocab_size, pad, num_languages)
        for name, parameter in self.named_parameters():
            if "_adapter." in name and name.endswith("weight"):
                nn.init.normal_(parameter, std=ADAPTER_STD)
            if name == PROJECTION:  # the projected embeddings have the deviation of the others
                nn.init.normal_(parameter, std=cfg.token_embed_dim**-0.5)

    @classmethod
    def build_model(cls, cfg: MonoTransConfig, task: Any) -> "XLMonoTransModel":
        dictionary = task.dictionary
        return cls(cfg, len(dictionary), dictionary.pad(), dictionary.num_languages, dictionary.shared)

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """Loads a state dict as fairseq does, after `before_loading`."""
        if self.before_loading is not None:
            state_dict = self.before_loading(state_dict)
        return super().load_state_dict(state_dict, *args, **kwargs)

    def make_encoder(self, vocab_size: int, pad: int, num_languages: int) -> Encoder:
        """An encoder with `SpecialTokenEmbeddings`, `MonoTransEmbeddings` and adapters."""
        cfg = self.cfg
        token_embeddings = SpecialTokenEmbeddings(vocab_size, cfg.embed_dim, pad, self._special, cfg.token_embed_dim)
        encoder = Encoder(cfg, token_embeddings, cfg.layers, num_languages)
        encoder.embeddings = MonoTransEmbeddings(cfg, token_embeddings, num_languages)
        for layer in encoder.layers if cfg.adapters else ():
            layer.attention_adapter = Adapter(cfg.embed_dim, cfg.adapters)
            layer.ffn_adapter = Adapter(cfg.embed_dim, cfg.adapters)
        return encoder
