"""fairseq-hydra-train with the YAML of `fairseq-xl config --hydra` makes the same runs as fairseq-train; its errors."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.dataclass.initialize import add_defaults, hydra_init
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fairseq_xl.data.framing import Framing
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.engine import option_checks
from fairseq_xl.engine.saving import LOOP
from fairseq_xl.errors import UserError
from fairseq_xl.io.error_reporting import message
from fairseq_xl.io.flags import flags
from fairseq_xl.io.options import number_of_updates
from fairseq_xl.objectives import build_objectives, settings_as_text
from tests.builders import write_task
from tests.command_line import cli
from tests.commands import equal_parameters, run_train
from tests.tasks.hydra_configs import composed, write_hydra
from tests.warm_python import python

ROOT = Path(__file__).parents[2]
#: name of the YAML -> the files of which it is made
SAME = {
    name: [ROOT / f"recipes/xlm/config/{name}.yaml", ROOT / f"recipes/xlm/config/{name}-toy.yaml"]
    for name in ("pretrain", "translate", "finetune", "unsupervised")
}


@pytest.fixture(scope="module")
def configs(tmp_path_factory):
    """A folder with the YAML of each name."""
    folder = tmp_path_factory.mktemp("hydra")
    for name, files in SAME.items():
        write_hydra(folder / f"{name}.yaml", files)
    return folder


def hydra_train(folder, name, *overrides):
    """Runs fairseq-hydra-train in a process of its own, in a `folder` outside the repository, with YAML beside it."""
    command = [python(), "-c", "from fairseq_cli.hydra_train import cli_main; cli_main()"]
    settings = [f"common.user_dir={ROOT / 'fairseq_xl'}", "common.cpu=true", *overrides]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    arguments = [*command, *cli(config_dir=folder / "configs", config_name=name), *settings]
    return subprocess.run(arguments, cwd=folder, capture_output=True, text=True, env=environment)


# The configuration


def plain(cfg):
    """{section: {key: value}}"""
    return OmegaConf.to_container(OmegaConf.create(OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)))


def parsed(name):
    """{section: {key: value}} of a command line of fairseq-train."""
    line = ["--user-dir", "fairseq_xl", *flags(SAME[name])]
    args = options.parse_args_and_arch(options.get_training_parser(), ["DATA", *line])
    return OmegaConf.to_container(convert_namespace_to_omegaconf(args))


#: objectives that the options name
NAMED_OBJECTIVES = {"pretrain": "clm,mlm,tlm", "unsupervised": "xdae,back_translation"}
#: what hydra has no command line to find out, and where things go
ELSEWHERE = {
    *("common.user_dir", "task.data", "checkpoint.save_dir", "common.tpu", "dataset.max_tokens_valid"),
    *("dataset.batch_size_valid", "task.seed", "task.update_freq", "common.fp16_no_flatten_grads"),
}


@pytest.mark.parametrize("name", SAME)
def test_the_yaml_says_what_the_flags_of_the_recipe_say(configs, data_bin, name):
    ours, theirs = plain(composed(configs, name)), parsed(name)
    for task in (ours["task"], theirs["task"]):  # a flag is text
        task["updates_per_epoch"] = number_of_updates(task["updates_per_epoch"])
    if name in NAMED_OBJECTIVES:
        dictionary = XLDictionary.load(data_bin / "dict.txt")
        for task in (ours["task"], theirs["task"]):
            settings = settings_as_text(task["objective_options"])
            objectives = build_objectives(NAMED_OBJECTIVES[name], settings, dictionary, Framing.of("xl", dictionary))
            task["objective_options"] = {name: objective.cfg for name, objective in objectives.items()}
    different = {
        f"{section}.{key}": (found, theirs[section].get(key))
        for section, settings in ours.items()
        if isinstance(settings, dict) and isinstance(theirs.get(section), dict)
        for key, found in settings.items()
        if found != theirs[section].get(key) and f"{section}.{key}" not in ELSEWHERE
    }
    assert not different
    assert len(ours["model"]) > 10 and len(ours["task"]) > 8


def test_settings_as_text():
    batch = {"mlm": {"mask_prob": 0.2, "batch_tokens": None}, "tlm": {"length": 5}}
    text = "mlm.mask_prob=0.2 mlm.batch_tokens=null tlm.length=5"
    for settings, expected in ((None, None), ("mlm.length=3", "mlm.length=3"), ({}, ""), (batch, text)):
        assert settings_as_text(settings) == expected
        assert settings_as_text(OmegaConf.create(settings) if isinstance(settings, dict) else settings) == expected
    for settings in ({"mlm": 3}, ["mlm.length=3"], 7):
        with pytest.raises(UserError, match="objective_options: expected {OBJECTIVE: {KEY: VALUE}}"):
            settings_as_text(settings)


# Training

NANO = {"embed_dim": 16, "ffn_dim": 32, "heads": 2}


@pytest.fixture(scope="module")
def here(configs, data_bin, tmp_path_factory):
    """A folder to start commands in, with data and task files, whose paths are relative to it."""
    folder = tmp_path_factory.mktemp("here")
    (folder / "text").symlink_to(data_bin)
    (folder / "configs").symlink_to(configs)
    write_task(folder / "classes", sides=1)
    return folder


RUNS = {  # of tasks with and without objectives
    "pretrain": {"updates_per_epoch": 3},
    "finetune": {"task_files": "classes", "train_langs": "'en,de'", "eval_langs": "'en,de'"},
}


def hydra_runs(here, name):
    """Runs `name`, pre-training in two parts; returns the same command lines of fairseq-train."""
    overrides = ["task.data=text", f"checkpoint.save_dir={name}/hydra", *(f"+model.{key}={NANO[key]}" for key in NANO)]
    overrides += [f"++task.{key}={value}" for key, value in RUNS[name].items()]
    parts, given = [(5, [])], []
    if name == "pretrain":  # settings in YAML's way, key by key, and in one line
        line = (
            "mlm.length=32 mlm.batch_tokens=256 mlm.mask_prob=0.4 mlm.sample_break_mode=complete "
            "mlm.random_token_prob=0.2 tlm.batch_tokens=256 tlm.mask_prob=0.4 tlm.length=32"
        )
        new = ("mlm.random_token_prob", "tlm.length")  # what the YAML does not have
        keys = [f"{'+' * setting.startswith(new)}task.objective_options.{setting}" for setting in line.split()]
        parts, given = [(2, keys), (5, [f"task.objective_options='{line}'"])], ["--objective-options", line]
    for last, more in parts:
        done = hydra_train(here, name, *overrides, *more, f"optimization.max_update={last}")
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    return given + [word for key, value in (NANO | RUNS[name]).items() for word in cli(**{key: str(value).strip("'")})]


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_that_of_fairseq_train(here, name, monkeypatch):
    """Bit for bit, also a stopped and resumed one."""
    monkeypatch.chdir(here)
    given = hydra_runs(here, name)
    more = cli(max_update=5, save_dir=f"{name}/flags")
    run_train(["text", *cli(user_dir=ROOT / "fairseq_xl"), *flags(SAME[name]), *given, *more])
    one, two = (
        checkpoint_utils.load_checkpoint_to_cpu(f"{name}/{way}/checkpoint_last.pt") for way in ("hydra", "flags")
    )
    assert equal_parameters(one["model"], two["model"])
    assert one["optimizer_history"][-1] == two["optimizer_history"][-1]
    assert one["task_state"] == two["task_state"] and one["extra_state"]["loop"] == two["extra_state"]["loop"] == LOOP
    assert one["cfg"]["task"]["objective_options"] == given[1] if name == "pretrain" else True
    moments = [state["last_optimizer_state"]["state"] for state in (one, two)]
    assert all(torch.equal(moments[0][key]["exp_avg"], moments[1][key]["exp_avg"]) for key in moments[0])
    assert "outputs" not in os.listdir(here)  # hydra's folders


def test_jobs_of_a_sweep_save_in_a_folder_each(here):
    """The second job starts from scratch with a poor learning rate; its best checkpoint is the best of its own."""
    rates, sizes = [0.003, 1e-9], [f"+model.{key}={NANO[key]}" for key in NANO]
    jobs = [f"optimization.lr={','.join(f'[{rate}]' for rate in rates)}", "optimization.max_update=2"]
    jobs += ["task.updates_per_epoch=2", "task.objectives=mlm", "task.objective_options.mlm.batch_tokens=256"]
    done = hydra_train(here, "pretrain", "task.data=text", "checkpoint.save_dir=sweep", *sizes, *jobs, "-m")
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    best = []
    for job, rate in enumerate(rates):
        state = checkpoint_utils.load_checkpoint_to_cpu(str(here / f"sweep/{job}/checkpoint_best.pt"))
        assert state["optimizer_history"][-1]["num_updates"] == 2 and state["cfg"]["optimization"]["lr"] == [rate]
        best.append(state["extra_state"]["best"])
    assert best[0] < best[1]
    command = ["task.data=text", "checkpoint.save_dir=sweep", *sizes, *jobs[1:]]
    again = hydra_train(here, "pretrain", *command, jobs[0], "optimization.clip_norm=3", "-m")
    warned = "checkpoint_last.pt is resumed with other settings than before: --clip-norm 3.0 (was 5.0)\n"
    assert again.returncode == 0 and again.stdout.count("other settings") == again.stdout.count(warned) == 2
    assert sorted(path.name for path in (here / "sweep").iterdir()) == ["0", "1", "multirun.yaml"]
    ignored = subprocess.run(["git", "check-ignore", "multirun/x"], cwd=ROOT, stdout=subprocess.DEVNULL)
    assert ignored.returncode == 0


# Mistakes and warnings


@pytest.mark.parametrize(
    "override, sentence",
    [
        ("+task.nonsense=1", "task.nonsense: Key 'nonsense' not in 'XLPretrainingConfig' (options: data,"),
        # without the callback that registers the package early, fairseq's loop begins
        ("~hydra.callbacks.fairseq_xl", "xl_pretraining is trained by the loop of fairseq_xl, and this command runs"),
    ],
)
def test_a_mistake_is_one_sentence(here, override, sentence):
    done = hydra_train(here, "pretrain", "task.data=text", f"checkpoint.save_dir={here / 'mistakes'}", override)
    *before, last = done.stderr.strip().splitlines()
    assert done.returncode == 1 and last.startswith("fairseq_xl: error: ") and sentence in last
    assert "Traceback" not in done.stderr and not any("UserError" in line for line in before)


@pytest.mark.parametrize(
    "section, settings, sentence",
    [
        ("task", {"_name": "xl_pretraining", "validation_examples": "many"}, "task.validation_examples: Value 'many'"),
        ("model", {"_name": "xl_xlm_tiny", "width": 3}, "model.width: Key 'width' not in 'xl_xlm_tiny_config'"),
        ("criterion", {"_name": "xl_pretraining", "x": 1}, "criterion.x: Key 'x' not in"),
    ],
)
def test_options_that_the_plugin_does_not_have(section, settings, sentence):
    with pytest.raises(OmegaConfBaseException) as error:
        add_defaults(OmegaConf.create({section: settings}))
    shown = message(error.value)
    assert shown.startswith(sentence) and "(options: " in shown


@pytest.mark.parametrize(
    "line, overrides, is_set, rate",
    [
        ("lr: [0.004]", [], True, 0.004),
        ("lr: [0.25]", [], True, 0.25),
        ("", [], False, 0.25),
        ("", ["optimization.lr=[0.25]"], True, 0.25),
        ("", ["optimization.max_update=3"], False, 0.25),
    ],
)
def test_a_rate_that_is_fairseqs_default_may_be_set(configs, tmp_path, line, overrides, is_set, rate):
    text = (configs / "pretrain.yaml").read_text(encoding="utf-8")
    assert "lr: [0.002]" in text
    (tmp_path / "pretrain.yaml").write_text(text.replace("lr: [0.002]", line), encoding="utf-8")
    GlobalHydra.instance().clear()
    hydra_init("pretrain")
    with initialize_config_dir(config_dir=str(tmp_path), version_base="1.1"):
        cfg = compose(config_name="pretrain", overrides=overrides, return_hydra_config=True)
        try:
            HydraConfig.instance().set_config(cfg)
            assert option_checks._is_set_in_hydra("optimization.lr") is is_set and cfg.optimization.lr == [rate]
        finally:
            HydraConfig.instance().cfg = None


def test_hydras_warnings_are_not_shown(here):
    """fairseq's commands call an old interface of hydra, which users cannot change."""
    command = [sys.executable, "-m", "fairseq_cli.train", "nowhere", *cli(user_dir=ROOT / "fairseq_xl", cpu=True)]
    options = cli(task="xl_pretraining", criterion="xl_pretraining", arch="xl_xlm_tiny", max_tokens="256")
    options += cli(optimizer="xl_adam", lr="0.1")
    done = subprocess.run([*command, *options], cwd=here, capture_output=True, text=True)
    assert "nowhere: no such data folder" in done.stderr
    shown = re.sub(r".*FutureWarning: `torch.jit.script` is deprecated.*\n.*\n", "", done.stderr)  # of `import fairseq`
    assert "Warning" not in shown and "hydra" not in shown
