"""Architectures: models with other defaults, one row of a table each.

fairseq reads the defaults of `--arch NAME` and of `model: {_name: NAME}` from the dataclass that is registered with
NAME. So each row becomes a config class and a model class of its own.
"""

from dataclasses import field, make_dataclass
from typing import Any, Type

from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel, register_model

from fairseq_xl.models.dan import DANConfig, XLDANModel
from fairseq_xl.models.denoising import XLBackTranslationModel, XLDenoisingModel
from fairseq_xl.models.encoder import XLEncoderModel, XLVecoModel
from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel
from fairseq_xl.models.model_options import DenoisingConfig, EncoderConfig, EncoderDecoderConfig, NgramDecoderConfig
from fairseq_xl.models.monotrans import MonoTransConfig, XLMonoTransModel
from fairseq_xl.models.ngram_decoder import XLNgramDecoderModel


def register_architecture(
    name: str, model: Type[BaseFairseqModel], config: Type[FairseqDataclass], **defaults: Any
) -> None:
    """Registers `model` with these `defaults` for `--arch name` and `model: {_name: name}`."""
    fields = []
    for option, default in defaults.items():
        inherited = config.__dataclass_fields__[option]
        fields.append((option, inherited.type, field(default=default, metadata=inherited.metadata)))
    # comparison and repr are inherited: compiling them for each architecture takes a tenth of the package's import
    config_class = make_dataclass(f"{name}_config", fields, bases=(config,), eq=False, repr=False)
    config_class.__module__ = __name__
    model_class = type(name, (model,), {"__doc__": model.__doc__, "__module__": __name__})
    globals()[config_class.__name__] = config_class  # where pickle finds them
    globals()[name] = model_class
    register_model(name, dataclass=config_class)(model_class)


def depth(encoder: int, decoder: int | None = None) -> dict[str, int]:
    """Layers of an encoder-decoder, by default as many in the decoder as in the encoder."""
    return {"encoder_layers": encoder, "decoder_layers": encoder if decoder is None else decoder}


# init_std: sums over channels start as large as with 1024 channels; at 0.02 narrow models may need hundreds of updates
# to learn more than the frequencies of pieces. With sinusoidal positions they use context sooner
# (recipes/learning/README.md)
_SINUSOIDAL = dict(position_init="sinusoidal")
_TINY = dict(embed_dim=128, ffn_dim=512, heads=4, init_std=0.06, **_SINUSOIDAL)
_SMALL = dict(embed_dim=256, ffn_dim=1024, heads=4, init_std=0.04, **_SINUSOIDAL)
_BASE = dict(embed_dim=512, ffn_dim=2048, heads=8, init_std=0.03, **_SINUSOIDAL)
_768 = dict(embed_dim=768, ffn_dim=3072, heads=12)
_BIG = dict(embed_dim=1024, ffn_dim=4096, heads=8)  # Lample & Conneau 2019, section 5.1; FFN: the release
_1024 = _BIG | dict(heads=16)
_NO_LANGUAGES = dict(language_embeddings="none")

# XLM's form; unsupervised translation (Lample & Conneau 2019, section 4.2) has the forms and sizes of xl_mt_*
for _size, _layers, _shape in (("tiny", 3, _TINY), ("small", 3, _SMALL), ("base", 6, _BASE), ("big", 6, _BIG)):
    register_architecture(f"xl_xlm_{_size}", XLEncoderModel, EncoderConfig, layers=_layers, **_shape)
    _shape = _shape | depth(_layers)
    register_architecture(f"xl_mt_{_size}", XLEncoderDecoderModel, EncoderDecoderConfig, **_shape)
    register_architecture(f"xl_unmt_{_size}", XLBackTranslationModel, EncoderDecoderConfig, **_shape)
