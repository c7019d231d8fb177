"""fairseq evaluates options as Python; here they are literals."""

import importlib
import re
from pathlib import Path

import fairseq
import pytest
from fairseq import optim
from omegaconf import OmegaConf
from torch import nn

import fairseq_xl
from fairseq_xl.errors import UserError
from fairseq_xl.io.literals import literal

fairseq_xl.register()


@pytest.mark.parametrize(
    "text, value",
    [
        ("(0.9, 0.98)", (0.9, 0.98)),
        (" 1e-3,2e-3", (1e-3, 2e-3)),
        ("[(512, 3)] * 2 + [(1, 1)]", [(512, 3), (512, 3), (1, 1)]),  # as fconv's --encoder-layers
        ("{'a': None}", {"a": None}),
    ],
)
def test_literals(text, value):
    assert literal(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').getcwd()",
        "[0].clear()",
        "x",
        "[0] * 10**9",
        "[0] * 99999",
        "[[0] * 9999] * 9999 * 2",
        "9" * 6000,
        "(" * 900,
        "/root",
        "",
    ],
)
def test_other_expressions_are_refused(text):
    with pytest.raises(UserError, match="expected numbers"):
        literal(text)


def test_fairseq_evaluates_nothing_else():
    """No module of fairseq calls the builtin `eval`. Its commands do, whose --model-overrides are checked before."""
    root = Path(fairseq.__file__).parent
    found = []
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if name.parts[0] != "examples" and re.search(r"(?<![.\w])eval\(", path.read_text(encoding="utf-8")):
            found.append(".".join(("fairseq", *name.with_suffix("").parts)))
    assert "fairseq.optim.adam" in found
    assert [name for name in found if importlib.import_module(name).eval is not literal] == []


def test_optimizers_of_fairseq_run_no_code(tmp_path):
    text = f"open({str(tmp_path / 'file')!r}, 'w')"
    cfg = {"_name": "adam", "lr": [0.1], "adam_betas": text, "adam_eps": 1e-8, "weight_decay": 0.0, "tpu": False}
    with pytest.raises(UserError):
        optim.build_optimizer(
            OmegaConf.create(cfg | {"use_old_adam": True, "fp16_adam_stats": False}), nn.Linear(1, 1).parameters()
        )
    assert not (tmp_path / "file").exists()
