"""Averages of checkpoints against a plain numpy mean."""

import numpy
import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_xl import register
from fairseq_xl.checkpoints import averaging
from fairseq_xl.commands import model_average as command
from fairseq_xl.errors import UserError

IDENTITY = {"format": 1, "task": "XLClassificationTask", "dictionary": "a", "languages": ["en"], "framing": "xl"}
IDENTITY |= {
    "encoding": {"model": "a"},
    "heads": 2,
    "head": "classification",
    "type_state": {"labels": ["x", "y"], "num_texts": 1},
}


@pytest.fixture(autouse=True, scope="module")
def installed():
    register()


def checkpoint(seed, model=None, **more):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(3, 2, generator=generator)
    parameters = {
        "tied.a": weight,
        "tied.b": weight,
        "half": torch.randn(5, generator=generator).half(),
        "double": torch.randn(4, generator=generator).double(),
        "steps": torch.tensor(seed),
    }
    return {
        "args": None,
        "cfg": {"task": {"_name": "xl_translation", "seed": seed}},
        "model": parameters if model is None else model,
        "optimizer_history": [{"num_updates": seed, "lr_scheduler_state": {}}],
        "last_optimizer_state": {"momentum": torch.ones(3)},
        "extra_state": {"train_iterator": {"epoch": seed}, "val_loss": 0.5 * seed},
        "task_state": {"fairseq_xl": IDENTITY},
        **more,
    }


@pytest.fixture
def run(tmp_path):
    for epoch in (1, 2, 9, 10):
        torch.save(checkpoint(epoch), tmp_path / f"checkpoint{epoch}.pt")
        torch.save(checkpoint(100 + epoch), tmp_path / f"checkpoint_3_{epoch}00.pt")
    torch.save(checkpoint(10), tmp_path / "checkpoint_last.pt")
    torch.save(checkpoint(9), tmp_path / "checkpoint_best.pt")
    return tmp_path


def numpy_mean(paths, name):
    arrays = [torch.load(path, weights_only=True)["model"][name].numpy().astype("float64") for path in paths]
    return numpy.mean(arrays, axis=0)


def test_parameters_are_the_numpy_mean(run):
    paths = [str(run / f"checkpoint{epoch}.pt") for epoch in (2, 9, 10)]
    found = averaging.average(paths)["model"]
    for name in ("tied.a", "tied.b", "half", "double"):
        expected = torch.from_numpy(numpy_mean(paths, name)).to(found[name].dtype)
        torch.testing.assert_close(found[name], expected, rtol=0, atol=0)
        assert found[name].dtype == checkpoint(0)["model"][name].dtype


def test_sums_are_kept_in_double_precision(tmp_path):
    """In half precision 2048 + 1 is 2048: the mean of 2048, 1, 1, 1, 1 would be 409.5, not 410.4."""
    paths = []
    for number, value in enumerate((2048.0, 1.0, 1.0, 1.0, 1.0)):
        paths.append(str(tmp_path / f"{number}.pt"))
        torch.save(checkpoint(number, model={"w": torch.tensor([value]).half()}), paths[-1])
    assert averaging.average(paths)["model"]["w"].item() == torch.tensor(2052 / 5).half().item()


def test_the_rest_is_the_last_ones(run):
    state = averaging.average([str(run / "checkpoint9.pt"), str(run / "checkpoint2.pt")])
    assert state["model"]["steps"].item() == 2 and state["model"]["steps"].dtype == torch.int64
    assert state["cfg"] == {"task": {"_name": "xl_translation", "seed": 2}}
    assert state["optimizer_history"] == [{"num_updates": 2, "lr_scheduler_state": {}}]
    assert state["last_optimizer_state"] is None
    assert state["extra_state"] == {
        "train_iterator": {"epoch": 2},
        "val_loss": 1.0,
        "averaged_from": ["checkpoint9.pt", "checkpoint2.pt"],
    }


@pytest.mark.parametrize(
    "options, inputs",
    [
        (["--last", "3", "{}"], ["checkpoint2.pt", "checkpoint9.pt", "checkpoint10.pt"]),
        (["--last", "2", "{}", "--updates"], ["checkpoint_3_900.pt", "checkpoint_3_1000.pt"]),
        (["--inputs", "{}/checkpoint1.pt", "{}/checkpoint_best.pt"], ["checkpoint1.pt", "checkpoint_best.pt"]),
    ],
)
def test_the_command_writes_what_fairseq_loads(run, options, inputs):
    command.main([option.format(run) for option in options] + ["--output", str(run / "average.pt")])
    state = checkpoint_utils.load_checkpoint_to_cpu(str(run / "average.pt"))
    assert state["extra_state"]["averaged_from"] == inputs
    expected = torch.from_numpy(numpy_mean([run / name for name in inputs], "tied.a")).float()
    assert torch.equal(state["model"]["tied.a"], expected)
    assert not (run / "average.pt.tmp").exists()


