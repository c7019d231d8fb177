"""Architectures as users choose them: on the command line, in YAML, and read back from a checkpoint's config."""

from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch
from fairseq import models, options
from omegaconf import OmegaConf

import fairseq_xl
from fairseq_xl.models.encoder import XLEncoderModel
from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel
from fairseq_xl.models.model_options import DenoisingConfig, EncoderConfig, EncoderDecoderConfig, NgramDecoderConfig
from tests.commands import configuration

fairseq_xl.register()

ARCHITECTURES = {
    "xl_xlm_tiny": dict(layers=3, embed_dim=128, ffn_dim=512, heads=4),
    "xl_xlm_small": dict(layers=3, embed_dim=256, ffn_dim=1024, heads=4),
    "xl_xlm_base": dict(layers=6, embed_dim=512, ffn_dim=2048, heads=8),
    "xl_xlm_xnli15": dict(layers=12, embed_dim=1024, ffn_dim=4096, heads=8),
    "xl_mt_tiny": dict(encoder_layers=3, decoder_layers=3, embed_dim=128, ffn_dim=512, heads=4),
    "xl_mt_small": dict(encoder_layers=3, decoder_layers=3, embed_dim=256, ffn_dim=1024, heads=4),
    "xl_mt_base": dict(encoder_layers=6, decoder_layers=6, embed_dim=512, ffn_dim=2048, heads=8),
    "xl_mt_big": dict(encoder_layers=6, decoder_layers=6, embed_dim=1024, ffn_dim=4096, heads=8),
    "xl_xlmr_base": dict(layers=12, embed_dim=768, ffn_dim=3072, heads=12, position_offset=2),
    "xl_veco_tiny": dict(layers=3, embed_dim=128, ffn_dim=512, heads=4, language_embeddings="none"),
    "xl_veco_small": dict(layers=6, embed_dim=768, ffn_dim=3072, heads=12, output_form="dense"),
    "xl_veco_large": dict(layers=24, embed_dim=1024, ffn_dim=4096, heads=16, layer_norm_eps=1e-5),
    "xl_veco_mt_large": dict(encoder_layers=24, decoder_layers=6, embed_dim=1024, heads=16, share_embeddings=True),
    "xl_xdae_tiny": dict(encoder_layers=3, decoder_layers=3, embed_dim=128, ffn_dim=512, heads=4),
    "xl_xdae_base": dict(encoder_layers=12, decoder_layers=6, embed_dim=1024, ffn_dim=4096, heads=8, dropout=0.1),
    "xl_xdae_large": dict(encoder_layers=12, decoder_layers=12, embed_dim=1024, max_positions=512),
    "xl_xdae_xlmr_base": dict(encoder_layers=12, decoder_layers=12, embed_dim=768, heads=12, output_form="dense"),
    "xl_xdae_xlmr_large": dict(encoder_layers=24, decoder_layers=6, embed_dim=1024, heads=16, output_form="dense"),
    "xl_xfnp_tiny": dict(encoder_layers=3, decoder_layers=3, embed_dim=128, ffn_dim=512, heads=4, predicting_streams=2),
    "xl_xfnp_large": dict(
        encoder_layers=12,
        decoder_layers=12,
        embed_dim=1024,
        ffn_dim=4096,
        heads=16,
        max_positions=512,
        relative_buckets=32,
        relative_distance=128,
        language_embeddings="none",
    ),
}
# of names that have such a part; else EncoderConfig
CONFIGS = {"mt": EncoderDecoderConfig, "xdae": DenoisingConfig, "xfnp": NgramDecoderConfig}
XLMR_PIECES = 250_002


def from_command_line(*arguments):
    return configuration(options.get_training_parser(), ["data", "--task", "xl_translation", "--lr", "0.1", *arguments])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_defaults_on_the_command_line(name):
    model = from_command_line("--arch", name).model
    assert model._name == name
    assert {option: model[option] for option in ARCHITECTURES[name]} == ARCHITECTURES[name]


def test_fields_keep_their_help_and_type():
    for name in ARCHITECTURES:
        base = next((config for part, config in CONFIGS.items() if part in name.split("_")), EncoderConfig)
        for inherited, ours in zip(fields(base), fields(models.MODEL_DATACLASS_REGISTRY[name])):
            assert (inherited.name, inherited.type, inherited.metadata) == (ours.name, ours.type, ours.metadata)
            assert ours.name == "_name" or ours.metadata["help"]


