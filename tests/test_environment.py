"""recipes/environment.sh with a Python that only pretends to install: what it asks of pip, and what it says."""

import ast
import configparser
import importlib
import importlib.metadata as metadata
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.version import Version

REPOSITORY = Path(__file__).resolve().parent.parent
TOOLS = "bash cat chmod cksum cp dirname grep mkdir tail".split()

# Answers what environment.sh asks from a JSON file, and notes every call; the real Python does the rest.
STAND_IN = """#!{python} -S
import json, os, pathlib, re, shutil, sys
here, args = pathlib.Path({folder!r}), sys.argv[1:]
state = json.loads((here / "state.json").read_text())
with open(here / "calls", "a") as calls:
    calls.write(json.dumps(args) + "\\n")
packages = state["installed"]
question = args[1] if args[0] == "recipes/environment.py" else None
if question == "version":
    print(packages.get(args[2], ""))
elif question and question in state["refused"]:
    sys.exit(1)
elif question in ("python", "headers"):
    pass
elif question == "packages":
    packages = pathlib.Path(sys.argv[0]).parents[1] / "lib" / "python3" / "site-packages"
    packages.mkdir(parents=True, exist_ok=True)
    print(packages)
elif question == "torchaudio":
    print("broken" if "torchaudio" in packages else "")
elif question:
    os.execv({python!r}, [{python!r}, *args])
elif args[:2] == ["-m", "venv"]:
    if "venv" in state["refused"]:
        sys.exit(1)
    target = pathlib.Path(args[-1], "bin")
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(sys.argv[0], target / "python")
    (target / "activate").write_text("ACTIVATED=yes\\n")
elif args[:2] == ["-m", "pip"]:
    for name, says in state["pip_fails"].items():
        if any(re.match(name, arg) for arg in args):
            sys.exit(says)
    if "uninstall" in args:
        packages.pop(args[-1])
    for arg in args:
        if arg == "torch":
            packages["torch"] = "2.13.0"
        if arg.startswith("fairseq-fixed=="):
            packages["fairseq-fixed"] = arg.partition("==")[2]
    (here / "state.json").write_text(json.dumps(state))
elif args[:1] == ["-V"]:
    print("Python 3.9.1")
"""


class World:
    """A copy of what environment.sh reads, a PATH with few tools, and a pretending Python."""

    def __init__(self, folder):
        self.folder, self.bin = folder, folder / "bin"
        (folder / "repo" / "recipes").mkdir(parents=True)
        self.bin.mkdir()
        for name in ("setup.cfg", "recipes/environment.sh", "recipes/environment.py", "recipes/constraints.txt"):
            shutil.copy(REPOSITORY / name, folder / "repo" / name)
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        (self.bin / "python3").write_text(STAND_IN.format(python=sys.executable, folder=str(folder)))
        (self.bin / "c++").write_text("#!/bin/sh\n")
        for tool in ("python3", "c++"):
            (self.bin / tool).chmod(0o755)
        self.environment = folder / "repo" / ".venv"
        self.state()

    def state(self, installed=None, refused=(), pip_fails=None):
        state = {"installed": installed or {}, "refused": list(refused), "pip_fails": pip_fails or {}}
        (self.folder / "state.json").write_text(json.dumps(state))

    def run(self, script="bash recipes/environment.sh", **variables):
        (self.folder / "calls").write_text("")
        variables = {"PATH": str(self.bin), "HOME": str(self.folder), **variables}
        where = self.folder / "repo"
        return subprocess.run(["bash", "-c", script], cwd=where, env=variables, capture_output=True, text=True)

    def calls(self):
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]

    def installs(self):
        """What followed "install -c FILE" in each call of pip."""
        return [call[call.index("-c") + 2 :] for call in self.calls() if "install" in call]


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def refusal(world, result, *words):
    assert result.returncode == 1, result.stdout
    message = result.stderr.strip()
    assert message.startswith("environment: ") and "\n" not in message
    for word in words:
        assert word in message
    assert not list(world.environment.glob(".fairseq_xl-*"))


def test_a_fresh_machine(world):
    result = world.run()
    assert result.returncode == 0, result.stderr
    assert re.findall(r"^\[(\d)/5\]", result.stdout, re.MULTILINE) == list("12345")
    torch, tools, fairseq, others = world.installs()
    assert torch == ["torch"]
    assert {"setuptools", "wheel", "cython", "numpy"} <= set(tools)
    assert {"--no-deps", "--no-build-isolation"} < set(fairseq) and fairseq[-1].startswith("fairseq-fixed==")
    wanted = Path(others[1]).read_text().lower()
    assert "torchaudio" not in wanted and "fairseq" not in wanted and not re.search("^torch", wanted, re.MULTILINE)
    for package in ("sentencepiece", "sacrebleu", "matplotlib", "bitarray", "regex"):
        assert re.search(f"^{package}", wanted, re.MULTILINE)
    assert "transformers" in wanted and "gensim" not in wanted  # of another extra
    # fairseq-fixed pins a hydra-core with a known vulnerability
    pins = [line for line in wanted.splitlines() if re.match("hydra-core|omegaconf", line)]
    assert pins == ["hydra-core>=1.3", "omegaconf>=2.3"]
    assert Version(metadata.version("hydra-core")) >= Version("1.3.8")
    result = world.run()  # the second run asks nothing
    assert result.returncode == 0 and world.calls() == [] and "[" not in result.stdout


