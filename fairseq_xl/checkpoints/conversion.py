"""Writes checkpoints of this package as folders of other programs; the command is `fairseq-xl convert`."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_xl.checkpoints.layouts.counterparts import counterpart, sentence_encoder
from fairseq_xl.checkpoints.layouts.exported_folders import (
    write_fairseq,
    write_sentence_transformers,
    write_transformers,
)
from fairseq_xl.checkpoints.layouts.plugin_checkpoint import Own, for_languages, read_own
from fairseq_xl.checkpoints.layouts.transformers_tokenizer import write_tokenizer
from fairseq_xl.data.vocabulary.special_symbols import check_direction
from fairseq_xl.data.vocabulary.subwords import FILES, vocabulary_kind
from fairseq_xl.errors import UserError
from fairseq_xl.io.folders import new_folder

logger = logging.getLogger(__name__)

(SENTENCEPIECE,) = FILES["sentencepiece"]


def export_model(checkpoint: str, data: Path, output: Path, kind: str, options: Any, heads: Mapping[str, str]) -> None:
    """Writes a checkpoint of this package as a folder for another program, with its tokenizer.

    Args:
        data: data folder with its dict.txt and its sub-words.
        kind: transformers, fairseq or sentence-transformers.
        options: `lang`, `language_module`, `no_head`, `no_tokenizer`, `layout`, `dtype`, `layer` and `pooling` of
            `fairseq-xl convert`.
        heads: as in `read_own`.

    Raises `UserError` for a model without counterpart, and for a language or direction that the model does not have.
    """
    archive = options.lang if options.language_module else None
    model = read_own(checkpoint, data, heads, options.language_module, archive)
    source, target = _languages(model, options.lang)
    if options.lang:
        model = for_languages(model, source or "", target)
    with new_folder(output) as folder:
        if kind == "fairseq":
            pieces = data / SENTENCEPIECE
            has_pieces = vocabulary_kind(data) == "sentencepiece" and pieces.is_file()
            left_out = write_fairseq(folder, model, options.dtype, pieces if has_pieces else None)
        else:
            pooled, head = kind == "sentence-transformers", not options.no_head
            result = sentence_encoder(model, options.layer) if pooled else counterpart(model, head, options.layout)
            left_out = result.left_out
            write_transformers(folder, result, options.dtype, _start(model, target))
            if not options.no_tokenizer:
                segments, framing = result.config.get("type_vocab_size") == 2, model.options["framing"]
                write_tokenizer(folder, data, model.dictionary, framing, model.longest, source, segments)
                if vocabulary_kind(data) == "xlm" and model.type_state.get("num_texts", 1) > 1:
                    remark = "XLMTokenizer puts one </s> between two texts, and this package two"
                    logger.warning("%s was fine-tuned on pairs: %s", model.path, remark)
            if pooled:
                write_sentence_transformers(folder, options.pooling, model.longest, model.options["embed_dim"])
    if left_out:
        logger.info("%s: not exported: %s", checkpoint, ", ".join(left_out))


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
        remark = "so generate() needs decoder_start_token_id, the id of [YY]"
        logger.warning("%s: no direction is named (--lang XX-YY), %s", model.path, remark)
        return None
    return model.dictionary.language_symbol(target)
