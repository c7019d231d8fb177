"""The grid of initializations of X11: random, CLM, MLM or embeddings, for the encoder and for the decoder."""

import functools
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import CheckpointConfig
from omegaconf import OmegaConf

from fairseq_xl.engine import save_dir
from fairseq_xl.errors import UserError
from tests.builders import write_task
from tests.command_line import cli
from tests.commands import classification, load, pretraining, run_train, trained, translation

EMBEDDINGS = {"token_embeddings.table.weight"}
CROSS = "cross_attention"


@pytest.fixture(scope="module")
def pretrained(data_bin, tmp_path_factory):
    """{"clm", "mlm": path of a checkpoint whose weights left their initial values}."""
    folder = tmp_path_factory.mktemp("pretrained")
    for objective in ("clm", "mlm"):
        seed = ("clm", "mlm").index(objective) + 7
        more = cli(max_epoch=1, updates_per_epoch=3, disable_validation=True, seed=seed)
        run_train(pretraining(data_bin, folder / objective, *more, objectives=objective))
    return {objective: folder / objective / "checkpoint_last.pt" for objective in ("clm", "mlm")}


def start(data, folder, *more):
    """(parameters of a translation model before its first update has any effect, lines of the log): the rate is 0."""
    once = cli(s="en", t="de", max_update=1, disable_validation=True, lr=0)
    log = run_train(translation(data, folder, *once, *more)).log
    return load(folder / "checkpoint_last.pt"), log.splitlines()


def stack(state, name):
    return {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}


@pytest.fixture(scope="module")
def untouched(data_bin, tmp_path_factory):
    """Random initial parameters, the same in all runs: they share a seed."""
    return start(data_bin, tmp_path_factory.mktemp("random"))[0]


BIAS = "encoder.token_embeddings.output_bias"
NOT_USED = {"decoder": "none", "encoder": BIAS, "embeddings": f"{BIAS}, encoder.embeddings, encoder.layers"}


@pytest.mark.parametrize(
    "sources", [{"encoder": "mlm"}, {"decoder": "mlm"}, {"encoder": "clm", "decoder": "mlm"}, {"embeddings": "mlm"}]
)
def test_each_part_has_a_flag(data_bin, tmp_path, pretrained, untouched, sources):
    """Cross-attention stays random; the log names it, and what is not used."""
    flags = [word for part, name in sources.items() for word in (f"--init-{part}-from", pretrained[name])]
    state, log = start(data_bin, tmp_path, *flags)
    assert state.keys() == untouched.keys()
    for side in ("encoder", "decoder"):
        before, name = stack(untouched, side), sources.get(side, sources.get("embeddings"))
        initial = stack(load(pretrained[name]), "encoder") if name else {}
        for key, value in stack(state, side).items():
            taken = key in EMBEDDINGS if "embeddings" in sources else side in sources and CROSS not in key
            assert torch.equal(value, initial[key] if taken else before[key]), (side, key)
            assert key not in EMBEDDINGS or taken != torch.equal(value, before[key])
    for part, name in sources.items():
        assert f"{pretrained[name]}: not used: {NOT_USED[part]}" in log
    reports = [text for text in log if text.startswith(f"decoder from {pretrained['mlm']}")]
    assert len(reports) == ("decoder" in sources) and all(f"layers.0.{CROSS}.query.weight" in each for each in reports)


def test_initialization_with_shared_embeddings(data_bin, tmp_path, pretrained):
    state, _ = start(data_bin, tmp_path, "--share-embeddings", "--init-from", pretrained["mlm"])
    initial = load(pretrained["mlm"])
    for name in ("encoder.token_embeddings.table.weight", BIAS):
        assert torch.equal(state[name], initial[name])
    assert torch.equal(state["decoder.layers.0.ffn.up.weight"], initial["encoder.layers.0.ffn.up.weight"])


@pytest.fixture(scope="module")
def task_files(tmp_path_factory):
    return write_task(tmp_path_factory.mktemp("tasks") / "files", 1)


def run_from(task, data, files, folder, initial, *more):
    """A short training of a task that starts from a file."""
    more = ["--disable-validation", *more]
    if task == "translation":
        both = ["--init-encoder-from", initial, "--init-decoder-from", initial, "--init-embeddings-from", initial]
        return run_train(translation(data, folder, "-s", "en", "-t", "de", *both, *more))
    if task == "classification":
        return run_train(classification(data, files, folder, "--init-from", initial, *more))
    return run_train(
        pretraining(data, folder, "--updates-per-epoch", 5, "--init-from", initial, *more, objectives="mlm")
    )


