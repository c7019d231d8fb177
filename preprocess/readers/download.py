"""Downloads files, resumes downloads, and compares checksums."""

import http.client
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fairseq_xl.errors import UserError
from fairseq_xl.io.fingerprints import sha256_of
from preprocess.files import BLOCK

TIMEOUT = 60  # seconds without a byte


def open_url(url: str, start: int) -> Any:
    """Requests the bytes of `url` from `start` on; the response's `status` is 206 if the server starts there."""
    headers = {"Range": f"bytes={start}-"} if start else {}
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)


def download(url: str, path: Path, size: int, sha256: str) -> None:
    """Downloads a file unless it exists; it gets its name once it is complete and its checksum is right.

    Raises UserError if the server cannot be reached or the connection ends, so that another call resumes, and if the
    content differs from `size`, in bytes, and `sha256`.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    if part.is_symlink():  # a link would be written through
        part.unlink()
    if not part.exists() or part.stat().st_size < size:
        try:
            _fetch(url, part, size)
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
            reason = getattr(error, "reason", None) or error
            raise UserError(f"{url}: {reason}; run the same command to continue") from error
    actual_size = part.stat().st_size
    if actual_size < size:
        raise UserError(
            f"{url}: the connection ended after {actual_size} of {size} bytes; run the same command to continue"
        )
    if actual_size > size or sha256_of(part) != sha256:
        part.unlink()
        raise UserError(
            f"{url}: expected {size} bytes with SHA-256 {sha256}; the downloaded file differs and is removed"
        )
    os.replace(part, path)


def _fetch(url: str, part: Path, size: int) -> None:
    start = part.stat().st_size if part.exists() else 0
    with open_url(url, start) as response:
        if response.status != 206:  # the server sends the whole file
            start = 0
        with (
            open(part, "ab" if start else "wb") as file,
            tqdm(total=size, initial=start, unit="B", unit_scale=True, desc=url.rsplit("/", 1)[1], disable=None) as bar,
        ):
            while block := response.read(BLOCK):
                file.write(block)
                bar.update(len(block))
