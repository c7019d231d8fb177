"""Descriptions of data folders, dictionaries, text and ONNX files; `tests/tasks/test_conversion.py` has the models."""

import json

import pytest
import torch

from fairseq_xl.checkpoints.description import describe
from fairseq_xl.checkpoints.layouts.published_files import load_weights
from fairseq_xl.errors import UserError
from tests.published_text import write_wordpiece
from tests.tiny_data import write_dictionary


def test_a_dictionary(tmp_path):
    path = write_dictionary(tmp_path / "dict.txt", {"▁a": 3, "b": 1}, ["de", "en"])
    expected = {"kind": "dictionary", "symbols": 4 + 2 + 1 + 2, "languages": ["de", "en"]}
    assert describe(path) == describe(path.rename(tmp_path / "dict.de.txt")) == expected


def test_a_data_folder(tmp_path):
    (tmp_path / "data").mkdir()
    write_dictionary(tmp_path / "data" / "dict.txt", {"a": 3}, ["de"])
    found = describe(tmp_path / "data")
    assert found["kind"] == "data folder of fairseq_xl" and found["languages"] == ["de"]
    assert found["vocabulary"]["symbols"] == 7
    assert found["sub-words"] == "none (missing: sentencepiece.model)" and "datasets" not in found
    pieces = write_wordpiece(tmp_path / "data" / "wordpiece.vocab", ["the house", "the tree"], least=1)
    datasets = {"de/train": {"lines": 5, "tokens": 12}}
    vocabulary = {"kind": "wordpiece", "lowercase": True, "sha256": {}}
    manifest = {"format": 1, "vocabulary": vocabulary, "datasets": datasets}
    (tmp_path / "data" / "manifest.json").write_text(json.dumps(manifest))
    found = describe(tmp_path / "data")
    assert found["sub-words"] == {"kind": "wordpiece", "pieces": len(pieces)} and found["datasets"] == datasets
    (tmp_path / "data" / "manifest.json").write_text(json.dumps({"format": 1, "datasets": [1]}))
    with pytest.raises(UserError, match="manifest.json is damaged: its 'datasets' are not counts by name"):
        describe(tmp_path / "data")
    (tmp_path / "data" / "manifest.json").write_text('{"a":' * 100_000)
    with pytest.raises(UserError, match="manifest.json is damaged"):
        describe(tmp_path / "data")


def test_onnx_files(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"")
    for content in (None, {"a": 1}, {"format": 5}):
        if content is not None:
            (tmp_path / "model.json").write_text(json.dumps(content))
        with pytest.raises(UserError, match="model.onnx: expected a folder of .*model export., with model.json"):
            describe(tmp_path / "model.onnx")
        with pytest.raises(UserError, match="is a folder without published weights"):
            describe(tmp_path)
    (tmp_path / "model.json").write_text(json.dumps({"format": 1, "graphs": {}, "symbols": {"pad": 1}}))
    expected = {"kind": "ONNX files of fairseq_xl", "format": 1, "graphs": {}}
    assert describe(tmp_path) == expected
    assert describe(tmp_path / "model.onnx") == {"folder": str(tmp_path)} | expected


@pytest.mark.parametrize("suffix", ["safetensors", "pt", "old.pt"])
def test_shapes_and_types_are_read_without_values(tmp_path, suffix):
    from safetensors.torch import save_file

    state = {"a": torch.ones(3, 5), "b": torch.ones(2, dtype=torch.float16), "c": torch.ones(1, dtype=torch.int64)}
    path = tmp_path / f"weights.{suffix}"
    if suffix == "safetensors":
        save_file(state, path)
    else:
        torch.save(state | {"tied": state["a"]}, path, _use_new_zipfile_serialization=suffix == "pt")
    found = load_weights(path, values=False)
    assert all(value.is_meta for value in found.values())
    assert {name: (value.shape, value.dtype) for name, value in found.items() if name != "tied"} == {
        name: (value.shape, value.dtype) for name, value in state.items()
    }
    assert "tied" not in found or found["tied"] is found["a"]  # counted once
