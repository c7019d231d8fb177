"""The measurement of the preparation of text: the estimate by hand, and a run on little text."""

import json

import pytest

from preprocess.sample.corpus import write
from recipes.benchmark import preprocessing


def test_the_estimate_by_hand():
    """100 times the text on 4 cores: 100 x max(2, 20 / 4) s, 100 x max(9, 12 / 4) s, and 36 s once."""
    seconds = {
        "encode": {"wall": 30.0, "parent": 2.0, "all": 20.0},
        "sample": {"wall": 10.0, "parent": 9.0, "all": 12.0},
        "vocabulary": {"wall": 36.0, "parent": 36.0, "all": 36.0},
    }
    found = preprocessing.estimated(seconds, {"raw": 10**9, "shards": 5}, 100, 4)
    assert found["by_stage"] == {"encode": 0.139, "sample": 0.25, "vocabulary": 0.01} and found["hours"] == 0.4
    assert found["bytes"] == {"raw": 10**11, "shards": 500}


@pytest.mark.slow
def test_a_run_on_little_text(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(preprocessing, "write", lambda folder: write(folder, 40))
    preprocessing.main([str(tmp_path), "--megabytes", "1", "--shards", "2", "--jobs", "2"])
    found = json.loads(capsys.readouterr().out)
    assert {"check", "overlap", "sample", "vocabulary", "divide", "encode", "dictionary", "binarize"} == {
        *found["seconds"]
    }
    files = list((tmp_path / "text").iterdir())
    assert found["bytes"]["raw"] == sum(path.stat().st_size for path in files) and len(files) == 4
    assert 0.5e6 < found["bytes"]["raw"] < 2e6 and (tmp_path / "data-bin/1/manifest.json").exists()
    assert 20 < found["peak_mib"]["parent"] <= found["peak_mib"]["largest"]
    assert found["estimate"]["bytes"]["raw"] == 10**11
