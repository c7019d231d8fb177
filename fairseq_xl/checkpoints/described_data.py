"""Describes data folders, dictionaries and folders of ONNX files, which hold no checkpoint."""

from pathlib import Path
from typing import Any

from fairseq_xl.data.dictionary import XLDictionary
from fairseq_xl.data.manifest import read_manifest
from fairseq_xl.data.subwords import FILES, MANIFEST, open_subwords, vocabulary_kind
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import json_object

DICTIONARY = "dict.txt"
ONNX_DESCRIPTION = "model.json"
#: beginning of the format in a `ONNX_DESCRIPTION` of `fairseq-xl export-onnx`
ONNX_FORMAT = "fairseq_xl ONNX "


def describe_dictionary(path: Path) -> dict[str, Any]:
    """Describes a dict.txt; raises `UserError` for a malformed one."""
    dictionary = XLDictionary.load(path)
    return {"kind": "dictionary", "symbols": len(dictionary), "languages": dictionary.languages}


def describe_data(folder: Path) -> dict[str, Any]:
    """Describes a data folder with a dict.txt; raises `UserError` for damaged files."""
    dictionary, manifest = XLDictionary.load(folder / DICTIONARY), read_manifest(folder)
    found: dict[str, Any] = {"kind": "data folder of fairseq_xl", "languages": dictionary.languages}
    kind = vocabulary_kind(folder)
    found["vocabulary"] = {"symbols": len(dictionary), "sha256": dictionary.digest()}
    if any((folder / name).is_file() for name in FILES[kind]):
        opened = open_subwords(folder)
        found["sub-words"] = {"kind": kind, "pieces": len(opened.symbols)}
    else:
        found["sub-words"] = f"none (missing: {', '.join(FILES[kind])})"
    datasets = _datasets(folder, manifest)
    return found | ({"datasets": datasets} if datasets else {})


def describe_shards(folder: Path, shards: list[Path]) -> dict[str, Any]:
    """Describes a folder of shards: what the first one says, with the counts of all; raises as `describe_data`."""
    found = describe_data(shards[0]) | {"kind": f"data folder of fairseq_xl in {len(shards)} shards"}
    datasets = _datasets(folder, read_manifest(folder))
    return found | ({"datasets": datasets} if datasets else {})


def _datasets(folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    datasets = manifest.get("datasets", {})
    if not isinstance(datasets, dict) or not all(isinstance(counts, dict) for counts in datasets.values()):
        raise UserError(f"{folder / MANIFEST} is damaged: its 'datasets' are not counts by name")
    return datasets


def onnx_description(folder: Path) -> dict[str, Any] | None:
    """What `fairseq-xl export-onnx` wrote about the ONNX files of a folder; None for a folder without it.

    Raises `UserError` for a damaged description.
    """
    path = folder / ONNX_DESCRIPTION
    if not path.is_file():
        return None
    content = json_object(path)
    return content if str(content.get("format")).startswith(ONNX_FORMAT) else None