def test_import_and_the_command_work_in_any_folder(world):
    """They run the checkout in the current folder, if there is one."""
    world.run()
    for name in ("repo", "other"):
        (world.folder / name / "fairseq_xl").mkdir(parents=True)
        (world.folder / name / "fairseq_xl" / "__main__.py").write_text(f"import sys; print('{name}', *sys.argv[1:])")
    command, packages = world.environment / "bin/fairseq-xl", world.environment / "lib/python3/site-packages"
    code = f"import runpy, site, sys; site.addsitedir({str(packages)!r}); sys.argv[:] = sys.argv[2:]; "
    code += "runpy.run_module('fairseq_xl', run_name='__main__')"
    (world.environment / "bin/python").write_text(f"""#!/bin/sh\nexec {sys.executable} -S -c "{code}" "$@"\n""")
    for folder, shown in (("repo", "repo"), ("other", "other"), ("bin", "repo")):
        done = subprocess.run([command, "score", "a b"], cwd=world.folder / folder, capture_output=True, text=True)
        assert done.stdout == f"{shown} score a b\n", done.stderr


def test_the_repository_is_linked_again_if_its_clone_is_gone(world):
    world.run()
    link, other = world.environment / "lib/python3/site-packages/fairseq_xl.pth", world.folder / "other"
    other.mkdir()
    link.write_text(f"{other}\n")
    assert world.run().returncode == 0 and link.read_text() == f"{other}\n"
    other.rmdir()
    assert world.run().returncode == 0 and link.read_text() == f"{world.folder / 'repo'}\n"


def test_an_egg_info_in_the_checkout_is_no_installed_package(world):
    """The questions are asked in the checkout, where `python -m` and `python -` would find it."""
    (world.folder / "repo/fairseq_xl.egg-info").mkdir()
    (world.folder / "repo/fairseq_xl.egg-info/PKG-INFO").write_text("Name: fairseq_xl\nVersion: 0.1.0\n")
    for path, version in (("", "\n"), (".", "0.1.0\n")):
        command = [sys.executable, "-S", "recipes/environment.py", "version", "fairseq_xl"]
        answer = subprocess.run(
            command, cwd=world.folder / "repo", env={"PYTHONPATH": path}, capture_output=True, text=True
        )
        assert answer.stdout == version, answer.stderr


def test_another_extra_or_another_pin_is_installed(world):
    world.run()
    world.run(XL_EXTRAS="tests")
    assert "transformers" in Path(world.installs()[-1][1]).read_text()
    with open(world.folder / "repo" / "recipes" / "constraints.txt", "a") as pins:
        pins.write("six==1.17.0\n")
    assert world.run().returncode == 0
    assert world.installs()


def test_an_installed_torch_is_kept(world):
    world.state(installed={"torch": "2.9.1+cu128"})
    assert world.run().returncode == 0
    assert all("torch" not in install for install in world.installs())
    constraints = (world.environment / "fairseq_xl-constraints.txt").read_text().splitlines()
    assert [line for line in constraints if line.startswith("torch==")] == ["torch==2.9.1+cu128"]
    assert len(constraints) == len((REPOSITORY / "recipes" / "constraints.txt").read_text().splitlines())


def test_an_interrupted_installation_is_continued(world):
    world.state(pip_fails={"fairseq-fixed": "ERROR: it stopped"})
    refusal(world, world.run(), "fairseq-fixed==", "ERROR: it stopped")
    world.state(installed={"torch": "2.13.0"})
    result = world.run()
    assert result.returncode == 0, result.stderr
    assert ["-m", "venv"] not in [call[:2] for call in world.calls()]
    assert "torch" not in world.installs()[0]
    assert world.run().returncode == 0 and world.calls() == []


def test_the_active_environment_is_reused(world):
    mine = world.folder / "mine"
    world.run(f'python3 -m venv "{mine}"')
    result = world.run('. recipes/environment.sh && echo "$xl_environment $ACTIVATED"', VIRTUAL_ENV=str(mine))
    assert result.stdout.splitlines()[-1] == f"{mine} yes"
    result = world.run(CONDA_PREFIX=str(mine), CONDA_DEFAULT_ENV="work")
    assert result.returncode == 0 and not world.environment.exists() and world.calls() == []
    assert world.run(CONDA_PREFIX=str(mine), CONDA_DEFAULT_ENV="base").returncode == 0
    assert world.environment.exists()


def test_sourced_it_activates_and_leaves_failure_to_the_caller(world):
    result = world.run('set -euo pipefail; . recipes/environment.sh; echo "$ACTIVATED $PWD"')
    assert result.stdout.splitlines()[-1] == f"yes {world.folder / 'repo'}"
    shutil.rmtree(world.environment)
    world.state(refused=["venv"])
    result = world.run(". recipes/environment.sh || echo went on")
    assert result.stdout.splitlines()[-1] == "went on"
    assert "went on" not in world.run("set -e; . recipes/environment.sh; echo went on").stdout


