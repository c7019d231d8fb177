"""Checkpoints whose configuration names foreign code or is not plain data are refused everywhere; nothing is run."""

import argparse
import sys

import pytest
import torch
from fairseq import checkpoint_utils, models, options
from fairseq_cli import hydra_train
from omegaconf import OmegaConf

from fairseq_xl.commands import model_language_module, search_negatives
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import load_plain
from fairseq_xl.io.options import check_literals
from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel
from tests.bad_input.builders import MakesFolder
from tests.bad_input.every_command import COMMANDS, TASKS, WITH_MODEL, fails, line_of
from tests.commands import CPU, configuration, one_run, run_train

PICKLED = "it holds posix.mkdir, and a checkpoint may hold only tensors and plain data"
MODEL_OF_FAIRSEQS = "cfg.model._name is expected to be a model of fairseq_xl, found 'fconv'"


def changed(section, **values):
    """A payload: other options in a section of the configuration; CODE stands for code that makes a folder."""

    def spoil(state, code):
        state["cfg"][section].update({name: code if value == "CODE" else value for name, value in values.items()})

    return spoil


def replaced(section, value):
    """A payload: another section of the configuration."""

    def spoil(state, code):
        state["cfg"][section] = value

    return spoil


def options_of_old(state, code):
    """Old options, from which fairseq builds a configuration with the classes that they name."""
    state["args"] = argparse.Namespace(arch="fconv", task="xl_translation", encoder_layers=code)
    state["cfg"] = None


def lists_in_lists(state, code):
    """3 to the power of 9 values in 9 lists."""
    inner = ["ha"]
    for _ in range(9):
        inner = [inner] * 3
    state["cfg"]["generation"]["retain_dropout_modules"] = [inner]


#: name -> (what spoils a checkpoint, part of the sentence); the first three are tried at every way to read a checkpoint
KINDS = {
    "model": (changed("model", _name="fconv", encoder_layers="CODE"), MODEL_OF_FAIRSEQS),
    "pickled code": (lambda state, code: state.update(trap=MakesFolder(code.split("'")[3])), PICKLED),
    "old options": (options_of_old, "args is expected to be nothing: the configuration is under 'cfg', found Name"),
    "task": (changed("task", _name="translation"), "task._name is expected to be a task of fairseq_xl, found 'tra"),
    "criterion": (changed("criterion", _name="model"), "xl, cross_entropy or label_smoothed_cross_entropy, found 'mo"),
    "text for a number": (changed("model", embed_dim="CODE"), 'cfg.model.embed_dim is expected to be int, found "'),
    "interpolation": (changed("task", data="${oc.env:HOME}"), "task.data is expected to be str or None, found '${oc"),
    "arch": (replaced("model", {"arch": "fconv"}), "model._name is expected to be a model of fairseq_xl, found None"),
    "namespace": (replaced("model", argparse.Namespace(arch="fconv")), "fairseq_xl, found Namespace(arch='fconv')"),
    "adam_betas": (changed("optimizer", adam_betas="CODE"), "cfg.optimizer.adam_betas is expected to be plain data"),
    "lr": (changed("optimization", lr="CODE"), 'cfg.optimization.lr is expected to be a list of float, found "'),
    "update_freq": (changed("optimization", update_freq=["CODE"]), "to be a list of int, found ['CODE']"),
    "a namespace of it": (replaced("optimizer", argparse.Namespace(x={"y": "${z}"})), "cfg.optimizer is expected to b"),
    "bool": (changed("model", heads=True), "cfg.model.heads is expected to be int, found True"),
    "other heads": (changed("model", heads=1), "model.heads is expected to be 2 as in task_state.fairseq_xl, found 1"),
    "no choice": (
        changed("task", framing="x"),
        "cfg.task.framing is expected to be one of xl, xlm, bert, mbart, nllb, found 'x'",
    ),
    "not given": (changed("task", data="???"), "cfg.task.data is expected to be str or None, found '???'"),
    "part": (replaced("common", ["x"]), "cfg.common is expected to be a dict, found ['x']"),
    "lists in lists": (lists_in_lists, "cfg.generation.retain_dropout_modules is expected to be"),
    "meters": (
        lambda state, code: state["extra_state"].update(metrics={"default": [(0, "x", "os", {})]}),
        "extra_state.metrics is expected to be meters of fairseq, found 'os'",
    ),
    "no meters": (lambda state, code: state["extra_state"].update(metrics=3), "metrics is expected to be lists of m"),
}


#: what is data, or not used
HARMLESS = [
    changed("common", user_dir="CODE"),  # a folder of modules
    changed("model", _target_="os.mkdir", path="CODE"),
    replaced("_name", {}),
    changed("task", task="translation"),
    replaced("bpe", {"_name": "hf_byte_bpe", "bpe_vocab": "x"}),
    replaced("job_logging_cfg", {"()": "os.mkdir", "path": "x"}),
]
OPTIMIZERS = {
    "betas as text": changed("optimizer", adam_betas="(0.9, 0.98)"),
    "an old optimizer": replaced("optimizer", argparse.Namespace(optimizer="adagrad", lr=[0.1])),
}


def ensemble(**more):
    def run(place, folder):
        checkpoint_utils.load_model_ensemble_and_task([str(place.translation)], **more)

    return run


def handed_over(place, folder):
    state = load_plain(place.translation)
    checkpoint_utils.load_model_ensemble_and_task([str(place.translation)], state=state)


def hub(place, folder):
    XLEncoderDecoderModel.from_pretrained(str(place.translation.parent), place.translation.name, str(place.data))


