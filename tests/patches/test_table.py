"""fairseq_xl/patches/README.md lists every patch, and import fairseq_xl changes nothing."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"\| `(\w+)` \| ((?:`[\w.]+`(?:, )?)+) \| (.+) \| (.+) \| (.+) \|")


@pytest.fixture(scope="module")
def changes():
    """{"import" or module of patches: what it changes}, of a fresh interpreter."""
    command = [sys.executable, "-W", "ignore", ROOT / "tests/patches/changes.py"]
    done = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def table():
    """{module: sorted names} of README.md."""
    lines = (ROOT / "fairseq_xl/patches/README.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| `")]
    assert all(ROW.fullmatch(row) for row in rows)
    found = {}
    for row in rows:
        found.setdefault(ROW.fullmatch(row)[1], []).extend(re.findall(r"`([\w.]+)`", ROW.fullmatch(row)[2]))
    return {module: sorted(names) for module, names in found.items()}


def test_the_table_lists_what_the_patches_change(changes):
    assert table() == {module: names for module, names in changes.items() if module != "import"}


NEEDED = re.compile(r"(by design|fairseq defect|(since|until) (torch|hydra|Python) \d+\.\d+)( \([^()]+\))?")


def test_the_last_column_says_how_long_a_patch_is_needed():
    """With which keywords, of those that the page explains; in parentheses, what of the patch it concerns."""
    text = (ROOT / "fairseq_xl/patches/README.md").read_text(encoding="utf-8")
    rows = [ROW.fullmatch(line) for line in text.splitlines() if line.startswith("| `")]
    assert [part for row in rows for part in row[5].split("; ") if not NEEDED.fullmatch(part)] == []


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


def test_nothing_is_patched_later_or_elsewhere():
    """What is assigned outside of `install` is of the table too; only commands replace sys.excepthook."""

    def short(names):  # module or class and attribute: a class has several dotted names
        return {tuple(name.split(".")[-2:]) for name in names}

    listed = short(name for names in table().values() for name in names)
    for path in (ROOT / "fairseq_xl").rglob("*.py"):
        found = short(assigned(ast.parse(path.read_text(encoding="utf-8"))))
        allowed = listed if path.parent.name == "patches" else set()
        assert found <= allowed | ({("sys", "excepthook")} if path.name == "error_reporting.py" else set()), path


def test_assignments_are_noticed():
    code = "from fairseq import trainer\nimport sys\ndef f(x):\n  trainer.torch, x.y = 1, 2\n  sys.excepthook: int = 3"
    assert set(assigned(ast.parse(code))) == {"fairseq.trainer.torch", "sys.excepthook"}


PRIVATE = re.compile(r"torch(?:\.[a-z]\w*)*(?:\._[A-Za-z]\w*)+|\baten\._[a-z]\w*")
MEMBER = re.compile(r"(?<!\bself)(?<!\bcls)\.(_[a-z]\w*)")


def private(code):
    """The private names of torch in the text of a module: its modules and functions, members of tensors, `_schema`."""
    members = MEMBER.findall(PRIVATE.sub("", code))
    names = [name.removeprefix("torch.ops.") for name in PRIVATE.findall(code)]
    names += [name for name in members if name == "_schema" or hasattr(torch.Tensor, name)]
    return [re.sub(r"_foreach_\w+", "_foreach_*", name) for name in names]


def test_private_interfaces_of_torch_are_noticed():
    assert private("torch._C._f(aten._g, self._values)") == ["torch._C._f", "aten._g"]
    assert private("from torch.utils._python_dispatch import x") == ["torch.utils._python_dispatch"]
    assert private("torch._foreach_add_(torch.ops.aten._to(x), torch.__version__)") == ["torch._foreach_*", "aten._to"]
    assert private("f._schema, x.storage()._cdata, sum(t._values()), cfg._name") == ["_schema", "_cdata", "_values"]


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
