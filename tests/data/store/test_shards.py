"""The data folders that DATA names."""

import shutil
from pathlib import Path

import pytest

from fairseq_xl.data.store.manifest import data_folders, one_folder
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import write_json


def write_shards(parent, count, missing=(), manifest=True):
    """Empty data folders with the files by which shards of `fairseq-xl data prepare` are known."""
    parent.mkdir()
    for number in set(range(count)) - set(missing):
        (parent / str(number)).mkdir(parents=True)
        (parent / str(number) / "dict.txt").touch()
        write_json(parent / str(number) / "manifest.json", {"format": 1, "shard": number, "config": {"shards": count}})
    if manifest:
        write_json(parent / "manifest.json", {"format": 1, "config": {"shards": count}})
    return parent


def test_shards_in_the_order_of_their_numbers(tmp_path):
    parent = write_shards(tmp_path / "data", 12)
    expected = [parent / str(number) for number in range(12)]
    for data in (parent, str(parent), f"{parent}/", f"{parent}/*"):
        assert data_folders(data) == expected
    assert data_folders(f"{parent}/[29]:{parent}/1?:{tmp_path}") == [
        *(parent / name for name in ("2", "9", "10", "11")),
        tmp_path,
    ]
    assert data_folders(parent)[0] == data_folders(f"{parent}/*")[0] == parent / "0"
    with pytest.raises(UserError, match=f"^{parent}: score one data folder at a time$"):
        one_folder(parent, "score")
    assert one_folder(parent / "3") == parent / "3"


def test_one_data_folder_is_itself(tmp_path):
    (tmp_path / "0").mkdir()
    (tmp_path / "dict.txt").touch()
    assert data_folders(tmp_path) == [tmp_path] and one_folder(tmp_path) == tmp_path
    assert data_folders("no/such:folder")[0] == Path("no/such")  # its reader says that it is not there


def test_folders_of_other_programs(tmp_path):
    """Numbered folders, or folders of any name, that `fairseq-xl data prepare` did not divide."""
    for name in ("shard10", "shard9", "1", "0"):
        (tmp_path / "data" / name).mkdir(parents=True)
    (tmp_path / "data" / "shard.txt").touch()
    assert [path.name for path in data_folders(tmp_path / "data")] == ["0", "1"]
    assert [path.name for path in data_folders(f"{tmp_path}/data/shard*")] == ["shard9", "shard10"]
    with pytest.raises(UserError, match=r"/data/x\*: no folder matches$"):
        data_folders(f"{tmp_path}/data/x*")


@pytest.mark.parametrize("pattern", ["", "/*"])
@pytest.mark.parametrize("missing, manifest", [([1], True), ([2], True), ([0, 1, 2], True), ([], False), ([2], False)])
def test_incomplete_shards_are_refused(tmp_path, missing, manifest, pattern):
    """Training on a part of the text would not be noticed."""
    parent = write_shards(tmp_path / "data", 3, missing, manifest)
    (parent / ".stages").mkdir()
    (parent / "1").mkdir(exist_ok=True)
    with pytest.raises(
        UserError, match=f"^{parent}: its shards are not complete: run the same `fairseq-xl data prepare`"
    ):
        data_folders(f"{parent}{pattern}")
    shutil.rmtree(parent / ".stages")
    (parent / "0").mkdir(exist_ok=True)
    assert data_folders(f"{parent}/[0]") == [parent / "0"]
