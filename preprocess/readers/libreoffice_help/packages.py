"""Fetches packages with apt-get, finds them in a folder, and reads the pages inside."""

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from fairseq_xl.errors import UserError
from preprocess.readers.archives import opened_tar, tar_entries
from preprocess.readers.libreoffice_help.languages import Language

PAGES = "usr/share/libreoffice/help/{}/text/"
COPYRIGHT = "copyright"  # name of the package's license in `members`


def find(language: Language, folder: Path) -> Path | None:
    """Finds a language's package in a folder, the last one by name if there are several."""
    paths = sorted(folder.glob(f"libreoffice-help-{language.package}_*.deb"))
    return paths[-1] if paths else None


def fetch(language: Language, folder: Path) -> Path:
    """Downloads a language's package with `apt-get download` unless `folder` has it; returns its path.

    The package gets its name once it is complete. Raises UserError if apt-get is missing or fails.
    """
    if present := find(language, folder):
        return present
    if not shutil.which("apt-get"):
        raise UserError(
            "apt-get is not installed: name a folder with the packages libreoffice-help-*.deb with --packages"
        )
    begun = folder / "begun"
    shutil.rmtree(begun, ignore_errors=True)
    begun.mkdir(parents=True)
    name = f"libreoffice-help-{language.package}"
    process = subprocess.run(
        ["apt-get", "download", "--quiet", name],
        cwd=begun,
        text=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"LC_ALL": "C"},
    )
    path = find(language, begun)
    if process.returncode or not path:
        said = [line for line in process.stderr.splitlines() if line.startswith("E:")] or ["it gave no file"]
        raise UserError(
            f"apt-get could not download {name} ({said[0].removeprefix('E: ')}); "
            "after `apt-get update`, run the same command again"
        )
    os.replace(path, folder / path.name)
    shutil.rmtree(begun)
    return folder / path.name


def members(package: Path, language: Language) -> Iterator[tuple[str, bytes]]:
    """Yields (path below the language's folder, content) of every page, and (COPYRIGHT, content).

    The package is streamed; nothing is unpacked to the disk. Raises UserError if it is damaged or dpkg-deb is missing.
    """
    if not shutil.which("dpkg-deb"):
        raise UserError("dpkg-deb, which reads the packages, is not installed: install dpkg")
    folder = PAGES.format(language.folder)
    with subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            stream = cast(IO[bytes], process.stdout)
            with opened_tar(stream) as archive:
                for entry in tar_entries(archive, package):
                    name = entry.name.removeprefix("./")
                    if not entry.isfile():
                        continue
                    if name.startswith(folder) and name.endswith(".html"):
                        yield name.removeprefix(folder), cast(IO[bytes], archive.extractfile(entry)).read()
                    elif name.startswith("usr/share/doc/") and name.endswith("/copyright"):
                        yield COPYRIGHT, cast(IO[bytes], archive.extractfile(entry)).read()
            stream.read()  # padding of the archive: dpkg-deb fails if nobody reads it
            damaged = process.wait() != 0
        except tarfile.TarError:
            damaged = True
        finally:
            process.kill()
    if damaged:
        raise UserError(f"{package} is damaged or no Debian package: fetch it again")
