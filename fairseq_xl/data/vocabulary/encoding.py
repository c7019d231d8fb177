"""Sub-words and tokenizers of a data folder, which checkpoints store.

Imports neither torch nor fairseq.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fairseq_xl.data.store.manifest import check_fingerprint, read_manifest
from fairseq_xl.data.vocabulary.subwords import FILES, OPTIONS, Subwords, stored_hashes, vocabulary_kind
from fairseq_xl.data.vocabulary.tokenizers import manifest_tokenizers
from fairseq_xl.errors import UserError
from fairseq_xl.io.fingerprints import sha256_of

TOKENIZER = "tokenizer of "  # prefix of a language
#: largest share of a dictionary's symbols that may be `other_symbols`, and of its text that may lie outside the pieces
OTHER_SYMBOLS, OTHER_TEXT = 0.1, 0.01
PADDING = "madeupword"  # prefix of the symbols with which fairseq pads published dictionaries


def encoding_of(folder: Path) -> dict[str, Any]:
    """{name: value} of a data folder: SHA-256 of its sub-word files, options of its sub-words, tokenizers of languages.

    A hash is the manifest's. If the manifest has none, the file is hashed; a missing file is left out.
    """
    manifest = read_manifest(folder)
    if languages := manifest.get("disjoint"):
        parts = {language: encoding_of(folder / language) for language in languages}
        return {f"{language}/{name}": value for language, part in parts.items() for name, value in part.items()}
    vocabulary, kind, hashes = manifest.get("vocabulary", {}), vocabulary_kind(folder), stored_hashes(folder)
    encoding = {name: vocabulary[name] for name in OPTIONS[kind] if name in vocabulary}
    for name in FILES[kind]:
        if name in hashes or (folder / name).is_file():
            encoding[name] = hashes.get(name) or sha256_of(folder / name)
    tokenizers = manifest_tokenizers(manifest)
    return encoding | {f"{TOKENIZER}{language}": name for language, name in dict(tokenizers).items()}


def check_pieces(subwords: Subwords, path: Path, dictionary: Any, suffix: str = "") -> None:
    """Raises `UserError` for sub-words of another dictionary.

    The dictionary must have at least half of the pieces (fairseq-preprocess leaves out rare ones with --thresholdsrc).
    Up to `OTHER_SYMBOLS` of its symbols may be `other_symbols`, and `OTHER_TEXT` of its text outside the pieces.

    Args:
        path: the file of the sub-words, for messages.
        dictionary: the joint `XLDictionary`.
        suffix: ending of these pieces in the dictionary.
    """
    pieces = [symbol + suffix for symbol in subwords.symbols]
    common = sum(piece in dictionary for piece in pieces)
    if not common or 2 * common < len(pieces):
        raise UserError(
            f"{path} is not the {subwords.title} of the dictionary, which has {common} of its {len(pieces)} pieces"
        )
    symbols, vocabulary = dictionary.symbols, set(pieces)
    indices = [index for index in dictionary.pieces.tolist() if symbols[index].endswith(suffix)]
    indices = [index for index in indices if not symbols[index].startswith(PADDING)]
    missing = [index for index in indices if symbols[index] not in vocabulary]
    text, missing_text = (sum(dictionary.count[index] for index in part) for part in (indices, missing))
    foreign = other_symbols((symbols[index].removesuffix(suffix) for index in missing), subwords.symbols)
    if len(foreign) > OTHER_SYMBOLS * len(indices) or missing_text > OTHER_TEXT * text:
        raise UserError(
            f"{path} is not the {subwords.title} of the dictionary: it lacks {len(missing)} of {len(indices)} "
            f"pieces, the first is {symbols[missing[0]]!r}"
        )


def other_symbols(symbols: Iterable[str], pieces: Iterable[str]) -> list[str]:
    """The symbols that are not pieces but contain a character of a piece.

    Symbols of other characters are accepted: spm_encode writes characters that no piece contains as they are, and a
    dictionary of Chinese text may have thousands of them.
    """
    pieces = set(pieces)
    characters = set().union(*pieces)
    return [symbol for symbol in symbols if symbol not in pieces and not characters.isdisjoint(symbol)]


def check_files(folder: Path) -> None:
    """Raises `UserError` for files of sub-words that differ from the manifest of their data folder."""
    for name in sum(FILES.values(), ()):
        if (folder / name).is_file():
            check_fingerprint(folder, name)
