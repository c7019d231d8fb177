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
    """Writes a checkpoint of this package as a folder for another program, with its tokenizer.

    Args:
        checkpoint: its file.
        data: data folder with its dict.txt and its sub-words.
        output: the folder to write.

    Raises `UserError` for a model without counterpart, and for a language or direction that the model does not have.
    """
    archive = export.language if export.language_module else None
    model = read_own(checkpoint, data, export.language_module, archive)
    source, target = _languages(model, export.language)
    if export.language:
        model = for_languages(model, source or "", target)
    with new_folder(output) as folder:
        if export.kind == "fairseq":
            pieces = data / SENTENCEPIECE
            has_pieces = vocabulary_kind(data) == "sentencepiece" and pieces.is_file()
            left_out = write_fairseq(folder, model, export.dtype, pieces if has_pieces else None)
        else:
            pooled = export.kind == "sentence-transformers"
            result = sentence_encoder(model, export.layer) if pooled else counterpart(model, export.head, export.layout)
            left_out = result.left_out
            write_transformers(folder, result, export.dtype, _start(model, target))
            if export.tokenizer:
                _write_tokenizer(folder, data, model, result, source)
            if pooled:
                write_sentence_transformers(folder, export.pooling, model.longest, model.options["embed_dim"])
    if left_out:
        logger.info("%s: not exported: %s", checkpoint, ", ".join(left_out))


def _write_tokenizer(folder: Path, data: Path, model: Own, exported: Counterpart, source: str | None) -> None:
    segments = exported.config.get("type_vocab_size") == 2
    write_tokenizer(folder, data, model.dictionary, model.options["framing"], model.longest, source, segments)
    if vocabulary_kind(data) == "xlm" and model.type_state.get("num_texts", 1) > 1:
        logger.warning(
            "%s was fine-tuned on pairs: XLMTokenizer puts one </s> between two texts, and this package two", model.path
        )


def _languages(model: Own, language: str | None) -> tuple[str | None, str | None]:
    """Source and target language, of --lang or of the checkpoint's only direction.

    Raises `UserError` for a language that the dictionary does not have, for one where a direction is expected, and for
    a direction that the model was not trained in (`check_direction`).
    """
    languages = model.dictionary.languages
    if language is None:
        if len(model.directions) == 1:
            return _split(model.directions[0], languages) or (None, None)
        return None, None
    if model.has_decoder:
        pair = _split(language, languages)
        if pair is None:
            raise UserError(f"--lang {language}: expected a direction of two of {', '.join(languages)}, such as XX-YY")
        if model.directions and not check_direction(model.directions, *pair, f"--lang {language}: {model.path}"):
            logger.warning("%s was not trained for %s: zero-shot translation", model.path, language)
        if model.same_language and pair[0] != pair[1]:
            raise UserError(f"--lang {language}: {model.path} writes the language of the source: expected XX-XX")
        return pair
    model.dictionary.language_id(language)
    return language, None


def _split(direction: str, languages: Sequence[str]) -> tuple[str, str] | None:
    """The languages of a direction; a code may have a hyphen itself."""
    parts = direction.split("-")
    halves = (("-".join(parts[:index]), "-".join(parts[index:])) for index in range(1, len(parts)))
    return next((pair for pair in halves if set(pair) <= set(languages)), None)


def _start(model: Own, target: str | None) -> int | None:
    """Id of the symbol of the target language; None, with a warning, if no direction is known."""
    if not model.has_decoder:
        return None
    if target is None:
        logger.warning(
            "%s: no direction is named (--lang XX-YY), so generate() needs decoder_start_token_id, the id of [YY]",
            model.path,
        )
        return None
    return model.dictionary.language_symbol(target)
