"""Architectures: each is a model with other defaults, a row of a table here.

fairseq reads the defaults of `--arch NAME` and of `model: {_name: NAME}` from the dataclass that is registered with
NAME. So each row becomes a config class and a model class of its own.
"""

from dataclasses import field, make_dataclass
from typing import Any, Type

from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel, register_model

from fairseq_xl.models.config import DenoisingConfig, EncoderConfig, EncoderDecoderConfig, NgramDecoderConfig
from fairseq_xl.models.dan import DANConfig, XLDANModel
from fairseq_xl.models.denoising import XLBackTranslationModel, XLDenoisingModel
from fairseq_xl.models.encoder import XLEncoderModel, XLVecoModel
from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel
from fairseq_xl.models.monotrans import MonoTransConfig, XLMonoTransModel
from fairseq_xl.models.ngram_decoder import XLNgramDecoderModel


def with_defaults(config: Type[FairseqDataclass], class_name: str, **defaults: Any) -> Type[FairseqDataclass]:
    """A subclass of `config` called `class_name` with other defaults; help texts and types stay."""
    fields = []
    for name, default in defaults.items():
        inherited = config.__dataclass_fields__[name]
        fields.append((name, inherited.type, field(default=default, metadata=inherited.metadata)))
    subclass = make_dataclass(class_name, fields, bases=(config,))
    subclass.__module__ = __name__
    return subclass


def register_architecture(
    name: str, model: Type[BaseFairseqModel], config: Type[FairseqDataclass], **defaults: Any
) -> None:
    """Registers `model` with these `defaults` for `--arch name` and `model: {_name: name}`."""
    config_class = with_defaults(config, f"{name}_config", **defaults)
    model_class = type(name, (model,), {"__doc__": model.__doc__, "__module__": __name__})
    globals()[config_class.__name__] = config_class  # where pickle finds them
    globals()[name] = model_class
    register_model(name, dataclass=config_class)(model_class)


# init_std: sums over channels start as large as with 1024 channels; at 0.02 narrow models may need hundreds of updates
# to learn more than the frequencies of pieces. Sinusoidal initial positions let them use context sooner
# (recipes/learning/README.md)
_SINUSOIDAL = dict(position_init="sinusoidal")
_TINY = dict(embed_dim=128, ffn_dim=512, heads=4, init_std=0.06, **_SINUSOIDAL)
_SMALL = dict(embed_dim=256, ffn_dim=1024, heads=4, init_std=0.04, **_SINUSOIDAL)
_BASE = dict(embed_dim=512, ffn_dim=2048, heads=8, init_std=0.03, **_SINUSOIDAL)
_NO_LANGUAGES = dict(language_embeddings="none")
_BIG = dict(embed_dim=1024, ffn_dim=4096, heads=8)  # Lample & Conneau 2019, section 5.1

register_architecture("xl_xlm_tiny", XLEncoderModel, EncoderConfig, layers=3, **_TINY)
register_architecture("xl_xlm_small", XLEncoderModel, EncoderConfig, layers=3, **_SMALL)
register_architecture("xl_xlm_base", XLEncoderModel, EncoderConfig, layers=6, **_BASE)
register_architecture("xl_xlm_big", XLEncoderModel, EncoderConfig, layers=6, **_BIG)  # for the 6 + 6 of xl_mt_big
register_architecture("xl_xlm_xnli15", XLEncoderModel, EncoderConfig, layers=12, **_BIG)

register_architecture(
    "xl_mt_tiny", XLEncoderDecoderModel, EncoderDecoderConfig, encoder_layers=3, decoder_layers=3, **_TINY
)
register_architecture(
    "xl_mt_small", XLEncoderDecoderModel, EncoderDecoderConfig, encoder_layers=3, decoder_layers=3, **_SMALL
)
register_architecture(
    "xl_mt_base", XLEncoderDecoderModel, EncoderDecoderConfig, encoder_layers=6, decoder_layers=6, **_BASE
)
register_architecture(
    "xl_mt_big", XLEncoderDecoderModel, EncoderDecoderConfig, encoder_layers=6, decoder_layers=6, **_BIG
)

# unsupervised translation (Lample & Conneau 2019, section 4.2): the forms and sizes of xl_mt_*
for _size, _layers, _shape in (("tiny", 3, _TINY), ("small", 3, _SMALL), ("base", 6, _BASE), ("big", 6, _BIG)):
    register_architecture(
        f"xl_unmt_{_size}",
        XLBackTranslationModel,
        EncoderDecoderConfig,
        encoder_layers=_layers,
        decoder_layers=_layers,
        **_shape,
    )

