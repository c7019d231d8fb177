"""Every configuration of the recipes is one that fairseq-train takes, and the sizes of a recipe fit together.

The papers' values are in test_paper_values.py, their sizes in test_plans.py.
"""

import re
from pathlib import Path

import pytest

import fairseq_xl
from fairseq_xl.checkpoints.stacks import copy_stack
from fairseq_xl.io.flags import flags
from fairseq_xl.models.ngram_decoder import XLNgramDecoderModel
from tests.recipes.configurations import PRETRAINING, RECIPES, XLM, build, configuration, listed, objectives_of

fairseq_xl.register()


def with_(folder, *names):
    """The configurations `names` of a folder, each laid over the one before; lohelp/… is of the system's folder."""
    return [RECIPES / folder / (f"{name}.yaml" if "/" in name else f"config/{name}.yaml") for name in names]


FINETUNING = [XLM / "finetune.yaml", *with_("unicoder", "finetune")]
TITLES = with_("xglue", "generation", "generation-toy", "lohelp/titles")
MEDIUM = {
    "xlm": with_("xlm", "pretrain", "pretrain-medium"),
    "unicoder": with_("unicoder", "pretrain", "medium"),
    "veco": with_("veco", "pretrain", "medium"),
    "veco-cross-attention": with_("veco", "pretrain", "medium", "cross-attention-medium"),
    "xdae": with_("xglue", "xdae", "xdae-medium"),
    "xfnp": with_("xglue", "xfnp", "xfnp-medium"),
    "monotrans": with_("monotrans", "pretrain", "medium"),
}
#: those of the papers are planned in test_plans.py
SMALL = {
    "xlm toy": PRETRAINING["toy"],
    "xlm lohelp": PRETRAINING["lohelp"],
    "unicoder toy": with_("unicoder", "pretrain", "toy"),
    "veco toy": with_("veco", "pretrain", "toy"),
    "xdae toy": with_("xglue", "xdae", "xdae-toy"),
    "xdae lohelp": with_("xglue", "xdae", "xdae-toy", "lohelp/xdae"),
    "xfnp toy": with_("xglue", "xfnp", "xfnp-toy"),
    "xfnp lohelp": with_("xglue", "xfnp", "xfnp-toy", "lohelp/xfnp"),
}
PAIR = ["-s", "en", "-t", "de"]


@pytest.mark.parametrize("size", [*SMALL, *MEDIUM])
def test_batches_are_limited_once_and_inputs_fit_the_positions(size, dictionary):
    cfg = configuration((SMALL | MEDIUM)[size])
    for objective in objectives_of(cfg, dictionary).values():
        tokens, sentences = objective.cfg.batch_tokens, objective.cfg.batch_sentences
        assert (tokens is None) != (sentences is None) and (tokens or size not in MEDIUM)
        assert objective.input_length.positions <= cfg.model.max_positions
    if "total_num_update" in cfg.lr_scheduler:
        assert cfg.optimization.max_update == cfg.lr_scheduler.total_num_update > cfg.lr_scheduler.warmup_updates > 0


@pytest.mark.parametrize("size", ["toy", "lohelp"])
def test_xlms_configurations_serve_every_set_of_objectives(size, dictionary):
    for objectives in ("clm", "mlm,tlm"):
        assert ",".join(objectives_of(configuration(PRETRAINING[size], "--objectives", objectives), dictionary)) == (
            objectives
        )


@pytest.mark.parametrize("system", MEDIUM)
def test_the_medium_sizes_are_6_x_512_and_begin_with_sinusoids(system):
    cfg = configuration(MEDIUM[system])
    model = cfg.model
    layers = [getattr(model, name) for name in ("layers", "encoder_layers", "decoder_layers") if name in model]
    assert set(layers) == {6} and (model.embed_dim, model.ffn_dim, model.heads) == (512, 2048, 8)
    assert (str(model.position_init), model.init_std, cfg.common.fp16) == ("sinusoidal", 0.03, False)


#: new model: what it is made with, the pre-training that it starts from, the layers of its encoder and decoder
STARTS = {
    "xlm, translation": (with_("xlm", "translate"), PRETRAINING["paper-mt"], ("all", "all")),
    "xlm toy, translation": (with_("xlm", "translate", "translate-toy"), PRETRAINING["toy"], ("all", "all")),
    "xlm lohelp, translation": (
        *([XLM / "translate.yaml", RECIPES / "lohelp/translate.yaml"], PRETRAINING["lohelp"]),
        ("all", "all"),
    ),
    "veco, translation": (with_("veco", "translate"), with_("veco", "pretrain"), ("all", "last")),
    "unicoder": (FINETUNING, with_("unicoder", "pretrain"), ("all",)),
    "unicoder toy": (FINETUNING + with_("unicoder", "finetune-toy"), SMALL["unicoder toy"], ("all",)),
    "xdae": (with_("xglue", "xdae"), PRETRAINING["paper"], ("all", "first")),
    "xdae toy": (SMALL["xdae toy"], PRETRAINING["toy"], ("all", "first")),
    "xdae lohelp": (SMALL["xdae lohelp"], PRETRAINING["lohelp"], ("all", "all")),
    "titles, xlm": (TITLES, PRETRAINING["lohelp"], ("all", "all")),
    "titles, xdae": (TITLES, SMALL["xdae lohelp"], ("all", "all")),
    "generation, xdae": (with_("xglue", "generation"), with_("xglue", "xdae"), ("all", "all")),
    "generation, xfnp": (with_("xglue", "generation", "generation-xfnp"), with_("xglue", "xfnp"), ("all", "all")),
    "generation toy": (with_("xglue", "generation", "generation-toy"), SMALL["xdae toy"], ("all", "all")),
}


