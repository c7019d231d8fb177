"""Describes the content of a file or folder of a model, read as plain data; the command is `fairseq-xl describe`."""

import re
from pathlib import Path
from typing import Any

from torch import Tensor

from fairseq_xl.checkpoints import language_modules, published, word_vectors
from fairseq_xl.checkpoints.described_data import (
    DICTIONARY,
    ONNX_DESCRIPTION,
    describe_data,
    describe_dictionary,
    describe_shards,
    onnx_description,
)
from fairseq_xl.checkpoints.formats.checks import check_tables
from fairseq_xl.checkpoints.formats.files import CONFIG, has_weights
from fairseq_xl.checkpoints.formats.settings import count_layers
from fairseq_xl.checkpoints.identity import check_identity
from fairseq_xl.checkpoints.keys import POSITIONS, TOKENS
from fairseq_xl.data.shards import data_folders
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import CHECKPOINTS, check_checkpoint, refuse_hub_name
from fairseq_xl.io.configuration import check_configuration
from fairseq_xl.io.files import json_object

Description = dict[str, Any]

IS_DICTIONARY = re.compile(r"dict(\..+)?\.txt")  # dict.txt, and dict.de.txt of fairseq
SENTENCE_TRANSFORMERS = "modules.json"
#: options of a run that name the weights that it started from
_FROM = ("init_from", "init_encoder_from", "init_decoder_from", "init_embeddings_from", "language_module")


def describe(path: Path) -> Description:
    """Describes a file or folder: {"kind": ..., and for models architecture, sizes, vocabulary, languages, ...}.

    Raises `UserError` for something that is missing, damaged or of no known kind.
    """
    if not path.exists():
        refuse_hub_name(path)
        raise UserError(f"{path}: there is no such file or folder")
    if path.is_dir():
        return _folder(path)
    if path.suffix == ".onnx" or path.name == ONNX_DESCRIPTION:
        return _onnx_file(path)
    if IS_DICTIONARY.fullmatch(path.name):
        return describe_dictionary(path)
    if word_vectors.is_word_vectors(str(path)):
        rows, channels = word_vectors.sizes(str(path))
        return {"kind": "word vectors", "rows": rows, "channels": channels}
    if not language_modules.is_archive(path):
        found = published.read(path, values=False)
        if isinstance(found, published.Published):
            return _published(found)
        kind = found.get("kind") if isinstance(found, dict) else None
        if kind != language_modules.KIND:
            return _own(found, path)
    return {"kind": "language modules of fairseq_xl", "modules": language_modules.describe(path)}


def _folder(path: Path) -> Description:
    exported = onnx_description(path)
    if exported is not None:
        return {"kind": "ONNX files of fairseq_xl"} | {name: exported[name] for name in exported if name != "symbols"}
    for name in CHECKPOINTS:
        if (path / name).is_file():
            return {"file": name} | describe(path / name)
    if (path / CONFIG).is_file():
        kind = "sentence-transformers" if (path / SENTENCE_TRANSFORMERS).is_file() else "transformers"
        config = json_object(path / CONFIG)
        shown = {"kind": f"folder of {kind}", "model_type": config.get("model_type")}
        shown["classes"] = config.get("architectures")
        try:
            found = published.read(path, values=False)
        except UserError as error:
            return shown | {"convertible": f"no ({error})"}
        return shown | {name: value for name, value in _published(found).items() if name != "kind"}
    if (path / DICTIONARY).is_file() and not has_weights(path):
        return describe_data(path)
    if (shards := data_folders(path)) != [path]:
        return describe_shards(path, shards)
    found = published.read(path, values=False)
    if isinstance(found, published.Published):
        return _published(found)
    raise UserError(f"{path} holds no model that is known here")


def _onnx_file(path: Path) -> Description:
    if onnx_description(path.parent) is None:
        raise UserError(f"{path}: only a folder of `fairseq-xl export-onnx`, with its {ONNX_DESCRIPTION}, is described")
    return {"folder": str(path.parent)} | _folder(path.parent)


def _published(found: published.Published) -> Description:
    depths = found.depths
    layers = {f"{stack}_layers": depth for stack, depth in depths.items()} if "decoder" in depths else {}
    options = found.options | (layers or {"layers": depths["encoder"]})
    options = {f"--{name.replace('_', '-')}": value for name, value in options.items()}
    return {
        "kind": f"published model, layout {found.layout}",
        **_sizes(found.state),
        "vocabulary": {"symbols": len(found.symbols), "from": str(found.symbols_from)},
        "languages": found.languages,
        "dtype": str(found.dtype).removeprefix("torch."),
        "options": options,
    }


def _sizes(state: dict[str, Tensor]) -> Description:
    """Numbers of layers, channels and parameters."""
    depths = {f"{stack} layers": count_layers(state, stack) for stack in ("encoder", "decoder")}
    sizes: Description = {name: count for name, count in depths.items() if count}
    if TOKENS in state:
        sizes |= {"channels": state[TOKENS].size(1), "token embeddings": len(state[TOKENS])}
    if POSITIONS in state:
        sizes["position embeddings"] = len(state[POSITIONS])
    numbers = {id(value): value.numel() for value in state.values()}  # tied parameters once
    return sizes | {"parameters": sum(numbers.values())}


def _own(content: Any, path: Path) -> Description:
    content = check_configuration(check_checkpoint(content, path), path)
    identity = (content.get("task_state") or {}).get("fairseq_xl")
    if not isinstance(identity, dict):
        raise UserError(f"{path} was not written by fairseq_xl, and is no published model that is known here")
    check_identity(identity, path, None, path)
    cfg = content.get("cfg") or {}
    model, task = cfg.get("model") or {}, cfg.get("task") or {}
    history, state = (content.get("optimizer_history") or [{}])[-1], content["model"]
    try:
        check_tables(state)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    training = (content.get("extra_state") or {}).get("train_iterator") or {}
    found = {
        "kind": f"checkpoint of fairseq_xl, task {task.get('_name')}",
        "architecture": model.get("_name"),
        **_sizes(state),
        "heads": identity.get("heads"),
        "vocabulary": {
            "symbols": len(state[TOKENS]) if TOKENS in state else None,
            "sha256": identity.get("dictionary"),
        },
        "languages": identity.get("languages"),
        "framing": identity.get("framing"),
        "objectives": identity.get("objectives"),
        "directions": identity.get("lang_pairs"),
        "languages of generation": identity.get("writes"),
        "fine-tuned for": identity.get("head"),
        "labels": identity.get("type_state", {}).get("labels"),
        "updates": history.get("num_updates"),
        "epoch": training.get("epoch"),
        "best validation value": (content.get("extra_state") or {}).get("best"),
        "initialized from": {name: task[name] for name in _FROM if task.get(name)},
        "data": task.get("data"),
        "optimizer state": content.get("last_optimizer_state") is not None,
    }
    return {name: value for name, value in found.items() if value not in (None, [], {}, "")}
