"""Unpacks the tar or zip archives of benchmarks to a temporary folder, which a reader reads."""

import io
import logging
import lzma
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from tqdm import tqdm

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io import bounds
from fairseq_xl.io.compressed import BUFFER, SUFFIXES, text_of
from fairseq_xl.io.files import room_problem
from fairseq_xl.io.folders import temporary_folder

#: path of a member, and a function that opens it; for tar, call it before reading the next member
Member = tuple[PurePosixPath, Callable[[], Any]]
#: errors of archives; RuntimeError: an encrypted zip
DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError)

logger = logging.getLogger("preprocess")


@contextmanager
def unpacked(release: Path, destination: Path, files: Collection[str]) -> Iterator[Path]:
    """Yields the folder of a release that is a folder or an archive: a tar file, compressed or not, or a zip file.

    An archive is unpacked beside `destination`, and this copy is removed at the end. If the archive has a single
    top-level folder, this folder is the release. Errors and log lines name paths as ARCHIVE/MEMBER.

    Args:
        files: names of the files to unpack, without folder and without the suffix of a compressed file.

    Raises UserError if there is no such release, and for an archive that is damaged or can't be unpacked safely.
    """
    if release.is_dir():
        yield release
        return
    if not release.exists():
        raise UserError(f"{release}: there is no such file or folder")
    with _temporary_folder(destination, {"": f"{release}"}) as folder:
        top = _unpack(release, folder, files)
        single = folder / top.pop() if len(top) == 1 else folder
        yield single if single.is_dir() else folder


@contextmanager
def unpacked_inside(release: Path, names: Collection[str], destination: Path, files: Collection[str]) -> Iterator[Path]:
    """Yields a folder with the folders `names` of a release; NAME.zip in `release` replaces one that is missing.

    The folder is `release` itself if it has no such archive. Otherwise it is temporary, as in `unpacked`.
    """
    if release.is_file():
        needed = " and ".join(f"{name}.zip" for name in names)
        raise UserError(f"{release} is a file: the folder that contains {needed} is needed")
    folders = {name: release / name for name in names if (release / name).is_dir()}
    archives = {name: release / f"{name}.zip" for name in names if name not in folders}
    archives = {name: path for name, path in archives.items() if path.is_file()}
    if not archives:
        yield release
        return
    shown = {f"/{name}/": f"{path}/{name}/" for name, path in archives.items()} | {"": f"{release}"}
    with _temporary_folder(destination, shown) as folder:
        for path in archives.values():
            _unpack(path, folder, files)
        for name in names:  # after the archives, so that no member is written through a link
            if name in archives:
                continue
            if (folder / name).exists():
                raise UserError(f"{release}: the folder {name} is there unpacked and in an archive: remove one of them")
            (folder / name).symlink_to(folders.get(name, release).resolve())
        yield folder


@contextmanager
def _temporary_folder(destination: Path, shown: dict[str, str]) -> Iterator[Path]:
    """Yields a folder beside `destination` that is removed at the end.

    Args:
        shown: path below the folder -> its replacement in errors and log lines.
    """
    destination = destination.resolve()
    destination.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(destination.parent, destination.name) as folder:

        def shown_text(text: str) -> str:
            for path, replacement in shown.items():
                text = text.replace(f"{folder}{path}", replacement)
            return text

        def rename(record: logging.LogRecord) -> bool:
            record.msg, record.args = shown_text(record.getMessage()), ()
            return True

        logger.addFilter(rename)
        try:
            yield folder
        except UserError as error:
            raise UserError(shown_text(str(error))) from error
        finally:
            logger.removeFilter(rename)


def _unpack(archive: Path, folder: Path, files: Collection[str]) -> set[str]:
    """Unpacks the files with the names `files` to a folder; returns the archive's top-level names.

    Raises UserError for a damaged archive and one that has a link, a device, or a path that leads out of the folder.
    """
    names = {f"{name}{suffix}" for name in files for suffix in ("", *SUFFIXES)}
    top = set()
    logger.info("unpack %s", archive)
    try:
        with open(archive, "rb") as file, tqdm(desc=f"unpack {archive.name}", unit=" files", disable=None) as bar:
            for path, opened in _zip_members(file) if file.peek(2).startswith(b"PK") else _tar_members(file):
                if "__MACOSX" in path.parts or path.name.startswith("._"):
                    continue  # attributes of files, which the Finder and the tar of macOS add
                if len(path.parts) > 1 or path.name in names:
                    top.add(path.parts[0])
                if path.name in names:
                    _write(archive, opened(), folder, path)
                bar.update()
        return top
    except DAMAGED as error:
        raise _damaged(archive, error) from error
    except OSError as error:
        if error.errno is None:  # of bz2
            raise _damaged(archive, error) from error
        if error.filename and not room_problem(error):
            raise
        reason = error
    # outside the `except` block: otherwise `command.run` replaces this message by its own for a full disk
    if room_problem(reason):
        raise UserError(
            f"{archive} cannot be unpacked: the disk of {folder.parent} is full: make room, and run the same command "
            "to continue"
        )
    raise UserError(f"{archive} cannot be unpacked: {reason}")