def refusal(run, second, name):
    torch.save(second, run / "other.pt")
    paths = [str(run / "checkpoint1.pt"), str(run / "other.pt")]
    with pytest.raises(UserError) as error:
        averaging.average(paths)
    message = str(error.value)
    assert "\n" not in message and name in message and paths[1] in message
    return message


def test_checkpoints_of_different_models_are_refused(run):
    model = checkpoint(1)["model"]
    refusal(run, checkpoint(2, model={**model, "more": torch.zeros(1)}), "more")
    refusal(run, checkpoint(2, model={name: model[name] for name in model if name != "half"}), "half")
    message = refusal(run, checkpoint(2, model={**model, "half": torch.zeros(6)}), "half")
    assert "(5,)" in message and "(6,)" in message
    refusal(run, checkpoint(2, model={**model, "steps": torch.tensor(0.5)}), "steps")


def test_weights_of_another_meaning_are_refused(tmp_path, caplog):
    """All shapes are equal. Checkpoints of other settings of training are averaged."""

    def average(*states):
        for number, each in enumerate(states):
            torch.save(each, tmp_path / f"{number}.pt")
        averaging.average([str(tmp_path / "0.pt"), str(tmp_path / "1.pt")])

    for changed in (
        {"dictionary": "b"},
        {"head": "ranking"},
        {"type_state": {"labels": ["y", "x"], "num_texts": 1}},
        {"lang_pairs": ["de-en"]},
        {"encoding": {"model": "b"}},
    ):
        name = next(iter(changed.get("type_state", changed)))
        with pytest.raises(UserError, match=rf"0\.pt and .*1\.pt are not of one model: {name}( model)? is "):
            average(checkpoint(1), checkpoint(1, task_state={"fairseq_xl": IDENTITY | changed}))
    options = ({"_name": "xl_xlm_tiny", "activation": activation} for activation in ("gelu", "relu"))
    with pytest.raises(UserError, match="--activation is 'gelu' and 'relu'"):
        average(*(checkpoint(1, cfg={"model": model}) for model in options))
    average(checkpoint(1), checkpoint(1, task_state={"fairseq_xl": IDENTITY | {"length": 9}}))
    assert "differ in length" in caplog.text


def test_runs_that_started_from_other_weights_are_named(run, caplog):
    for number, task in enumerate(({"init_encoder_from": "a.pt"}, {"seed": 2})):
        cfg = {"task": {"_name": "xl_translation"} | task, "common": {"seed": 2}}
        torch.save(checkpoint(number, cfg=cfg), run / f"{number}.pt")
    torch.save(checkpoint(2, cfg=cfg), run / "2.pt")
    averaging.average([str(run / "1.pt"), str(run / "2.pt")])
    assert not caplog.text
    averaging.average([str(run / "0.pt"), str(run / "1.pt")])
    assert "started from other weights, {'init_encoder_from': 'a.pt'} and {'seed': 2}" in caplog.text


def test_a_checkpoint_that_counts_twice_is_named(run, caplog):
    averaging.average([str(run / name) for name in ("checkpoint1.pt", "checkpoint10.pt", "checkpoint_last.pt")])
    assert "checkpoint10.pt and " in caplog.text and "checkpoint_last.pt have the same weights" in caplog.text


def test_a_folder_with_too_few_checkpoints(run):
    for folder, by_update, message in (
        (run, False, r"holds 4 checkpoints .* asks for 5; it holds 4 named checkpoint_EPOCH_UPDATE.pt \(--updates\)$"),
        (run, True, r"holds 4 checkpoints named .*UPDATE.pt.*; it holds 4 named .*EPOCH.pt$"),
        (run / "none", False, "none is not a folder"),
    ):
        with pytest.raises(UserError, match=message):
            averaging.last_checkpoints(str(folder), 5, by_update)
    with pytest.raises(UserError, match="no folder"):
        command.main(["--inputs", str(run / "checkpoint1.pt"), "--output", str(run / "none" / "a.pt")])
