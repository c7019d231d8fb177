"""Fingerprints of the files of a data folder, stored in its manifest.

Training compares samples of a file with its fingerprint, --verify the whole file.
"""

from pathlib import Path
from typing import Any

from tqdm import tqdm

from fairseq_xl.data.store.manifest import check_shard, read_manifest, read_note, writer
from fairseq_xl.data.store.plain_folder import located
from fairseq_xl.errors import UserError
from fairseq_xl.io.fingerprints import blocks, sampled


def verify(data_bin: Path) -> int:
    """Compares every file of a data folder, read in full, with the manifest; returns the number of files.

    If the data folder is divided into shards, the files of all shards are compared. Raises UserError with a list of all
    files that are changed, missing or not in the manifest, and for a data folder without fingerprints.
    """
    manifest = read_manifest(data_bin)
    if not manifest:
        raise UserError(f"{data_bin} has no manifest.json: it is not a complete data folder")
    if "shard" not in manifest and (shards := manifest.get("config", {}).get("shards")):
        folders = [data_bin / str(shard) for shard in range(shards)]
        counts = [verify(folder) for folder in folders]
        for folder in folders:
            check_shard(folder)
        return sum(counts)
    fingerprints = manifest.get("fingerprints")
    if not fingerprints:
        raise UserError(f"{data_bin}/manifest.json has no fingerprints")
    try:
        fingerprints = fingerprints | {
            str(path.parent.relative_to(data_bin) / name): entry
            for path, entries in _notes(data_bin).items()
            for name, entry in entries.items()
        }
        total = sum(entry["bytes"] for entry in fingerprints.values())
        with tqdm(total=total, unit="B", unit_scale=True, desc="verify", disable=None) as bar:
            paths = {data_bin / name: entry for name, entry in fingerprints.items()}
            changes = {path: _change(located(path), entry, bar) for path, entry in paths.items()}
    except (KeyError, TypeError) as error:
        raise UserError(f"{data_bin}/manifest.json is damaged: {error!r} in its fingerprints") from error
    texts = (path for path in sorted(data_bin.glob("[!.]*/*")) if path.suffix in (".bin", ".idx"))
    changes |= {path: f"{path} is not in the manifest" for path in texts if path not in changes}
    if changes := {path: change for path, change in changes.items() if change}:
        listed = "".join(f"\n  - {change}" for change in changes.values())
        commands = " and ".join(sorted({writer(path) for path in changes}))
        raise UserError(
            f"{len(changes)} change(s) since {data_bin} was written; remove the changed files and run the same "
            f"{commands} again, which writes them anew:{listed}"
        )
    return len(fingerprints)


def _notes(folder: str | Path) -> dict[Path, dict[str, Any]]:
    """The fingerprints in the notes of a data folder's subfolders: {note: {file name: fingerprint}}."""
    paths = [path for path in sorted(Path(folder).glob("[!.]*/*.json")) if path.name != "manifest.json"]
    contents = {path: note for path in paths if (note := read_note(path))}
    return {path: note["fingerprints"] for path, note in contents.items()}


def _change(path: Path, entry: dict, progress: tqdm) -> str:
    """Describes the first difference between a file and its fingerprint; "" if they are equal."""
    if not path.is_file():
        return f"{path} is missing"
    size = path.stat().st_size
    if size != entry["bytes"]:
        return f"{path} has {size} bytes, expected {entry['bytes']}"
    if "block" not in entry and "blocks" not in entry:  # of a folder of plain fairseq-preprocess
        return "" if sampled(path) == entry["sampled"] else f"{path} has other content"
    block = entry["block"]
    hashes = blocks(path, block, progress.update)
    wrong = [i for i, (actual, stored) in enumerate(zip(hashes, entry["blocks"], strict=True)) if actual != stored]
    if not wrong:
        return ""
    first, end = wrong[0] * block, min(size, wrong[0] * block + block)
    return f"{path} has other content from byte {first} to {end} ({len(wrong)} of {len(entry['blocks'])} blocks)"
