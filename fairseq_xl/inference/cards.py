"""Model cards: the README of a folder with a model, from what its checkpoint, its data and its scores say.

The head is YAML as model hubs read it. What no file says, such as the license, is left to be filled in.
"""

import dataclasses
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
from fairseq.dataclass.configs import CommonConfig, DatasetConfig, OptimizationConfig
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY

from fairseq_xl.checkpoints.description import describe_checkpoint
from fairseq_xl.checkpoints.identity import Checkpoint
from fairseq_xl.checkpoints.parameter_names import BIAS
from fairseq_xl.data.store.manifest import data_folders, read_manifest
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import json_object
from fairseq_xl.io.fingerprints import sha256_of
from fairseq_xl.io.options import INITIAL, option_name
from fairseq_xl.io.result_tables import table

#: tag of a hub for the head of a fine-tuned model, or its task, or an objective of its pre-training
TAGS = {
    **{"classification": "text-classification", "ranking": "text-classification", "tagging": "token-classification"},
    **{"question_answering": "question-answering", "xl_translation": "translation"},
    **{"xl_unsupervised_translation": "translation", "xl_generation": "text-generation", "mlm": "fill-mask"},
}
#: sections of the configuration with settings of a training -> the dataclass of its options, or their registry
SECTIONS: dict[str, Any] = {
    **{"task": TASK_DATACLASS_REGISTRY, "model": MODEL_DATACLASS_REGISTRY, "criterion": CRITERION_DATACLASS_REGISTRY},
    **{name: REGISTRIES[name]["dataclass_registry"] for name in ("optimizer", "lr_scheduler")},
    **{"optimization": OptimizationConfig, "dataset": DatasetConfig, "common": CommonConfig},
}
#: options that say where files are and how the log looks, not what was trained
OF_THE_MACHINE = {"_name", "data", "task_files", "user_dir", "corrupted_to", *INITIAL, "language_module"}
OF_THE_MACHINE |= {name for name in CommonConfig.__dataclass_fields__ if name.startswith(("log_", "tensorboard"))}
OF_THE_MACHINE |= {"num_workers", "num_workers_valid", "cpu"}
LICENSE = "license:  # to be filled in"
BY_HAND = (
    "To be filled in: what the model is meant for, what it was not tested for, and the licenses of data and model."
)


def model_card(checkpoint: Checkpoint, title: str, scores: Sequence[Path] = ()) -> str:
    """The card of a checkpoint in Markdown, with `scores` of JSON files; `UserError` for a damaged manifest or file."""
    description, identity = describe_checkpoint(checkpoint), checkpoint.identity
    objectives = str(identity.get("objectives") or "").split(",") if BIAS in checkpoint.state else []
    kinds = [identity.get("head"), identity["task"], *objectives]
    tag = next((TAGS[kind] for kind in kinds if kind in TAGS), "feature-extraction")
    if "sentence embeddings" in description and not identity.get("head") and "decoder layers" not in description:
        tag = "sentence-similarity"
    languages = [f"- {json.dumps(code)}" for code in identity["languages"]]  # no: is false in YAML
    head = ["---", "language:", *languages, LICENSE, f"pipeline_tag: {tag}", "tags:", "- fairseq_xl", "---"]
    model = {key: value for key, value in description.items() if key not in ("data", "initialized from")}
    history = dict(_history(checkpoint, description))
    settings = _settings(checkpoint.cfg) if history["updates"] else ()  # a model that came in was trained elsewhere
    parts = {
        title: [table(model)],
        "Training": [table(history), "\n".join(settings) + "\n"],
        "Data": [*_data(checkpoint), table(dict(_inputs(checkpoint)))],
        "Scores": [f"{path.name}\n{table(json_object(path))}" for path in scores],
    }
    lines = [*head, ""]
    for name, blocks in parts.items():
        lines += [f"{'#' if name == title else '##'} {name}", ""]
        lines += [f"```\n{block.rstrip()}\n```\n" for block in blocks if block.strip()] or ["Not known.\n"]
    return "\n".join([*lines, "## Use and license", "", BY_HAND, ""])


def _history(checkpoint: Checkpoint, description: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What the model started from, and the updates at which a stopped training was resumed."""
    for name, path in description.get("initialized from", {}).items():
        yield option_name(name), Path(str(path)).name
    ends = [run["num_updates"] for run in checkpoint.content.get("optimizer_history") or () if "num_updates" in run]
    yield "updates", ends[-1] if ends else 0
    yield "resumed at update", ends[:-1]


def _settings(cfg: dict[str, Any]) -> Iterator[str]:
    """Options that differ from their defaults, as ``flag: value``, in the order of `SECTIONS`."""
    seen: set[str] = set()
    for section, kinds in SECTIONS.items():
        options = cfg.get(section) or {}
        kind = kinds.get(options.get("_name")) if isinstance(kinds, dict) else kinds
        if options.get("_name"):
            yield f"{'arch' if section == 'model' else option_name(section)[2:]}: {options['_name']}"
        for field in dataclasses.fields(kind) if kind else ():
            value, default = options.get(field.name), field.default
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            if field.name in OF_THE_MACHINE | seen or value in (None, False, default) or str(value) == str(default):
                continue
            seen.add(field.name)
            if field.name == "objective_options":
                value = re.sub(r"\S*task_files=\S+ ?", "", str(value))
            yield f"{option_name(field.name)[2:]}: {json.dumps(value, ensure_ascii=False, default=str)}"


def _data(checkpoint: Checkpoint) -> Iterator[str]:
    """The datasets and raw files of each data folder that still exists."""
    for folder in map(Path, filter(None, str(checkpoint.task.get("data") or "").split(os.pathsep))):
        if not (folder / "manifest.json").is_file():
            continue
        for shard in data_folders(folder):
            manifest, digest = read_manifest(shard), sha256_of(shard / "manifest.json")
            files = {}
            for file in manifest.get("files", ()):
                entry = {key: file.get(key) for key in ("dataset", "lines", "tokens", "sha256")}
                files[Path(str(file.get("path"))).name] = entry
            yield table({"data folder": shard.name, "manifest.json, sha256": digest, "files": files})


def _inputs(checkpoint: Checkpoint) -> Iterator[tuple[str, Any]]:
    """{split: {file: bytes and hash}} of the files that the training read."""
    read = (checkpoint.content.get("task_state") or {}).get("inputs") or {}
    if not isinstance(read, dict):
        raise UserError(f"{checkpoint.path} is damaged: its 'inputs' are not files by split")
    for split, files in read.items():
        entries = files.items() if isinstance(files, dict) else [(split, "")]
        rows = {name: str(entry).split() for name, entry in entries if not str(name).endswith(".idx")}
        for name, row in rows.items():
            if len(row) < 2 or not row[0].isdecimal():
                raise UserError(f"{checkpoint.path} is damaged: its inputs have no fingerprint of {name}")
        yield split, {name: {"bytes": int(size), "blake2b": digest} for name, (size, digest, *_) in rows.items()}
