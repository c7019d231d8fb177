"""Removes unused pieces from the vocabulary of a checkpoint, for `fairseq-xl model trim-vocabulary`."""

import logging
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_xl.checkpoints import vocabulary_surgery
from fairseq_xl.checkpoints.identity import encoding_of
from fairseq_xl.checkpoints.renumbered_text import renumber
from fairseq_xl.data.store.manifest import check_fingerprint, one_folder, read_manifest
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary, write_dictionary
from fairseq_xl.data.vocabulary.subwords import ADDED, FILES, MANIFEST, in_folder, vocabulary_kind
from fairseq_xl.data.vocabulary.text_encoder import TextEncoder
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import DICTIONARY, save_checkpoint
from fairseq_xl.io.files import replacing, write_json
from fairseq_xl.io.fingerprints import fingerprint
from fairseq_xl.io.folders import new_folder
from fairseq_xl.io.lines import read_lines

logger = logging.getLogger(__name__)

CHECKPOINT = "checkpoint.pt"


def trim_vocabulary(options: Any) -> None:
    """Writes the folder `output` from the arguments of the command."""
    data = one_folder(options.data, "trim the vocabulary of")
    if not data.is_dir():
        raise UserError(f"{data}: no such data folder")
    manifest = read_manifest(data)
    if "disjoint" in manifest:
        raise UserError(
            f"{data} was joined by `fairseq-xl data disjoint` and has sub-words for each language: cut the data "
            "folders that were joined"
        )
    dictionary = XLDictionary.load(data / DICTIONARY)
    check_fingerprint(data, DICTIONARY)
    checkpoint = vocabulary_surgery.read_checkpoint(options.checkpoint, dictionary, data / DICTIONARY)
    texts = vocabulary_surgery.texts_of(data)
    used = vocabulary_surgery.used_symbols(texts, dictionary)
    encode: Any = TextEncoder(data, dictionary) if options.keep else None
    for name in options.keep:
        language, _, path = name.rpartition("=")
        if language:
            dictionary.language_id(language)
        for line in read_lines(path):
            used[encode(line, language)] = True
    with new_folder(options.output) as folder:
        is_kept = used | ~dictionary.is_piece
        if manifest or any((data / name).exists() for name in FILES[vocabulary_kind(data)]):
            is_kept |= vocabulary_surgery.cut_subwords(data, folder, dictionary, used)
        else:
            logger.warning("%s has no sub-words: only the dictionary is cut", data)
        indices = np.flatnonzero(is_kept)
        regular = indices[dictionary.nspecial :].tolist()
        symbols, counts = ([values[index] for index in regular] for values in (dictionary.symbols, dictionary.count))
        write_dictionary(folder / DICTIONARY, symbols, counts)
        new = XLDictionary.load(folder / DICTIONARY)
        rows = vocabulary_surgery.Rows(
            [[index] for index in indices.tolist()], [[index] for index in range(len(new.languages))]
        )
        fingerprints = _write_text(data, texts, is_kept, folder)
        if manifest:
            write_json(folder / MANIFEST, _manifest(manifest, new, folder, fingerprints))
        encoding = encoding_of(folder)
        changed = vocabulary_surgery.change_vocabulary(checkpoint, dictionary, new, rows, options.output, encoding)
        save_checkpoint(changed, folder / CHECKPOINT)
        size = (folder / CHECKPOINT).stat().st_size
    before = Path(checkpoint.path).stat().st_size
    sizes = size / 1e6, before / 1e6
    logger.info("%s: %d of %d symbols, %.1f of %.1f MB", options.output, len(new), len(dictionary), *sizes)


def _write_text(data: Path, texts: list[Path], is_kept: np.ndarray, folder: Path) -> dict[str, dict]:
    table, fingerprints = np.cumsum(is_kept) - 1, {}
    for text in texts:
        name = text.parent.name
        written = renumber(text, folder / name / text.name, table, int(is_kept.sum()))
        fingerprints |= {f"{name}/{file}": entry for file, entry in written.items()}
    content = (folder / DICTIONARY).read_bytes()
    for name in sorted({text.parent.name for text in texts}):
        for path in sorted((data / name).glob("dict*.txt")):
            with replacing(folder / name / path.name) as file:
                file.write(content)
            fingerprints[f"{name}/{path.name}"] = fingerprint(folder / name / path.name)
    return fingerprints


def _manifest(manifest: dict, new: XLDictionary, folder: Path, fingerprints: dict[str, dict]) -> dict:
    """The manifest of the new data folder: that of the old one, as if it was made with the cut sub-words."""
    written = manifest.get("vocabulary", {})
    kind = written.get("kind", "sentencepiece")
    options = {name: value for name, value in written.items() if name not in ("kind", "sha256")}
    if ADDED in options:
        options[ADDED] = [token for token in options[ADDED] if token["content"] in new]
    source = in_folder(folder, kind, options)
    file_fingerprints = {path.name: fingerprint(path) for path in (folder / DICTIONARY, *source.files)}
    changed = manifest | source.manifest_entry() | {"fingerprints": file_fingerprints | fingerprints}
    changed["dictionary"] = {"symbols": len(new), "sha256": new.digest()}
    if kind == "sentencepiece":
        (name,) = FILES[kind]
        changed["config"] = manifest.get("config", {}) | {"vocabulary": {kind: name}}
        changed["sampling"] = None  # nothing was learned
    return changed
