"""The manifest of a data folder, which `python -m preprocess` writes: reading it, and comparing files with it."""

import functools
import hashlib
import json
from pathlib import Path

from fairseq_xl.errors import UserError

#: number and size in bytes of the evenly spaced samples of a file that are compared when it is opened (1 MiB)
SAMPLES, SAMPLE_BYTES = 256, 4096


def read_manifest(folder):
    """``manifest.json`` of a data folder, {} where there is none; `UserError` for a damaged one."""
    path = Path(folder) / "manifest.json"
    try:
        state = path.stat()
        return _read(path, (state.st_size, state.st_mtime_ns, state.st_ino))
    except FileNotFoundError:
        return {}


@functools.lru_cache(maxsize=16)
def _read(path, state):
    """The manifest in the file `path`, cached until its `state` (size, time, inode) changes."""
    try:
        manifest = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}; `python -m preprocess` writes it again") from error
    parts = ("dictionary", "config", "fingerprints", "vocabulary", "versions")
    if not isinstance(manifest, dict) or not all(isinstance(manifest.get(part, {}), dict) for part in parts):
        raise UserError(f"{path} is not a manifest of `python -m preprocess`, which writes it again")
    return manifest


def stored_fingerprint(folder, name, *counts):
    """The fingerprint of a file of a data folder in its manifest, with at least the `counts`; `UserError` if it lacks
    some. None in a data folder of an earlier version, and for a file that `python -m preprocess` did not write."""
    known = read_manifest(folder).get("fingerprints", {}).get(name)
    if known is not None and not (isinstance(known, dict) and known.keys() >= {"bytes", "sampled", *counts}):
        raise UserError(f"{Path(folder) / 'manifest.json'} is damaged: its fingerprint of {name} is incomplete")
    return known


def check_fingerprint(folder, name, **counts):
    """Raises `UserError` if a file of a data folder differs from its fingerprint in the manifest.

    Its size, its `counts` and its content are compared: all of a file of up to 1 MiB, evenly spaced samples of a larger
    one, so that a change of more than 1/255 of the file is always found and a shorter one may be missed.
    """
    known = stored_fingerprint(folder, name, *counts)
    if known is None:
        return
    path = Path(folder) / name
    found = {**counts, "bytes": path.stat().st_size}
    other = [f"{found[key]} {key}, expected {known[key]}" for key in found if found[key] != known[key]]
    if not other and sampled(path) != known["sampled"]:
        other = ["other content"]
    if other:
        raise UserError(
            f"{path} is not the file that `python -m preprocess` wrote, it has {other[0]}: restore it, or remove this "
            "one and run the same `python -m preprocess` again "
            f"(`python -m preprocess --verify {folder}` lists all changes)"
        )


def sampled(path):
    """Hash of evenly spaced samples of a file, or of the whole file if it is no larger than the samples together."""
    size, digest = path.stat().st_size, hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        if size <= SAMPLES * SAMPLE_BYTES:
            digest.update(file.read())
        else:
            for number in range(SAMPLES):
                file.seek((size - SAMPLE_BYTES) * number // (SAMPLES - 1))
                digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()
