"""What can be set in a model. Flat, so that every field is an option and a YAML key."""

from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum, FairseqDataclass


@dataclass
class BackboneConfig(FairseqDataclass):
    """The post-LN Transformer that every model here is made of; defaults are XLM's (X1)."""

    embed_dim: int = field(
        default=1024, metadata={"help": "channels of tokens and hidden states (X1)", "range": "1 or more"}
    )
    ffn_dim: int = field(
        default=4096, metadata={"help": "channels inside the feed-forward part (X1)", "range": "1 or more"}
    )
    heads: int = field(
        default=8, metadata={"help": "attention heads; must divide --embed-dim (X1)", "range": "1 or more"}
    )
    activation: ChoiceEnum(["gelu", "relu"]) = field(
        default="gelu", metadata={"help": "activation inside the feed-forward part (X1)"}
    )
    dropout: float = field(
        default=0.1,
        metadata={
            "help": "probability of dropping a channel after each part and the embeddings (X1)",
            "range": "probability",
        },
    )
    attention_dropout: float = field(
        default=0.1, metadata={"help": "probability of dropping an attention weight (X1)", "range": "probability"}
    )
    activation_dropout: float = field(
        default=0.0,
        metadata={
            "help": "probability of dropping a channel inside the feed-forward part (X1: none)",
            "range": "probability",
        },
    )
    init_std: float = field(
        default=0.02,
        metadata={
            "help": "standard deviation of random weights; 0.64 / sqrt(--embed-dim) where that is far below 1024",
            "range": "more than 0",
        },
    )
    max_positions: int = field(
        default=512, metadata={"help": "longest input, in tokens; rows of the position table", "range": "1 or more"}
    )
    layer_norm_eps: float = field(
        default=1e-12, metadata={"help": "epsilon of every LayerNorm (XLM 1e-12, XLM-R 1e-5)", "range": "0 or more"}
    )
    language_embeddings: ChoiceEnum(["added", "none"]) = field(
        default="added", metadata={"help": "add an embedding of each token's language (X1) or none (XLM-R)"}
    )
    output_form: ChoiceEnum(["plain", "dense"]) = field(
        default="plain",
        metadata={"help": "before the tied projection: nothing (plain, X1) or dense, GELU, LayerNorm (dense, XLM-R)"},
    )
    position_offset: int = field(
        default=0,
        metadata={"help": "unused rows before position 0 in the position table (XLM-R files: 2)", "range": "0 or more"},
    )


@dataclass
class EncoderConfig(BackboneConfig):
    """An encoder alone."""

    layers: int = field(default=12, metadata={"help": "layers of the encoder (X1: 12)", "range": "1 or more"})


@dataclass
class EncoderDecoderConfig(BackboneConfig):
    """An encoder and a decoder of the same width."""

    encoder_layers: int = field(default=6, metadata={"help": "layers of the encoder (X1: 6)", "range": "1 or more"})
    decoder_layers: int = field(default=6, metadata={"help": "layers of the decoder (X1: 6)", "range": "1 or more"})
    share_embeddings: bool = field(
        default=False, metadata={"help": "one token table for encoder and decoder, instead of one each"}
    )


@dataclass
class DenoisingConfig(BackboneConfig):
    """An encoder and a decoder of the same width, with one table of tokens; defaults are xDAE's (G5)."""

    encoder_layers: int = field(default=12, metadata={"help": "layers of the encoder (G5: 12)", "range": "1 or more"})
    decoder_layers: int = field(
        default=6, metadata={"help": "layers of the decoder (G5: 6; 12 in what was released)", "range": "1 or more"}
    )


@dataclass
class FutureConfig(DenoisingConfig):
    """As above, with a decoder that predicts several tokens at a step; defaults are xFNP's (G6)."""

    predicting_streams: int = field(
        default=2, metadata={"help": "tokens that the decoder predicts at a step (G6: 2)", "range": "1 or more"}
    )
    relative_buckets: int = field(
        default=32,
        metadata={
            "help": "buckets that distances in the decoder's self-attention fall into (G6: 32)",
            "range": "1 or more",
        },
    )
    relative_distance: int = field(
        default=128,
        metadata={
            "help": "distance, in tokens, from which on all share the last bucket (G6: 128)",
            "range": "1 or more",
        },
    )
