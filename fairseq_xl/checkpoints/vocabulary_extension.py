"""Adds pieces and languages to the vocabulary of a checkpoint, for `fairseq-xl model extend-vocabulary`."""

import itertools
import logging
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sentencepiece.sentencepiece_model_pb2 import ModelProto

from fairseq_xl.checkpoints import wordpiece_extension
from fairseq_xl.checkpoints.identity import encoding_of
from fairseq_xl.checkpoints.layouts import published_origin
from fairseq_xl.checkpoints.sentencepiece_surgery import extend, ordinary_pieces, processor, read_model, verbatim
from fairseq_xl.checkpoints.vocabulary_surgery import change_vocabulary, initial_rows, read_checkpoint
from fairseq_xl.data.store.manifest import data_folders, manifest_tokenizers, read_manifest
from fairseq_xl.data.vocabulary import subwords
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary, write_dictionary
from fairseq_xl.data.vocabulary.special_symbols import MASK, SPECIAL, language_symbols
from fairseq_xl.data.vocabulary.wordpiece import WordPieces
from fairseq_xl.errors import UserError, language_codes
from fairseq_xl.io.checkpoints import DICTIONARY, save_checkpoint
from fairseq_xl.io.files import FORMATS, replacing, write_json, write_lines
from fairseq_xl.io.folders import new_folder
from fairseq_xl.io.lines import read_lines
from fairseq_xl.io.text import text_of_line

logger = logging.getLogger(__name__)

MODEL, CHECKPOINT = "sentencepiece.model", "checkpoint.pt"


def extend_vocabulary(options: Any) -> None:
    """Writes the folder `output` from the arguments of the command."""
    data = data_folders(options.data)[0]
    for folder in (data, *([Path(options.new_data)] if options.new_data else [])):
        if "disjoint" in read_manifest(folder):
            raise UserError(f"{folder}: its languages share no piece, so the vocabulary cannot be extended")
    old = XLDictionary.load(data / DICTIONARY)
    _check_subwords(data, old)
    checkpoint = read_checkpoint(options.checkpoint, old, data / DICTIONARY)
    with new_folder(options.output) as folder:
        if options.new_data:
            new_data = Path(options.new_data)
            _check_subwords(new_data, XLDictionary.load(new_data / DICTIONARY))
            _copy(new_data, folder, (DICTIONARY, *subwords.FILES[subwords.vocabulary_kind(new_data)]))
        else:
            _write_extended(options, data, old, folder)
        new = XLDictionary.load(folder / DICTIONARY)
        rows = initial_rows(old, new, _segment(data, old, new), options.like)
        _write_manifest(Path(options.new_data or data), folder, new.languages)
        changed = change_vocabulary(checkpoint, old, new, rows, options.output, encoding_of(folder))
        save_checkpoint(changed, folder / CHECKPOINT)
        if old.languages == new.languages and not options.new_data:
            is_model = (folder / MODEL).is_file()
            pieces = read_model(folder / MODEL).pieces if is_model else ()
            published_origin.extend(data, folder, old, new, {piece.piece: piece.score for piece in pieces})
    languages = ", ".join(new.languages)
    logger.info("%s: %d symbols, before %d; languages: [%s]", options.output, len(new), len(old), languages)


def _copy(data: Path, folder: Path, names: tuple[str, ...]) -> None:
    for name in names:
        if (data / name).exists():
            shutil.copyfile(data / name, folder / name)


def _check_subwords(data: Path, dictionary: XLDictionary) -> None:
    *_, listed = subwords.FILES[subwords.vocabulary_kind(data)]
    if (data / listed).exists():
        subwords.check_pieces(subwords.open_subwords(data), data / listed, dictionary)


def _read_model(data: Path) -> ModelProto:
    kind = subwords.vocabulary_kind(data)
    if kind != "sentencepiece":
        raise UserError(f"{data} has a vocabulary of kind {kind}: pieces are added to SentencePiece and WordPiece")
    subwords.open_model(data / MODEL, data)
    return read_model(data / MODEL)


