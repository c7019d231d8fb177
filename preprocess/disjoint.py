"""One data folder of several languages that share no piece: ``python -m preprocess.disjoint OUTPUT DATA DATA ...``.

Each DATA is a data folder of monolingual text in one language, by `python -m preprocess`, and keeps its sub-words. Its
pieces are `PIECE@LANGUAGE` in the joint dictionary, so that languages share only the special symbols:

    OUTPUT/dict.txt                             pieces of the first language, of the second, ..., <mask>, all [xx]
    OUTPUT/manifest.json                        a manifest with the languages under "disjoint"
    OUTPUT/XX/{train,valid,...}.{bin,idx}       the text with the indices of the joint dictionary
    OUTPUT/XX/{sentencepiece.model,manifest.json}

A second run writes everything again. The dictionary and the manifest are written last, so that an incomplete OUTPUT has
neither. Each DATA is read in full, and refused if its text has changed since it was binarized.
"""

import argparse
import logging
import shutil
import sys
from pathlib import Path

import numpy as np

from fairseq_xl.data.index_header import TOKEN_TYPES, Header, read_header, read_sizes
from fairseq_xl.data.symbols import MASK, SPECIAL, digest
from fairseq_xl.data.tokenizers import of_manifest
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import read_json, sha256_of, write_json
from preprocess.files import replacing
from preprocess.fingerprints import fingerprint, verify
from preprocess.vocabulary import reused_symbols

CODES = (4, 8)  # types of tokens, by fairseq's number, that fairseq-preprocess writes: int32 and uint16
SMALL = 65500  # number of symbols from which on fairseq-preprocess writes int32
BLOCK = 1 << 20  # tokens in memory at a time

logger = logging.getLogger("preprocess")


