"""Writes the manifests of a data folder and of its shards, the last stage."""

import logging
import platform
from collections import Counter
from collections.abc import Iterator

from fairseq_xl.data.vocabulary import subwords, tokenizers
from fairseq_xl.io.files import FORMATS, read_json, write_json
from fairseq_xl.io.fingerprints import fingerprint, sha256_of
from preprocess import vocabulary
from preprocess.binarize import encoded_name
from preprocess.config import Folder, Side, Split
from preprocess.files import link
from preprocess.run import Run, fairseq_version, splitter_version

logger = logging.getLogger("preprocess")


def write_shard(
    run: Run, shard: str, sampling: dict | None, dictionary_entry: dict, encodings: dict, written: dict
) -> None:
    """Completes a shard: links the dictionary and the sub-words, and writes its manifest."""
    folder = run.data_bin / shard
    for path in (run.dictionary, *run.subwords.files):
        linked = folder / path.name
        if not linked.exists() or not linked.samefile(path):
            linked.unlink(missing_ok=True)
            link(path, folder)
    for name in (name for names in subwords.FILES.values() for name in names):
        if run.joint / name not in run.subwords.files:
            (folder / name).unlink(missing_ok=True)
    write_manifest(run, sampling, dictionary_entry, encodings, written, shard)


def write_manifest(
    run: Run, sampling: dict | None, dictionary_entry: dict, encodings: dict, written: dict | None, shard: str = ""
) -> None:
    """Writes manifest.json, the last file, which marks the data folder, or a shard, as complete.

    `written` are the fingerprints of the files beside it; None for the parent of shards, whose manifest has the hashes
    of their manifests. `encodings` are the results of `encode` by encoded name.
    """
    datasets = _datasets(run, encodings, [shard] if shard else run.shards)
    manifest = {
        "format": FORMATS["data folder"],
        "config": run.config.as_dict(),
        **({"shard": int(shard)} if shard else {}),
        "sampling": sampling,
        "seed": vocabulary.SEED,
        **run.subwords.manifest_entry(),
        "dictionary": dictionary_entry,
        "datasets": datasets,
        "files": list(_shard_parts(run, encodings, shard) if shard else _files(run, encodings)),
        "versions": _versions(run),
    }
    if written is not None:
        files = (run.dictionary, *run.subwords.files)
        manifest["fingerprints"] = {path.name: fingerprint(path) for path in files} | written
    else:
        manifest["shards"] = [sha256_of(run.data_bin / name / "manifest.json") for name in run.shards]
    path = run.data_bin / shard / "manifest.json"
    name = str(path.relative_to(run.data_bin))
    if read_json(path) == manifest:
        logger.info("%s: up to date", name)
    else:
        write_json(path, manifest)
        tokens = sum(counts["tokens"] for counts in datasets.values())
        logger.info("%s: %d symbols, %d tokens", name, dictionary_entry["symbols"], tokens)


def write_encoding(run: Run) -> None:
    """Writes the manifest of a folder of sub-words for fairseq-preprocess, which says how the text was encoded."""
    content = {"format": FORMATS["data folder"], "config": run.config.as_dict()}
    content |= {**run.subwords.manifest_entry(), "versions": _versions(run)}
    path = run.data_bin / "manifest.json"
    if read_json(path) != content:
        write_json(path, content)


def _versions(run: Run) -> dict[str, str | None]:
    """The versions of what made a data folder."""
    return {
        "python": platform.python_version(),
        "fairseq": fairseq_version(),
        **splitter_version(run.subwords.kind),
        **tokenizers.versions(run.config.tokenizers),
    }


def _datasets(run: Run, encodings: dict, shards: list[str]) -> dict[str, dict]:
    """Sums the counts of each text over `shards`, by its encoded name without shards."""
    datasets = {}
    for folder, split, side in run.config.sides():
        parts = [
            encodings[encoded_name(folder, split.name, side.language, shard)]
            for shard in (shards if split.name == "train" else [""])
        ]
        datasets[encoded_name(folder, split.name, side.language)] = {
            key: sum(part[key] for part in parts) for key in ("lines", "blank", "tokens", "unknown")
        }
    return datasets


def _files(run: Run, encodings: dict) -> Iterator[dict]:
    """Yields the entry of each file, with its counts of tokens in all shards."""
    for folder, split, side in run.config.sides():
        counts = [Counter() for _ in side.files]
        for name, parts, _ in run.encoded_texts(folder, split, side):
            for part, counted in zip(parts, encodings[name]["files"]):
                counts[part.file].update({key: counted[key] for key in ("tokens", "unknown")})
        for name, counted in zip(side.files, counts):
            report = run.reports[name]
            yield (
                _file_entry(run, name, folder, split, side)
                | {key: getattr(report, key) for key in ("lines", "blank", "documents", "over_long", "duplicates")}
                | {"tokens": counted["tokens"], "unknown": counted["unknown"], "sha256": report.sha256}
                | ({"cleaned": _without_path(run.cleaned[name])} if name in run.cleaned else {})
            )


def _shard_parts(run: Run, encodings: dict, shard: str) -> Iterator[dict]:
    """Yields the entry of each part of a file in a shard: its bytes in the text, and its counts."""
    for folder, split, side in run.config.sides():
        text_name = encoded_name(folder, split.name, side.language, shard)
        for name, parts, _ in run.encoded_texts(folder, split, side):
            for part, counted in zip(parts, encodings[name]["files"]) if name == text_name else ():
                file = side.files[part.file]
                section = {"begin": part.begin, "end": part.end, "sha256": run.reports[file].sha256}
                yield _file_entry(run, file, folder, split, side) | counted | section


def _file_entry(run: Run, name: str, folder: Folder, split: Split, side: Side) -> dict:
    """Returns the path in the description, the language and the dataset of a file."""
    path = run.cleaned.get(name, {"path": name})["path"]
    return {"path": path, "language": side.language, "dataset": f"{folder.name}/{split.name}"}


def _without_path(entry: dict) -> dict:
    return {name: count for name, count in entry.items() if name != "path"}
