"""Every configuration of the recipes is one that fairseq-train takes, and the sizes of a recipe fit together."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fairseq import models, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from fairseq_xl.checkpoints.surgery import donate
from fairseq_xl.data.framing import Framing
from fairseq_xl.objectives import build_objectives
from recipes.launch import flags

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
XLM = RECIPES / "xlm/config"

PRETRAINING = {
    "paper": [XLM / "pretrain.yaml"],
    "paper-mt": [XLM / "pretrain.yaml", XLM / "pretrain-mt.yaml"],
    "toy": [XLM / "pretrain.yaml", XLM / "pretrain-toy.yaml"],
    "lohelp": [XLM / "pretrain.yaml", RECIPES / "lohelp/pretrain.yaml"],
}
TRANSLATION = {
    "paper-mt": [XLM / "translate.yaml"],
    "toy": [XLM / "translate.yaml", XLM / "translate-toy.yaml"],
    "lohelp": [XLM / "translate.yaml", RECIPES / "lohelp/translate.yaml"],
}


def configuration(files, *more):
    arguments = ["data", "--user-dir", str(RECIPES.parent / "fairseq_xl"), *flags(files), *more]
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), arguments))


def build(cfg, dictionary):
    with torch.device("meta"):
        return models.build_model(cfg.model, SimpleNamespace(dictionary=dictionary))


@pytest.mark.parametrize("objectives", ["clm", "mlm", "mlm,tlm"])
@pytest.mark.parametrize("size", PRETRAINING)
def test_pretraining_configurations_serve_every_set_of_objectives(size, objectives, dictionary):
    cfg = configuration(PRETRAINING[size], "--objectives", objectives)
    framing = Framing.of("xl", dictionary)
    built = build_objectives(cfg.task.objectives, cfg.task.objective_options, dictionary, framing)
    assert list(built) == objectives.split(",")
    for objective in built.values():
        assert objective.cfg.batch_tokens or objective.cfg.batch_sentences
        assert objective.positions <= cfg.model.max_positions


@pytest.mark.parametrize("size", TRANSLATION)
def test_translation_starts_from_the_pretraining_of_its_size(size, dictionary):
    donor = build(configuration(PRETRAINING[size]), dictionary).state_dict()
    recipient = build(configuration(TRANSLATION[size], "-s", "en", "-t", "de"), dictionary).state_dict()
    copied = {}
    for stack in ("encoder", "decoder"):
        stack_copied, new = donate(recipient, donor, stack, size)
        copied |= stack_copied
        assert all("cross_attention" in key for key in new)
    assert len(copied) > 50


def test_the_papers_values_are_in_the_paper_configuration():
    model = configuration(PRETRAINING["paper"]).model
    assert (model.layers, model.embed_dim, model.ffn_dim, model.heads) == (12, 1024, 4096, 8)  # X1
    model = configuration(TRANSLATION["paper-mt"], "-s", "en", "-t", "de").model
    assert (model.encoder_layers, model.decoder_layers, model.embed_dim, model.heads) == (6, 6, 1024, 8)  # X1
