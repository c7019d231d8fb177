"""What the tests of recipes share."""

import shutil

import pytest
from fairseq.dataclass import utils as dataclass_utils

from preprocess.commands.sample import main as write_sample
from tests.commands import compose
from tests.warm_python import warm_environment


@pytest.fixture(autouse=True)
def fast_composition(monkeypatch):
    """Configurations are composed with the parts that earlier ones have in common (`tests.commands.compose`)."""
    monkeypatch.setattr(dataclass_utils, "compose", compose)


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """Scripts start Python often: here they find a warm one (tests/warm_python.py)."""
    with warm_environment(tmp_path_factory.mktemp("environment")):
        yield


@pytest.fixture(scope="session")
def copy_sample(written_once):
    """copy_sample(folder): a small sample, with 60 lines of validation and test text, and 16 of labeled ones."""

    def write(folder):
        write_sample([str(folder), "--documents", "40"])
        for path in (*folder.glob("bitext/test.*"), *folder.glob("*/valid.*"), *folder.glob("tasks/nc/[vt][ae][ls]*")):
            lines = path.read_text().splitlines(keepends=True)
            path.write_text("".join(lines[: 16 if path.suffix == ".tsv" else 60]))

    return lambda folder: shutil.copytree(written_once("sample", write), folder)
