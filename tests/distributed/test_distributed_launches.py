"""Every way to start several processes, and to end them: by SIGTERM, by an error."""

import os
import re
import signal
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.distributed import utils as distributed_utils
from fairseq_cli import train as fairseq_train

from fairseq_xl.engine import launch as launching
from fairseq_xl.engine.saving import LOOP
from fairseq_xl.errors import UserError
from tests.command_line import cli
from tests.commands import CPU, configuration, load, pretraining, run_train, translation
from tests.distributed.two_processes import ROOT, Launch, environment, free_port, pair, train
from tests.tasks.hydra_configs import write_hydra
from tests.warm_python import python

NO_DROPOUT = ["--dropout", 0, "--attention-dropout", 0]
TWO_BATCHES = ["--batches-per-update", 2]  # in place of the paper's
SHORT = ["--max-update", 3, "--updates-per-epoch", 3]
ENDLESS = ["--max-update", 1000000, "--updates-per-epoch", 1000, "--disable-validation"]
LOSS = re.compile(r"validation on valid after update \d+ \| loss ([0-9.]+)")
WAITING = re.compile(
    r"batches of epoch 1: [\d.]+ % of the tokens are padding; estimated from token counts, the 2 ranks wait "
    r"([\d.]+) % of the time for the largest batch of a micro-step \(([\d.]+) % without reordering batches by size\)"
)


def line(data, folder, *more):
    return [*pretraining(data, folder, "--no-epoch-checkpoints", *NO_DROPOUT, *more), *CPU]


def expect_one_process(found, command):
    """The validation losses in the text `found` are those of one process, whose updates have as many batches."""
    expected = LOSS.findall(run_train(command, []).log)
    assert len(expected) == len(LOSS.findall(found)) > 0, found
    assert [float(loss) for loss in LOSS.findall(found)] == pytest.approx([float(loss) for loss in expected], abs=2e-3)


def expect_our_loop(folder):
    """The checkpoint in `folder` names the loop that wrote it."""
    state = checkpoint_utils.load_checkpoint_to_cpu(str(folder / "checkpoint_last.pt"))
    assert state["extra_state"]["loop"] == LOOP
    return state


def expect_whole_checkpoint(data, folder, tmp_path):
    """The checkpoint in `folder` has the weights of one process after as many updates, and can be resumed."""
    state = expect_our_loop(folder)
    made = state["optimizer_history"][-1]["num_updates"]
    one = ["--update-freq", 2, "--updates-per-epoch", 1000, "--disable-validation"]
    run_train(line(data, tmp_path / "one", *one, "--max-update", made), [])
    expected = load(tmp_path / "one" / "checkpoint_last.pt")
    assert made >= 3 and state["model"].keys() == expected.keys()
    for key, values in state["model"].items():
        if not key.endswith("qkv.bias"):  # the gradient of the keys is zero except for rounding, which Adam scales up
            assert values.numpy() == pytest.approx(expected[key].numpy(), abs=1e-3), key
    rest = run_train(line(data, folder, *one, "--max-update", made + 1), [])
    assert list(rest.updates) == [made + 1]


def test_distributed_sigterm_to_one_rank_stops_all(data_bin, tmp_path):
    with pair(tmp_path / "logs", train(line(data_bin, tmp_path / "run", *ENDLESS))) as launch:
        launch.wait_for("update 3 of ")
        launch.processes[1].send_signal(signal.SIGTERM)
        assert launch.statuses() == [0, 0], launch.text
    assert (tmp_path / "run" / launching.MARK).exists()
    expect_whole_checkpoint(data_bin, tmp_path / "run", tmp_path)


def test_distributed_processes_started_here_without_cuda(data_bin, tmp_path):
    """fairseq starts as many as there are GPUs; and a signal to the process that started them reaches all."""
    command = train(line(data_bin, tmp_path / "run", *ENDLESS, "--distributed-world-size", 2))
    with Launch(tmp_path / "logs", [command], [environment()]) as launch:
        launch.wait_for("update 3 of ")
        assert "processes: 2" in launch.text
        launch.processes[0].send_signal(signal.SIGTERM)
        assert launch.statuses() == [75], launch.text
    assert "Traceback" not in launch.text
    expect_whole_checkpoint(data_bin, tmp_path / "run", tmp_path)


