"""How a data folder encodes text, beside its dictionary: a checkpoint stores it, and other sub-words are refused.

Imports neither torch nor fairseq.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fairseq_xl.data.manifest import read_manifest
from fairseq_xl.data.subwords import FILES, OPTIONS, Subwords, vocabulary_kind
from fairseq_xl.data.tokenizers import of_manifest
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.files import sha256_of

TOKENIZER = "tokenizer of "  # in front of the language
#: largest share of a dictionary's symbols that may be `other_symbols`, and of its text that may be no pieces
OTHER_SYMBOLS, OTHER_TEXT = 0.1, 0.01
PADDING = "madeupword"  # beginning of symbols with which fairseq fills up published dictionaries


def encoding_of(folder: Path) -> dict[str, Any]:
    """The hashes of the files of a data folder's sub-words, their options, and the tokenizer of each language, by name.

    A hash is that of the manifest; without one it is that of the file, or left out if there is none.
    """
    manifest = read_manifest(folder)
    if languages := manifest.get("disjoint"):
        parts = {language: encoding_of(folder / language) for language in languages}
        return {f"{language}/{name}": value for language, part in parts.items() for name, value in part.items()}
    written, kind = manifest.get("vocabulary", {}), vocabulary_kind(folder)
    hashes = written.get("sha256") or {FILES["sentencepiece"][0]: manifest.get("sentencepiece_sha256")}
    found = {name: written[name] for name in OPTIONS[kind] if name in written}
    for name in FILES[kind]:
        known = hashes.get(name) if isinstance(hashes, dict) else None
        if known is not None or (folder / name).is_file():
            found[name] = known or sha256_of(folder / name)
    tokenizers = of_manifest(manifest)
    return found | {f"{TOKENIZER}{language}": name for language, name in dict(tokenizers).items()}


def check_encoding(stored: Any, origin: str, folder: Path) -> None:
    """Raises `UserError` unless a data folder encodes text as that of a checkpoint did, as far as both are known.

    Args:
        stored: `encoding_of` the data folder that the checkpoint was trained with; None: unknown.
        origin: the checkpoint's file, for messages.
        folder: the data folder.
    """
    if not isinstance(stored, dict | None):
        raise UserError(f"{origin} is damaged: expected the names of sub-words, found {quoted(stored)}")
    now = encoding_of(folder) if stored else {}
    for name, value in (stored or {}).items():
        if name not in now and TOKENIZER in str(name) and not (folder / "manifest.json").is_file():
            raise UserError(f"{folder}: manifest.json is missing; {origin} needs the {name}, {quoted(value)}")
        if now.get(name, value) != value:
            if name.rpartition("/")[2] in sum(FILES.values(), ()):
                raise UserError(f"{folder / name} has other sub-words than {origin} was trained with")
            found = f"found {quoted(now[name])}, {origin} was trained with {quoted(value)}"
            raise UserError(f"{folder / 'manifest.json'}: {name}: {found}")


def check_pieces(subwords: Subwords, path: Path, dictionary: Any, suffix: str = "") -> None:
    """Raises `UserError` unless sub-words are those of a dictionary.

    The dictionary has at least half of the pieces (fairseq-preprocess leaves out rare ones with --thresholdsrc). Of its
    symbols, few are `other_symbols`, and little of its text is no pieces (`OTHER_SYMBOLS`, `OTHER_TEXT`).

    Args:
        subwords: the sub-words.
        path: their file, for messages.
        dictionary: the joint `XLDictionary`.
        suffix: what the dictionary's pieces of these sub-words end in.
    """
    pieces = [symbol + suffix for symbol in subwords.symbols]
    known = sum(piece in dictionary for piece in pieces)
    wrong = f"{path} is not the {subwords.described} of the dictionary"
    if not known or 2 * known < len(pieces):
        raise UserError(f"{wrong}, which has {known} of its {len(pieces)} pieces")
    symbols, found = dictionary.symbols, set(pieces)
    own = [number for number in dictionary.pieces.tolist() if symbols[number].endswith(suffix)]
    own = [number for number in own if not symbols[number].startswith(PADDING)]
    others = [number for number in own if symbols[number] not in found]
    text, other_text = (sum(dictionary.count[number] for number in numbers) for numbers in (own, others))
    foreign = other_symbols((symbols[number].removesuffix(suffix) for number in others), subwords.symbols)
    if len(foreign) > OTHER_SYMBOLS * len(own) or other_text > OTHER_TEXT * text:
        raise UserError(f"{wrong}: it lacks {len(others)} of {len(own)} pieces, the first is {symbols[others[0]]!r}")


def other_symbols(symbols: Iterable[str], pieces: Iterable[str]) -> list[str]:
    """The symbols that are no pieces but have a character of one.

    spm_encode writes characters that no piece has as they are: a dictionary of Chinese text may have thousands of them.
    """
    pieces = set(pieces)
    characters = set().union(*pieces)
    return [symbol for symbol in symbols if symbol not in pieces and not characters.isdisjoint(symbol)]
