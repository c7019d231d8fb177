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


def test_the_papers_values_are_in_the_paper_configuration():
    model = configuration(PRETRAINING["paper"]).model
    assert (model.layers, model.embed_dim, model.ffn_dim, model.heads) == (12, 1024, 4096, 8)  # X1
    model = configuration(TRANSLATION["paper-mt"], "-s", "en", "-t", "de").model
    assert (model.encoder_layers, model.decoder_layers, model.embed_dim, model.heads) == (6, 6, 1024, 8)  # X1


def test_xlms_training_ends_after_ten_looks_at_200000_sentences(dictionary):
    """X8, counted on each GPU; patience counts validations, also those at saves in the middle of an epoch."""
    for size in ("paper", "paper-mt"):
        cfg = configuration(PRETRAINING[size])
        streams = objectives_of(cfg, dictionary)["mlm"].cfg.batch_sentences
        assert int(cfg.task.updates_per_epoch) * streams == 200000 and cfg.checkpoint.patience == 10
        assert cfg.checkpoint.save_interval_updates == 0 and cfg.dataset.validate_interval == 1
        assert cfg.task.batches_per_update == 64  # X16
    cfg = configuration(TRANSLATION["paper-mt"], "-s", "en", "-t", "de")
    assert cfg.checkpoint.patience == 10 and (cfg.dataset.max_tokens, cfg.task.batches_per_update) == (2000, 8)  # X16
    assert cfg.checkpoint.save_interval_updates == pytest.approx(200000 / 65, rel=0.05)
    assert cfg.dataset.validate_interval > 10000  # not after a pass through the text


def test_the_paper_sizes_say_what_the_papers_say_of_smoothing_and_16_bits():
    """X8, X13, U2, V8; the toy sizes on CPU have 32 bits."""
    pair = ["-s", "en", "-t", "de"]
    assert configuration(TRANSLATION["paper-mt"], *pair).criterion.label_smoothing == 0
    in_16_bits = [
        configuration(PRETRAINING["paper"]),
        configuration(TRANSLATION["paper-mt"], *pair),
        configuration([RECIPES / "unicoder/config/pretrain.yaml"]),
        configuration(VECO_PRETRAINING["large"]),
        configuration(VECO_PRETRAINING["small"]),
    ]
    assert all(cfg.common.fp16 for cfg in in_16_bits)
    unicoder = [RECIPES / "unicoder/config/pretrain.yaml", RECIPES / "unicoder/config/toy.yaml"]
    for cfg in (
        *(configuration(PRETRAINING[size]) for size in ("toy", "lohelp")),
        *(configuration(TRANSLATION[size], *pair) for size in ("toy", "lohelp")),
        configuration(unicoder),
        configuration(VECO_PRETRAINING["toy"]),
    ):
        assert not cfg.common.fp16


def test_the_learning_rate_of_several_languages_is_the_measured_one():
    """With twice of it some masked language models do not learn."""
    (measured,) = re.findall(r"With several languages use (\d+\.\d+)", (RECIPES / "learning/README.md").read_text())
    assert configuration(PRETRAINING["toy"]).optimization.lr == [float(measured)]


def test_adam_of_fine_tuning_is_the_papers():
    """U8: as in pre-training; V9; M7: as BERT's."""
    unicoder, veco, monotrans = (
        configuration([XLM / "finetune.yaml", RECIPES / name / "config/finetune.yaml"])
        for name in ("unicoder", "veco", "monotrans")
    )
    assert unicoder.optimization.lr == [1e-5] and unicoder.lr_scheduler._name == "inverse_sqrt"
    assert unicoder.lr_scheduler.warmup_updates == 4000 and unicoder.dataset.batch_size == 32
    assert (veco.optimizer.adam_betas, veco.optimizer.adam_eps) == ("(0.9, 0.999)", 1e-8)
    assert (monotrans.optimizer.adam_betas, monotrans.optimizer.adam_eps) == ("(0.9, 0.999)", 1e-6)
    assert (monotrans.optimizer.weight_decay, monotrans.optimization.clip_norm) == (0.01, 1.0)
    assert monotrans.lr_scheduler._name == "xl_linear" and monotrans.lr_scheduler.warmup_share == 0.1
    text = (RECIPES / "veco/README.md").read_text(encoding="utf-8")
    assert "6e-6" not in text and "5e-6" in text


