"""Folders of plain fairseq-preprocess, read as data folders. Imports neither torch nor fairseq.

Their files lie side by side. In a data folder the same texts have other names:

    train.en-de.en      en-de/train.en-de.en
    train.en-None.en    en/train                fairseq-preprocess --only-source --source-lang en
    train               XX/train                fairseq-preprocess --only-source; XX is the folder's name if that is a
                                                code such as en or pt_BR, otherwise und (undetermined)

A hyphen in a code becomes an underscore: zh-Hans is zh_Hans.
"""

import functools
import os
import re
from pathlib import Path

from fairseq_xl.errors import UserError

DICTIONARY = "dict.txt"
CODE = re.compile(r"[a-z]{2}([-_][A-Za-z]{2,4})?")  # a folder's name that is a language's


def plain_files(folder: str | Path) -> dict[str, Path]:
    """{name in a data folder: file} of the binarized text of a plain folder; {} for another folder."""
    try:
        return _files(Path(folder), os.stat(folder).st_mtime_ns)
    except OSError:
        return {}


@functools.lru_cache(maxsize=256)
def _files(folder: Path, modified: int) -> dict[str, Path]:
    """The files of `plain_files`, cached until the folder is `modified`."""
    files = {}
    codes = {path.name.split(".")[1] for path in folder.glob("dict.*.txt")}
    for path in sorted(path for path in folder.iterdir() if path.suffix in (".idx", ".bin")):
        split, *pair, end = path.name.split(".")
        if len(pair) not in (0, 2):
            continue
        languages = _languages(pair[0], pair[1], codes) if pair else (folder.absolute().name,)
        if not pair and not CODE.fullmatch(languages[0]):
            languages = ("und",)
        name = "-".join(code.replace("-", "_") for code in languages)
        side = f".{name}.{pair[1].replace('-', '_')}" if len(languages) == 2 else ""
        files[f"{name}/{split}{side}.{end}"] = path
    return files


def _languages(pair: str, language: str, codes: set[str]) -> tuple[str, ...]:
    """The one or two languages of a text of `language`, by the name of its pair, such as en-None or en-zh-Hans."""
    if pair == f"{language}-None":
        return (language,)
    sides = [(language, pair.removeprefix(f"{language}-")), (pair.removesuffix(f"-{language}"), language)]
    possible = [both for both in sides if "-".join(both) == pair]
    return next((both for both in possible if codes.issuperset(both)), (*possible, (language,))[0])


def located(path: str | Path) -> Path:
    """The file of a text or of its index, which has another name in a plain folder than `path`."""
    path = Path(path)
    return plain_files(path.parent.parent).get(f"{path.parent.name}/{path.name}", path)


def indices(folder: str | Path) -> list[Path]:
    """The index files of all texts of a data folder, by their names in a data folder, sorted."""
    plain = (Path(folder) / name for name in plain_files(folder) if name.endswith(".idx"))
    return sorted({*Path(folder).glob("[!.]*/*.idx"), *plain})


def plain_languages(folder: str | Path) -> list[str]:
    """The sorted languages of the text of a folder that fairseq-preprocess wrote; [] for another folder.

    It is a plain folder, or one with subfolders XX and XX-YY whose dictionary ends in no language symbol.
    """
    folder, dictionary = Path(folder), Path(folder) / DICTIONARY
    if not plain_files(folder):
        if (folder / "manifest.json").is_file() or not dictionary.is_file():
            return []
        if any(symbol.startswith(b"[") for symbol in _symbols(dictionary)[-1:]):
            return []
    return sorted({code for path in indices(folder) for code in path.parent.name.split("-")})


def dictionary_file(path: str | Path) -> Path:
    """The file of a folder's dictionary, FOLDER/dict.txt, which a plain folder may have as dict.XX.txt.

    Raises `UserError` if a plain folder has dictionaries with different symbols.
    """
    path = Path(path)
    if path.name != DICTIONARY or not plain_files(path.parent):
        return path
    first, *further = [file for file in (path, *sorted(path.parent.glob("dict.*.txt"))) if file.is_file()] or [path]
    for path in further:
        if _symbols(first) != _symbols(path):
            raise UserError(
                f"{first} and {path.name} differ, expected one dictionary for all languages: run fairseq-preprocess "
                "with --joined-dictionary, and with --srcdict for further text"
            )
    return first


def _symbols(path: Path) -> list[bytes]:
    return [line.rpartition(b" ")[0] for line in path.read_bytes().splitlines()]
