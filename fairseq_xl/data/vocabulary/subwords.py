"""The sub-words of a data folder: a SentencePiece model, XLM's BPE codes or a WordPiece vocabulary.

Each kind has files of fixed names in the folder, and the manifest says which kind it is and which files they were.
Imports neither torch nor fairseq.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, cast, get_args

from fairseq_xl.data.store.manifest import check_fingerprint, read_manifest
from fairseq_xl.data.vocabulary.added_tokens import WithAddedTokens, check_tokens
from fairseq_xl.data.vocabulary.sentencepiece_model import SentencePieces
from fairseq_xl.data.vocabulary.wordpiece import WordPieces
from fairseq_xl.data.vocabulary.xlm_bpe import XLMPieces
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.fingerprints import sha256_of

Pieces = SentencePieces | XLMPieces | WordPieces
Kind = Literal["sentencepiece", "xlm", "wordpiece"]
Result = TypeVar("Result")
#: kind -> its files in a data folder
FILES: dict[Kind, tuple[str, ...]] = {
    "sentencepiece": ("sentencepiece.model",),
    "xlm": ("xlm.codes", "xlm.vocab"),
    "wordpiece": ("wordpiece.vocab",),
}
#: kind -> its options
OPTIONS: dict[str, tuple[str, ...]] = {
    "sentencepiece": (),
    "xlm": ("lowercase_and_remove_accent",),
    "wordpiece": ("lowercase",),
}
MANIFEST = "manifest.json"
ADDED = "added_tokens"  # option of SentencePiece and WordPiece: tokens that were added to a published tokenizer
#: largest share of a dictionary's symbols that may be `other_symbols`, and of its text that may lie outside the pieces
OTHER_SYMBOLS, OTHER_TEXT = 0.1, 0.01


class Subwords(Protocol):
    """Splits text into pieces; ids count the pieces of the vocabulary."""

    title: str  # kind of the vocabulary's file, for messages
    units: str  # kind of the elements of `lost`, for messages
    symbols: list[str]  # the symbol of each id in dict.txt; ids that are not ordinary pieces have <unk>
    unknown: int  # the id of text without a piece

    def encode(self, lines: list[str]) -> list[list[int]]:
        """Lines -> the ids of their pieces."""

    def lost(self, line: str) -> list[str]:
        """The characters or pieces of a line that the vocabulary lacks."""

    def spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Text -> the ids of its pieces, and the characters [begin, end) of each."""


@dataclass(frozen=True)
class Source:
    """A vocabulary: its kind, files in the order of `FILES`, and options."""

    kind: Kind
    files: tuple[Path, ...]
    options: dict[str, Any] = field(default_factory=dict)

    def open(self) -> Subwords:
        """Reads the vocabulary; raises `UserError` for files that are missing, damaged or do not fit each other."""
        pieces, tokens = self.open_pieces(), self.options.get(ADDED)
        return WithAddedTokens(pieces, tokens) if tokens and not isinstance(pieces, XLMPieces) else pieces

    def open_pieces(self) -> Pieces:
        """As `open`, without added tokens."""
        if self.kind == "xlm":
            codes, vocab = self.files
            return XLMPieces(codes, vocab, self.options["lowercase_and_remove_accent"])
        if self.kind == "wordpiece":
            return WordPieces(self.files[0], self.options["lowercase"])
        return SentencePieces(self.files[0])

    def manifest_entry(self) -> dict:
        """Returns the entry of the manifest, with the hashes of the existing files."""
        hashes = {name: sha256_of(path) for name, path in zip(FILES[self.kind], self.files) if path.is_file()}
        return {"vocabulary": {"kind": self.kind, **self.options, "sha256": hashes}}


def in_folder(folder: Path, kind: Kind, options: dict[str, Any] | None = None) -> Source:
    """Returns the vocabulary of a data folder, whose files may not exist yet."""
    return Source(kind, tuple(folder / name for name in FILES[kind]), options or {})


def vocabulary_kind(folder: str | Path) -> Kind:
    """The kind of a data folder's vocabulary; without a manifest SentencePiece, unless files of another kind are there.

    Raises `UserError` for a damaged manifest.
    """
    folder = Path(folder)
    kind = read_manifest(folder).get("vocabulary", {}).get("kind")
    if kind is None:
        present = [candidate for candidate in FILES if (folder / FILES[candidate][0]).is_file()]
        kind = present[0] if present and not (folder / MANIFEST).is_file() else "sentencepiece"
    if kind not in get_args(Kind):
        raise UserError(f"{folder / MANIFEST}: {quoted(kind)} is no kind of vocabulary; known: {', '.join(FILES)}")
    return cast(Kind, kind)


def open_subwords(folder: str | Path) -> Subwords:
    """The sub-words of a data folder, with added tokens.

    Raises `UserError` for a missing or damaged file, and for another one than the folder's manifest names.
    """
    return _read(folder, Source.open)


def stored_options(folder: str | Path) -> dict[str, Any]:
    """The options of the sub-words that a data folder's manifest has; `UserError` for damaged added tokens."""
    vocabulary = read_manifest(folder).get("vocabulary", {})
    options = {name: vocabulary[name] for name in OPTIONS[vocabulary_kind(folder)] if name in vocabulary}
    tokens = check_tokens(vocabulary.get(ADDED, []), Path(folder) / MANIFEST)
    return options | ({ADDED: tokens} if tokens else {})


def open_pieces(folder: str | Path) -> Pieces:
    """As `open_subwords`, without added tokens."""
    return _read(folder, Source.open_pieces)


def _read(folder: str | Path, method: Callable[[Source], Result]) -> Result:
    """What a method of the `Source` of a data folder returns, with the errors of `open_subwords`."""
    folder, kind = Path(folder), vocabulary_kind(folder)
    source = in_folder(folder, kind, stored_options(folder))
    if OPTIONS[kind] and not read_manifest(folder).get("vocabulary"):
        raise UserError(f"{folder}: {MANIFEST} is missing, which says how text is prepared for its vocabulary")
    if not all(isinstance(source.options.get(name), bool) for name in OPTIONS[kind]):
        raise UserError(f"{folder / MANIFEST} is damaged: its 'vocabulary' needs {', '.join(OPTIONS[kind])}")
    subwords = method(source)
    for path in filter(Path.is_file, source.files):
        check_hash(path, folder, path.name)
    return subwords


def open_model(path: str | Path, folder: str | Path) -> SentencePieces:
    """A SentencePiece model for the text of a data folder, wherever the model is.

    Raises `UserError` for a missing or damaged model, and for another one than the folder's manifest names.
    """
    model = SentencePieces(Path(path))
    check_hash(Path(path), folder, *FILES["sentencepiece"])
    return model


def check_hash(path: Path, folder: str | Path, name: str) -> None:
    """Raises `UserError` for another file than the one that a data folder's manifest has as `name`, if it has any."""
    if stored_hashes(folder).get(name) not in (None, sha256_of(path)):
        raise UserError(f"{path} is not the file that the text was encoded with: {Path(folder) / MANIFEST}")


def stored_hashes(folder: str | Path) -> dict[str, str]:
    """{name: SHA-256} of the files of a vocabulary in a data folder's manifest; `UserError` if they are damaged."""
    hashes = read_manifest(folder).get("vocabulary", {}).get("sha256", {})
    if not isinstance(hashes, dict):
        raise UserError(f"{Path(folder) / MANIFEST} is damaged: its 'vocabulary' has {quoted(hashes)} as sha256")
    return hashes


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