def with_workers(data, folder, *more):
    """Two processes load the data of one that trains, whose updates take long enough for a signal to come in one."""
    given = [*ENDLESS, "--update-freq", 20, "--cpu", "--num-workers", 2, "--no-progress-bar"]
    return train(pretraining(data, folder, "--no-epoch-checkpoints", *given, *more))


def test_distributed_signal_to_the_whole_group_spares_the_workers(data_bin, tmp_path):
    """SLURM sends it to all processes, also to those that load the data of the update in progress."""
    with Launch(tmp_path / "logs", [with_workers(data_bin, tmp_path / "run")], [environment()]) as launch:
        launch.wait_for("update 1 of ")
        os.killpg(launch.processes[0].pid, signal.SIGTERM)
        assert launch.statuses() == [75], launch.text
    assert launch.text.count("saving after this update") == 1
    assert load(tmp_path / "run" / "checkpoint_last.pt")


def test_distributed_ctrl_c_while_the_workers_of_processes_started_here_begin(data_bin, tmp_path):
    """Ctrl-C goes to all; workers are forked: spawned ones would import everything first, and be ended by it."""
    command = with_workers(data_bin, tmp_path / "run", "--distributed-world-size", 2)
    with Launch(tmp_path / "logs", [command], [environment()]) as launch:
        launch.wait_for("updates: from 0 (epoch 1)")
        launch.wait_for("update 1 of ")
        os.killpg(launch.processes[0].pid, signal.SIGINT)
        assert launch.statuses() == [75], launch.text
    assert "Traceback" not in launch.text and load(tmp_path / "run" / "checkpoint_last.pt")


def test_distributed_workers_end_with_a_training_that_fails(data_bin, tmp_path):
    """The training waits for its workers, and they for it. The error is one sentence."""
    more = ["--lr", 1e9, "--update-freq", 1, "--distributed-world-size", 2]
    with Launch(tmp_path / "logs", [with_workers(data_bin, tmp_path / "run", *more)], [environment()]) as launch:
        assert launch.statuses() == [1], launch.text
    sentence = r"^fairseq_xl: error: update \d+ \([mt]lm of .*\): gradients are NaN or infinite; no checkpoint has"
    assert len(re.findall(sentence, launch.text, re.MULTILINE)) == 1, launch.text
    assert "Traceback" not in launch.text and "StopIteration" not in launch.text


def test_distributed_processes_that_gloo_cannot_connect_end_with_a_sentence(data_bin, tmp_path):
    command = train(line(data_bin, tmp_path / "run", *ENDLESS, "--distributed-world-size", 2))
    with Launch(tmp_path / "logs", [command], [environment(GLOO_SOCKET_IFNAME="absent7")]) as launch:
        assert launch.statuses() == [1], launch.text
    sentence = r"^fairseq_xl: error: the processes cannot reach each other through gloo \(.*absent7\): set GLOO_SOCKET_"
    assert len(re.findall(sentence, launch.text, re.MULTILINE)) == 1 and "Traceback" not in launch.text, launch.text


def configured(folder, command):
    """DATA, SAVE_DIR and a YAML file that give the recipes' scripts the command line `command`."""
    data, *flags = map(str, command)
    values, key = {}, None
    for word in flags:
        key = word[2:] if word.startswith("--") else key
        values[key] = "true" if word.startswith("--") else f"'{word}'"
    save = values.pop("save-dir").strip("'")
    del values["user-dir"]
    folder.mkdir()
    (folder / "run.yaml").write_text("".join(f"{key}: {value}\n" for key, value in values.items()), encoding="utf-8")
    return [data, save, "--config", folder / "run.yaml"]


def test_distributed_recipe_with_torchrun(data_bin, tmp_path):
    def command(folder):
        return [*translation(data_bin, folder, "--lang-pairs", "en-de,de-en", *TWO_BATCHES, "--max-update", 3), *CPU]

    data, _, *flags = configured(tmp_path / "yaml", command("run"))
    script = ["bash", ROOT / "recipes/xlm/translate.sh", data, tmp_path / "run", *flags]
    path = f"{os.path.dirname(python())}:{os.environ['PATH']}"
    torchrun = ["--launch", "torchrun --standalone --nproc_per_node 2"]
    with Launch(tmp_path / "logs", [[*script, *torchrun]], [environment(PATH=path)]) as launch:
        assert launch.statuses() == [0], launch.text
    assert "processes: 2" in launch.text
    expect_our_loop(tmp_path / "run")
    config = f"--config={ROOT}/recipes/xlm/config/translate.yaml"
    expect_one_process(launch.text, [*command(tmp_path / "one"), config])


