"""Policies that silence would break: import layers, names, options, what no module does."""

import argparse
import ast
import functools
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fairseq import options, registry
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY

import fairseq_xl
from fairseq_xl.objectives import OBJECTIVES
from fairseq_xl.objectives.base import ObjectiveConfig

fairseq_xl.register()

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "fairseq_xl").rglob("*.py"))
PREPARATION = sorted((ROOT / "preprocess").rglob("*.py"))
RECIPES = sorted((ROOT / "recipes").rglob("*.py"))

#: each part may import itself, the parts named and EVERYONES
LAYERS = {
    "data": set(),
    "modules": set(),
    "models": {"modules", "checkpoints"},
    "objectives": {"data", "modules", "models", "evaluation"},
    "criterions": {"objectives"},
    "engine": {"modules", "optimizers", "checkpoints", "register"},
    "patches": {"engine"},
    "tasks": {
        *("data", "modules", "models", "objectives", "criterions", "engine"),
        *("checkpoints", "evaluation", "patches"),
    },
    "inference": {"data", "modules", "models", "objectives", "tasks", "checkpoints", "evaluation", "register"},
    "mining": {"data", "models", "inference", "evaluation"},
    "serving": {"data", "modules", "models"},
    "planning": {"data", "modules", "objectives", "engine", "optimizers", "register"},
    "commands": {
        *("data", "inference", "mining", "serving", "planning", "embeddings", "checkpoints", "evaluation", "register"),
    },
    "__main__": {"commands"},
    "checkpoints": {"data", "register"},
    "optimizers": {"checkpoints"},
    "embeddings": {"data", "checkpoints"},
    "evaluation": set(),
}
#: parts that everyone may import
EVERYONES = {"errors", "io"}


def name(path):
    return str(path.relative_to(ROOT))