@pytest.mark.parametrize("task", ["pretraining", "translation"])  # --init-from, and a flag for each part
def test_initialization_is_not_repeated_on_resume(data_bin, tmp_path, task_files, pretrained, task):
    """Neither a resumed run nor generation needs the pre-trained file."""
    initial = tmp_path / "initial.pt"
    initial.write_bytes(pretrained["clm"].read_bytes())
    whole = run_from(task, data_bin, task_files, tmp_path / "whole", initial, "--max-update", 3)
    run_from(task, data_bin, task_files, tmp_path / "run", initial, "--max-update", 2)
    initial.unlink()
    resumed = run_from(task, data_bin, task_files, tmp_path / "run", initial, "--max-update", 3)
    assert list(resumed.updates) == [3] and resumed.updates[3] == whole.updates[3]
    last = tmp_path / "run" / "checkpoint_last.pt"
    assert f"{last} is restored: the weights that --init-* name are not read" in resumed.log
    with pytest.raises(UserError, match="initial.pt cannot be read as a checkpoint"):
        run_from(task, data_bin, task_files, tmp_path / "new", initial, "--max-update", 3)


LAST, ONCE, MODEL, OTHER = "run/checkpoint_last", "once", "model", "other"


@pytest.mark.parametrize(
    "options, files",  # files that are there decide
    [
        ({}, [[], [LAST], ["run/checkpoint_last-1"]]),
        ({"continue_once": ONCE}, [[], [LAST, ONCE]]),
        ({"finetune_from_model": MODEL}, [[], [MODEL], [LAST, MODEL]]),
        ({"restore_file": OTHER}, [[], [OTHER], ["other-1", LAST]]),
        ({"continue_once": ONCE, "finetune_from_model": MODEL}, [[], [MODEL], [LAST]]),
        (dict.fromkeys(("reset_optimizer", "reset_dataloader", "reset_meters", "reset_lr_scheduler"), True), [[LAST]]),
    ],
)
@pytest.mark.parametrize("suffix", ["", "-1"])
def test_the_file_that_fairseq_restores_is_known(tmp_path, options, suffix, files):
    asked = []

    class Asked(Exception):
        pass

    def load_checkpoint(path, *args, **kwargs):
        asked.append(path)
        raise Asked

    trainer = SimpleNamespace(checkpoint_suffix=suffix, load_checkpoint=load_checkpoint)
    for number, present in enumerate(files):
        root = tmp_path / str(number)
        cfg = OmegaConf.structured(CheckpointConfig(save_dir=str(root / "run"), checkpoint_suffix=suffix))
        for name, value in options.items():
            cfg[name] = value if value is True else str(root / f"{value}.pt")
        (root / "run").mkdir(parents=True)
        for name in present:
            (root / f"{name}.pt").touch()
        with pytest.raises((Asked, ValueError)) as raised:
            checkpoint_utils.load_checkpoint(cfg, trainer)
        if raised.type is ValueError:  # nothing is trained then
            assert "does not exist" in str(raised.value)
            with pytest.raises(UserError, match="--finetune-from-model .*model.pt does not exist"):
                save_dir.choose_checkpoint(cfg)
        elif "restore_file" in options and not Path(asked[-1]).exists():  # fairseq would train from scratch
            with pytest.raises(UserError, match=f"--restore-file {asked[-1]} does not exist"):
                save_dir.choose_checkpoint(cfg)
        else:
            assert save_dir.choose_checkpoint(cfg)[0] == asked[-1]


def test_initialization_from_a_translation_model_is_stack_by_stack(data_bin, tmp_path, pretrained):
    """The new decoder starts from the trained decoder with its cross-attention, not from the encoder."""
    more = cli(s="en", t="de", max_update=3, lr=0.01, disable_validation=True, decoder_layers=2)
    path = trained(translation(data_bin, tmp_path / "initial", *more))
    both, initial = ["--init-from", path], load(path)
    state, _ = start(data_bin, tmp_path / "same", "--decoder-layers", 2, *both)
    assert state.keys() == initial.keys() and all(torch.equal(state[key], initial[key]) for key in state)
    state, _ = start(data_bin, tmp_path / "last", "--init-decoder-from", path, "--init-decoder-layers", "last")
    for key, value in stack(state, "decoder").items():
        assert torch.equal(value, initial["decoder." + key.replace("layers.0.", "layers.1.")]), key
    with pytest.raises(
        UserError, match="--share-embeddings: encoder and decoder of .* have token embeddings of their own"
    ):
        start(data_bin, tmp_path / "shared", "--decoder-layers", 2, "--share-embeddings", *both)


# Mistakes: one sentence, before training


#: what is wrong with a checkpoint: changed values, and what is said of them
MISTAKES = {
    "heads": ({"cfg.model.heads": 4, "task_state.fairseq_xl.heads": 4}, "needs --heads 4, this run has 2$"),
    "width": ({"cfg.model.embed_dim": 8}, "needs --embed-dim 8, this run has 16$"),
    "framing": ({"task_state.fairseq_xl.framing": "xlm"}, "needs --framing xlm, this run has xl"),
    "dictionary": ({"task_state.fairseq_xl.dictionary": "0" * 64}, "was trained with another dictionary"),
    "no form": (
        {"cfg.model": {"_name": "xl_xlm_tiny", "activation": "gelu"}},
        "is damaged: it doesn.t say its model.s embed_dim, heads, layer_norm_eps",
    ),
    "no configuration": ({"cfg": 3}, "is not a fairseq checkpoint: 'cfg' is expected to be a dict, found 3"),
}


