"""The arguments of the smoke scripts, from any folder."""

import os
import re
import subprocess

import pytest

from tests.recipes.configurations import RECIPES

pytestmark = pytest.mark.usefixtures("warm")
SCRIPTS = sorted(path.relative_to(RECIPES) for path in RECIPES.glob("*/smoke*.sh"))


def run(script, folder, *arguments):
    """Runs a script of recipes/ in a folder that has nothing of the repository."""
    environment = os.environ | {"XL_EXTRAS": "tests"}
    environment.pop("PYTHONPATH", None)
    return subprocess.run(
        ["bash", RECIPES / script, *arguments], cwd=folder, env=environment, text=True, capture_output=True
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_wrong_argument_from_another_folder(tmp_path, script):
    done = run(script, tmp_path, "wrong=x")
    assert done.returncode == 1 and done.stderr.startswith("fairseq_xl: error: wrong=x: expected name=value"), done
    assert not list(tmp_path.iterdir())


#: those of xlm are run by test_unsupervised.py, that of lohelp by test_lohelp.py
RUN = [path for path in SCRIPTS if path.parent.name not in ("evidence", "lohelp", "xlm")]


@pytest.mark.slow
@pytest.mark.parametrize("script", RUN, ids=str)
def test_it_ends_with_the_line_of_its_comment(tmp_path, script):
    lines = re.findall(r"^#     (.*)", (RECIPES / script).read_text(encoding="utf-8"), re.MULTILINE)
    form = "\n".join(re.sub(r"<\w+>", r"\\d+\\.\\d+", re.escape(line)).replace("…", ".*") for line in lines)
    done = run(script, tmp_path, "--output", tmp_path / "out", "--updates", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert lines and re.search(rf"^{form}$", done.stdout[-500:], re.MULTILINE)