# XLM-R's form: no language embeddings, a dense layer before the output, positions from row 2 on
_XLMR = dict(language_embeddings="none", output_form="dense", position_offset=2, layer_norm_eps=1e-5)
_XLMR_SIZES = {
    "tiny": (3, _XLMR | _TINY),
    "small": (6, _XLMR | dict(embed_dim=768, ffn_dim=3072, heads=12)),
    "base": (12, _XLMR | dict(embed_dim=768, ffn_dim=3072, heads=12)),
    "large": (24, _XLMR | dict(embed_dim=1024, ffn_dim=4096, heads=16)),
}
for _size, (_layers, _shape) in _XLMR_SIZES.items():
    register_architecture(f"xl_xlmr_{_size}", XLEncoderModel, EncoderConfig, layers=_layers, **_shape)
    register_architecture(f"xl_veco_{_size}", XLVecoModel, EncoderConfig, layers=_layers, **_shape)
    register_architecture(  # all layers in the encoder, the first or last ones in the decoder
        f"xl_veco_mt_{_size}",
        XLEncoderDecoderModel,
        EncoderDecoderConfig,
        encoder_layers=_layers,
        decoder_layers=min(_layers, 6),
        share_embeddings=True,
        **_shape,
    )

register_architecture(
    "xl_unicoder", XLEncoderModel, EncoderConfig, layers=12, **_BIG | dict(heads=16)
)  # Huang et al. 2019, section 4
register_architecture("xl_dan", XLDANModel, DANConfig)  # Huang et al. 2019, section 3

# XLM-17 and XLM-100: no language embeddings
register_architecture(
    "xl_xlm_100", XLEncoderModel, EncoderConfig, layers=16, embed_dim=1280, ffn_dim=5120, heads=16, **_NO_LANGUAGES
)

# BERT's form: segment embeddings, no language embeddings, a dense layer before the output
_BERT = dict(language_embeddings="none", output_form="dense", segment_embeddings="added")
for _size, _layers, _shape in (("tiny", 3, _TINY), ("base", 12, dict(embed_dim=768, ffn_dim=3072, heads=12))):
    register_architecture(f"xl_bert_{_size}", XLEncoderModel, EncoderConfig, layers=_layers, **_BERT | _shape)
for _size, _layers, _shape in (
    ("tiny", 3, _TINY),
    ("small", 3, _SMALL),
    ("base", 12, dict(embed_dim=768, ffn_dim=3072, heads=12)),
):
    register_architecture(f"xl_monotrans_{_size}", XLMonoTransModel, MonoTransConfig, layers=_layers, **_BERT | _shape)

# xDAE (Liang et al. 2020, section 4.1): encoder and decoder start from XLM, whose form and sizes they have, or XLM-R
_XDAE_SIZES = {
    "tiny": (3, 3, _TINY),
    "small": (3, 3, _SMALL),
    "base": (12, 6, _BIG),
    "large": (12, 12, _BIG),  # the released model
    "xlmr_tiny": (3, 3, _XLMR | _TINY),
    "xlmr_base": (12, 12, _XLMR | dict(embed_dim=768, ffn_dim=3072, heads=12)),
    "xlmr_large": (24, 6, _XLMR | dict(embed_dim=1024, ffn_dim=4096, heads=16)),  # Luo et al. 2020
}
for _size, (_encoder, _decoder, _shape) in _XDAE_SIZES.items():
    register_architecture(
        f"xl_xdae_{_size}",
        XLDenoisingModel,
        DenoisingConfig,
        encoder_layers=_encoder,
        decoder_layers=_decoder,
        **_shape,
    )

# mBART's form (Liu et al. 2020): pre-LN, scaled token embeddings, positions from row 2 on
_MBART = dict(layer_norm="pre", embedding_scale="sqrt", position_offset=2, layer_norm_eps=1e-5, **_NO_LANGUAGES)
for _size, _layers, _shape in (("tiny", 3, _TINY), ("large", 12, _BIG | dict(heads=16, max_positions=1024))):
    register_architecture(
        f"xl_mbart_{_size}",
        XLBackTranslationModel,
        EncoderDecoderConfig,
        encoder_layers=_layers,
        decoder_layers=_layers,
        share_embeddings=True,
        **_MBART | _shape,
    )

# xFNP: from scratch, with ProphetNet's LayerNorm and dropout, no language embeddings (Liang et al. 2020, section 4.2)
_XFNP = dict(language_embeddings="none", layer_norm_eps=1e-5, activation_dropout=0.1)
for _size, _layers, _shape in (("tiny", 3, _TINY), ("small", 3, _SMALL), ("large", 12, _BIG | dict(heads=16))):
    register_architecture(
        f"xl_xfnp_{_size}",
        XLNgramDecoderModel,
        NgramDecoderConfig,
        encoder_layers=_layers,
        decoder_layers=_layers,
        **_XFNP | _shape,
    )
