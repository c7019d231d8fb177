"""Finds and reads the files of published models: weights, one file or shards, and settings. Nothing in them is run."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import load_plain

CONFIG = "config.json"
TRANSFORMERS_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
INDEX = ".index.json"  # after a name of `TRANSFORMERS_WEIGHTS`: the file that names the shards
FAIRSEQ_WEIGHTS = "model.pt"


def weights_file(path: Path) -> Path:
    """The file of weights of a folder, or the file itself; an index of shards counts as one.

    Raises `UserError` for a folder without weights.
    """
    if not path.is_dir():
        return path
    indexed = [name + suffix for name in TRANSFORMERS_WEIGHTS for suffix in ("", INDEX)]
    for name in (*indexed, FAIRSEQ_WEIGHTS):
        if (path / name).is_file():
            return path / name
    expected = ", ".join((*TRANSFORMERS_WEIGHTS, FAIRSEQ_WEIGHTS))
    raise UserError(f"{path} is a folder without published weights: none of {expected} is there")


def load_weights(file: Path) -> Any:
    """The content of a file of weights: a state dict, or what torch.save wrote. Shards are joined.

    Raises `UserError` for a file that cannot be read, an index that names files elsewhere, and missing shards.
    """
    if file.name.endswith(INDEX):
        return _load_shards(file)
    return _load_safetensors(file) if file.suffix == ".safetensors" else load_plain(file)


def _load_shards(index: Path) -> dict[str, Tensor]:
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise UserError(f"{index} is not an index of shards: it holds no 'weight_map'")
    found: dict[str, Tensor] = {}
    for name in sorted(set(places.values())):
        if Path(name).name != name:
            raise UserError(f"{index} names the shard {name!r}: expected a file in the same folder")
        shard = load_weights(index.with_name(name))
        if not isinstance(shard, dict):
            raise UserError(f"{index.with_name(name)} holds no parameters")
        found |= shard
    missing = sorted(places.keys() - found.keys())
    if missing:
        raise UserError(f"{index} lists {missing[0]}, which is in none of its shards")
    return found


def _load_safetensors(file: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load_file(file)
    except OSError as error:
        raise UserError(f"{file} cannot be read as a checkpoint: {error.strerror or error}") from error
    except safetensors.SafetensorError as error:
        raise UserError(f"{file} is not a safetensors file, or it is damaged or cut short ({error})") from error


def beside(file: Path, *names: str) -> Path:
    """The first of `names` that is in the file's folder; `UserError` if none is."""
    for name in names:
        if file.with_name(name).is_file():
            return file.with_name(name)
    raise UserError(f"{' or '.join(names)} is needed beside {file.name}")


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file; raises `UserError` for other content."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{file} holds no JSON object")
    return content


def as_settings(written: Any) -> dict[str, Any]:
    """A file's own settings, which programs save as a namespace or as a mapping; {} for anything else."""
    if isinstance(written, argparse.Namespace):
        return dict(vars(written))
    return dict(written) if isinstance(written, Mapping) else {}


def fairseq_settings(content: Mapping[str, Any]) -> dict[str, Any]:
    """The model's settings in a checkpoint of fairseq: `args`, or `model` of `cfg`."""
    cfg = content.get("cfg")
    return as_settings(content.get("args")) or as_settings(cfg.get("model") if isinstance(cfg, Mapping) else None)
