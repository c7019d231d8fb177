"""Table files: which text and version they belong to."""

import os
import shutil

import numpy as np
import pytest
from tiny_data import write_items

from fairseq_xl.data.corpora.documents import AdjacentSegments
from fairseq_xl.data.store import cached_tables
from fairseq_xl.data.store.binarized_text import Text
from fairseq_xl.data.store.cached_tables import table
from fairseq_xl.io import fingerprints
from fairseq_xl.io.files import write_json
from fairseq_xl.io.fingerprints import fingerprint

FIRST = np.array([[1, 2], [3, 4]])
SECOND = np.array([[5, 6]])


@pytest.fixture(autouse=True)
def files_for_short_texts(monkeypatch):
    monkeypatch.setattr(cached_tables, "IN_MEMORY_LINES", 0)


@pytest.fixture
def text(tmp_path):
    """A binarized text, and a function that returns its table, computed as the rows given unless a file has it."""
    write_items(tmp_path / "train", [[4, 2], [5, 2]] * 50)
    return tmp_path / "train.bin", reader(tmp_path / "train")


def reader(prefix):
    return lambda rows, **more: table(f"{prefix}.table", [Text(str(prefix), "en")], lambda: [rows], 2, **more).tolist()


def test_a_table_of_the_same_text_and_version_is_read_again(text):
    _, read = text
    assert read(FIRST) == FIRST.tolist() == read(SECOND)
    assert read(SECOND, version=2) == SECOND.tolist() == read(FIRST, version=2)


def test_a_text_rewritten_in_place_makes_a_new_table(text, monkeypatch):
    """Its size is the same, and so are the samples of its bytes."""
    path, read = text
    monkeypatch.setattr(fingerprints, "sampled", lambda path: "samples")
    read(FIRST)
    state = path.stat()
    content = bytearray(path.read_bytes())
    content[2] ^= 1
    with open(path, "r+b") as file:
        file.write(content)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1))  # clocks of file systems are coarse
    assert path.stat().st_size == state.st_size
    assert read(SECOND) == SECOND.tolist()


def test_a_copy_of_a_data_folder_keeps_its_tables(tmp_path):
    """Its files have other times. A text that the manifest does not describe any more makes a new table.

    So does another text of the same size with a manifest of its own.
    """
    data, copy = tmp_path / "data-bin", tmp_path / "copy"
    original, copied = reader(data / "en/train"), reader(copy / "en/train")
    write_items(data / "en/train", [[4, 2], [5, 2]])
    write_manifest(data)
    original(FIRST)
    shutil.copytree(data, copy, copy_function=shutil.copyfile)
    for path in (copy / "en").glob("train.*"):
        os.utime(path, ns=(0, 0))
    assert copied(SECOND) == FIRST.tolist()
    for folder, read in ((data, original), (copy, copied)):
        write_items(folder / "en/train", [[4, 2], [6, 2]])
        if folder == copy:
            write_manifest(copy)
        assert read(SECOND) == SECOND.tolist()


def write_manifest(data):
    """The manifest with the fingerprints of en/train, as `fairseq-xl data prepare` writes them."""
    names = ("en/train.bin", "en/train.idx")
    write_json(
        data / "manifest.json", {"format": 1, "fingerprints": {name: fingerprint(data / name) for name in names}}
    )


def test_another_version_of_windows_makes_a_new_table(tmp_path, monkeypatch):
    monkeypatch.setattr(cached_tables, "IN_MEMORY_LINES", 0)
    prefix = write_items(tmp_path / "train", [[4, 2], [5, 2], [6, 2]])
    AdjacentSegments(prefix, "en").windows(8)
    (path,) = tmp_path.glob("train.*.table")
    before = path.read_bytes()
    monkeypatch.setattr(AdjacentSegments, "version", 3)
    AdjacentSegments(prefix, "en").windows(8)
    assert path.read_bytes()[:64] != before[:64] and path.read_bytes()[64:] == before[64:]