@functools.cache
def parse(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def nodes(tree):
    return list(ast.walk(tree))


def imports(tree):
    """Dotted names of everything that a module imports, at its top or inside of functions."""
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute, so that they can be checked"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_imports_go_one_way():
    wrong = {}
    for path in MODULES:
        part = path.relative_to(ROOT / "fairseq_xl").parts[0].removesuffix(".py")
        allowed = LAYERS.get(part, set()) | {part, *EVERYONES}
        for imported in imports(parse(path)):
            first, *rest = imported.split(".")
            below = first == "fairseq_xl" and rest and part != "__init__" and rest[0] not in allowed
            if below or first in ("preprocess", "recipes", "tests"):
                wrong.setdefault(name(path), set()).add(imported)
    assert not wrong


@functools.cache
def imported_first(tree):
    """Dotted names of what importing a module imports: none of what its functions import when they run."""
    inner = [node for node in tree.body if not isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    return set(imports(ast.Module(inner, [])))


def reached(path):
    """The files of fairseq_xl that are imported with the module `path`, itself included."""
    found, left = set(), [path]
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            for name in imported_first(parse(path)):
                parts = name.split(".") if name.startswith("fairseq_xl.") else []
                places = [ROOT.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
                files = [place / "__init__.py" for place in places] + [place.with_suffix(".py") for place in places]
                left += [file for file in files if file.is_file()]
    return found


def test_the_preparation_imports_neither_torch_nor_fairseq():
    """It runs before there is anything to train, and its imports take no seconds."""
    wrong = {}
    for path in PREPARATION:
        for imported in imports(parse(path)):
            if imported.split(".")[0] in ("fairseq", "torch", "recipes", "tests"):
                wrong.setdefault(name(path), set()).add(imported)
    for module in set().union(*map(reached, PREPARATION)):
        for imported in imported_first(parse(module)):
            if imported.split(".")[0] in ("fairseq", "torch"):
                wrong.setdefault(name(module), set()).add(imported)
    assert not wrong


def test_importing_the_package_imports_nothing_heavy():
    """Neither torch nor fairseq, and no hook of the interpreter is replaced."""
    code = """
import sys
hook = sys.excepthook
import fairseq_xl
import preprocess.commands.prepare, preprocess.disjoint
from fairseq_xl.evaluation import bleu, classification_scores, generation_scores, retrieval_scores, training_curves
assert not {"torch", "fairseq"} & sys.modules.keys() and sys.excepthook is hook
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_evaluation_and_checkpoints_build_no_model():
    for part in ("evaluation", "checkpoints"):
        for path in (ROOT / "fairseq_xl" / part).glob("*.py"):
            assert not [name for name in imports(parse(path)) if name.startswith(("fairseq.", "torch.nn"))]


def handled(attempt):
    """What a try statement catches of missing modules."""
    return [part.type for part in attempt.handlers if part.type and "Import" in ast.unparse(part.type)]


def asks_for_versions(tree):
    """Whether a module looks at which fairseq, torch or numpy is there: a version, a module, an attribute."""
    modules = {"torch", "F", "nn", "np", "numpy", "fairseq", "functional"}
    for node in nodes(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("__version__", "version_info"):
            return True
        if isinstance(node, ast.Try) and handled(node):
            if any(name.startswith(("fairseq.", "torch", "numpy")) for name in imports(node)):
                return True
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) in ("hasattr", "getattr"):
            if ast.unparse(node.args[0]).split(".")[0] in modules:
                return True
    found = set(imports(tree)) - {"importlib.metadata.entry_points"}  # which plugins there are is no version
    return any(name.startswith(("importlib.metadata", "pkg_resources", "packaging")) for name in found)


VERSIONS = ("io/versions.py", "modules/features.py", "modules/compilation.py")


def test_few_modules_look_at_versions():
    others = [path for path in MODULES if str(path.relative_to(ROOT / "fairseq_xl")) not in VERSIONS]
    others = [path for path in others if path.parent.name != "patches"]
    assert not [name(path) for path in others if asks_for_versions(parse(path))]


# Names

NO_NOUNS = set("found each known kept made chosen own given ours theirs others described wanted told drawn".split())


def defined_names(tree):
    """Names of the variables, parameters, attributes, functions and classes that a module defines."""
    for node in nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(getattr(node, "ctx", None), ast.Store) and isinstance(node, (ast.Name, ast.Attribute)):
            yield node.id if isinstance(node, ast.Name) else node.attr


def test_names_are_nouns_of_the_field():
    paths = (*MODULES, *PREPARATION, *RECIPES)
    names = {(name(path), word) for path in paths for word in defined_names(parse(path))}
    assert not [(path, word) for path, word in names if word.strip("_") in NO_NOUNS or word.startswith("of_")]


def test_a_file_name_says_what_is_in_it_without_its_folder():
    """No two files have one name, and what belongs to no package is what all import, or the way in."""
    names = [path.name for path in MODULES if path.name not in ("__init__.py", "base.py")]
    assert len(names) == len(set(names)), sorted(name for name in set(names) if names.count(name) > 1)
    at_top = {path.name for path in MODULES if path.parent == ROOT / "fairseq_xl"}
    assert at_top == {"__init__.py", "__main__.py", "errors.py"}


def ours(registered):
    return {name: cls for name, cls in registered.items() if cls.__module__.startswith("fairseq_xl")}


REGISTRIES = {
    "task": TASK_REGISTRY,
    "model": MODEL_REGISTRY,
    "architecture": ARCH_MODEL_REGISTRY,
    **{name: found["registry"] for name, found in registry.REGISTRIES.items()},
}


@pytest.mark.parametrize("kind", REGISTRIES)
def test_names_begin_with_xl(kind):
    mine = ours(REGISTRIES[kind])
    assert all(name.startswith("xl_") for name in mine)
    assert {name for name in REGISTRIES[kind] if name.startswith("xl_")} == set(mine)
    assert mine or kind not in ("task", "model", "architecture", "criterion")


def test_nothing_registered_is_shadowed_by_fairseq():
    """A duplicate task or model name silently gives the old class: every name in our source leads to our class."""
    for path in MODULES:
        for node in nodes(parse(path)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "").startswith("register_"):
                if isinstance(node.args[0], ast.Constant):
                    kind = node.func.id.removeprefix("register_")
                    assert node.args[0].value in ours(REGISTRIES[kind])


# Options


def actions(parser):
    return {name for action in parser._actions for name in action.option_strings}, {a.dest for a in parser._actions}


@functools.cache
def options_of(dataclass):
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    gen_parser_from_dataclass(parser, dataclass())
    return parser


OURS = {
    (kind, name): dataclass
    for kind, found in {
        "task": TASK_DATACLASS_REGISTRY,
        "model": MODEL_DATACLASS_REGISTRY,
        "criterion": CRITERION_DATACLASS_REGISTRY,
    }.items()
    for name, dataclass in found.items()
    if name.startswith("xl_")
}
PARSERS = {
    "train": options.get_training_parser,
    "generate": options.get_generation_parser,
    "interactive": lambda: options.get_generation_parser(interactive=True),
    "validate": options.get_validation_parser,
    "eval-lm": options.get_eval_lm_parser,
}


def test_every_kind_is_looked_at():
    assert {kind for kind, _ in OURS} == {"task", "model", "criterion"}
    assert set(ours(CRITERION_REGISTRY)) == {name for kind, name in OURS if kind == "criterion"}


@pytest.mark.parametrize("command", PARSERS)
def test_no_option_is_fairseqs(command, monkeypatch):
    """fairseq drops an option that is there already, without a word."""
    monkeypatch.setattr(sys, "argv", [command])
    strings, destinations = actions(PARSERS[command]())
    assert "--max-tokens" in strings
    for key, dataclass in OURS.items():
        mine = actions(options_of(dataclass))
        assert not mine[0] & strings, key
        assert not mine[1] & destinations, key


def test_no_option_is_that_of_something_to_be_chosen_beside_it():
    """Optimizers, schedules, tokenizers …; Moses reads the translation task's languages, and means the same by them."""
    for kind, found in registry.REGISTRIES.items():
        for name, dataclass in found["dataclass_registry"].items():
            if dataclass is not None and not name.startswith("xl_"):
                theirs = actions(options_of(dataclass))
                for key in (key for key in OURS if kind != "criterion" or key[0] != "criterion"):
                    same = actions(options_of(OURS[key]))[0] & theirs[0]
                    assert same <= ({"--source-lang", "--target-lang"} if name == "moses" else set()), (name, key)


def test_tasks_models_and_criterions_share_no_option():
    for one in OURS:
        for two in OURS:
            if one[0] < two[0]:
                assert not actions(options_of(OURS[one]))[1] & actions(options_of(OURS[two]))[1], (one, two)


def test_every_option_has_help():
    found = [(key, action) for key, dataclass in OURS.items() for action in options_of(dataclass)._actions]
    assert not [(*key, action.dest) for key, action in found if not action.help]


def test_every_setting_of_an_objective_is_explained():
    """Its help, or a comment beside it in the source or above it and its neighbours, says what it is."""
    unexplained = []
    every = {config for objective in OBJECTIVES.values() for config in objective.Config.__mro__[:-1]}
    for config in {each for each in every if issubclass(each, ObjectiveConfig)}:
        own = inspect.get_annotations(config)  # none of a class that joins others
        source = [line.strip() for line in inspect.getsource(config).splitlines()] if own else []
        for field in own:
            number = next(number for number, line in enumerate(source) if line.startswith(f"{field}:"))
            while number and source[number] and "# " not in source[number]:
                number -= 1
            explained = "# " in source[number] or config.__dataclass_fields__[field].metadata.get("help")
            unexplained += [] if explained else [f"{config.__qualname__}.{field}"]
    assert not unexplained


# What no module does


def bad_habit(node):
    """What a node does that no module does, or None."""
    if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.path":
        return "sys.path"
    if isinstance(node, ast.Call) and getattr(node.func, "id", None) in ("print", "eval", "exec"):
        return node.func.id
    if isinstance(node, ast.ExceptHandler) and node.type is None:
        return "bare except"
    if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
        return "import *"
    return None


def test_habits():
    found = [(name(path), node, bad_habit(node)) for path in MODULES + PREPARATION for node in nodes(parse(path))]
    assert not [f"{place}, line {node.lineno}: {habit}" for place, node, habit in found if habit]


def test_no_line_is_exempt_from_the_formatter():
    exempt = subprocess.run(["git", "grep", "-nE", "# fmt: *(skip|off)", "--", "*.py"], cwd=ROOT, capture_output=True)
    assert exempt.returncode == 1, exempt.stdout.decode() + exempt.stderr.decode()


@pytest.mark.parametrize("command", ["ruff check", "ruff format --check", pytest.param("mypy", marks=pytest.mark.slow)])
def test_tools_find_nothing(command):
    checked = subprocess.run([sys.executable, "-m", *command.split()], cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "ignore_errors" not in (ROOT / "pyproject.toml").read_text(encoding="utf-8")  # mypy skips no module


def test_the_changelog_has_this_version():
    assert f"\n## {fairseq_xl.__version__} " in (ROOT / ".github" / "CHANGELOG.md").read_text(encoding="utf-8")


def test_no_test_imports_another_one():
    """Shared builders are in builders.py of a folder, or in a module that is named after what it builds."""
    pattern = re.compile(r"^(from|import) tests\b.*\btest_", re.MULTILINE)
    assert not [path for path in (ROOT / "tests").rglob("*.py") if pattern.search(path.read_text(encoding="utf-8"))]


def test_every_objective_has_its_test():
    files = {path.stem for path in (ROOT / "fairseq_xl" / "objectives").glob("*.py")} - {
        "__init__",
        "base",
        "data_folder",
        "task_file_objectives",
    }
    tests = {path.stem.removeprefix("test_") for path in (ROOT / "tests" / "objectives").glob("test_*.py")}
    assert not files - tests


def _depends_on_the_locale(node):
    """Whether a call opens a file of text without saying its encoding."""
    if not isinstance(node, ast.Call) or any(keyword.arg == "encoding" for keyword in node.keywords):
        return False
    if isinstance(node.func, ast.Attribute):
        return node.func.attr in ("read_text", "write_text")
    modes = [ast.unparse(mode) for mode in node.args[1:2]]
    return ast.unparse(node.func) == "open" and not any("b" in mode for mode in modes)


def test_text_is_utf8_whatever_the_locale():
    found = [(path, node) for path in MODULES for node in nodes(parse(path)) if _depends_on_the_locale(node)]
    assert [f"{name(path)}:{node.lineno}" for path, node in found] == []