def trained(*flags):
    """fairseq-train that continues from a checkpoint."""

    def run(place, folder):
        flags_here = [str(place.translation) if flag == "CHECKPOINT" else flag for flag in flags]
        if not flags:
            folder.mkdir(exist_ok=True)
            (folder / "checkpoint_last.pt").write_bytes(place.translation.read_bytes())
        run_train(line_of("translation", place, folder, "--max-update", 2, "--disable-validation", *flags_here))

    return run


def hydra(place, folder):
    """fairseq-hydra-train after hydra has read its YAML."""
    line = line_of("translation", place, folder, "--max-update", 2, "--restore-file", place.translation)
    cfg = configuration(options.get_training_parser(), [*line, *CPU])
    with one_run():
        hydra_train._hydra_main(cfg)


DOORS = {name: COMMANDS[name] for name in WITH_MODEL} | {
    "mining": lambda place, folder: search_negatives.main([str(place.pretraining), str(place.data)]),
    "banks": lambda place, folder: model_language_module.main(
        ["extract", str(place.pretraining), str(folder / "bank.pt")]
    ),
    "resume": trained(),
    "restore": trained("--restore-file", "CHECKPOINT"),
    "finetune": trained("--finetune-from-model", "CHECKPOINT"),
    "continue": trained("--continue-once", "CHECKPOINT"),
    "hydra": hydra,
    "python": ensemble(),
    "python with a state": handed_over,
    "hub": hub,
}


def spoilt(place, folder, payload, tasks=("translation",)):
    """A place whose checkpoints of some tasks have a payload, and the folder that it would make."""
    folder.mkdir(exist_ok=True)
    made, wrong = folder / "made", {}
    code = f"__import__('os').makedirs({str(made)!r}, exist_ok=True) or [(16, 3)]"
    for task in tasks:
        state = torch.load(getattr(place, task), weights_only=True)
        payload(state, code)
        wrong[task] = folder / f"{task}.pt"
        torch.save(state, wrong[task])
    return place.but(**wrong), made


@pytest.fixture(scope="module")
def hostile(place, tmp_path_factory):
    """What `spoilt` returns and the part of the sentence, for the first three of `KINDS`. Read only."""
    folders, kinds = tmp_path_factory.mktemp("kinds"), list(KINDS.items())[:3]
    return [(*spoilt(place, folders / kind, payload, TASKS), sentence) for kind, (payload, sentence) in kinds]


@pytest.mark.parametrize("name", DOORS)
def test_every_door_refuses_a_payload(hostile, tmp_path, name):
    (tmp_path / "run").mkdir()
    for wrong, made, sentence in hostile:
        if name != "average" or sentence == PICKLED:  # it builds nothing, and averages any model's
            fails(lambda: DOORS[name](wrong, tmp_path / "run"), ".pt", sentence, "(nothing in the file was run)")
        assert not made.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_is_no_plain_data(place, tmp_path, kind):
    payload, sentence = KINDS[kind]
    wrong, made = spoilt(place, tmp_path / "checkpoints", payload)
    parts = ["was refused", sentence, "nothing in the file was run"]
    fails(lambda: ensemble()(wrong, tmp_path), wrong.translation, *parts)
    assert not made.exists()


IDENTITIES = {
    "languages": (["../../x"], "'../../x' is not a language code"),
    "dictionary": (3, "task_state.fairseq_xl.dictionary is expected to be str, found 3"),
    "framing": (
        "x" * 10**6,
        "task_state.fairseq_xl.framing is expected to be one of xl, xlm, bert, mbart, nllb, found 'xxx",
    ),
    "heads": ("2", "task_state.fairseq_xl.heads is expected to be int or None, found '2'"),
    "lang_pairs": ("en-de", "task_state.fairseq_xl.lang_pairs is expected to be a list of str, found 'en-de'"),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_what_a_checkpoint_says_of_itself_is_plain_data_too(place, tmp_path, name):
    value, sentence = IDENTITIES[name]
    wrong, _ = spoilt(place, tmp_path, lambda state, code: state["task_state"]["fairseq_xl"].update({name: value}))
    fails(lambda: ensemble()(wrong, tmp_path), wrong.translation, sentence)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_what_is_never_used(place, tmp_path, optimizer):
    def payload(state, code):
        for spoil in (*HARMLESS, OPTIMIZERS[optimizer]):
            spoil(state, code)

    wrong, made = spoilt(place, tmp_path / "checkpoints", payload)
    modules = set(sys.modules)
    _, cfg, task = checkpoint_utils.load_model_ensemble_and_task([str(wrong.translation)])
    assert task.cfg._name == "xl_translation" and cfg.bpe is None and "job_logging_cfg" not in cfg
    assert not {"_target_", "task", "path"} & {*cfg.model, *cfg.task} and not made.exists()
    assert not {name for name in set(sys.modules) - modules if "made" in name}


def test_the_payload_would_act(place, tmp_path):
    """In fairseq alone, which builds any model that a file names and evaluates its options."""
    wrong, made = spoilt(place, tmp_path / "checkpoints", KINDS["model"][0])
    options = load_plain(wrong.translation)["cfg"]["model"]
    _, _, task = checkpoint_utils.load_model_ensemble_and_task([str(place.translation)])
    with pytest.raises(UserError):
        check_literals(options)
    assert not made.exists()
    with pytest.raises(AttributeError):  # after it acted
        models.build_model(OmegaConf.create(options), task)
    assert made.exists()
