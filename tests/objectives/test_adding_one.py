"""An objective is added by one file, in the package or in another one: the example of fairseq_xl/README.md."""

import importlib
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from fairseq_xl import objectives
from fairseq_xl.errors import UserError
from fairseq_xl.objectives import OBJECTIVES
from tests.commands import load, pretraining, run_train, run_validate
from tests.io.builders import one_sentence

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "tests/examples/replaced_tokens.py"
NAME = "replaced_tokens"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """install(module) installs a package, as pip does, whose entry point names the module."""

    def install(module, name=NAME):
        site = tmp_path / "site-packages"
        (site / "my_objectives-1.0.dist-info").mkdir(parents=True)
        (site / "my_objectives.py").write_text(EXAMPLE.read_text().replace(f'"{NAME}"', f'"{name}"'))
        (site / "my_objectives-1.0.dist-info/METADATA").write_text("Name: my-objectives\nVersion: 1.0\n")
        entry = f"[fairseq_xl.objectives]\n{NAME} = {module}\n"
        (site / "my_objectives-1.0.dist-info/entry_points.txt").write_text(entry)
        monkeypatch.syspath_prepend(site)

    yield install
    OBJECTIVES.pop(NAME, None)
    sys.modules.pop("my_objectives", None)


@pytest.fixture
def in_the_package(tmp_path, monkeypatch):
    """The example as one more file of fairseq_xl/objectives."""
    (tmp_path / "replaced_tokens.py").write_text(EXAMPLE.read_text())
    monkeypatch.setattr(objectives, "__path__", [*objectives.__path__, str(tmp_path)])
    objectives.load_all()
    yield
    OBJECTIVES.pop(NAME)
    sys.modules.pop(f"fairseq_xl.objectives.{NAME}")
    importlib.invalidate_caches()


def test_the_readme_shows_the_example():
    readme = (ROOT / "fairseq_xl/README.md").read_text(encoding="utf-8")
    assert "tests/examples/replaced_tokens.py" in readme
    entries = re.findall(r'^ +\[project\.entry-points\."fairseq_xl\.objectives"\]\n(.*)$', readme, re.MULTILINE)
    assert any(f"{NAME} =" in entry for entry in entries)
    assert len(EXAMPLE.read_text().splitlines()) <= 80


def test_an_objective_of_another_package_is_trained_and_validated(install, data_bin, tmp_path):
    install("my_objectives")
    objectives.load_all()
    assert OBJECTIVES[NAME].__module__ == "my_objectives"
    arguments = pretraining(data_bin, tmp_path / "run", "--max-update", 4, objectives=f"mlm,{NAME}")
    output = run_train([*arguments, "--updates-per-epoch", 4, "--no-epoch-checkpoints"])
    assert f"{NAME}_en_loss" in output.log
    checkpoint = tmp_path / "run/checkpoint_last.pt"
    assert load(checkpoint)[f"heads.{NAME}.weight"].shape == (1, 16)
    common = ["--task", "xl_pretraining", "--max-tokens", 256, "--user-dir", "fairseq_xl"]
    assert f"{NAME}_ppl" in run_validate([data_bin, "--path", checkpoint, *common]).log


def test_a_batch_without_tokens_is_one_sentence(in_the_package, data_bin, tmp_path, monkeypatch):
    monkeypatch.setattr(OBJECTIVES[NAME], "collate", lambda *_: {"x": 1, "y": 2})
    line = pretraining(data_bin, tmp_path / "run", "--max-update", 1, objectives=NAME)
    with pytest.raises(UserError) as error:
        run_train(line)
    one_sentence(error, "`collate` of the objective replaced_tokens returned x, y", "the key 'tokens'")


def test_an_entry_point_that_leads_nowhere_names_its_package(install, caplog):
    """fairseq imports objectives before a command can end with one sentence, and most commands need none of them."""
    install("no_such_module")
    objectives.load_all()
    (message,) = caplog.messages
    assert "objective 'replaced_tokens' of the installed package my-objectives" in message
    assert "no_such_module" in message and "uninstall" in message and NAME not in OBJECTIVES


def test_an_objective_whose_name_is_taken_is_left_out(install, caplog):
    mlm = OBJECTIVES["mlm"]
    install("my_objectives", name="mlm")
    objectives.load_all()
    (message,) = caplog.messages
    assert "installed package my-objectives" in message and "'mlm' is registered twice" in message
    assert OBJECTIVES["mlm"] is mlm


def test_the_example_computes_what_it_says(in_the_package, build, spec, stream, model):
    objective = build(NAME, f"{NAME}.replace_prob=1 {NAME}.length=6")
    model.add_heads(objective.heads(model.cfg))
    model.double().heads[NAME].weight.data.zero_()
    model.heads[NAME].bias.data.fill_(math.log(3))  # 3 to 1 that a piece is replaced
    batch = objective.collate(spec([0, 5], np.arange(2)), stream)
    tokens, original = batch["tokens"].flatten()[batch["pieces"]].tolist(), [4, 5, 6, 7, 8, 9, 10, 11]
    replaced = [one != other for one, other in zip(tokens, original, strict=True)]  # a random piece may be the same
    assert batch["target"].tolist() == replaced and sum(replaced) > 4
    assert batch["tokens"][:, 0].tolist() == [0, 0] and batch["tokens"][0, 5] == 2
    term = model(objective.loss, batch)[NAME]
    assert term.count == 8
    assert term.sum.item() == pytest.approx(-sum(math.log(0.75 if each else 0.25) for each in replaced), rel=1e-6)
    nothing = build(NAME, f"{NAME}.replace_prob=0 {NAME}.length=6").collate(spec([0, 5]), stream)
    assert not nothing["target"].any() and nothing["tokens"].flatten()[batch["pieces"]].tolist() == original