@pytest.mark.parametrize("name", STARTS)
def test_a_model_starts_from_the_pretraining_of_its_size(name, dictionary):
    """All of its weights are there, except for the cross-attention of a decoder that comes from an encoder."""
    files, pretraining, layers = STARTS[name]
    model = build(configuration(files, *(PAIR if "translation" in name else [])), dictionary).state_dict()
    pretrained = build(configuration(pretraining), dictionary).state_dict()
    encoder, new = copy_stack(model, pretrained, "encoder", name, layers=layers[0])
    assert encoder and not new
    if len(layers) == 2:
        decoder, new = copy_stack(model, pretrained, "decoder", name, layers=layers[1])
        assert all("cross_attention" in key for key in new)
        assert bool(new) == (not any("cross_attention" in key for key in pretrained))
        assert model.keys() == encoder.keys() | decoder.keys() | {f"decoder.{key}" for key in new}


def test_toys_sample_as_in_the_papers(dictionary):
    for name, tasks, alpha in (  # U2, G2
        ("unicoder toy", ["mlm", "tlm", "word_recovery", "paraphrase", "cross_lingual_mlm"], 0),
        *(("xdae toy", ["xdae"], 0.3), ("xfnp toy", ["xfnp"], 0.3)),
    ):
        cfg = configuration(SMALL[name])
        built = objectives_of(cfg, dictionary)
        assert list(built) == tasks
        assert all(objective.cfg.mixed and objective.cfg.alpha == alpha for objective in built.values())
        if name == "unicoder toy":
            assert cfg.task.schedule == "cycle"  # U2
            assert (cfg.task.batches_per_update or cfg.optimization.update_freq[0]) % len(tasks) == 0
    settings = built["xfnp"].cfg
    assert (settings.span_every, settings.span_pieces, settings.weight_per_stream) == (64, 9, [1, 1])  # G6
    assert isinstance(build(cfg, dictionary), XLNgramDecoderModel) and built["xfnp"].heads(cfg.model) == {}


@pytest.mark.parametrize("laid_over", [[], ["toy"], ["xglue"]], ids=["paper", "toy", "xglue"])
def test_every_pretraining_of_unicoder_ends(laid_over):
    cfg = configuration(with_("unicoder", "pretrain", *laid_over))
    assert (cfg.optimization.max_update > 0) == bool(laid_over) == (cfg.checkpoint.patience <= 0)


def test_xdae_and_xfnp_are_pretrained_on_as_many_tokens(dictionary):
    budgets = []
    for name in ("xdae", "xfnp"):
        cfg = configuration(SMALL[f"{name} lohelp"])
        own = objectives_of(cfg, dictionary)[name].cfg
        batches = cfg.optimization.max_update, cfg.optimization.update_freq, cfg.task.batches_per_update
        budgets.append((*batches, own.batch_tokens, own.length, own.mixed, own.alpha))
    assert budgets[0] == budgets[1]
    titles = configuration(TITLES).optimization
    assert titles.max_epoch == 0 and titles.max_update > 0  # equal updates


def test_the_medium_comparison_of_translation_trains_6_x_512_in_bfloat16(dictionary):
    """The steps of experiment.yaml; models from an MLM have all of its weights, and new cross-attention."""
    medium = listed("xlm/experiment-medium.yaml")
    assert list(medium) == list(listed("xlm/experiment.yaml"))
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


def test_xlm_is_validated_after_200000_sentences_of_each_gpu():
    """X8: once an epoch of pre-training, and by updates in translation, whose pairs have 65 tokens on average."""
    for size in ("paper", "paper-mt"):
        cfg = configuration(PRETRAINING[size])
        assert cfg.checkpoint.save_interval_updates == 0 and cfg.dataset.validate_interval == 1
    cfg = configuration(with_("xlm", "translate"), *PAIR)
    assert cfg.checkpoint.save_interval_updates == pytest.approx(200000 / 65, rel=0.05)
    assert cfg.dataset.validate_interval > 10000 and cfg.checkpoint.patience == 10


def test_the_learning_rate_of_several_languages_is_the_measured_one():
    """With twice of it some masked language models do not learn."""
    (measured,) = re.findall(r"With several languages use (\d+\.\d+)", (RECIPES / "learning/README.md").read_text())
    assert configuration(PRETRAINING["toy"]).optimization.lr == [float(measured)]
