"""Describes the content of a file or folder of a model, read as plain data; the command is `fairseq-xl model show`."""

import re
from pathlib import Path
from typing import Any

from torch import Tensor

from fairseq_xl.checkpoints import language_modules, published_models
from fairseq_xl.checkpoints.identity import Checkpoint, open_checkpoint
from fairseq_xl.checkpoints.layouts.published_files import CONFIG, has_weights
from fairseq_xl.checkpoints.layouts.stored_origin import stored_origin
from fairseq_xl.checkpoints.layouts.weight_checks import check_tables
from fairseq_xl.checkpoints.parameter_names import POSITIONS, TOKENS
from fairseq_xl.checkpoints.stacks import count_layers
from fairseq_xl.data.store.manifest import data_folders, read_manifest
from fairseq_xl.data.store.plain_folder import dictionary_file
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.subwords import FILES, MANIFEST, open_subwords, vocabulary_kind
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import CHECKPOINTS, DICTIONARY, refuse_hub_name
from fairseq_xl.io.files import check_format, json_object
from fairseq_xl.io.options import INITIAL, option_name

Description = dict[str, Any]

ONNX_DESCRIPTION = "model.json"

IS_DICTIONARY = re.compile(r"dict(\..+)?\.txt")  # dict.txt, and dict.de.txt of fairseq
SENTENCE_TRANSFORMERS = "modules.json"


def describe(path: Path) -> Description:
    """Describes a file or folder, {"kind": ..., ...}; raises `UserError` for a damaged one and for other kinds."""
    if not path.exists():
        refuse_hub_name(path)
        raise UserError(f"{path}: there is no such file or folder")
    if path.is_dir():
        return _folder(path)
    if path.suffix == ".onnx" or path.name == ONNX_DESCRIPTION:
        if _onnx_description(path.parent) is None:
            raise UserError(f"{path}: expected a folder of `fairseq-xl model export`, with {ONNX_DESCRIPTION}")
        return {"folder": str(path.parent)} | _folder(path.parent)
    if IS_DICTIONARY.fullmatch(path.name):
        dictionary = XLDictionary.load(path)
        return {"kind": "dictionary", "symbols": len(dictionary), "languages": dictionary.languages}
    content = published_models.read(path, values=False)
    if isinstance(content, published_models.Published):
        return _published(content)
    if not isinstance(content, dict) or content.get("kind") != language_modules.KIND:
        return describe_checkpoint(open_checkpoint(path, content=content, finite=False))
    module = language_modules.read(path)
    (symbols, channels), kind = module.state[TOKENS].shape, "language module of fairseq_xl"
    description = {"kind": kind, "languages": module.languages, "symbols": symbols, "channels": channels}
    description |= {"adapters": module.adapters, "positions": module.language_positions}
    return description | {"dictionary": module.dictionary, "body": module.body}


def _folder(path: Path) -> Description:
    exported = _onnx_description(path)
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
            content = published_models.read(path, values=False)
        except UserError as error:
            return shown | {"convertible": f"no ({error})"}
        return shown | {name: value for name, value in _published(content).items() if name != "kind"}
    if dictionary_file(path / DICTIONARY).is_file() and not has_weights(path):
        return _data(path)
    if (shards := data_folders(path)) != [path]:
        datasets = _datasets(path, read_manifest(path))  # counts of all shards
        content = _data(shards[0]) | {"kind": f"data folder of fairseq_xl in {len(shards)} shards"}
        return content | ({"datasets": datasets} if datasets else {})
    content = published_models.read(path, values=False)
    if isinstance(content, published_models.Published):
        return _published(content)
    raise UserError(f"{path} holds no model that is known here")


def _published(model: published_models.Published) -> Description:
    layers = {f"{stack}_layers": depth for stack, depth in model.depths.items()}
    options = model.options | (layers if "decoder" in model.depths else {"layers": model.depths["encoder"]})
    return {
        "kind": f"published model, layout {model.layout.name}",
        **_sizes(model.state),
        "vocabulary": {"symbols": len(model.symbols), "from": str(model.symbols_from)},
        "languages": model.languages,
        **({"head": model.head.kind, "labels": model.head.labels} if model.head else {}),
        "dtype": str(model.dtype).removeprefix("torch."),
        "options": {option_name(name): value for name, value in options.items()},
    }


