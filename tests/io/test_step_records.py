"""Records of steps: what has changed since they were written."""

import pytest

from fairseq_xl.io.files import write_json
from fairseq_xl.io.step_records import begin_parts, difference, read_record

MADE_WITH = {"length": 128, "options": {"beam": 5}, "langs": ("en", "de")}


@pytest.mark.parametrize(
    "now, expected",
    [
        ({}, ""),
        ({"length": 250}, "length: then 128, now 250"),
        ({"options": {"beam": 5, "sampling": True}}, "sampling: then None, now True"),
        ({"options": {}}, "beam: then 5, now None"),
        ({"langs": ["en"]}, "langs: then ['en', 'de'], now ['en']"),
    ],
)
def test_the_first_difference_is_named(tmp_path, now, expected):
    path = tmp_path / "record.json"
    write_json(path, {"made_with": MADE_WITH, "outputs": {"a": 1}})
    assert read_record(path, MADE_WITH | now, {"a": 1})[1] == expected
    assert read_record(path, MADE_WITH, {"a": 2})[1] == "a: then 1, now 2"


def test_a_damaged_record_is_none(tmp_path):
    (tmp_path / "record.json").write_bytes(b"[1")
    assert read_record(tmp_path / "record.json", {}) == ({}, "it has no record") != difference({}, {})


def test_partial_results_stay_until_something_changes(tmp_path):
    folder = tmp_path / "parts"
    for made_with, kept in ((MADE_WITH, False), (MADE_WITH, True), (MADE_WITH | {"length": 9}, False)):
        begin_parts(folder, made_with)
        assert (folder / "0.npz").exists() == kept
        (folder / "0.npz").touch()