@pytest.mark.parametrize("size", ["toy"])
def test_veco_configurations_have_batches_and_positions(size, dictionary):
    cfg = configuration(VECO_PRETRAINING[size])
    built = objectives_of(cfg, dictionary)
    assert list(built) == ["veco_mono", "veco_bi"]
    for objective in built.values():
        assert (objective.cfg.batch_tokens is None) != (objective.cfg.batch_sentences is None)  # a toy's replaces it
        assert objective.input_length.positions <= cfg.model.max_positions


def test_vecos_values_are_in_its_configurations(dictionary):
    cfg = configuration(VECO_PRETRAINING["large"])
    built = objectives_of(cfg, dictionary)
    mono, bi = built["veco_mono"].cfg, built["veco_bi"].cfg
    assert (cfg.model.layers, cfg.model.embed_dim, cfg.model.ffn_dim, cfg.model.heads) == (24, 1024, 4096, 16)  # V2
    assert (mono.mask_prob, bi.mask_prob) == (0.15, 0.25)  # V3
    assert (str(cfg.task.schedule), cfg.task.train_only) == ("alternate", None)  # V7
    assert (mono.length, bi.length, mono.alpha, bi.alpha) == (512, 128, 0.5, 0.5)  # V8
    batches = cfg.task.batches_per_update
    assert (batches * mono.batch_sentences, batches * bi.batch_sentences) == (1024, 4096)  # V8
    assert cfg.optimization.lr == [2e-4] and cfg.optimization.max_update == cfg.lr_scheduler.total_num_update == 240000
    assert (cfg.lr_scheduler.warmup_updates, cfg.optimizer.weight_decay) == (12000, 0.01)
    assert cfg.optimizer.adam_betas == "(0.9, 0.98)" and cfg.optimizer.adam_eps == 1e-6
    small = configuration(VECO_PRETRAINING["small"])
    assert (small.model.layers, small.model.embed_dim, small.model.heads) == (6, 768, 12)  # V2
    assert small.optimization.lr == [3e-4] and small.optimizer.adam_betas == "(0.9, 0.999)"  # V8
    stage = configuration([*VECO_PRETRAINING["large"], VECO / "cross-attention.yaml"])
    assert stage.task.train_only == "*.cross_attention*"  # V7


def test_vecos_translation_model_is_filled_from_pretraining_of_its_size(dictionary):
    pretrained = build(configuration(VECO_PRETRAINING["large"]), dictionary).state_dict()
    recipient = build(configuration(VECO_TRANSLATION["en-de"], "-s", "en", "-t", "de"), dictionary).state_dict()
    copied, new = copy_stack(recipient, pretrained, "encoder", "veco")
    last, missing = copy_stack(recipient, pretrained, "decoder", "veco", layers="last")
    assert not new and not missing and recipient.keys() == copied.keys() | last.keys()


@pytest.mark.parametrize("pair, lr, dropout, batches", [("en-de", 1e-4, 0.3, 16), ("en-fr", 2e-4, 0.1, 64)])
def test_vecos_values_of_translation(pair, lr, dropout, batches):
    cfg = configuration(VECO_TRANSLATION[pair], "-s", "en", "-t", pair[-2:])
    assert (cfg.model.encoder_layers, cfg.model.decoder_layers, cfg.model.share_embeddings) == (24, 6, True)  # V10
    assert str(cfg.task.init_decoder_layers) == "last" and cfg.criterion.label_smoothing == 0.2  # V13
    assert cfg.optimization.lr == [lr] and cfg.model.dropout == dropout and cfg.optimization.clip_norm == 0.1
    assert cfg.task.batches_per_update == batches and cfg.dataset.max_tokens == 4096  # 64k and 256k tokens
    assert (cfg.lr_scheduler.warmup_updates, cfg.lr_scheduler.total_num_update) == (16000, 100000)