@pytest.mark.parametrize(
    "state, words",
    [
        ({"refused": ["python"]}, ["Python 3.10 or newer is needed"]),
        ({"refused": ["venv"]}, ["venv module"]),
        ({"refused": ["headers"]}, ["headers", "python3-dev"]),
        ({"installed": {"torch": "2.5.1"}}, ["torch 2.6 or newer", "2.5.1"]),
        ({"installed": {"fairseq": "0.12.2"}}, ["another environment"]),
        ({}, ["C++ compiler"]),
        (
            {"pip_fails": {"torch$": "NewConnectionError: Temporary failure in name resolution"}},
            ["torch could not be downloaded", "cannot be reached"],
        ),
    ],
    ids=["old Python", "no venv", "no headers", "old torch", "another fairseq", "no compiler", "no network"],
)
def test_what_is_missing_is_told_in_one_sentence(world, state, words):
    if not state:
        (world.bin / "c++").unlink()
    world.state(**state)
    refusal(world, world.run(), *words)
    assert world.installs() == [["torch"]] * ("pip_fails" in state)
    if not state:
        world.state(installed={"fairseq-fixed": "0.12.3.1"})  # nothing to compile
        assert world.run().returncode == 0


def test_an_unknown_extra(world):
    result = world.run(XL_EXTRAS="recipes,nonsense")
    assert result.returncode == 1
    assert "extras: recipes,nonsense" in result.stderr.splitlines()[-1]


def test_torchaudio_that_breaks_others_is_removed(world):
    """An installed package keeps its command."""
    world.state(installed={"torch": "2.13.0", "torchaudio": "2.11.0", "fairseq_xl": "0.1.0"})
    assert world.run().returncode == 0
    assert not (world.environment / "bin" / "fairseq-xl").exists()
    assert "torchaudio" not in json.loads((world.folder / "state.json").read_text())["installed"]


def required(*extras):
    """Names of the packages that setup.cfg requires, always and by its extras."""
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")
    lines = setup["options"]["install_requires"].split()
    for extra in extras or setup["options.extras_require"]:
        lines += setup["options.extras_require"][extra].split()
    return {re.match(r"[\w.-]+", line).group(0) for line in lines}


MODULES = {  # of packages of another name
    "fairseq-fixed": "fairseq",
    "hydra-core": "hydra",
    "Jinja2": "jinja2",
    "protobuf": "google.protobuf",
    "PyYAML": "yaml",
    "scikit-learn": "sklearn",
    "sentence-transformers": "sentence_transformers",
    "faiss-cpu": "faiss",
    "pre-commit": "pre_commit",
    "pytest-xdist": "xdist",
    "rouge-score": "rouge_score",
    "subword-nmt": "subword_nmt",
    "wikiextractor": "wikiextractor.clean",  # the part that older ones can't import
}


@pytest.mark.parametrize("package", sorted(required("tests")))
def test_what_the_tests_need_is_there(package):
    """A package that is missing would otherwise be a test that is left out."""
    importlib.import_module(MODULES.get(package, package))


@pytest.mark.parametrize(
    "part, extras",
    [("recipes", ["hf", "recipes"]), ("preprocess", ["columns", "recipes", "tokenizers", "wikipedia", "zstandard"])],
)
def test_what_is_imported_is_required(part, extras):
    """By name, and not as what another package happens to need."""
    imported = set()
    for path in (REPOSITORY / part).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module.partition(".")[0])
    imported -= {*sys.stdlib_module_names, "compression", "fairseq_xl", "preprocess", "recipes"}
    # `compression` is Python's from 3.14 on
    imported = {"fairseq" if name == "fairseq_cli" else name for name in imported}  # of one package
    assert {"recipes": "scipy", "preprocess": "lxml"}[part] in imported
    for packages in (required(*extras), required("tests")):
        assert imported <= {MODULES.get(package, package).partition(".")[0] for package in packages}


def test_every_requirement_is_pinned():
    wanted = required()
    pins = (REPOSITORY / "recipes" / "constraints.txt").read_text().splitlines()
    pinned = {line.partition("==")[0] for line in pins if not line.startswith("#")}
    assert wanted <= pinned


def test_what_is_packaged():
    """The plugin, and with it the command that prepares text; recipes run from the repository."""
    from setuptools import find_packages

    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")
    found = find_packages(str(REPOSITORY), include=setup["options.packages.find"]["include"].split())
    assert {name.partition(".")[0] for name in found} == {"fairseq_xl", "preprocess"}
    assert set(found) >= {"fairseq_xl.data", "fairseq_xl.checkpoints", "preprocess.readers", "preprocess.sample"}


def test_the_scripts_of_ci_can_be_run():
    assert os.access(REPOSITORY / "tests" / "run.sh", os.X_OK) and os.access(REPOSITORY / ".ci" / "run", os.X_OK)
