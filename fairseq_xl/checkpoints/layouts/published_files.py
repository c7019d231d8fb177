"""Finds and reads the files of published models: weights, one file or shards, and settings. Nothing in them is run."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from fairseq_xl.checkpoints.layouts.weight_checks import check_parameters
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import CHECKPOINTS, load_plain
from fairseq_xl.io.files import json_object

CONFIG, TOKENIZER_CONFIG = "config.json", "tokenizer_config.json"
GENERATION = "generation_config.json"
TRANSFORMERS_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
INDEX = ".index.json"  # after a name of `TRANSFORMERS_WEIGHTS`: the file that names the shards
FAIRSEQ_WEIGHTS = "model.pt"


def has_weights(folder: Path) -> bool:
    """Whether a folder has published weights."""
    return any((folder / name).is_file() for name in _names())


def weights_file(path: Path) -> Path:
    """The file of weights, or index of shards, in a folder, or the file itself; `UserError` for a folder without."""
    if not path.is_dir():
        return path
    for name in (*_names(), *CHECKPOINTS):
        if (path / name).is_file():
            return path / name
    expected = ", ".join((*TRANSFORMERS_WEIGHTS, FAIRSEQ_WEIGHTS))
    raise UserError(f"{path} is a folder without published weights: none of {expected} is there")


def _names() -> list[str]:
    return [*(name + suffix for name in TRANSFORMERS_WEIGHTS for suffix in ("", INDEX)), FAIRSEQ_WEIGHTS]


def load_weights(file: Path, values: bool = True) -> Any:
    """Weights of a file or of its shards; without `values` on the meta device. Raises `UserError` for damaged ones."""
    if file.name.endswith(INDEX):
        return _load_shards(file, values)
    if file.suffix != ".safetensors":
        content = load_plain(file, mapped=not values)
    else:
        try:
            content = safetensors.torch.load_file(file)  # mapped
        except OSError as error:
            raise UserError(f"{file} cannot be read as a checkpoint: {error.strerror or error}") from error
        except safetensors.SafetensorError as error:
            raise UserError(f"{file} is not a safetensors file, or it is damaged or cut short ({error})") from error
    return content if values else _without_values(content, {})


def _load_shards(index: Path, values: bool) -> dict[str, Tensor]:
    shards = json_object(index).get("weight_map")
    if not isinstance(shards, dict) or not shards or not all(isinstance(name, str) for name in shards.values()):
        raise UserError(f"{index} is not an index of shards: it holds no 'weight_map'")
    weights: dict[str, Tensor] = {}
    for name in sorted(set(shards.values())):
        if Path(name).name != name:
            raise UserError(f"{index} names the shard {name!r}: expected a file in the same folder")
        if name.endswith(INDEX):
            raise UserError(f"{index} names the shard {name!r}: expected a file of weights, not an index")
        shard = load_weights(index.with_name(name), values)
        try:
            weights |= check_parameters(shard)
        except UserError as error:
            raise UserError(f"{index.with_name(name)}: {error}") from error
    missing = sorted(shards.keys() - weights.keys())
    if missing:
        raise UserError(f"{index} lists {missing[0]}, which is in none of its shards")
    return weights


def _without_values(content: Any, meta_tensors: dict[tuple[Any, ...], Tensor], depth: int = 2) -> Any:
    """The content of a file with the tensors of its mappings on the meta device; equal ones stay one tensor."""
    if isinstance(content, Tensor) and content.layout is torch.strided and not content.is_quantized:
        key = (content.data_ptr(), content.shape, content.stride(), content.dtype)
        return meta_tensors.setdefault(key, torch.empty(content.shape, dtype=content.dtype, device="meta"))
    if isinstance(content, dict) and depth:
        return {name: _without_values(value, meta_tensors, depth - 1) for name, value in content.items()}
    return content


def beside(file: Path, *names: str) -> Path:
    """The first of `names` that is in the file's folder; `UserError` if none is."""
    for name in names:
        if file.with_name(name).is_file():
            return file.with_name(name)
    raise UserError(f"{' or '.join(names)} is needed beside {file.name}")


def has_xlm_tokenizer(folder: Path) -> bool:
    """Whether a folder of transformers names XLM's tokenizer, whose pieces are in vocab.json and merges.txt."""
    config = folder / TOKENIZER_CONFIG
    return config.is_file() and json_object(config).get("tokenizer_class") == "XLMTokenizer"


def as_settings(written: Any) -> dict[str, Any]:
    """A file's own settings, which programs save as a namespace or as a mapping; {} for anything else."""
    if isinstance(written, argparse.Namespace):
        return dict(vars(written))
    return dict(written) if isinstance(written, Mapping) else {}


def fairseq_settings(content: Mapping[str, Any]) -> dict[str, Any]:
    """The model's settings in a checkpoint of fairseq: `args`, or `model` of `cfg`."""
    cfg = content.get("cfg")
    return as_settings(content.get("args")) or as_settings(cfg.get("model") if isinstance(cfg, Mapping) else None)