def test_distributed_hydra_with_torchrun(data_bin, tmp_path):
    """fairseq-hydra-train in two processes of torchrun, pre-training at nano size."""
    configs = ROOT / "recipes/xlm/config"
    write_hydra(tmp_path / "pretrain.yaml", [configs / "pretrain.yaml", configs / "pretrain-toy.yaml"])
    size = [f"+model.{key}={value}" for key, value in (("embed_dim", 16), ("ffn_dim", 32), ("heads", 2))]
    launcher = [
        python(),
        *"-m torch.distributed.run --standalone --nproc_per_node 2 -m fairseq_cli.hydra_train".split(),
    ]
    chosen = cli(config_dir=tmp_path, config_name="pretrain")
    settings = [f"task.data={data_bin}", f"checkpoint.save_dir={tmp_path / 'run'}", "optimization.max_update=2"]
    command = [*launcher, *chosen, *size, "common.cpu=true", *settings]
    with Launch(tmp_path / "logs", [command], [environment()]) as launch:
        assert launch.statuses() == [0], launch.text
    assert "processes: 2" in launch.text
    expect_our_loop(tmp_path / "run")


SRUN = """#!/usr/bin/env bash
# Two tasks on this machine.
[ "$1" = --kill-on-bad-exit=1 ] && shift || exit 1
for task in 0 1; do SLURM_PROCID=$task SLURM_LOCALID=$task "$@" & tasks+=($!); done
for task in "${tasks[@]}"; do wait "$task" || exit 1; done
"""
SCONTROL = """#!/usr/bin/env bash
[ "$*" = "show hostnames nodes[1-2]" ] && printf 'localhost\\nelsewhere\\n'
"""


def test_distributed_slurm_recipe(data_bin, tmp_path):
    """Two scripts stand for SLURM: the test is of what the recipe does with its variables."""
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.path.dirname(python())}:{os.environ['PATH']}"
    slurm = {"SUBMIT_DIR": ROOT, "JOB_NODELIST": "nodes[1-2]", "JOB_ID": 7, "NTASKS": 2}
    variables = environment(PATH=path, MASTER_PORT=free_port(), **{f"SLURM_{key}": slurm[key] for key in slurm})
    script = [
        "bash",
        ROOT / "recipes/cluster/slurm.sh",
        "recipes/xlm/pretrain.sh",
        *configured(tmp_path / "yaml", line(data_bin, tmp_path / "run", *SHORT, *TWO_BATCHES)),
    ]
    with Launch(tmp_path / "logs", [script], [variables]) as launch:
        assert launch.statuses() == [0], launch.text
    assert "processes: 2" in launch.text
    expect_our_loop(tmp_path / "run")
    config = f"--config={ROOT}/recipes/xlm/config/pretrain.yaml"
    expect_one_process(launch.text, [*line(data_bin, tmp_path / "one", *SHORT, *TWO_BATCHES), config])
    (waiting,) = WAITING.findall(launch.text)  # one process says it, once in the only epoch
    assert 0 <= float(waiting[0]) <= float(waiting[1]) < 50


def test_distributed_mistake_ends_all_ranks(data_bin, tmp_path):
    """Only the first rank reads the checkpoint and sends it to the other one."""
    (tmp_path / "checkpoint_last.pt").write_bytes(b"no checkpoint")
    with pair(tmp_path / "logs", train(line(data_bin, tmp_path, *SHORT))) as launch:
        statuses = launch.statuses()
    assert statuses[0] == 1 and statuses[1] != 0
    assert "fairseq_xl: error: " in launch.text and "checkpoint_last.pt is not a checkpoint" in launch.text


# What is decided before anything starts


@pytest.fixture
def launcher(monkeypatch):
    """A function that sets the launcher's variables, all of them or none, and the number of GPUs."""

    def announce(gpus=0, **variables):
        for name in (*launching.LAUNCHER, "LOCAL_RANK", "SLURM_STEP_NUM_TASKS"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)

    return announce


