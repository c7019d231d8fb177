"""Writes checkpoints of this package as folders of other programs; the command is `fairseq-xl convert`."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fairseq_xl.checkpoints.layouts.base import Counterpart
from fairseq_xl.checkpoints.layouts.counterparts import counterpart, sentence_encoder
from fairseq_xl.checkpoints.layouts.exported_folders import write_fairseq, write_transformers
from fairseq_xl.checkpoints.layouts.plugin_checkpoint import Own, for_languages, read_own
from fairseq_xl.checkpoints.layouts.sentence_transformers import write_sentence_transformers
from fairseq_xl.checkpoints.layouts.transformers_tokenizer import write_tokenizer
from fairseq_xl.data.vocabulary.special_symbols import check_direction
from fairseq_xl.data.vocabulary.subwords import FILES, vocabulary_kind
from fairseq_xl.errors import UserError
from fairseq_xl.io.folders import new_folder

logger = logging.getLogger(__name__)

(SENTENCEPIECE,) = FILES["sentencepiece"]


@dataclass(frozen=True)
class Export:
    """What to write of a checkpoint."""

    kind: str = "transformers"  # or fairseq, or sentence-transformers
    #: the language of the text, or the direction as in en-de. Language embeddings are then added to the position
    #: embeddings, and the direction gives the first symbol of the decoder's input
    language: str | None = None
    #: file of a language module that replaces the checkpoint's; from an archive, the module of `language`
    language_module: str | None = None
    head: bool = True  # as in `counterpart`, like `layout`
    layout: str | None = None
    dtype: str = "float32"  # type of the weights in the file
    layer: int | None = None  # of sentence-transformers: the layer that is pooled; None: the last one
    pooling: Literal["mean", "first"] = "mean"  # of sentence-transformers
    tokenizer: bool = True  # whether to write the tokenizer


def export_model(checkpoint: str, data: Path, output: Path, export: Export) -> None:
    """Writes a checkpoint of ours as a folder for another program, with its tokenizer.

    Args:
        checkpoint: its file.
        data: data folder with its dict.txt and its sub-words.
        output: the folder to write.

    Raises `UserError` for a model without counterpart, and for a language or direction that the model does not have.
    """
    archive = export.language if export.language_module else None
    own = read_own(checkpoint, data, export.language_module, archive)
    source, target = _languages(own, export.language)
    if export.language:
        own = for_languages(own, source or "", target)
    with new_folder(output) as folder:
        if export.kind == "fairseq":
            pieces = data / SENTENCEPIECE
            has_pieces = vocabulary_kind(data) == "sentencepiece" and pieces.is_file()
            left_out = write_fairseq(folder, own, export.dtype, pieces if has_pieces else None)
        else:
            sentences = export.kind == "sentence-transformers"
            found = sentence_encoder(own, export.layer) if sentences else counterpart(own, export.head, export.layout)
            left_out = found.left_out
            write_transformers(folder, found, export.dtype, _start(own, target))
            if export.tokenizer:
                _write_tokenizer(folder, data, own, found, source)
            if sentences:
                write_sentence_transformers(folder, export.pooling, own.longest, own.options["embed_dim"])
    if left_out:
        logger.info("%s: not exported: %s", checkpoint, ", ".join(left_out))


def _write_tokenizer(folder: Path, data: Path, own: Own, found: Counterpart, source: str | None) -> None:
    segments = found.config.get("type_vocab_size") == 2
    write_tokenizer(folder, data, own.dictionary, own.options["framing"], own.longest, source, segments)
    if vocabulary_kind(data) == "xlm" and own.type_state.get("num_texts", 1) > 1:
        logger.warning(
            "%s was fine-tuned on pairs: XLMTokenizer puts one </s> between two texts, and this package two", own.path
        )


def _languages(own: Own, named: str | None) -> tuple[str | None, str | None]:
    """Source and target language: those that --lang names, or of the only direction of the checkpoint.

    Raises `UserError` for a language that the dictionary does not have, for one where a direction is expected, and for
    a direction that the model was not trained in (`check_direction`).
    """
    known = own.dictionary.languages
    if named is None:
        if len(own.directions) == 1:
            return _split(own.directions[0], known) or (None, None)
        return None, None
    if own.has_decoder:
        pair = _split(named, known)
        if pair is None:
            raise UserError(f"--lang {named}: expected a direction of two of {', '.join(known)}, such as XX-YY")
        if own.directions and not check_direction(own.directions, *pair, f"--lang {named}: {own.path}"):
            logger.warning("%s was not trained for %s: zero-shot translation", own.path, named)
        if own.same_language and pair[0] != pair[1]:
            raise UserError(f"--lang {named}: {own.path} writes the language of the source: expected XX-XX")
        return pair
    own.dictionary.language_id(named)
    return named, None


def _split(direction: str, known: Sequence[str]) -> tuple[str, str] | None:
    """The languages of a direction; a code may have a hyphen itself."""
    parts = direction.split("-")
    halves = (("-".join(parts[:cut]), "-".join(parts[cut:])) for cut in range(1, len(parts)))
    return next((pair for pair in halves if set(pair) <= set(known)), None)


def _start(own: Own, target: str | None) -> int | None:
    """Id of the symbol of the target language; None, with a warning, if no direction is known."""
    if not own.has_decoder:
        return None
    if target is None:
        logger.warning(
            "%s: no direction is named (--lang XX-YY), so generate() needs decoder_start_token_id, the id of [YY]",
            own.path,
        )
        return None
    return own.dictionary.language_symbol(target)
