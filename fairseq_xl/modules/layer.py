"""The Transformer layer of all models. Shapes: B batch, T time, S memory time, C channels."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_xl.modules.attention import CrossAttention, LayerCache, SelfAttention, attend
from fairseq_xl.modules.dropout import Dropout
from fairseq_xl.modules.packing import Packing

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu}


class FeedForward(nn.Module):
    """Two linear layers with an activation between them."""

    def __init__(self, embed_dim: int, ffn_dim: int, activation: str, dropout: float):
        super().__init__()
        self.up = nn.Linear(embed_dim, ffn_dim)
        self.down = nn.Linear(ffn_dim, embed_dim)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.down(self.dropout(self.activation(self.up(hidden))))


class Layer(nn.Module):
    """A Transformer layer: self-attention, optional cross-attention, feed-forward.

    A sublayer is LayerNorm(x + dropout(sublayer(x))) (post-LN), or x + dropout(sublayer(LayerNorm(x))) (pre-LN).
    Without memory and causal mask it is an encoder layer, with both a decoder layer; the same parameters can serve as
    either.
    """

    def __init__(self, cfg: Any, cross_attention: bool, self_attention: Callable[..., SelfAttention] = SelfAttention):
        """`self_attention` is its class, or a function of channels, heads and dropout that makes it."""
        super().__init__()
        self.pre_norm = str(cfg.layer_norm) == "pre"
        self.self_attention = self_attention(cfg.embed_dim, cfg.heads, cfg.attention_dropout)
        self.self_attention_norm = nn.LayerNorm(cfg.embed_dim, cfg.layer_norm_eps)
        self.cross_attention = None
        if cross_attention:
            self.cross_attention = CrossAttention(cfg.embed_dim, cfg.heads, cfg.attention_dropout)
            self.cross_attention_norm = nn.LayerNorm(cfg.embed_dim, cfg.layer_norm_eps)
        self.ffn = FeedForward(cfg.embed_dim, cfg.ffn_dim, str(cfg.activation), cfg.activation_dropout)
        self.ffn_norm = nn.LayerNorm(cfg.embed_dim, cfg.layer_norm_eps)
        self.dropout = Dropout(cfg.dropout)
        self.attention_adapter, self.ffn_adapter = nn.Identity(), nn.Identity()  # or `Adapter`

    def forward(
        self,
        hidden: Tensor,
        *,
        padding_mask: Tensor | None = None,
        causal: bool = False,
        memory: Tensor | None = None,
        memory_padding_mask: Tensor | None = None,
        cache: LayerCache | None = None,
        attend: Callable[..., Tensor] = attend,
        attend_memory: Callable[..., Tensor] = attend,
        packing: Packing | None = None,
        memory_packing: Packing | None = None,
    ) -> Tensor:
        """(B, T, C) -> (B, T, C); with a packing (N, C) -> (N, C)

        Args:
            padding_mask: (B, T) bool, True at padding; None when nothing is padded
            causal: a position attends to itself and earlier ones only
            memory: (B, S, C), keys and values of cross-attention; None skips cross-attention
            memory_padding_mask: (B, S) bool, True at padding
            cache: keys and values of earlier positions and of the memory; `hidden` has the new positions then
            attend, attend_memory: attention functions of self-attention and of cross-attention, without a packing
            packing: packing of `hidden`, in place of the padding mask
            memory_packing: packing of the memory, which is (M, C) then; both are packed or none

        Raises:
            ValueError: a memory for a layer without cross-attention
        """
        update = self.self_attention(
            self._before(self.self_attention_norm, hidden),
            padding_mask=padding_mask,
            causal=causal,
            cache=None if cache is None else cache.self_attention,
            attend=attend,
            **({} if packing is None else {"packing": packing}),
        )
        hidden = self._after(self.self_attention_norm, hidden + self.attention_adapter(self.dropout(update)))
        if memory is not None:
            if self.cross_attention is None:
                raise ValueError("memory given to a layer made without cross-attention")
            update = self.cross_attention(
                self._before(self.cross_attention_norm, hidden),
                memory,
                memory_padding_mask=memory_padding_mask,
                cache=None if cache is None else cache.cross_attention,
                packings=None if packing is None or memory_packing is None else (packing, memory_packing),
                attend=attend_memory,
            )
            hidden = self._after(self.cross_attention_norm, hidden + self.dropout(update))
        update = self.ffn(self._before(self.ffn_norm, hidden))
        return self._after(self.ffn_norm, hidden + self.ffn_adapter(self.dropout(update)))

    def _before(self, norm: nn.Module, hidden: Tensor) -> Tensor:
        """Input (B, T, C) of a sublayer."""
        return norm(hidden) if self.pre_norm else hidden

    def _after(self, norm: nn.Module, hidden: Tensor) -> Tensor:
        """Output (B, T, C) of a sublayer, its residual added."""
        return hidden if self.pre_norm else norm(hidden)


def final_norm(cfg: Any) -> nn.Module:
    """The LayerNorm after the last layer of a pre-LN stack; the identity for post-LN. (…, C) -> (…, C)"""
    return nn.LayerNorm(cfg.embed_dim, cfg.layer_norm_eps) if str(cfg.layer_norm) == "pre" else nn.Identity()