register_architecture("xl_xlm_xnli15", XLEncoderModel, EncoderConfig, layers=12, **_BIG)
_XLM_100 = dict(layers=16, embed_dim=1280, ffn_dim=5120, heads=16)  # XLM-17 and XLM-100
register_architecture("xl_xlm_100", XLEncoderModel, EncoderConfig, **_XLM_100, **_NO_LANGUAGES)
register_architecture("xl_unicoder", XLEncoderModel, EncoderConfig, layers=12, **_1024)  # Huang et al. 2019, section 4
register_architecture("xl_dan", XLDANModel, DANConfig)  # Huang et al. 2019, section 3

# XLM-R's form: no language embeddings, a dense layer before the output, positions from row 2 on
_XLMR = dict(output_form="dense", position_offset=2, layer_norm_eps=1e-5, **_NO_LANGUAGES)
for _size, _layers, _shape in (("tiny", 3, _TINY), ("small", 6, _768), ("base", 12, _768), ("large", 24, _1024)):
    _shape = _XLMR | _shape
    register_architecture(f"xl_xlmr_{_size}", XLEncoderModel, EncoderConfig, layers=_layers, **_shape)
    register_architecture(f"xl_veco_{_size}", XLVecoModel, EncoderConfig, layers=_layers, **_shape)
    # all layers in the encoder, the first or last ones in the decoder
    _shape |= depth(_layers, min(_layers, 6)) | dict(share_embeddings=True)
    register_architecture(f"xl_veco_mt_{_size}", XLEncoderDecoderModel, EncoderDecoderConfig, **_shape)

# BERT's form: segment embeddings, no language embeddings, a dense layer before the output
_BERT = dict(output_form="dense", segment_embeddings="added", **_NO_LANGUAGES)
for _size, _layers, _shape in (("tiny", 3, _TINY), ("small", 3, _SMALL), ("base", 12, _768)):
    if _size != "small":
        register_architecture(f"xl_bert_{_size}", XLEncoderModel, EncoderConfig, layers=_layers, **_BERT | _shape)
    register_architecture(f"xl_monotrans_{_size}", XLMonoTransModel, MonoTransConfig, layers=_layers, **_BERT | _shape)

# xDAE (Liang et al. 2020, section 6.1): encoder and decoder start from XLM, whose form and sizes they have, or XLM-R
for _size, _depth, _shape in (
    ("tiny", depth(3), _TINY),
    ("small", depth(3), _SMALL),
    ("base", depth(12, 6), _BIG),
    ("large", depth(12), _BIG),
    ("xlmr_tiny", depth(3), _XLMR | _TINY),
    ("xlmr_base", depth(12), _XLMR | _768),  # the released model has this size and 100 languages
    ("xlmr_large", depth(24, 6), _XLMR | _1024),  # Luo et al. 2020
):
    register_architecture(f"xl_xdae_{_size}", XLDenoisingModel, DenoisingConfig, **_depth, **_shape)

# mBART's form (Liu et al. 2020): pre-LN, scaled token embeddings, positions from row 2 on
_MBART = dict(layer_norm="pre", embedding_scale="sqrt", position_offset=2, layer_norm_eps=1e-5, **_NO_LANGUAGES)
for _size, _layers, _shape in (("tiny", 3, _TINY), ("large", 12, _1024 | dict(max_positions=1024))):
    _shape = _MBART | _shape | depth(_layers) | dict(share_embeddings=True)
    register_architecture(f"xl_mbart_{_size}", XLBackTranslationModel, EncoderDecoderConfig, **_shape)

# xFNP: from scratch, with ProphetNet's LayerNorm and dropout, no language embeddings (Liang et al. 2020, section 6.1)
_XFNP = dict(layer_norm_eps=1e-5, activation_dropout=0.1, **_NO_LANGUAGES)
for _size, _layers, _shape in (("tiny", 3, _TINY), ("small", 3, _SMALL), ("large", 12, _1024)):
    _shape = _XFNP | _shape | depth(_layers)
    register_architecture(f"xl_xfnp_{_size}", XLNgramDecoderModel, NgramDecoderConfig, **_shape)
