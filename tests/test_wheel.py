"""A wheel is built, installed into a fresh environment and used outside the repository."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
import tiny_corpus

import fairseq_xl
from tests.commands import CPU, pretraining

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("fairseq_xl", "preprocess", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")


def run(*command, cwd, **variables):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built where torch can't be imported: the version is read from the text of the package."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    (folder / "blocked").mkdir()
    (folder / "blocked" / "torch.py").write_text("raise ImportError('the build imports torch')\n")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", "dist", "."]
    run(*pip, cwd=folder, PYTHONPATH=str(folder / "blocked"))
    (built,) = (folder / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """The Python of a new environment that has the wheel, and sees the other packages of the running one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    interpreter = folder / "bin" / "python"
    purelib = Path(run(interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    (purelib / "others.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    pip = [sys.executable, "-m", "pip", "--python", interpreter, "install", "--no-deps", "--no-index", wheel]
    run(*pip, cwd=folder)
    return interpreter


@pytest.mark.slow
def test_the_wheel_has_all_of_the_two_packages(wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = {path.relative_to(ROOT) for part in ("fairseq_xl", "preprocess") for path in (ROOT / part).rglob("*")}
    wanted = {str(path) for path in files if path.suffix in (".py", ".txt", ".html", ".yaml")}
    assert packed == wanted
    assert wheel.name.startswith(f"fairseq_xl-{fairseq_xl.__version__}-")


@pytest.mark.slow
def test_an_installed_wheel_prepares_text_and_trains(python, tmp_path):
    description = tiny_corpus.write_corpus(tmp_path / "corpus")
    run(python, "-m", "fairseq_xl", "data", "prepare", description, "data-bin", cwd=tmp_path)
    packages = Path(run(python, "-c", "import preprocess; print(preprocess.__path__[0])", cwd=tmp_path)).parent
    assert packages.is_relative_to(python.parents[1])
    line = pretraining("data-bin", "run", "--max-update", 1, "--updates-per-epoch", 1)
    log = run(python, "-m", "fairseq_cli.train", *line, *CPU, "--user-dir", packages / "fairseq_xl", cwd=tmp_path)
    assert "update 1 | loss" in log
    assert (tmp_path / "run" / "checkpoint_last.pt").is_file()
    assert "usage: fairseq-xl" in run(python.with_name("fairseq-xl"), "--help", cwd=tmp_path)
