"""Joins data folders of languages that share no piece.

    fairseq-xl data disjoint data-bin/en-de data-bin/en data-bin/de

Each DATA is a data folder of monolingual text in one language, by `fairseq-xl data prepare`, and keeps its sub-words.
Its pieces are `PIECE@LANGUAGE` in the joint dictionary, so that languages share only the special symbols:

    OUTPUT/dict.txt                             pieces of the first language, of the second, ..., <mask>, all [xx]
    OUTPUT/manifest.json                        a manifest with the languages under "disjoint"
    OUTPUT/XX/{train,valid,...}.{bin,idx}       the text with the indices of the joint dictionary
    OUTPUT/XX/{sentencepiece.model,manifest.json}

A second run writes everything again. The dictionary and the manifest are written last, so that an incomplete OUTPUT has
neither. Each DATA is read in full, and refused if its text has changed since it was binarized.
"""

import logging
import shutil
from pathlib import Path

import numpy as np

from fairseq_xl.checkpoints.renumbered_text import renumber
from fairseq_xl.commands import parser_of
from fairseq_xl.data.store.manifest import manifest_tokenizers, read_manifest
from fairseq_xl.data.vocabulary.special_symbols import MASK, SPECIAL
from fairseq_xl.data.vocabulary.subwords import vocabulary_kind
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import FORMATS, replacing, write_json
from fairseq_xl.io.fingerprints import fingerprint, sha256_of, symbols_digest
from preprocess.commands import run
from preprocess.verification import verify
from preprocess.vocabulary import reused_symbols

logger = logging.getLogger("preprocess")


def read_dictionary(folder: Path) -> list[tuple[str, int]]:
    """Reads (symbol, frequency) of each line of dict.txt."""
    path = folder / "dict.txt"
    symbols = reused_symbols(path, [])
    counts = [int(line.rpartition(" ")[2]) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    return list(zip(symbols, counts))


def language_of(folder: Path) -> str:
    """Returns the language of a data folder; raises UserError for several languages and for bitext."""
    manifest = read_manifest(folder)
    languages = manifest.get("config", {}).get("languages")
    if not languages or "disjoint" in manifest:
        raise UserError(f"{folder} is not a complete data folder of `fairseq-xl data prepare`")
    foreign = [name for name in manifest["datasets"] if name.split("/")[0] not in languages]
    if len(languages) > 1 or foreign:
        raise UserError(
            f"{folder} has {', '.join(foreign) or ', '.join(languages)}: monolingual text of one language is expected"
        )
    if (kind := vocabulary_kind(folder)) != "sentencepiece":
        raise UserError(f"{folder} has a vocabulary of kind {kind}: folders with a SentencePiece model are joined")
    return languages[0]


def joint_symbols(dictionaries: dict[str, list[tuple[str, int]]]) -> list[tuple[str, int]]:
    """Returns the lines of the joint dictionary, from {language: dictionary}."""
    symbols = []
    for language, lines in dictionaries.items():
        end = [symbol for symbol, _ in lines].index(MASK)
        symbols += [(f"{piece}@{language}", count) for piece, count in lines[:end]]
    return [*symbols, (MASK, 0), *((f"[{language}]", 0) for language in dictionaries)]


def joint_indices(dictionaries: dict[str, list[tuple[str, int]]], language: str) -> np.ndarray:
    """Maps indices in the dictionary of a language to indices in the joint dictionary."""
    joint = [*SPECIAL, *(symbol for symbol, _ in joint_symbols(dictionaries))]
    indices = {symbol: index for index, symbol in enumerate(joint)}
    symbols = [symbol for symbol, _ in dictionaries[language]]
    pieces = symbols.index(MASK)
    names = [f"{symbol}@{language}" for symbol in symbols[:pieces]] + symbols[pieces:]
    return np.array([indices[symbol] for symbol in (*SPECIAL, *names)])


def join(output: Path, folders: list[Path]) -> None:
    """Joins data folders into `output`; raises UserError unless each has one language, and no other has it."""
    languages = [language_of(folder) for folder in folders]
    if len(set(languages)) < len(languages):
        raise UserError(f"every folder must have a language of its own, found {', '.join(languages)}")
    written = [output, *(output / language for language in languages)]
    if {path.resolve() for path in written} & {folder.resolve() for folder in folders}:
        raise UserError(f"{output} is, or has, one of the folders to be joined: name another folder")
    if len(languages) < 2:
        raise UserError(f"{folders[0]} alone: folders of two languages or more are joined")
    expected = {f"{name}{unfinished}" for name in ("dict.txt", "manifest.json") for unfinished in ("", ".tmp")}
    expected |= {"out.log", "step.json"}  # of an experiment's step (recipes/experiment.py)
    foreign = {path.name for path in output.glob("[!.]*")} - expected - set(languages)
    if foreign:
        raise UserError(f"{output} has something else already, {sorted(foreign)[0]}: name another folder")
    for folder in folders:
        verify(folder)
    dictionaries = {language: read_dictionary(folder) for language, folder in zip(languages, folders)}
    lines = joint_symbols(dictionaries)
    symbols = [*SPECIAL, *(symbol for symbol, _ in lines)]
    for name in ("manifest.json", "dict.txt"):
        (output / name).unlink(missing_ok=True)
    tokenizers, fingerprints = {}, {}
    for language, folder in zip(languages, folders):
        table = joint_indices(dictionaries, language)
        for old in [*(output / language).glob("*.idx"), *(output / language).glob("*.bin")]:
            old.unlink()
        for text in sorted((folder / language).glob("*.bin")):
            renumbered = renumber(text.with_suffix(""), output / language / text.stem, table, len(symbols))
            fingerprints |= {f"{language}/{name}": entry for name, entry in renumbered.items()}
        shutil.copyfile(folder / "sentencepiece.model", output / language / "sentencepiece.model")
        manifest = read_manifest(folder)
        tokenizers |= manifest_tokenizers(manifest)
        manifest = {name: entry for name, entry in manifest.items() if name != "fingerprints"}  # OUTPUT has new ones
        write_json(output / language / "manifest.json", manifest)
        for name in ("sentencepiece.model", "manifest.json"):
            fingerprints[f"{language}/{name}"] = fingerprint(output / language / name)
    with replacing(output / "dict.txt", make_folder=True) as file:
        file.write("".join(f"{symbol} {count}\n" for symbol, count in lines).encode("utf-8"))
    dictionary = {"symbols": len(symbols), "sha256": symbols_digest(symbols)}
    config = {"languages": languages} | ({"tokenizer": tokenizers} if tokenizers else {})
    parts = {language: sha256_of(folder / "dict.txt") for language, folder in zip(languages, folders)}
    fingerprints["dict.txt"] = fingerprint(output / "dict.txt")
    manifest = {"format": FORMATS["data folder"], "config": config, "dictionary": dictionary}
    write_json(output / "manifest.json", manifest | {"disjoint": parts, "fingerprints": fingerprints})
    logger.info("%s: %d symbols of %s", output, len(symbols), ", ".join(languages))


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status, 1 after an error, which is one message on stderr."""
    parser = parser_of(__name__)
    parser.add_argument("output", metavar="OUTPUT", type=Path, help="folder to write")
    parser.add_argument("data", metavar="DATA", type=Path, nargs="+", help="folders of one language each")
    options = parser.parse_args(arguments)
    return run(lambda: join(options.output, options.data), options.output)