def _sizes(state: dict[str, Tensor]) -> Description:
    depths = {f"{stack} layers": count_layers(state, stack) for stack in ("encoder", "decoder")}
    sizes: Description = {name: count for name, count in depths.items() if count}
    if TOKENS in state:
        sizes |= {"channels": state[TOKENS].size(1), "token embeddings": len(state[TOKENS])}
    if POSITIONS in state:
        sizes["position embeddings"] = len(state[POSITIONS])
    counts = {id(value): value.numel() for value in state.values()}  # tied parameters once
    return sizes | {"parameters": sum(counts.values())}


def describe_checkpoint(checkpoint: Checkpoint) -> Description:
    """Describes a checkpoint of this package; raises `UserError` for weights that do not fit each other."""
    identity, model, task = checkpoint.identity, checkpoint.options, checkpoint.task
    content = checkpoint.content
    history, state = (content.get("optimizer_history") or [{}])[-1], content["model"]
    try:
        check_tables(state)
    except UserError as error:
        raise UserError(f"{checkpoint.path}: {error}") from error
    training = (content.get("extra_state") or {}).get("train_iterator") or {}
    type_state = identity.get("type_state", {})
    origin = stored_origin(content.get("task_state") or {}, checkpoint.path)
    objectives = {name: part for name, part in type_state.items() if isinstance(part, dict)}
    description = {
        "kind": f"checkpoint of fairseq_xl, task {task.get('_name')}",
        "architecture": model.get("_name"),
        **_sizes(state),
        "heads": identity.get("heads"),
        "vocabulary": {
            "symbols": len(state[TOKENS]) if TOKENS in state else None,
            "sha256": identity.get("dictionary"),
        },
        **{name: identity.get(name) for name in ("languages", "framing", "objectives")},
        "directions": identity.get("lang_pairs"),
        "languages of generation": identity.get("writes"),
        "fine-tuned for": identity.get("head"),
        "labels": type_state.get("labels")
        or {name: part["labels"] for name, part in objectives.items() if "labels" in part},
        "published as": origin and origin.entries.get("architectures"),
        "sentence embeddings": origin and origin.settings and origin.settings.description(),
        "updates": history.get("num_updates"),
        "epoch": training.get("epoch"),
        "best validation value": (content.get("extra_state") or {}).get("best"),
        "initialized from": {name: task[name] for name in (*INITIAL, "language_module") if task.get(name)},
        "data": task.get("data"),
        "optimizer state": content.get("last_optimizer_state") is not None,
    }
    return {name: value for name, value in description.items() if value not in (None, [], {}, "")}


def _data(folder: Path) -> Description:
    dictionary, manifest = XLDictionary.load(folder / DICTIONARY), read_manifest(folder)
    kind, subwords = vocabulary_kind(folder), None
    if any((folder / name).is_file() for name in FILES[kind]):
        subwords = {"kind": kind, "pieces": len(open_subwords(folder).symbols)}
    datasets = _datasets(folder, manifest)
    return {
        "kind": "data folder of fairseq_xl",
        "languages": dictionary.languages,
        "vocabulary": {"symbols": len(dictionary), "sha256": dictionary.digest()},
        "sub-words": subwords or f"none (missing: {', '.join(FILES[kind])})",
        **({"datasets": datasets} if datasets else {}),
    }


def _datasets(folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    datasets = manifest.get("datasets", {})
    if not isinstance(datasets, dict) or not all(isinstance(counts, dict) for counts in datasets.values()):
        raise UserError(f"{folder / MANIFEST} is damaged: its 'datasets' are not counts by name")
    return datasets


def _onnx_description(folder: Path) -> dict[str, Any] | None:
    """The description in a folder of `model export`, None in other folders; `UserError` for a damaged one."""
    path = folder / ONNX_DESCRIPTION
    if not path.is_file():
        return None
    content = json_object(path)
    if "graphs" not in content:  # of another program
        return None
    check_format("ONNX export", content, path)
    return content
