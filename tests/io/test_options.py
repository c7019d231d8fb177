"""fairseq evaluates options as Python; here they are literals."""

import argparse
import ast
import contextlib
import itertools
import re
from pathlib import Path

import fairseq
import pytest
from fairseq import optim, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_REGISTRY
from torch import nn

import fairseq_xl
from fairseq_xl.errors import UserError
from fairseq_xl.io.options import EVALUATED, EVALUATING_TASK, check_literals, literal, literal_type

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


EVALUATORS = {"eval_bool", "eval_str_dict", "eval_str_list"}


def evaluated():
    """What fairseq evaluates as Python: (function of fairseq that is called, last name of its first argument)."""
    root = Path(fairseq.__file__).parent
    for path in [*root.rglob("*.py"), *(root.parent / "fairseq_cli").glob("*.py")]:
        text = path.read_text(encoding="utf-8")
        if "eval" not in text or path.relative_to(root.parent).parts[:2] == ("fairseq", "examples"):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                function, name = ast.unparse(node.func), ast.unparse(node.args[0]) if node.args else ""
                if function == "eval" or function.split(".")[-1] in EVALUATORS:
                    yield path.name, re.sub(r"getattr\(.*'(\w+)', .*\)", r"\1", name).split(".")[-1]


def test_everything_that_fairseq_evaluates_is_checked():
    """Options by name, arguments of types of options (`uf`, `x`), and the lines of `EVALUATING_TASK`."""
    found = set(evaluated())
    types = {("multilingual_data_manager.py", "uf"), ("utils.py", "x"), ("lightconv.py", "x"), ("lightconv_lm.py", "x")}
    lines = {("codedataset.py", "strip()")}
    assert types | lines <= found
    names = {name for _, name in found - types - lines}
    assert names == EVALUATED - {f"{part}_xformers_att_config" for part in ("encoder", "decoder")}
    with pytest.raises(UserError, match="speech_unit_modeling"):
        check_literals({"task": {"_name": EVALUATING_TASK}})


TEXT = "__import__('os').getcwd()"


@pytest.mark.parametrize("name", sorted(EVALUATED))
def test_options_that_fairseq_evaluates_are_literals(name):
    """In arguments, and in sections of a configuration."""
    assert check_literals({name: "[1, 2] * 3"}) is None and check_literals({name: None, "other": TEXT}) is None
    for given in ({name: TEXT}, {"x": {name: TEXT}}, {"x": {"y": argparse.Namespace(**{name: TEXT})}}):
        with pytest.raises(UserError, match=f"--{name.replace('_', '-')} .*expected numbers"):
            check_literals(given)


def parsers():
    """Parsers of fairseq's commands with the options of every architecture, task, criterion, optimizer, …"""
    chosen = {"arch": ARCH_MODEL_REGISTRY, "task": TASK_REGISTRY}
    chosen |= {name: registry["registry"] for name, registry in REGISTRIES.items()}
    for kinds in chosen.values():
        for kind in kinds.values():
            parser = argparse.ArgumentParser(add_help=False, conflict_handler="resolve")
            if hasattr(kind, "add_args"):
                kind.add_args(parser)
                yield parser
    yield options.get_training_parser()
    yield options.get_generation_parser(interactive=True)


def test_types_of_options_read_literals_only(monkeypatch):
    """The types of all options of fairseq: none evaluates the text, and those that would are some."""

    def refuse(text):
        raise AssertionError(text)

    monkeypatch.setattr(fairseq.utils, "eval", refuse, raising=False)
    read = set()
    for action in itertools.chain(*(parser._actions for parser in parsers())):
        if action.type is not None and action.type is not literal_type(action.type):
            read.add(action.dest)
            with pytest.raises(UserError):
                literal_type(action.type)(TEXT)
        elif action.type is not None:
            with contextlib.suppress(ValueError, TypeError, argparse.ArgumentTypeError):
                action.type(TEXT)
    assert {"lr", "update_freq", "encoder_glu", "decoder_kernel_size_list", "langtoks"} <= read


@pytest.mark.parametrize("given", [["--adam-betas", TEXT], ["--lr", TEXT], ["--update-freq", TEXT]])
def test_a_command_line_runs_no_code(tmp_path, given):
    line = ["DATA", "--task", "translation", "--arch", "transformer", "--optimizer", "adam", "--lr", "0.1", *given]
    with pytest.raises((UserError, SystemExit)):
        options.parse_args_and_arch(
            options.get_training_parser(), [part.replace(TEXT, created(tmp_path)) for part in line]
        )
    assert not (tmp_path / "file").exists()


def created(folder):
    """An expression that makes a file."""
    return f"open({str(folder / 'file')!r}, 'w')"


def test_a_configuration_of_hydra_runs_no_code(tmp_path):
    """fairseq's own task and optimizer, as fairseq-hydra-train composes them."""
    line = ["DATA", "--task", "translation", "--arch", "transformer", "--optimizer", "adam", "--lr", "0.1"]
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), line))
    cfg.optimizer.adam_betas = created(tmp_path)
    with pytest.raises(UserError, match="--adam-betas"):
        distributed_utils.call_main(cfg, lambda cfg: optim.build_optimizer(cfg.optimizer, nn.Linear(1, 1).parameters()))
    assert not (tmp_path / "file").exists()
