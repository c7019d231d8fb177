"""The arguments of the smoke scripts, from any folder."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.recipes.test_configurations import RECIPES

pytestmark = pytest.mark.usefixtures("warm")
SCRIPTS = sorted(path.relative_to(RECIPES) for path in RECIPES.glob("*/smoke*.sh"))


def run(script, argument, folder):
    """Runs a script of recipes/ in a folder that has nothing of the repository."""
    environment = os.environ | {"XL_EXTRAS": "tests"}
    environment.pop("PYTHONPATH", None)
    return subprocess.run(
        ["bash", RECIPES / script, argument], cwd=folder, env=environment, text=True, capture_output=True
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_help_is_the_comment_at_the_top(tmp_path, script):
    lines = (RECIPES / script).read_text(encoding="utf-8").splitlines()[1:]
    comment = lines[: next(number for number, line in enumerate(lines) if not line.startswith("#"))]
    done = run(script, "-h", tmp_path)
    assert done.returncode == 0 and done.stdout.splitlines() == [line[2:] for line in comment]
    assert done.stdout.startswith(f"{Path(script).name} [--output DIR] [--updates N]")


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_wrong_argument_from_another_folder(tmp_path, script):
    done = run(script, "wrong=x", tmp_path)
    assert done.returncode == 1 and done.stderr.startswith("fairseq_xl: error: wrong=x: expected name=value"), done
    assert not list(tmp_path.iterdir())


def test_there_is_a_smoke_script_for_each_recipe():
    assert [str(script.parent) for script in SCRIPTS] == [
        *("evidence", "lohelp", "monotrans", "unicoder", "veco", "xglue", "xglue", "xlm", "xlm", "xtreme"),
    ]