def training(world_size=1):
    return SimpleNamespace(
        distributed_world_size=world_size,
        distributed_rank=0,
        distributed_init_method=None,
        distributed_no_spawn=False,
        device_id=0,
    )


TORCHRUN = {"MASTER_ADDR": "localhost", "MASTER_PORT": 1}


@pytest.mark.parametrize(
    "gpus, local, on_cpu, device", [(0, 1, True, 0), (2, 1, True, 0), (2, 1, False, 1), (1, 1, False, 0)]
)
def test_distributed_ranks_from_the_environment(launcher, gpus, local, on_cpu, device):
    launcher(gpus, WORLD_SIZE=4, RANK=3, LOCAL_RANK=local, **TORCHRUN)
    found = training(max(1, gpus))
    launching._set_init_method(found, on_cpu)
    assert (found.distributed_world_size, found.distributed_rank, found.device_id) == (4, 3, device)
    assert found.distributed_init_method == "env://" and found.distributed_no_spawn


def test_distributed_torchrun_with_one_process(launcher):
    launcher(4, WORLD_SIZE=1, RANK=0, **TORCHRUN)
    found = training(4)
    launching._set_init_method(found, True)
    assert found.distributed_world_size == 1 and found.distributed_init_method is None


@pytest.mark.parametrize("asked", [False, True])
def test_distributed_cpu_beside_four_gpus(launcher, monkeypatch, asked):
    """Their number is fairseq's default; one process trains, unless four are asked for, in fairseq-hydra-train too."""
    launcher(4)
    words = [*cli(task="xl_pretraining", arch="xl_xlm_tiny", lr=1, cpu=True), *cli(distributed_world_size=4) * asked]
    args = options.parse_args_and_arch(options.get_training_parser(), ["data", *map(str, words)])
    assert args.distributed_world_size == (4 if asked else 1)
    overrides = ["common.cpu=true", *["distributed_training.distributed_world_size=4"] * asked]
    hydra = SimpleNamespace(overrides=SimpleNamespace(task=overrides))
    monkeypatch.setattr(launching, "HydraConfig", SimpleNamespace(initialized=lambda: True, get=lambda: hydra))
    found = training(4)
    launching._set_init_method(found, True)
    assert found.distributed_world_size == (4 if asked else 1)
    assert str(found.distributed_init_method).startswith("tcp://" if asked else "None")


@pytest.mark.parametrize("meeting", [[], ["--distributed-init-method", "tcp://localhost:1"]])
def test_distributed_evaluation_without_cuda(launcher, data_bin, meeting):
    """In one process, or refused; never a success without any work."""
    launcher()

    def validate(processes):
        line = [data_bin, "--user-dir", "fairseq_xl", "--task", "xl_pretraining", "--path", "model.pt", *meeting]
        parsed = configuration(options.get_validation_parser(), [*line, "--distributed-world-size", processes])
        evaluated = []
        distributed_utils.call_main(parsed, evaluated.append)
        return evaluated

    assert len(validate(1)) == 1
    with pytest.raises(UserError, match="--distributed-world-size 2: evaluation without CUDA takes one process"):
        validate(2)


def test_distributed_slurm_tasks_that_would_not_find_each_other_are_refused(launcher):
    launcher(SLURM_STEP_NUM_TASKS=2)
    with pytest.raises(UserError, match="recipes/cluster/slurm.sh"):
        launching._set_init_method(training(2), True)


def test_distributed_rank_that_would_start_others_is_refused(launcher, data_bin, tmp_path):
    launcher()
    meeting = ["--distributed-world-size", 2, "--distributed-rank", 1, "--distributed-init-method", "tcp://localhost:1"]
    parsed = configuration(options.get_training_parser(), line(data_bin, tmp_path, *meeting))
    with pytest.raises(UserError, match="--distributed-rank 1 is one process of 2: add --distributed-no-spawn"):
        distributed_utils.call_main(parsed, fairseq_train.main)


def test_distributed_training_without_an_optimizer_is_no_evaluation(launcher, data_bin, tmp_path):
    launcher()
    parsed = configuration(options.get_training_parser(), line(data_bin, tmp_path))
    parsed.optimizer = None
    with pytest.raises(UserError, match="--optimizer is missing"):
        distributed_utils.call_main(parsed, fairseq_train.main)
