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


@pytest.fixture(scope="module")
def lohelp_corpus(tmp_path_factory):
    """The sample with the two tasks that it has not: retrieval, and pairs of a title and a passage."""
    folder = tmp_path_factory.mktemp("corpus")
    write_sample([str(folder), "--documents", "40"])
    for path in (*folder.glob("bitext/test.*"), *folder.glob("*/valid.*"), *folder.glob("tasks/*/[vt][ae][ls]*")):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:80]))
    (folder / "tasks/retrieval").mkdir()
    for language in ("en", "de"):
        sentences = (folder / f"bitext/test.en-de.{language}").read_text().splitlines()
        kept = "".join(f"{sentence}\n" for sentence in sentences if sentence)
        (folder / f"tasks/retrieval/en-de.{language}").write_text(kept)
    (folder / "tasks/qam").mkdir()
    for name in ("train.en", "valid.en", "valid.de", "test.en", "test.de"):
        bodies = (folder / f"tasks/ntg/{name}.src").read_text().splitlines()
        titles = (folder / f"tasks/ntg/{name}.tgt").read_text().splitlines()
        others = titles[1:] + titles[:1]
        pairs = [
            f"{label}\t{title}\t{body}\n"
            for body, *both in zip(bodies, titles, others)
            for label, title in zip("10", both)
        ]
        (folder / f"tasks/qam/{name}.tsv").write_text("".join(pairs))
    return folder
