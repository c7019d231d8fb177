"""Options of the models. Configs are flat: every field is an option and a YAML key.

Metadata of a field:

========= ==========================================================================================================
help      its sentence in ``--help``
range     valid numbers, a key of `fairseq_xl.errors.RANGES`
transfer  the first of ``embeddings``, ``encoder`` and ``decoder`` whose weights mean something else if the field has
          another value: `fairseq_xl.checkpoints.transfer` compares the field before it copies that part or a later one
absent    value of the field for models that lack it, in that comparison, without it they are not compared; a layout of
          checkpoints (`fairseq_xl.checkpoints.layouts`) that does not name the field is for models with this value
========= ==========================================================================================================
"""

from dataclasses import dataclass

from fairseq.dataclass import ChoiceEnum, FairseqDataclass

from fairseq_xl.io.options import option


@dataclass
class BackboneConfig(FairseqDataclass):
    """The Transformer that all models but the DAN consist of; defaults are XLM's (Lample & Conneau 2019)."""

    embed_dim: int = option(
        1024,
        "channels of token embeddings and hidden states (Lample & Conneau 2019, section 5.1)",
        range="1 or more",
        transfer="embeddings",
    )
    ffn_dim: int = option(
        4096, "channels inside the feed-forward networks (default: as in XLM's release)", range="1 or more"
    )
    heads: int = option(
        8,
        "attention heads; must divide --embed-dim (Lample & Conneau 2019, section 5.1)",
        range="1 or more",
        transfer="encoder",
        accepted_by="init_across_heads",
    )
    activation: ChoiceEnum(["gelu", "relu"]) = option(  # type: ignore[valid-type]  # made at run time
        "gelu", "activation inside the feed-forward networks (Lample & Conneau 2019, section 5.1)", transfer="encoder"
    )
    dropout: float = option(
        0.1,
        "dropout probability of the embeddings and of each sublayer's output (Lample & Conneau 2019, section 5.1)",
        range="probability",
    )
    attention_dropout: float = option(
        0.1, "dropout probability of attention weights (default: as in XLM's release)", range="probability"
    )
    activation_dropout: float = option(
        0.0, "dropout probability inside the feed-forward networks; XLM has none", range="probability"
    )
    init_std: float = option(
        0.02,
        "standard deviation of random weights; try 0.64 / sqrt(--embed-dim) for models far narrower than 1024 channels",
        range="more than 0",
    )
    max_positions: int = option(512, "longest input, in tokens: rows of the position embeddings", range="1 or more")
    position_init: ChoiceEnum(["normal", "sinusoidal"]) = option(  # type: ignore[valid-type]  # made at run time
        "normal",
        "initialization of the learned position embeddings: normal, N(0, --init-std^2), or sinusoidal, as large as "
        "token embeddings, with wavelengths from 2 pi to --max-positions: small models learn to use context sooner",
    )
    layer_norm_eps: float = option(
        1e-12, "epsilon of every LayerNorm (XLM 1e-12, XLM-R 1e-5)", range="0 or more", transfer="encoder"
    )
    layer_norm: ChoiceEnum(["post", "pre"]) = option(  # type: ignore[valid-type]  # made at run time
        "post",
        "LayerNorm after each sublayer and its residual (post: XLM, XLM-R, BERT), or before each sublayer "
        "and after the last layer (pre: mBART)",
        transfer="encoder",
        absent="post",
    )
    embedding_scale: ChoiceEnum(["none", "sqrt"]) = option(  # type: ignore[valid-type]  # made at run time
        "none",
        "multiply token embeddings by the square root of --embed-dim (sqrt: mBART, VECO's released model), "
        "or not (none)",
        transfer="encoder",
        absent="none",
    )
    embedding_norm: ChoiceEnum(["added", "none"]) = option(  # type: ignore[valid-type]  # made at run time
        "added",
        "LayerNorm of the sum of embeddings (added: XLM, XLM-R, mBART), or none (none: XLM-R XL)",
        transfer="encoder",
        absent="added",
    )
    segment_embeddings: ChoiceEnum(["added", "first", "none"]) = option(  # type: ignore[valid-type]  # at run time
        "none",
        "add an embedding of each token's segment, the first or second of a pair (added: BERT), that of the first one "
        "to all tokens (first: Multilingual-MiniLM), or none (XLM, XLM-R)",
        transfer="encoder",
        absent="none",
    )
    language_embeddings: ChoiceEnum(["added", "none"]) = option(  # type: ignore[valid-type]  # made at run time
        "added",
        "add an embedding of each token's language (Lample & Conneau 2019, figure 1), or none (XLM-R)",
        transfer="encoder",
    )
    output_form: ChoiceEnum(["plain", "dense"]) = option(  # type: ignore[valid-type]  # made at run time
        "plain",
        "what precedes the tied output projection: nothing (plain, XLM), or a dense layer, GELU and "
        "LayerNorm (dense, XLM-R)",
        transfer="decoder",
    )
    position_offset: int = option(
        0,
        "unused rows before position 0 in the position embeddings (XLM-R's files have 2)",
        range="0 or more",
        transfer="encoder",
    )


@dataclass
class EncoderConfig(BackboneConfig):
    """An encoder alone."""

    layers: int = option(12, "layers of the encoder (Lample & Conneau 2019, section 5.1: 12)", range="1 to 1000")


@dataclass
class DenoisingConfig(BackboneConfig):
    """An encoder and a decoder of the same width, with shared token embeddings (xDAE)."""

    encoder_layers: int = option(
        6, "layers of the encoder (Lample & Conneau 2019: 6; Liang et al. 2020, section 6.1: 12)", range="1 to 1000"
    )
    decoder_layers: int = option(
        6, "layers of the decoder (both papers: 6; the released model of Liang et al. 2020: 12)", range="1 to 1000"
    )


@dataclass
class EncoderDecoderConfig(DenoisingConfig):
    """An encoder and a decoder whose token embeddings may be separate."""

    share_embeddings: bool = option(False, "share the token embeddings between encoder and decoder")
    decoder_start: ChoiceEnum(["language", "eos"]) = option(  # type: ignore[valid-type]  # made at run time
        "language",
        "first symbols of the decoder's input: that of the target language (language: mBART), or </s> and that of the "
        "target language (eos: NLLB)",
        transfer="decoder",
        absent="language",
    )


@dataclass
class NgramDecoderConfig(DenoisingConfig):
    """A decoder that predicts several tokens at each position; defaults are xFNP's (Liang et al. 2020, section 4.2)."""

    predicting_streams: int = option(
        2,
        "tokens that the decoder predicts at each position (Liang et al. 2020, section 4.2: 2)",
        range="1 or more",
        transfer="decoder",
    )
    relative_buckets: int = option(
        32,
        "buckets of relative positions in the decoder's self-attention (ProphetNet: 32)",
        range="1 or more",
        transfer="decoder",
    )
    relative_distance: int = option(
        128,
        "distance, in tokens, from which on all relative positions share the last bucket (ProphetNet: 128)",
        range="1 or more",
        transfer="decoder",
    )