def read_dictionary(folder: Path) -> list[tuple[str, int]]:
    """(symbol, frequency) of each line of dict.txt."""
    path = folder / "dict.txt"
    symbols = reused_symbols(path, [])
    counts = [int(line.rpartition(" ")[2]) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    return list(zip(symbols, counts))


def languages_of(folder: Path) -> list[str]:
    """The language of a data folder, in a list; raises UserError for another number of languages and for bitext."""
    manifest = read_json(folder / "manifest.json") or {}
    languages = manifest.get("config", {}).get("languages")
    if not languages or "disjoint" in manifest:
        raise UserError(f"{folder} is not a complete data folder of `python -m preprocess`")
    others = [name for name in manifest["datasets"] if name.split("/")[0] not in languages]
    if len(languages) > 1 or others:
        raise UserError(
            f"{folder} has {', '.join(others) or ', '.join(languages)}: monolingual text of one language is expected"
        )
    return languages


def joint_symbols(dictionaries: dict[str, list[tuple[str, int]]]) -> list[tuple[str, int]]:
    """Lines of the joint dictionary, from {language: dictionary}."""
    symbols = []
    for language, lines in dictionaries.items():
        place = [symbol for symbol, _ in lines].index(MASK)
        symbols += [(f"{piece}@{language}", count) for piece, count in lines[:place]]
    return [*symbols, (MASK, 0), *((f"[{language}]", 0) for language in dictionaries)]


def numbers(dictionaries: dict[str, list[tuple[str, int]]], language: str) -> np.ndarray:
    """Indices in the joint dictionary, by index in the dictionary of a language."""
    joint = [*SPECIAL, *(symbol for symbol, _ in joint_symbols(dictionaries))]
    places = {symbol: place for place, symbol in enumerate(joint)}
    own = [symbol for symbol, _ in dictionaries[language]]
    pieces = own.index(MASK)
    named = [f"{symbol}@{language}" for symbol in own[:pieces]] + own[pieces:]
    return np.array([places[symbol] for symbol in (*SPECIAL, *named)])


def renumber(source: Path, target: Path, table: np.ndarray, symbols: int) -> dict[str, dict]:
    """Copies SOURCE.bin and SOURCE.idx to TARGET with indices of the joint dictionary; returns their fingerprints."""
    index = source.with_suffix(".idx")
    header = read_header(index)
    if header is None or header.code not in CODES or index.stat().st_size != header.file_size:
        found = f"tokens of type {header.code}" if header and header.code not in CODES else "no whole index"
        raise UserError(f"{index}: {found}, expected tokens of one of the types {', '.join(map(str, CODES))}")
    sizes, kind = read_sizes(index, header.items), TOKEN_TYPES[header.code]
    written = Header(8 if symbols < SMALL else 4, header.items)
    with open(source.with_suffix(".bin"), "rb") as text, replacing(target.with_suffix(".bin")) as file:
        while block := text.read(BLOCK * header.token_size):
            tokens = np.frombuffer(block, kind)
            if not 0 <= tokens.min() <= tokens.max() < len(table):
                raise UserError(f"{source}.bin has numbers that its dictionary of {len(table)} symbols lacks")
            file.write(table[tokens].astype(TOKEN_TYPES[written.code]).tobytes())
    places = np.zeros(header.items, np.int64)
    np.cumsum(sizes[:-1], dtype=np.int64, out=places[1:])
    with replacing(target.with_suffix(".idx")) as file:
        file.write(written.packed() + sizes.tobytes())
        file.write((places * written.token_size).tobytes())
    counts = {".bin": {}, ".idx": {"lines": header.items, "tokens": int(sizes.sum(dtype=np.int64))}}
    return {f"{target.name}{end}": fingerprint(target.with_suffix(end), **found) for end, found in counts.items()}


def join(output: Path, folders: list[Path]) -> None:
    """Joins the data folders `folders` into OUTPUT; raises UserError unless each has one language of its own."""
    found = [languages_of(folder)[0] for folder in folders]
    if len(set(found)) < len(found):
        raise UserError(f"every folder must have a language of its own, found {', '.join(found)}")
    written = [output, *(output / language for language in found)]
    if {path.resolve() for path in written} & {folder.resolve() for folder in folders}:
        raise UserError(f"{output} is, or has, one of the folders to be joined: name another folder")
    if len(found) < 2:
        raise UserError(f"{folders[0]} alone: folders of two languages or more are joined")
    own = {f"{name}{unfinished}" for name in ("dict.txt", "manifest.json") for unfinished in ("", ".tmp")}
    own |= {"out.log", "step.json"}  # of an experiment's step (recipes/experiment.py)
    others = {path.name for path in output.glob("[!.]*")} - own - set(found)
    if others:
        raise UserError(f"{output} has something else already, {sorted(others)[0]}: name another folder")
    for folder in folders:
        if "fingerprints" in read_json(folder / "manifest.json"):
            verify(folder)
    dictionaries = {language: read_dictionary(folder) for language, folder in zip(found, folders)}
    lines = joint_symbols(dictionaries)
    symbols = [*SPECIAL, *(symbol for symbol, _ in lines)]
    for name in ("manifest.json", "dict.txt"):
        (output / name).unlink(missing_ok=True)
    tokenizers, fingerprints = {}, {}
    for language, folder in zip(found, folders):
        table = numbers(dictionaries, language)
        for old in [*(output / language).glob("*.idx"), *(output / language).glob("*.bin")]:
            old.unlink()
        for text in sorted((folder / language).glob("*.bin")):
            renumbered = renumber(text.with_suffix(""), output / language / text.stem, table, len(symbols))
            fingerprints |= {f"{language}/{name}": entry for name, entry in renumbered.items()}
        shutil.copyfile(folder / "sentencepiece.model", output / language / "sentencepiece.model")
        manifest = read_json(folder / "manifest.json")
        tokenizers |= of_manifest(manifest)
        manifest.pop("fingerprints", None)  # those of the new files are in the manifest of OUTPUT
        write_json(output / language / "manifest.json", manifest)
        for name in ("sentencepiece.model", "manifest.json"):
            fingerprints[f"{language}/{name}"] = fingerprint(output / language / name)
    with replacing(output / "dict.txt") as file:
        file.write("".join(f"{symbol} {count}\n" for symbol, count in lines).encode("utf-8"))
    described = {"symbols": len(symbols), "sha256": digest(symbols)}
    config = {"languages": found} | ({"tokenizer": tokenizers} if tokenizers else {})
    parts = {language: sha256_of(folder / "dict.txt") for language, folder in zip(found, folders)}
    fingerprints["dict.txt"] = fingerprint(output / "dict.txt")
    write_json(
        output / "manifest.json",
        {"format": 1, "config": config, "dictionary": described, "disjoint": parts, "fingerprints": fingerprints},
    )
    logger.info("%s: %d symbols of %s", output, len(symbols), ", ".join(found))


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status, 1 after an error, which is one message on stderr."""
    parser = argparse.ArgumentParser(prog="python -m preprocess.disjoint", description=__doc__.split("\n")[0])
    parser.add_argument("output", type=Path, help="folder to write")
    parser.add_argument("data", type=Path, nargs="+", help="folders of one language each")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        join(options.output, options.data)
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"{error.filename or options.output}: {error.strerror or error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