def test_options_override_the_architecture(dictionary):
    cfg = from_command_line("--arch", "xl_xlm_tiny", "--layers", "1", "--activation", "relu", "--embed-dim", "16")
    model = models.build_model(cfg.model, SimpleNamespace(dictionary=dictionary))
    assert isinstance(model, XLEncoderModel)
    assert len(model.encoder.layers) == 1 and model.encoder.token_embeddings.table.weight.shape == (len(dictionary), 16)
    assert model.encoder.layers[0].ffn.up.weight.shape == (512, 16)


def test_yaml_names_the_architecture(dictionary):
    cfg = OmegaConf.create({"model": {"_name": "xl_mt_tiny", "decoder_layers": 1}})
    model = models.build_model(cfg.model, SimpleNamespace(dictionary=dictionary))
    assert isinstance(model, XLEncoderDecoderModel)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (3, 1)
    assert model.cfg.embed_dim == 128 and model.cfg.heads == 4


def test_config_in_a_checkpoint_is_plain_and_builds_the_same_model(dictionary):
    cfg = from_command_line("--arch", "xl_xlm_tiny", "--layers", "2")
    plain = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)["model"]
    assert {type(value) for value in plain.values()} == {str, int, float}
    again = models.build_model(OmegaConf.create({"model": plain}).model, SimpleNamespace(dictionary=dictionary))
    built = models.build_model(cfg.model, SimpleNamespace(dictionary=dictionary))
    shapes = [{name: value.shape for name, value in model.state_dict().items()} for model in (again, built)]
    assert shapes[0] == shapes[1]


def test_parameter_count_of_the_tiny_encoder(dictionary):
    model = models.build_model(from_command_line("--arch", "xl_xlm_tiny").model, SimpleNamespace(dictionary=dictionary))
    # tokens 23 x 128 + 23; positions 512 x 128; languages 2 x 128; norm 2 x 128; each of 3 layers: attention
    # 4 x (128 x 128 + 128), feed-forward 2 x 128 x 512 + 512 + 128, two norms 2 x 2 x 128
    assert len(dictionary) == 23
    assert sum(parameter.numel() for parameter in model.parameters()) == 663_831


def test_options_are_none_of_fairseqs():
    """Colliding options are dropped in silence, so a model's options must be its own."""
    from fairseq.dataclass.configs import FairseqConfig

    taken = {
        name
        for group in fields(FairseqConfig)
        if hasattr(group.type, "__dataclass_fields__")
        for name in group.type.__dataclass_fields__
    }
    ours = {option.name for config in (EncoderConfig, *CONFIGS.values()) for option in fields(config)} - {"_name"}
    assert len(taken) > 100 and not ours & taken


def test_options_are_none_of_our_tasks():
    from fairseq.tasks import TASK_DATACLASS_REGISTRY

    ours = {option.name for config in (EncoderConfig, *CONFIGS.values()) for option in fields(config)} - {"_name"}
    tasks = {name: config for name, config in TASK_DATACLASS_REGISTRY.items() if name.startswith("xl_")}
    assert tasks
    for name, config in tasks.items():
        assert not ours & set(config.__dataclass_fields__), name


@pytest.mark.parametrize("size, millions", [("large", 661.0), ("small", 250.0)])
def test_parameters_of_veco(size, millions):
    """V1, V2: counted with XLM-R's head and vocabulary; cross-attention has less than a fifth of them."""
    config = models.MODEL_DATACLASS_REGISTRY[f"xl_veco_{size}"]()
    with torch.device("meta"):
        model = models.MODEL_REGISTRY[f"xl_veco_{size}"](config, XLMR_PIECES, 1, 0)
    counts = {name: parameter.numel() for name, parameter in model.named_parameters()}
    assert round(sum(counts.values()) / 1e6, 1) == millions
    assert 0 < sum(count for name, count in counts.items() if "cross_attention" in name) < 0.2 * sum(counts.values())


def test_a_layer_of_veco_is_one_of_xlmr_with_cross_attention():
    """V1: self-attention and feed-forward are the same parameters whichever way the layer is run."""
    shapes = {}
    for name in ("xl_veco_tiny", "xl_xlmr_tiny"):
        model = models.MODEL_REGISTRY[name](models.MODEL_DATACLASS_REGISTRY[name](), 20, 1, 0)
        shapes[name] = {key: value.shape for key, value in model.state_dict().items()}
    without = {key: shape for key, shape in shapes["xl_veco_tiny"].items() if "cross_attention" not in key}
    assert without == shapes["xl_xlmr_tiny"] and len(shapes["xl_veco_tiny"]) == len(without) + 3 * 8
