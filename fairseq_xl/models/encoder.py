"""Encoder models, to pre-train and fine-tune. Shapes: B batch, T time, C channels, V vocabulary."""

from functools import cached_property, partial
from itertools import chain
from typing import Any, Callable, Dict, List, Optional, Union

from fairseq import utils
from fairseq.models import BaseFairseqModel
from torch import Tensor, nn

from fairseq_xl.models.model_options import BackboneConfig, EncoderConfig
from fairseq_xl.modules.embeddings import Embeddings, TokenEmbeddings, init_weights
from fairseq_xl.modules.layer import Layer, final_norm
from fairseq_xl.modules.output import OutputLayer
from fairseq_xl.modules.packing import Packing
from fairseq_xl.modules.stack import Stack


class Encoder(nn.Module):
    """Embeddings and layers, with `num_languages` language embeddings and optional `cross_attention` to a memory."""

    def __init__(
        self,
        cfg: BackboneConfig,
        token_embeddings: TokenEmbeddings,
        layers: int,
        num_languages: int,
        cross_attention: bool = False,
    ):
        super().__init__()
        self.token_embeddings = token_embeddings
        self.embeddings = Embeddings(cfg, token_embeddings, num_languages)
        self.layers = Stack(Layer(cfg, cross_attention) for _ in range(layers))
        self.final_norm = final_norm(cfg)

    def forward(
        self,
        tokens: Tensor,
        *,
        positions: Optional[Tensor] = None,
        languages: Optional[Tensor] = None,
        padding_mask: Optional[Tensor] = None,
        causal: bool = False,
        memory: Optional[Tensor] = None,
        memory_padding_mask: Optional[Tensor] = None,
        inputs_embeds: Optional[Tensor] = None,
        segments: Optional[Tensor] = None,
        all_layers: bool = False,
        packing: Optional[Dict[str, Tensor]] = None,
        memory_packing: Optional[Dict[str, Tensor]] = None,
    ) -> Union[Tensor, List[Tensor]]:
        """(B, T) -> hidden states (B, T, C)

        Args:
            tokens: (B, T) ids
            positions: (B, T) counted from 0; None numbers the tokens
            languages: (B, T) or (B, 1) language ids; a model without language embeddings ignores them
            padding_mask: (B, T) bool, True at padding; None when nothing is padded
            causal: a position attends to itself and earlier ones only. Padding on the right needs no mask then
            memory: (B, S, C), keys and values of cross-attention; None skips cross-attention
            memory_padding_mask: (B, S) bool, True at padding
            inputs_embeds: (B, T, C), used in place of the token embeddings
            segments: (B, T), the segment of each token; a model without segment embeddings ignores them
            all_layers: return the embeddings and every layer's output instead, a list of layers + 1 tensors
            packing: `find_packing` of the tokens: where a `Stack` packs, layers skip padding, whose result is 0. With
                None or `all_layers`, padding is computed too
            memory_packing: `find_packing` of the memory
        """
        hidden = self.embeddings(
            tokens, positions, languages, padding_mask=padding_mask, inputs_embeds=inputs_embeds, segments=segments
        )
        inputs = dict(padding_mask=padding_mask, causal=causal, memory=memory, memory_padding_mask=memory_padding_mask)
        if not all_layers:
            return self.final_norm(self.layers(hidden, **inputs, **stack_packings(packing, memory_packing)))
        states = [hidden]
        for layer in self.layers:
            states.append(layer(states[-1], **inputs))
        return [*states[:-1], self.final_norm(states[-1])]


def stack_packings(packing: Optional[Dict[str, Tensor]], memory_packing: Optional[Dict[str, Tensor]]) -> Dict[str, Any]:
    """The packings of a `Stack`, from `find_packing` of its input and of its memory."""
    return {
        "packing": None if packing is None else Packing.from_tensors(packing),
        "memory_packing": None if memory_packing is None else Packing.from_tensors(memory_packing),
    }


