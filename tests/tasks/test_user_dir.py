"""--user-dir finds the plugin from any folder, in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import cli
from tests.commands import pretraining
from tests.warm_python import python

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("place", ["root", "elsewhere"])
def test_user_dir(data_bin, tmp_path, place):
    """`fairseq_xl` in the repository's root, with the real Python; its path in another folder, with two workers."""
    folder, user_dir = (ROOT, "fairseq_xl") if place == "root" else (tmp_path, ROOT / "fairseq_xl")
    line = [
        *pretraining(data_bin, tmp_path / "run", "--updates-per-epoch", 3, "--max-epoch", 2),
        *cli(user_dir=user_dir, cpu=True, num_workers="0" if place == "root" else "2"),
    ]
    program = sys.executable if place == "root" else python()
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [program, "-c", "from fairseq_cli.train import cli_main; cli_main()", *map(str, line)],
        cwd=folder,
        capture_output=True,
        text=True,
        env=environment | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "run" / "checkpoint2.pt").exists()
    assert "Traceback" not in done.stdout + done.stderr


def test_a_link_of_another_name_is_refused(tmp_path):
    (tmp_path / "other").symlink_to(ROOT / "fairseq_xl")
    code = (
        "import sys; from fairseq_cli.validate import cli_main; sys.argv[1:] = ['x', '--user-dir', 'other']; cli_main()"
    )
    done = subprocess.run([python(), "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.endswith("must be called fairseq_xl, found other\n")


def test_mistake_is_one_sentence_on_the_command_line(data_bin, tmp_path):
    line = pretraining(data_bin, tmp_path / "run", "--langs", "en,xx", "--cpu")
    done = subprocess.run(
        [python(), "-m", "fairseq_cli.train", *map(str, line)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("fairseq_xl: error: --langs")
    assert not (tmp_path / "run" / "checkpoint_last.pt").exists()
