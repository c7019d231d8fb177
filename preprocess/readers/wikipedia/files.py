"""Opens input files, plain or compressed, and detects their kinds."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree.ElementTree import ParseError

from fairseq_xl.errors import UserError
from fairseq_xl.io.compressed import MAGIC, text_of

DUMP, TAGGED, JSON = "dump", "tagged", "json"  # a dump; wikiextractor's <doc> elements; its lines of JSON
START = 1000  # bytes that contain <mediawiki in every dump


@contextmanager
def opened(path: Path) -> Iterator:
    """Opens a file for reading bytes, decompressed if its first bytes are those of a compressed file.

    Raises UserError for damaged content, also while it is read.
    """
    with open(path, "rb") as file:
        try:
            yield text_of(file, MAGIC | {b"BZh": "bzip2"})
        except (OSError, ParseError, UnicodeDecodeError) as error:
            raise UserError(f"{path} is damaged ({error}): get it again") from error


def kind_of(path: Path) -> str:
    """Detects the kind of a file, DUMP, TAGGED or JSON; raises UserError for any other."""
    with opened(path) as file:
        start = file.read(START).removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"<doc "):
        return TAGGED
    if start.startswith(b"{"):
        return JSON
    if b"<mediawiki" in start:
        return DUMP
    raise UserError(
        f"{path} is no Wikipedia dump (XML that begins with <mediawiki) and no output of "
        "wikiextractor (<doc ...> or lines of JSON)"
    )


def files_of(source: Path) -> list[Path]:
    """Lists a file, or the files below a folder by name, without hidden ones; raises UserError if there are none."""
    if source.is_file():
        return [source]
    files = sorted(path for path in source.rglob("*") if path.is_file() and not path.name.startswith("."))
    if not files:
        raise UserError(f"{source}: there is no such file" if not source.exists() else f"{source} has no files")
    return files