def _damaged(archive: Path, error: Exception) -> UserError:
    return UserError(
        f"{archive} is damaged or neither a tar nor a zip file ({error}): download it again, or unpack it yourself"
    )


def _write(archive: Path, content: IO[bytes], folder: Path, path: PurePosixPath) -> None:
    """Writes a member to a new file."""
    try:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        with content, open(folder / path, "xb") as file:
            shutil.copyfileobj(content, file, BUFFER)
    except (FileExistsError, NotADirectoryError) as error:
        raise UserError(f"{archive} has {path} twice, or as a file and as a folder") from error


def _tar_members(file: io.BufferedReader) -> Iterator[Member]:
    """Yields the files in a tar file, compressed or not, and reads it to its end to detect damage."""
    text = text_of(file)
    with opened_tar(text) as archive:
        for entry in tar_entries(archive, file.name):
            path = _safe(file.name, entry.name, entry.isfile() or entry.isdir())
            if entry.isfile():
                yield path, partial(archive.extractfile, entry)
        # tarfile reads a damaged header as the end; compressed text has a checksum instead
        if text is file and cast(Any, archive.fileobj).read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError("its end is missing")
    while text.read(BUFFER):
        pass


class _EndsOnce:
    """A stream that raises an error if it is read after its end, where tarfile reads up to a header's size."""

    def __init__(self, text: IO[bytes]):
        self.text, self.ended = text, False

    def read(self, size: int) -> bytes:
        """Returns at most `size` bytes, b"" at the end; raises `tarfile.ReadError` after it."""
        if self.ended:
            raise tarfile.ReadError("unexpected end of data")
        data = self.text.read(size)
        self.ended = not data
        return data


def opened_tar(text: IO[bytes]) -> tarfile.TarFile:
    """Opens the tar file of a stream; reading raises `tarfile.ReadError` if it is shorter than its headers say."""
    return tarfile.open(fileobj=cast(Any, _EndsOnce(text)), mode="r|")


def tar_entries(archive: tarfile.TarFile, name: object) -> Iterator[tarfile.TarInfo]:
    """Yields the members of a tar file; raises `UserError` for a sparse one, which may be larger than any disk."""
    for entry in archive:
        if entry.issparse():
            raise UserError(f"{name} is refused: its member {quoted(entry.name)} is a sparse file")
        yield entry


def _zip_members(file: io.BufferedReader) -> Iterator[Member]:
    """Yields the files in a zip file."""
    with zipfile.ZipFile(file) as archive:
        check_growth(archive, file.name)
        for entry in archive.infolist():
            kind = stat.S_IFMT(entry.external_attr >> 16)  # 0 if the system of its creation has no kinds of files
            path = _safe(file.name, entry.filename, entry.is_dir() or kind in (0, stat.S_IFREG))
            if not entry.is_dir():
                yield path, partial(archive.open, entry)


def check_growth(archive: zipfile.ZipFile, name: object) -> None:
    """Raises `UserError` for a zip file whose members together grow beyond `fairseq_xl.io.bounds`.

    zipfile reads no more of a member than its declared size.
    """
    size, declared = archive.start_dir, sum(entry.file_size for entry in archive.infolist())
    if declared > bounds.FREE_GROWTH + bounds.GROWTH * size:
        raise UserError(
            f"{name} is refused: its {size:,} bytes declare {declared:,} bytes of files, more than {bounds.GROWTH} "
            "times as many; unpack it yourself if it is right"
        )


def _safe(archive: str, name: str, regular: bool) -> PurePosixPath:
    """Returns the path of a member; raises UserError if it leads out of the folder or is no regular file or folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise UserError(f"{archive} is refused: the path of its member {quoted(name)} leads out of the release")
    if not regular:
        raise UserError(f"{archive} is refused: its member {quoted(name)} is a link or a device")
    return path
