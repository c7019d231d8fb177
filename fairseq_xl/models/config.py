"""Options of the models. Configs are flat: every field is an option and a YAML key.

Metadata of a field:

========= ==========================================================================================================
help      its sentence in ``--help``
range     valid numbers, a key of `fairseq_xl.errors.RANGES`
transfer  the first of ``embeddings``, ``encoder`` and ``decoder`` whose weights mean something else if the field has
          another value: `fairseq_xl.checkpoints.transfer` compares the field before it copies them, or more
absent    value that describes models without the field, for that comparison; without it they are not compared
========= ==========================================================================================================
"""

from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum, FairseqDataclass


@dataclass
class BackboneConfig(FairseqDataclass):
    """The Transformer that all models but the DAN consist of; defaults are XLM's (Lample & Conneau 2019)."""

    embed_dim: int = field(
        default=1024,
        metadata={
            "help": "channels of token embeddings and hidden states (Lample & Conneau 2019, section 5.1)",
            "range": "1 or more",
            "transfer": "embeddings",
        },
    )
    ffn_dim: int = field(
        default=4096,
        metadata={
            "help": "channels inside the feed-forward networks (Lample & Conneau 2019, section 5.1)",
            "range": "1 or more",
        },
    )
    heads: int = field(
        default=8,
        metadata={
            "help": "attention heads; must divide --embed-dim (Lample & Conneau 2019, section 5.1)",
            "range": "1 or more",
            "transfer": "encoder",
        },
    )
    activation: ChoiceEnum(["gelu", "relu"]) = field(
        default="gelu",
        metadata={
            "help": "activation inside the feed-forward networks (Lample & Conneau 2019, section 5.1)",
            "transfer": "encoder",
        },
    )
    dropout: float = field(
        default=0.1,
        metadata={
            "help": "dropout probability of the embeddings and of each sublayer's output (Lample & Conneau 2019, "
            "section 5.1)",
            "range": "probability",
        },
    )
    attention_dropout: float = field(
        default=0.1,
        metadata={
            "help": "dropout probability of attention weights (Lample & Conneau 2019, section 5.1)",
            "range": "probability",
        },
    )
    activation_dropout: float = field(
        default=0.0,
        metadata={
            "help": "dropout probability inside the feed-forward networks; XLM has none",
            "range": "probability",
        },
    )
    init_std: float = field(
        default=0.02,
        metadata={
            "help": "standard deviation of random weights; try 0.64 / sqrt(--embed-dim) for models far narrower than "
            "1024 channels",
            "range": "more than 0",
        },
    )
    max_positions: int = field(
        default=512,
        metadata={"help": "longest input, in tokens: rows of the position embeddings", "range": "1 or more"},
    )
    position_init: ChoiceEnum(["normal", "sinusoidal"]) = field(
        default="normal",
        metadata={
            "help": "initialization of the learned position embeddings: normal, N(0, --init-std^2), or sinusoidal, "
            "with wavelengths from 2 pi to --max-positions: small models learn to use context sooner"
        },
    )
    layer_norm_eps: float = field(
        default=1e-12,
        metadata={
            "help": "epsilon of every LayerNorm (XLM 1e-12, XLM-R 1e-5)",
            "range": "0 or more",
            "transfer": "encoder",
        },
    )
    layer_norm: ChoiceEnum(["post", "pre"]) = field(
        default="post",
        metadata={
            "help": "LayerNorm after each sublayer and its residual (post: XLM, XLM-R, BERT), or before each sublayer "
            "and after the last layer (pre: mBART)",
            "transfer": "encoder",
            "absent": "post",
        },
    )
    embedding_scale: ChoiceEnum(["none", "sqrt"]) = field(
        default="none",
        metadata={
            "help": "multiply token embeddings by the square root of --embed-dim (sqrt: mBART, VECO's released model), "
            "or not (none)",
            "transfer": "encoder",
            "absent": "none",
        },
    )
    segment_embeddings: ChoiceEnum(["added", "none"]) = field(
        default="none",
        metadata={
            "help": "add an embedding of each token's segment, the first or second of a pair (BERT), or none (XLM, "
            "XLM-R)",
            "transfer": "encoder",
            "absent": "none",
        },
    )
    language_embeddings: ChoiceEnum(["added", "none"]) = field(
        default="added",
        metadata={
            "help": "add an embedding of each token's language (Lample & Conneau 2019, section 3.4), or none (XLM-R)",
            "transfer": "encoder",
        },
    )
    output_form: ChoiceEnum(["plain", "dense"]) = field(
        default="plain",
        metadata={
            "help": "what precedes the tied output projection: nothing (plain, XLM), or a dense layer, GELU and "
            "LayerNorm (dense, XLM-R)",
            "transfer": "decoder",
        },
    )
    position_offset: int = field(
        default=0,
        metadata={
            "help": "unused rows before position 0 in the position embeddings (XLM-R's files have 2)",
            "range": "0 or more",
            "transfer": "encoder",
        },
    )


@dataclass
class EncoderConfig(BackboneConfig):
    """An encoder alone."""

    layers: int = field(
        default=12,
        metadata={"help": "layers of the encoder (Lample & Conneau 2019, section 5.1: 12)", "range": "1 to 1000"},
    )


@dataclass
class EncoderDecoderConfig(BackboneConfig):
    """An encoder and a decoder of the same width."""

    encoder_layers: int = field(
        default=6,
        metadata={"help": "layers of the encoder (Lample & Conneau 2019, section 5.1: 6)", "range": "1 to 1000"},
    )
    decoder_layers: int = field(
        default=6,
        metadata={"help": "layers of the decoder (Lample & Conneau 2019, section 5.1: 6)", "range": "1 to 1000"},
    )
    share_embeddings: bool = field(
        default=False, metadata={"help": "share the token embeddings between encoder and decoder"}
    )


@dataclass
class DenoisingConfig(BackboneConfig):
    """An encoder and a decoder with shared token embeddings; defaults are xDAE's (Liang et al. 2020, section 4.1)."""

    encoder_layers: int = field(
        default=12,
        metadata={"help": "layers of the encoder (Liang et al. 2020, section 4.1: 12)", "range": "1 to 1000"},
    )
    decoder_layers: int = field(
        default=6,
        metadata={
            "help": "layers of the decoder (Liang et al. 2020, section 4.1: 6; the released model has 12)",
            "range": "1 to 1000",
        },
    )


@dataclass
class NgramDecoderConfig(DenoisingConfig):
    """`DenoisingConfig` with a decoder that predicts several tokens at each position; defaults are xFNP's.

    Liang et al. 2020, section 4.2.
    """

    predicting_streams: int = field(
        default=2,
        metadata={
            "help": "tokens that the decoder predicts at each position (Liang et al. 2020, section 4.2: 2)",
            "range": "1 or more",
            "transfer": "decoder",
        },
    )
    relative_buckets: int = field(
        default=32,
        metadata={
            "help": "buckets of relative positions in the decoder's self-attention (ProphetNet: 32)",
            "range": "1 or more",
            "transfer": "decoder",
        },
    )
    relative_distance: int = field(
        default=128,
        metadata={
            "help": "distance, in tokens, from which on all relative positions share the last bucket (ProphetNet: 128)",
            "range": "1 or more",
            "transfer": "decoder",
        },
    )
