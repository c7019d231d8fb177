"""xFNP's configurations: the paper's values, and training through the recipe's script."""

import pytest

from fairseq_xl.models.ngram_decoder import XLNgramDecoderModel
from tests.recipes.configurations import RECIPES, build, configuration, objectives_of

CONFIG = RECIPES / "xglue/config"
SIZES = {"paper": [CONFIG / "xfnp.yaml"], "toy": [CONFIG / "xfnp.yaml", CONFIG / "xfnp-toy.yaml"]}


def xfnp_of(size, dictionary):
    cfg = configuration(SIZES[size])
    return cfg, objectives_of(cfg, dictionary)["xfnp"]


@pytest.mark.parametrize("size", SIZES)
def test_model_and_objective_fit(size, dictionary):
    cfg, objective = xfnp_of(size, dictionary)
    model = build(cfg, dictionary)
    assert isinstance(model, XLNgramDecoderModel) and objective.heads(cfg.model) == {}
    assert objective.cfg.mixed and objective.cfg.alpha == 0.3  # G2
    assert (objective.cfg.span_every, objective.cfg.span_pieces) == (64, 9)  # G6
    assert objective.cfg.weight_per_stream == [1, 1]  # G6
    assert objective.input_length.positions <= cfg.model.max_positions
    assert cfg.optimization.max_update == cfg.lr_scheduler.total_num_update > cfg.lr_scheduler.warmup_updates > 0
