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


def test_they_run_their_experiments_from_another_folder(tmp_path):
    """All have the lines of the first but for the experiment's file, its options and the extras."""
    done = run(SCRIPTS[0], tmp_path, "wrong=x")
    assert done.returncode == 1 and done.stderr.startswith("fairseq_xl: error: wrong=x: expected name=value"), done
    assert not list(tmp_path.iterdir())
    for script in SCRIPTS:
        *shared, last = (RECIPES / script).read_text(encoding="utf-8").split("\nset -")[1].splitlines()
        assert shared == [
            *("euo pipefail", 'root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)', 'cd "$root"'),
            "XL_EXTRAS=${XL_EXTRAS:-recipes,embeddings} " * (script.stem == "smoke-unmt") + ". recipes/environment.sh",
        ], script
        file = rf"exec python -m recipes.experiment recipes/({script.parent}/[\w-]+\.yaml)( --\w+ \d+)* \"\$@\""
        assert (RECIPES / re.fullmatch(file, last)[1]).is_file(), script


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
