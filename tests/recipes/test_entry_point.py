"""Recipes end with their usage for too few arguments and an unknown subcommand."""

import importlib
import runpy
import sys

import pytest

MODULES = ["best_of_grid", "best_seed", "finetuning", "settings"]


@pytest.mark.parametrize("words", [[], ["nothing"]])
@pytest.mark.parametrize("name", MODULES)
def test_usage(name, words, monkeypatch, capsys):
    if words and name == "settings":  # one word is enough
        return
    monkeypatch.setattr(sys, "argv", ["x", *words])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    sys.modules.pop(f"recipes.{name}", None)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(f"recipes.{name}", run_name="__main__")
    importlib.import_module(f"recipes.{name}")
    assert ended.value.code == 2 and capsys.readouterr().err.startswith(f"usage: python -m recipes.{name} ")