def _write_extended(options: Any, data: Path, old: XLDictionary, folder: Path) -> None:
    """Writes the dictionary with new languages and pieces, and the SentencePiece model."""
    added_languages = language_codes("--langs", options.langs) if options.langs else []
    if repeated := set(added_languages) & set(old.languages):
        raise UserError(f"--langs {options.langs}: the dictionary has {min(repeated)} already")
    languages = [*old.languages, *added_languages]
    last = [MASK, *language_symbols(languages)]
    counts = {old.symbols[index]: old.count[index] for index in old.pieces.tolist()}
    if options.text:
        text = [line for line in (text_of_line(line) for path in options.text for line in read_lines(path)) if line]
        if not text:
            raise UserError(f"--text {' '.join(options.text)}: there is no text in it")
        learn = _write_wordpieces if subwords.vocabulary_kind(data) == "wordpiece" else _write_sentencepiece
        added = learn(data, folder, text, options.pieces, {*SPECIAL, *last})
        if len(added) < options.pieces:
            logger.warning("--pieces %d: the text gives %d new pieces", options.pieces, len(added))
        counts |= added
    else:
        _copy(data, folder, subwords.FILES[subwords.vocabulary_kind(data)])
    counts |= dict.fromkeys(last, 0)
    write_dictionary(folder / DICTIONARY, counts, counts.values())


def _write_sentencepiece(data: Path, folder: Path, text: list[str], count: int, reserved: set[str]) -> dict[str, int]:
    """Writes the model with up to `count` more pieces, which are returned with their counts in the text."""
    model = _read_model(data)
    extended = extend(model, text, count, reserved)
    counts = Counter(itertools.chain.from_iterable(processor(extended).encode(text, out_type=str)))
    with replacing(folder / MODEL) as file:
        file.write(extended.SerializeToString())
    return {piece: counts[piece] for piece in ordinary_pieces(extended)[len(ordinary_pieces(model)) :]}


def _write_wordpieces(data: Path, folder: Path, text: list[str], count: int, reserved: set[str]) -> dict[str, int]:
    """As `_write_sentencepiece`, of a WordPiece vocabulary."""
    old, (name,) = subwords.open_pieces(data), subwords.FILES["wordpiece"]
    assert isinstance(old, WordPieces)
    added = wordpiece_extension.learn(old, text, count, reserved)
    write_lines(folder / name, [*old.pieces, *added])
    extended = WordPieces(folder / name, read_manifest(data)["vocabulary"]["lowercase"])
    counts = Counter(extended.symbols[row] for row in itertools.chain.from_iterable(extended.encode(text)))
    return {piece: counts[piece] for piece in added}


def _write_manifest(data: Path, folder: Path, languages: list[str]) -> None:
    """Writes manifest.json with the kind of the sub-words, the tokenizers and the versions of a data folder."""
    manifest, kind = read_manifest(data), subwords.vocabulary_kind(data)
    source = subwords.in_folder(folder, kind, subwords.stored_options(data))
    tokenizers = manifest_tokenizers(manifest)
    config = {"languages": languages} | ({"tokenizer": tokenizers} if tokenizers else {})
    versions = {"versions": manifest["versions"]} if "versions" in manifest else {}
    content = {"format": FORMATS["data folder"], "config": config} | source.manifest_entry() | versions
    write_json(folder / subwords.MANIFEST, content)


def _segment(data: Path, old: XLDictionary, new: XLDictionary) -> Callable[[str], list[str]]:
    """Returns a function from a new piece to its old pieces; it reads no model if all pieces of `new` are old ones."""
    if set(new.symbols[: new.first_language]) <= set(old.symbols):
        return lambda piece: [piece]
    if subwords.vocabulary_kind(data) == "wordpiece":
        pieces = set(old.symbols)
        return lambda piece: wordpiece_extension.spell(piece, pieces)
    model = verbatim(_read_model(data))
    return lambda piece: [model.id_to_piece(index) for index in model.encode(piece) if not model.is_unknown(index)]