@pytest.fixture(scope="module")
def others(pretrained, tmp_path_factory):
    """Checkpoints that do not fit: {what is wrong: path}."""
    folder = tmp_path_factory.mktemp("others")
    for name, (changes, _) in MISTAKES.items():
        state = torch.load(pretrained["mlm"], weights_only=True)
        for place, value in changes.items():
            *keys, last = place.split(".")
            functools.reduce(dict.__getitem__, keys, state)[last] = value
        torch.save(state, folder / f"{name}.pt")
    return {name: folder / f"{name}.pt" for name in MISTAKES}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_initialization_from_a_checkpoint_that_does_not_fit(data_bin, tmp_path, others, mistake):
    with pytest.raises(UserError, match=MISTAKES[mistake][1]) as error:
        start(data_bin, tmp_path, "--init-encoder-from", others[mistake])
    assert str(others[mistake]) in str(error.value) and "\n" not in str(error.value)
    assert not list(tmp_path.glob("*.pt"))


def test_pretraining_continues_across_heads_only_if_allowed(data_bin, tmp_path, others):
    """U1: weights of 4 heads fit a model with 2 heads, but compute something else."""
    line = pretraining(data_bin, tmp_path, "--init-from", others["heads"], "--max-update", 1, objectives="mlm")
    with pytest.raises(UserError, match=r"needs --heads 4 \(or --init-across-heads\), this run has 2$"):
        run_train(line)
    output = run_train([*line, "--init-across-heads", "--lr", 1e-20])
    expected = load(others["heads"])
    for key, value in load(tmp_path / "checkpoint_last.pt").items():
        assert torch.allclose(value, expected[key], atol=1e-9), key
    assert "new: none" in output.log
    with pytest.raises(UserError, match="has 2 attention heads, this model 4"):  # resuming is another matter
        run_train([*line, "--init-across-heads", "--heads", 4, "--max-update", 2])


#: another form of model in this run, of the same shapes except for more parameters in the checkpoint's form
FORMS = {
    "--activation": ("gelu", ["relu"]),
    "--layer-norm-eps": ("1e-12", ["1e-05"]),
    "--language-embeddings": ("added", ["none"]),
    "--output-form": ("plain", ["dense"]),
    "--position-offset": ("0", [2, "--max-positions", 38]),  # as many rows
}


def test_initialization_of_a_model_of_another_form(data_bin, tmp_path, task_files, pretrained):
    """One sentence for all differences; a classifier has no use for an output layer."""
    path, options = pretrained["mlm"], [word for name, (_, ours) in FORMS.items() for word in (name, *ours)]
    with pytest.raises(UserError) as error:
        run_from("pretraining", data_bin, None, tmp_path, path, *options, "--objective-options", "mlm.length=32")
    differences = "; ".join(f"{name} {theirs}, this run has {ours[0]}" for name, (theirs, ours) in FORMS.items())
    assert str(error.value) == f"{path} needs {differences}"
    more = ["--output-form", "dense", "--max-update", 1, "--lr", 0]
    assert "new: none" in run_from("classification", data_bin, task_files, tmp_path, path, *more).log
    before, after = load(path), load(tmp_path / "checkpoint_last.pt")
    names = [name for name in after if name.startswith("encoder.")]
    assert len(names) > 10 and all(torch.equal(before[name], after[name]) for name in names)


def test_initialization_where_the_form_does_not_matter(data_bin, tmp_path, pretrained, others):
    """An encoder has no output layer; token embeddings fit any model of their width."""
    line = ["--output-form", "dense", "--init-encoder-from", pretrained["mlm"]]
    (state, _), initial = start(data_bin, tmp_path / "encoder", *line), stack(load(pretrained["mlm"]), "encoder")
    assert all(torch.equal(value, initial[key]) for key, value in stack(state, "encoder").items())
    forms = [value for option, (_, ours) in FORMS.items() for value in (option, *ours)]
    for name in ("heads", "framing"):
        state, _ = start(data_bin, tmp_path / name, *forms, "--init-embeddings-from", others[name])
        table = load(others[name])["encoder.token_embeddings.table.weight"]
        assert all(
            torch.equal(state[f"{side}.token_embeddings.table.weight"], table) for side in ("encoder", "decoder")
        )
    for name in ("dictionary", "width"):
        with pytest.raises(UserError, match=MISTAKES[name][1]):
            start(data_bin, tmp_path / name, "--init-embeddings-from", others[name])


def test_initialization_of_shared_embeddings_from_two_checkpoints(data_bin, tmp_path, pretrained):
    with pytest.raises(UserError, match="--share-embeddings: encoder and decoder must be initialized from the same"):
        start(
            data_bin,
            tmp_path,
            *cli(share_embeddings=True, init_encoder_from=pretrained["mlm"], init_decoder_from=pretrained["clm"]),
        )
