"""Every configuration of the recipes is one that fairseq-train takes, and the sizes of a recipe fit together.

Those of the papers are planned in test_plans.py.
"""

import re
from pathlib import Path

import pytest

import fairseq_xl
from fairseq_xl.checkpoints.stacks import copy_stack
from fairseq_xl.io.flags import flags
from tests.recipes.configurations import PRETRAINING, RECIPES, VECO, XLM, build, configuration, listed, objectives_of

fairseq_xl.register()


TRANSLATION = {
    "paper-mt": [XLM / "translate.yaml"],
    "toy": [XLM / "translate.yaml", XLM / "translate-toy.yaml"],
    "lohelp": [XLM / "translate.yaml", RECIPES / "lohelp/translate.yaml"],
}
VECO_PRETRAINING = {
    "large": [VECO / "pretrain.yaml"],
    "small": [VECO / "pretrain.yaml", VECO / "small.yaml"],
    "toy": [VECO / "pretrain.yaml", VECO / "toy.yaml"],
}
VECO_TRANSLATION = {
    "en-de": [VECO / "translate.yaml"],
    "en-fr": [VECO / "translate.yaml", VECO / "translate-en-fr.yaml"],
}


MEDIUM = {
    "xlm": [XLM / "pretrain.yaml", XLM / "pretrain-medium.yaml"],
    "unicoder": [RECIPES / "unicoder/config/pretrain.yaml", RECIPES / "unicoder/config/medium.yaml"],
    "veco": [VECO / "pretrain.yaml", VECO / "medium.yaml"],
    "veco-cross-attention": [VECO / "pretrain.yaml", VECO / "medium.yaml", VECO / "cross-attention-medium.yaml"],
    "xdae": [RECIPES / "xglue/config/xdae.yaml", RECIPES / "xglue/config/xdae-medium.yaml"],
    "xfnp": [RECIPES / "xglue/config/xfnp.yaml", RECIPES / "xglue/config/xfnp-medium.yaml"],
    "monotrans": [RECIPES / "monotrans/config/pretrain.yaml", RECIPES / "monotrans/config/medium.yaml"],
}


@pytest.mark.parametrize("objectives", ["clm", "mlm", "mlm,tlm"])
@pytest.mark.parametrize("size", ["toy", "lohelp"])
def test_pretraining_configurations_serve_every_set_of_objectives(size, objectives, dictionary):
    cfg = configuration(PRETRAINING[size], "--objectives", objectives)
    built = objectives_of(cfg, dictionary)
    assert list(built) == objectives.split(",")
    for objective in built.values():
        assert (objective.cfg.batch_tokens is None) != (objective.cfg.batch_sentences is None)  # a toy's replaces it
        assert objective.input_length.positions <= cfg.model.max_positions


@pytest.mark.parametrize("system", MEDIUM)
def test_the_medium_sizes_are_6_x_512_and_begin_with_sinusoids(system, dictionary):
    cfg = configuration(MEDIUM[system])
    model = cfg.model
    layers = [getattr(model, name) for name in ("layers", "encoder_layers", "decoder_layers") if name in model]
    assert set(layers) == {6} and (model.embed_dim, model.ffn_dim, model.heads) == (512, 2048, 8)
    assert (str(model.position_init), model.init_std, cfg.common.fp16) == ("sinusoidal", 0.03, False)
    for objective in objectives_of(cfg, dictionary).values():
        assert objective.cfg.batch_tokens and not objective.cfg.batch_sentences
        assert objective.input_length.positions <= model.max_positions
    if "total_num_update" in cfg.lr_scheduler:
        assert cfg.lr_scheduler.total_num_update == cfg.optimization.max_update


