"""An architecture option is declared once: weight transfer and conversion follow the declaration."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from fairseq.dataclass import ChoiceEnum
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY

from fairseq_xl.commands import model_convert
from fairseq_xl.errors import UserError
from fairseq_xl.io.options import option
from fairseq_xl.models import architectures
from fairseq_xl.models.encoder import XLEncoderModel
from fairseq_xl.models.model_options import EncoderConfig
from tests.commands import pretraining, run_train
from tests.tasks.conftest import data_bin  # noqa: F401

NAME = "xl_gated_tiny"


@dataclass
class GatedConfig(EncoderConfig):
    gate: ChoiceEnum(["none", "added"]) = option("none", "gate of each layer", transfer="encoder", absent="none")


@pytest.fixture
def _gated():
    registries = (ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY)
    form = dict(output_form="dense", position_offset=2, language_embeddings="none")
    architectures.register_architecture(NAME, XLEncoderModel, GatedConfig, **form)
    yield
    for registry in registries:
        registry.pop(NAME, None)
    vars(architectures).pop(NAME), vars(architectures).pop(f"{NAME}_config")


@pytest.mark.usefixtures("_gated")
def test_an_option_is_declared_once(data_bin, tmp_path):
    def train(name, *more):
        run_train(pretraining(data_bin, tmp_path / name, "--max-update", 1, *more, objectives="mlm"))
        return str(tmp_path / name / "checkpoint_last.pt")

    def converted(checkpoint, name):
        model_convert.main([checkpoint, str(tmp_path / name), "--data", str(data_bin)])
        return str(tmp_path / name)

    gated = ["--arch", NAME, "--gate", "added"]
    older = train("older", "--arch", "xl_xlmr_tiny", "--layer-norm-eps", 1e-12)
    published = converted(older, "published")
    for initial in (older, published):
        with pytest.raises(UserError, match="needs --gate none, this run has added"):
            train("wrong", *gated, "--init-from", initial)
    same = train("same", "--arch", NAME, "--init-from", older)
    folder = converted(same, "exported")
    assert json.loads(Path(folder, "config.json").read_text("utf-8"))["model_type"] == "xlm-roberta"
    with pytest.raises(UserError, match="no model with --gate added in the form of xlm-roberta, where it is none"):
        state = torch.load(same, weights_only=True)
        state["cfg"]["model"]["gate"] = "added"
        torch.save(state, same)
        converted(same, "refused")
