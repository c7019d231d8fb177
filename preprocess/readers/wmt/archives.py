"""Reads WMT's training archives: tar files of text, and translation memories (TMX)."""

import gzip
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast
from xml.etree import ElementTree

from tqdm import tqdm

from fairseq_xl.errors import UserError
from fairseq_xl.io.compressed import text_of
from fairseq_xl.io.files import replacing
from fairseq_xl.io.text import text_of_line
from preprocess.readers.archives import opened_tar, tar_entries

LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"  # the attribute xml:lang


@dataclass(frozen=True)
class Archive:
    """A file with training text: by default a tar file, compressed or not.

    A text file in it may be compressed with gzip; its name then also ends in .gz.
    """

    url: str
    size: int  # bytes
    sha256: str
    member: str  # path of its text files without the suffix .LANGUAGE; {0} stands for the pair in its order, de-en

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.url.rsplit("/", 1)[1]

    def members(self, pair: str) -> dict[str, str]:
        """Returns {language: path of its text in the archive, without .gz} for a pair such as en-de."""
        source, target = pair.split("-")
        return {language: f"{self.member.format(f'{target}-{source}')}.{language}" for language in (source, target)}

    def extract(self, path: Path, outputs: Mapping[str, Path]) -> None:
        """Writes members of the archive `path` to the files `outputs`, decompressed.

        Raises UserError if the archive is damaged or lacks a member.
        """
        missing = dict(outputs)
        try:
            with (
                open(path, "rb") as packed,
                opened_tar(text_of(packed)) as opened,
                tqdm(desc=self.name, unit=" members", disable=None) as bar,
            ):
                for entry in tar_entries(opened, path):
                    bar.update()
                    if output := missing.pop(entry.name.removeprefix("./").removesuffix(".gz"), None):
                        member = cast(IO[bytes], opened.extractfile(entry))
                        compressed = entry.name.endswith(".gz")
                        with (
                            replacing(output, make_folder=True) as file,
                            gzip.open(member) if compressed else member as text,
                        ):
                            shutil.copyfileobj(text, file)
                    if not missing:
                        break
        except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise _damaged(path, error) from error
        if missing:
            raise UserError(f"{path} lacks {', '.join(missing)}")


@dataclass(frozen=True)
class TranslationMemory(Archive):
    """A gzip-compressed TMX file; `member` names the text files extracted from it, without the suffix .LANGUAGE."""

    @property
    def name(self) -> str:
        """Name of the file."""
        return f"{self.member}.tmx.gz"

    def extract(self, path: Path, outputs: Mapping[str, Path]) -> None:
        """Writes one line of each language for each unit, an empty line if the unit lacks the language.

        Raises UserError if the file is damaged.
        """
        try:
            with gzip.open(path) as file, ExitStack() as stack:
                sides = {
                    name.rsplit(".", 1)[1]: stack.enter_context(replacing(output, make_folder=True))
                    for name, output in outputs.items()
                }
                for texts in tqdm(_units(cast(IO[bytes], file)), desc=self.name, unit=" units", disable=None):
                    for language, side in sides.items():
                        side.write(f"{texts.get(language, '')}\n".encode())
        except (ElementTree.ParseError, gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise _damaged(path, error) from error


def _units(file: IO[bytes]) -> Iterator[dict[str, str]]:
    """Yields {language: text on one line} of each translation unit; memory use does not grow with the file.

    Expat reads no external entity; a reference to one is a ParseError.
    """
    opened = [ElementTree.Element("file")]  # elements that have not ended
    for event, element in ElementTree.iterparse(file, events=("start", "end")):
        if event == "start":
            opened.append(element)
            continue
        opened.pop()
        if element.tag == "tu":
            yield {
                variant.get(LANGUAGE, ""): text_of_line("".join(segment.itertext()))
                for variant in element.iter("tuv")
                for segment in variant.iter("seg")
            }
            opened[-1].clear()  # removes the unit from its parent


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} is damaged ({error}): remove it and run the same command")