class XLEncoderModel(BaseFairseqModel):
    """An encoder with a tied output layer, and heads that objectives and classifiers add (Lample & Conneau 2019).

    Names in the state dict:

        encoder.token_embeddings.table.weight (V, C)      encoder.token_embeddings.output_bias (V)
        encoder.embeddings.{positions,languages}.weight   encoder.embeddings.norm.*
        encoder.layers.N.self_attention.{qkv,out}.*       encoder.layers.N.self_attention_norm.*
        encoder.layers.N.ffn.{up,down}.*                  encoder.layers.N.ffn_norm.*
        encoder.embeddings.segments.weight (2, C)         encoder.final_norm.*  with pre-LN
        output.{dense,norm}.*  with the dense output form       heads.NAME.*
    """

    #: kind of network: weights of another kind cannot be transferred
    backbone = "a Transformer"
    #: name and example of such a model, for error messages
    description = "an encoder: --arch xl_xlm_tiny and the like"
    #: whether the layers have cross-attention
    cross_attention = False

    def __init__(self, cfg: EncoderConfig, vocab_size: int, pad: int, num_languages: int):
        super().__init__()
        self.cfg = cfg
        self.encoder = self.make_encoder(vocab_size, pad, num_languages)
        self.output = OutputLayer(cfg, self.encoder.token_embeddings)
        self.heads = nn.ModuleDict()
        self.apply(partial(init_weights, std=cfg.init_std))

    def make_encoder(self, vocab_size: int, pad: int, num_languages: int) -> Encoder:
        """The encoder with its token embeddings, before `init_weights`."""
        token_embeddings = TokenEmbeddings(vocab_size, self.cfg.embed_dim, pad, output_bias=True)
        return Encoder(self.cfg, token_embeddings, self.cfg.layers, num_languages, self.cross_attention)

    @classmethod
    def build_model(cls, cfg: EncoderConfig, task: Any) -> "XLEncoderModel":
        dictionary = task.dictionary
        return cls(cfg, len(dictionary), dictionary.pad(), dictionary.num_languages)

    def add_heads(self, heads: Dict[str, nn.Module]) -> None:
        """Puts modules under `heads.NAME`; their weights are initialized already."""
        self.heads.update(heads)

    def encode(self, tokens: Tensor, positions: Optional[Tensor] = None, **inputs: Any) -> Tensor:
        """(B, T) -> hidden states (B, T, C) of the last layer; arguments as in `Encoder.forward`."""
        return self.encoder(tokens, positions=positions, **inputs)

    def forward(self, compute: Callable, batch: Any) -> Any:
        """Returns `compute(self, batch)`, so that wrappers for distributed training see the parameters that it uses."""
        with self.encoder.token_embeddings.one_gradient():
            return compute(self, batch)

    def get_normalized_probs(self, net_output: Any, log_probs: bool, sample: Any = None) -> Tensor:
        """(logits (..., V), extra) -> probabilities, or their logarithms, in float32."""
        softmax = utils.log_softmax if log_probs else utils.softmax
        return softmax(net_output[0], dim=-1)

    def max_positions(self) -> int:
        return self.cfg.max_positions


class XLVecoModel(XLEncoderModel):
    """An encoder whose layers have optional cross-attention, so that they serve as a decoder too (Luo et al. 2020).

    Names in the state dict as in `XLEncoderModel`, and `encoder.layers.N.cross_attention.{query,key_value,out}.*`,
    `encoder.layers.N.cross_attention_norm.*`.
    """

    description = "layers with cross-attention: --arch xl_veco_tiny and the like"
    cross_attention = True

    @cached_property
    def parameters_without_memory(self) -> List[nn.Parameter]:
        """Parameters of the encoder and of the output layer, without those of cross-attention."""
        named_parameters = chain(self.encoder.named_parameters(), self.output.named_parameters())
        return [parameter for name, parameter in named_parameters if "cross_attention" not in name]
