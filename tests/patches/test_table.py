"""The table of patches: few functions of fairseq, with the parameters that they have; an import changes nothing."""

import ast
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import fairseq
import pytest
import torch
from fairseq import options

import fairseq_xl
from fairseq_xl import patches
from fairseq_xl.errors import UserError

fairseq_xl.register()

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def changes():
    """{"import" or "register": what it changes}, of a fresh interpreter."""
    command = [sys.executable, "-W", "ignore", ROOT / "tests/patches/changes.py"]
    done = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def listed():
    """The names in README.md."""
    text = (ROOT / "fairseq_xl/patches/README.md").read_text(encoding="utf-8")
    cells = [row.split("|")[1] for row in text.splitlines() if row.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`([\w.]+)`", cell)]


def test_the_page_and_the_table_list_what_registration_changes(changes):
    """Commands, and not registration, replace sys.excepthook."""
    assert sorted(changes["register"]) == sorted(set(listed()) - {"sys.excepthook"})
    names = {name.replace(":", ".") for name, _, _ in patches.TABLE}
    assert names < set(listed())


def test_there_are_few():
    assert len(listed()) <= 10
    lines = [len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / "fairseq_xl/patches").glob("*.py")]
    assert sum(lines) <= 250


@pytest.mark.parametrize("name, parameters, replacement", patches.TABLE)
def test_a_replacement_has_the_parameters_of_the_function(name, parameters, replacement):
    assert " ".join(inspect.signature(pkgutil.resolve_name(replacement)).parameters) == parameters


def test_another_fairseq_is_refused(monkeypatch):
    install, function = patches.install.__wrapped__, options.parse_args_and_arch
    monkeypatch.setattr(fairseq, "__version__", "0.12.2")
    with pytest.raises(UserError, match=r"0\.12\.2 .* 0\.12\.3\.1"):
        install()
    monkeypatch.undo()
    monkeypatch.setattr(options, "parse_args_and_arch", lambda parser, others: None)
    with pytest.raises(UserError, match="parse_args_and_arch has the parameters 'parser others'"):
        install()
    monkeypatch.undo()
    hook = sys.excepthook
    fairseq_xl.register()
    assert options.parse_args_and_arch is function and sys.excepthook is hook


def test_importing_the_package_changes_nothing(changes):
    """Neither sys.excepthook nor a signal handler, for example."""
    assert changes["import"] == []


def assigned(tree):
    """Dotted names of attributes of imported modules and classes that a module assigns to."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            names |= {alias.asname or alias.name: module + alias.name for alias in node.names}
    for node in ast.walk(tree):
        for target in getattr(node, "targets", None) or [getattr(node, "target", None)]:
            for part in ast.walk(target) if isinstance(target, (ast.Attribute, ast.Tuple)) else ():
                if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
                    root, _, rest = ast.unparse(part).partition(".")
                    if root in names:
                        yield f"{names[root]}.{rest}"


def test_nothing_is_patched_elsewhere():
    """Only commands replace sys.excepthook."""
    for path in set((ROOT / "fairseq_xl").rglob("*.py")) - set((ROOT / "fairseq_xl/patches").rglob("*.py")):
        names = set(assigned(ast.parse(path.read_text(encoding="utf-8"))))
        assert names <= ({"sys.excepthook"} if path.name == "error_reporting.py" else set()), path


PRIVATE = re.compile(r"torch(?:\.[a-z]\w*)*(?:\._[A-Za-z]\w*)+|\baten\._[a-z]\w*")
MEMBER = re.compile(r"(?<!\bself)(?<!\bcls)\.(_[a-z]\w*)")


def private(code):
    """The private names of torch in the text of a module: its modules and functions, members of tensors, `_schema`."""
    members = MEMBER.findall(PRIVATE.sub("", code))
    names = [name.removeprefix("torch.ops.") for name in PRIVATE.findall(code)]
    names += [name for name in members if name == "_schema" or hasattr(torch.Tensor, name)]
    return [re.sub(r"_foreach_\w+", "_foreach_*", name) for name in names]


def test_private_interfaces_of_torch_are_listed():
    """Outside of `patches`, with their files; and those in `patches`, by module of torch or operator."""
    text = (ROOT / "fairseq_xl/patches/README.md").read_text(encoding="utf-8")
    text = " ".join(text[text.index("Some interfaces of torch") :].split())
    found = {path: private(path.read_text(encoding="utf-8")) for path in (ROOT / "fairseq_xl").rglob("*.py")}
    found = {path: names for path, names in found.items() if names}
    assert len(found) >= 8
    for path, names in found.items():
        for name in names:
            assert f"`{name}`" in text, f"{path}: {name}"
        name = path.name if path.parent.name == "patches" else path.relative_to(ROOT)
        assert f"`{name}`" in text