def test_the_medium_comparison_of_translation_trains_6_x_512_in_bfloat16(dictionary, capsys):
    """The steps of experiment.yaml; models from an MLM have all of its weights, and new cross-attention."""
    medium = listed(capsys, "xlm/experiment-medium.yaml")
    assert list(medium) == list(listed(capsys, "xlm/experiment.yaml"))
    first = {"pretrain": "pretrain.yaml", "unsupervised": "unsupervised.yaml", "translate": "translate.yaml"}
    built, starts = {}, {}
    for name, commands in medium.items():
        script = Path(commands[0][1]).stem
        if script not in first or not re.search("/en-de(/.*)?/1$", name):
            continue
        _, _, data, save, _, config, *more = commands[0]
        assert Path(config).name.endswith("-medium.yaml")
        cfg = configuration([XLM / first[script], RECIPES.parent / config], *more)
        layers = [getattr(cfg.model, key) for key in ("layers", "encoder_layers", "decoder_layers") if key in cfg.model]
        assert set(layers) == {6} and (cfg.model.embed_dim, cfg.model.ffn_dim, cfg.model.heads) == (512, 2048, 8)
        assert cfg.common.bf16 and not cfg.common.fp16 and cfg.checkpoint.patience == -1
        assert cfg.model.init_std == (0.03 if script == "pretrain" else 0.02)
        own = flags([RECIPES.parent / config])  # the values of the experiment are those of the file
        assert own[own.index("--max-tokens") + 1] == str(cfg.dataset.max_tokens)
        assert own[own.index("--max-update") + 1] == str(cfg.optimization.max_update)
        built[Path(save).name] = build(cfg, dictionary).state_dict()
        starts[name] = "--init-from" in more and more[more.index("--init-from") + 1]
    for name in ("unsupervised-mlm-1", "half-mlm-1", "back-translated-1"):
        for stack in ("encoder", "decoder"):
            _, new = copy_stack(built[name], built["mlm-1"], stack, name)
            assert all("cross_attention" in key for key in new)
    from_mlm = {name for name, start in starts.items() if start and start.endswith("mlm-1/checkpoint_last.pt")}
    supervised = [f"supervised/en-de/{share}/mlm" for share in ("half", "tenth")]
    assert from_mlm == {f"{step}/1" for step in ("unsupervised/en-de/mlm", *supervised, "back-translated/en-de")}


@pytest.mark.parametrize("size", TRANSLATION)
def test_translation_starts_from_the_pretraining_of_its_size(size, dictionary):
    pretrained = build(configuration(PRETRAINING[size]), dictionary).state_dict()
    recipient = build(configuration(TRANSLATION[size], "-s", "en", "-t", "de"), dictionary).state_dict()
    copied = {}
    for stack in ("encoder", "decoder"):
        stack_copied, new = copy_stack(recipient, pretrained, stack, size)
        copied |= stack_copied
        assert all("cross_attention" in key for key in new)
    assert len(copied) > 50


def test_xlm_is_validated_after_200000_sentences_of_each_gpu():
    """X8: once an epoch of pre-training, and by updates in translation, whose pairs have 65 tokens on average."""
    for size in ("paper", "paper-mt"):
        cfg = configuration(PRETRAINING[size])
        assert cfg.checkpoint.save_interval_updates == 0 and cfg.dataset.validate_interval == 1
    cfg = configuration(TRANSLATION["paper-mt"], "-s", "en", "-t", "de")
    assert cfg.checkpoint.save_interval_updates == pytest.approx(200000 / 65, rel=0.05)
    assert cfg.dataset.validate_interval > 10000 and cfg.checkpoint.patience == 10


def test_the_learning_rate_of_several_languages_is_the_measured_one():
    """With twice of it some masked language models do not learn."""
    (measured,) = re.findall(r"With several languages use (\d+\.\d+)", (RECIPES / "learning/README.md").read_text())
    assert configuration(PRETRAINING["toy"]).optimization.lr == [float(measured)]


@pytest.mark.parametrize("size", ["toy"])
def test_veco_configurations_have_batches_and_positions(size, dictionary):
    cfg = configuration(VECO_PRETRAINING[size])
    built = objectives_of(cfg, dictionary)
    assert list(built) == ["veco_mono", "veco_bi"]
    for objective in built.values():
        assert (objective.cfg.batch_tokens is None) != (objective.cfg.batch_sentences is None)  # a toy's replaces it
        assert objective.input_length.positions <= cfg.model.max_positions


def test_vecos_translation_model_is_filled_from_pretraining_of_its_size(dictionary):
    pretrained = build(configuration(VECO_PRETRAINING["large"]), dictionary).state_dict()
    recipient = build(configuration(VECO_TRANSLATION["en-de"], "-s", "en", "-t", "de"), dictionary).state_dict()
    copied, new = copy_stack(recipient, pretrained, "encoder", "veco")
    last, missing = copy_stack(recipient, pretrained, "decoder", "veco", layers="last")
    assert not new and not missing and recipient.keys() == copied.keys() | last.keys()
