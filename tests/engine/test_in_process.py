"""fairseq_xl.train: the weights of fairseq-train, and nothing of the caller's process is changed."""

import logging
import os
import signal
import sys
import threading

import pytest
import torch

import fairseq_xl
from fairseq_xl.errors import UserError
from tests.commands import equal_parameters, load, run_train
from tests.patches import changes

MODEL = "{arch: xl_xlm_tiny, layers: 1, embed-dim: 16, ffn-dim: 32, heads: 2, max-positions: 40}"
TRAINING = """
{task: xl_pretraining, criterion: xl_pretraining, objectives: mlm, objective-options: mlm.length=32, cpu: true,
 max-tokens: 256, optimizer: adam, lr: 0.003, max-update: 9, fp16: true, num-workers: 0, no-progress-bar: true}
"""


@pytest.fixture
def files(tmp_path):
    """Two files of flags."""
    paths = [tmp_path / "model.yaml", tmp_path / "training.yaml"]
    for path, text in zip(paths, (MODEL, TRAINING)):
        path.write_text(text, encoding="utf-8")
    return paths


@pytest.fixture
def training(data_bin, files):
    """A function that trains for two updates by the files and by flags."""
    return lambda **flags: fairseq_xl.train(data_bin, files, **{"fp16": None, "max_update": 2, **flags})


def test_weights_are_those_of_fairseq_train(data_bin, files, tmp_path, training, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["program", "--user-dir", "nowhere", "--lr", "9"])
        result = training(save_dir=tmp_path / "python")
    files[1].write_text(TRAINING.replace("fp16: true, ", ""), encoding="utf-8")
    configs = [word for path in files for word in ("--config", path)]
    run_train([data_bin, *configs, "--max-update", 2, "--save-dir", tmp_path / "command"], ())
    for name in ("checkpoint_best.pt", "checkpoint_last.pt"):
        assert equal_parameters(*(load(tmp_path / run / name) for run in ("python", "command")))
    best = torch.load(tmp_path / "python/checkpoint_best.pt", weights_only=False)["extra_state"]["val_loss"]
    assert result == (str(tmp_path / "python"), 2, "loss", best, 2)
    assert '{"epoch": 1, "valid_loss"' in (tmp_path / "python/train.log").read_text(encoding="utf-8")
    hub = fairseq_xl.load(result.save_dir)
    assert equal_parameters(hub.model.state_dict(), load(tmp_path / "command/checkpoint_best.pt"))


def test_a_resumed_training_of_a_thread(tmp_path, training):
    """Its best checkpoint is that of the first update; signals belong to the main thread. Nothing is left behind."""
    first, results = training(save_dir=tmp_path, max_update=1), []
    thread = threading.Thread(target=lambda: results.append(training(save_dir=tmp_path, lr=9, disable_validation=True)))
    thread.start()
    thread.join()
    assert results == [first._replace(updates=2)] and first.best_updates == 1
    before, state = changes.interpreter(), torch.get_rng_state()
    assert training(no_save=True, disable_validation=True)[1:] == (2, "loss", None, None)
    assert changes.interpreter() == before and torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "flags, sentence",
    [
        ({"max_updates": 2}, "unrecognized arguments: --max-updates 2: did you mean --max-update?"),
        ({"arch": "xl_foo"}, "argument --arch/-a: invalid choice: 'xl_foo'"),
        ({"langs": ["de", "en"]}, 'keyword arguments: langs: a flag has one value, .*: write "de,en"'),
        ({"distributed_world_size": 2, "cpu": None}, "fairseq_xl.train trains in one process"),
        ({"task": "translation", "objectives": None, "objective_options": None}, "translation"),
    ],
)
def test_wrong_flags_are_exceptions(tmp_path, training, flags, sentence):
    before = changes.interpreter()
    with pytest.raises(UserError, match=sentence):
        training(save_dir=tmp_path / "run", **flags)
    assert changes.interpreter() == before


def test_a_signal_is_raised_again(tmp_path, training, monkeypatch):
    """Ctrl-C ends the program after the update, with a checkpoint."""
    step = fairseq_xl.engine.trainer.Trainer.train_step

    def interrupted(self, samples):
        os.kill(os.getpid(), signal.SIGINT)
        return step(self, samples)

    monkeypatch.setattr("fairseq_xl.engine.trainer.Trainer.train_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        training(save_dir=tmp_path)
    assert (tmp_path / "checkpoint_last.pt").exists()


def test_the_caller_sees_its_own_records(tmp_path, training, monkeypatch, caplog):
    caplog.set_level(logging.WARNING)
    records, handler = [], logging.Handler()
    handler.emit = records.append
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    training(save_dir=tmp_path)
    assert logging.getLogger().level == logging.WARNING
    assert not [each for each in records if each.levelno < logging.WARNING]
    assert "INFO" in (tmp_path / "train.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["load", "train"])
def test_importing_configures_no_logging(monkeypatch, caplog, name):
    """As fairseq.tasks.text_to_speech does, which would show all records of all modules."""
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    module = sys.modules[getattr(fairseq_xl, name).__module__]
    monkeypatch.setattr("importlib.import_module", lambda _: logging.basicConfig(level=logging.DEBUG) or module)
    assert getattr(fairseq_xl, name) is vars(module)[name]
    assert (logging.getLogger().level, logging.getLogger().handlers) == (logging.WARNING, [])
