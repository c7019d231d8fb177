"""Makes fingerprints of files, which the manifest of a data folder stores. Imports neither torch nor fairseq."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MOST_BLOCKS, LEAST_BLOCK = 64, 1 << 20  # maximum number of hashes of a file, and minimum bytes of a block
READ = 1 << 20  # bytes in memory at a time
#: number and size in bytes of the evenly spaced samples of a file that are compared when it is opened (1 MiB)
SAMPLES, SAMPLE_BYTES = 256, 4096


def fingerprint(path: Path, **counts: int) -> dict[str, Any]:
    """The fingerprint of a file: size, hash of the samples, hashes of all blocks, and `counts`."""
    size = path.stat().st_size
    block = LEAST_BLOCK
    while block * MOST_BLOCKS < size:
        block *= 2
    return {"bytes": size, **counts, "sampled": sampled(path), "block": block, "blocks": list(blocks(path, block))}


def blocks(path: Path, block: int, progress: Callable[[int], object] | None = None) -> Iterator[str]:
    """Hashes of all blocks of a file; `progress` is called with the number of bytes of each read."""
    with open(path, "rb") as file:
        while part := file.read(min(READ, block)):
            digest, left = hashlib.blake2b(digest_size=16), block
            while part:
                digest.update(part)
                left -= len(part)
                if progress is not None:
                    progress(len(part))
                part = file.read(min(READ, left)) if left else b""
            yield digest.hexdigest()


def sampled(path: Path) -> str:
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
