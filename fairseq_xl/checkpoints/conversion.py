"""Writes checkpoints of this package as folders of other programs; the command is `fairseq-xl model convert`.

`has_form` and `obstacles` of each layout define the models of transformers that compute the same
(recipes/interchange/README.md); others are refused with the reason.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairseq_xl.checkpoints.layouts import exported_folders, published_origin
from fairseq_xl.checkpoints.layouts.base import LAYOUTS, PLUGIN, TOKENIZER, Counterpart
from fairseq_xl.checkpoints.layouts.plugin_checkpoint import Own, for_languages, read_own
from fairseq_xl.checkpoints.layouts.sentence_transformers import SentenceSettings
from fairseq_xl.checkpoints.layouts.transformers_tokenizer import write_tokenizer
from fairseq_xl.checkpoints.parameter_names import BIAS, TOKENS
from fairseq_xl.checkpoints.stacks import count_layers
from fairseq_xl.data.vocabulary.special_symbols import check_direction
from fairseq_xl.data.vocabulary.subwords import FILES, vocabulary_kind
from fairseq_xl.errors import UserError
from fairseq_xl.io.folders import new_folder

logger = logging.getLogger(__name__)

(SENTENCEPIECE,) = FILES["sentencepiece"]


def export_model(checkpoint: str, data: Path, output: Path, kind: str, options: Any, heads: Mapping[str, str]) -> None:
    """Writes a checkpoint as a folder of the program `kind`, by the `options` of `fairseq-xl model convert`.

    Raises `UserError` for a model without counterpart, and for a language or direction that it does not have.
    """
    model = read_own(checkpoint, data, heads, options.language_module, options.lang)
    source, target = _languages(model, options.lang)
    if source:
        model = for_languages(model, source, target)
    elif model.languages and not options.keep_languages:
        ways = f"--lang {'XX-YY' if model.has_decoder else 'XX'} writes it for one"
        if kind == "transformers" and options.to != "transformers.js" and not model.has_decoder:
            ways += ", --keep-languages for calls that pass `langs`"
        raise UserError(
            f"{model.path} has language embeddings, and programs that read its folder name no language: {ways}"
        )
    dtype = options.dtype or "float32"
    with new_folder(output) as folder:
        if kind == "fairseq":
            pieces = data / SENTENCEPIECE
            has_pieces = vocabulary_kind(data) == "sentencepiece" and pieces.is_file()
            left_out = exported_folders.write_fairseq(folder, model, dtype, pieces if has_pieces else None)
        else:
            pooled, head = kind == "sentence-transformers", not options.no_head
            settings = (model.origin and model.origin.settings) or SentenceSettings()
            longest = min(model.longest, settings.max_length or model.longest) if pooled else model.longest
            head_class = None if pooled else _head_class(model, head)
            tokenizer = published_origin.read_tokenizer(data, model, head_class, options.layout)
            if tokenizer and pooled and not (tokenizer.folder / TOKENIZER).is_file():
                tokenizer = None
            ordered = published_origin.without_new_output(tokenizer.in_order(model) if tokenizer else model)
            result = sentence_encoder(ordered, options.layer) if pooled else counterpart(ordered, head, options.layout)
            left_out, start = result.left_out, _start(model, target)
            result.config[PLUGIN]["languages"] = [name for name in (source, target) if name]
            is_unchanged, rows = not (model.updates or options.layer or options.no_head), None
            if tokenizer:
                start, rows = None if start is None else tokenizer.rows.index(start), len(tokenizer.rows)
            result = published_origin.restored(result, model, head_class, is_unchanged, rows)
            unchanged = model.origin if is_unchanged and not options.lang else None
            unchanged = unchanged if unchanged and unchanged.layout == result.layout.name else None
            dtype = options.dtype or (unchanged.dtype if unchanged else "") or "float32"
            generation = unchanged.generation if unchanged and tokenizer else None
            exported_folders.write_transformers(folder, result, dtype, start, model.origin, generation)
            if tokenizer and not options.no_tokenizer:
                tokenizer.write(folder, model)
            elif not options.no_tokenizer:
                segments, framing = model.options.get("segment_embeddings") == "added", model.options["framing"]
                write_tokenizer(folder, data, model.dictionary, framing, longest, source, segments)
                if vocabulary_kind(data) == "xlm" and model.type_state.get("num_texts", 1) > 1:
                    remark = "XLMTokenizer puts one </s> between two texts, and this package two"
                    logger.warning("%s was fine-tuned on pairs: %s", model.path, remark)
            if pooled:
                pooling, dim = options.pooling or settings.pooling, model.options["embed_dim"]
                exported_folders.write_sentence_transformers(folder, settings, pooling, longest, dim)
    if left_out:
        logger.info("%s: not exported: %s", checkpoint, ", ".join(left_out))


def _languages(model: Own, language: str | None) -> tuple[str | None, str | None]:
    """Source and target language, of --lang or of the checkpoint's only direction; `UserError` for others."""
    languages = model.dictionary.languages
    if language is None:
        if len(languages) == 1 and not model.has_decoder:
            return languages[0], None
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


def counterpart(model: Own, head: bool = True, layout: str | None = None) -> Counterpart:
    """The equal model of transformers, of a layout (default: the first that fits); `UserError` if there is none."""
    head_class = _head_class(model, head)
    if head and not model.has_decoder and model.head and not head_class:
        raise UserError(
            f"{model.path} was fine-tuned for {model.head.replace('_', ' ')}, which has no head in transformers: "
            "--no-head exports its encoder"
        )
    exportable = {name: candidate for name, candidate in LAYOUTS.items() if candidate.model_types}
    if layout is not None and layout not in exportable:
        raise UserError(f"--layout {layout}: expected one of {', '.join(sorted(exportable))}")
    candidates = exportable.values() if layout is None else [exportable[layout]]
    if layout is None and model.origin and model.origin.layout in exportable:  # the one that it came in as, first
        candidates = [exportable[model.origin.layout], *candidates]
    suitable = next((candidate for candidate in candidates if candidate.has_form(model, head_class)), None)
    if suitable is None:
        raise UserError(f"{model.path} has another form than models of --layout {layout}")
    reason = next((reason for reason, applies in suitable.obstacles(model, head_class).items() if applies), None)
    if reason:
        raise UserError(f"{model.path} has no counterpart in transformers, which has no model with {reason}")
    exported = suitable.export(model, head_class)
    return replace(exported, config=exported.config | {PLUGIN: {"framing": model.options["framing"]}})


def _head_class(model: Own, head: bool) -> str | None:
    return model.head_class if head and not model.has_decoder else None


def sentence_encoder(model: Own, layer: int | None) -> Counterpart:
    """The encoder up to a layer, counted from 1 (None: all), for sentence embeddings; `UserError` as `counterpart`.

    Also for a model with a decoder.
    """
    if model.has_decoder:
        raise UserError(f"{model.path} has a decoder, which sentence-transformers lacks: --to transformers exports it")
    depth = count_layers(model.state, "encoder")
    layer = depth if layer is None else layer
    if not 1 <= layer <= depth:
        raise UserError(f"--layer {layer}: expected 1 to {depth}, the layers of {model.path}")
    if layer < depth and model.options["layer_norm"] == "pre":
        raise UserError(
            f"--layer {layer}: {model.path} has pre-LN layers, so only the last one, {depth}, has a LayerNorm"
        )
    if model.languages:
        raise UserError(
            f"{model.path} has no counterpart in transformers, which has no model with language embeddings (--lang XX "
            "exports the model for one language)"
        )
    deeper = tuple(f"encoder.layers.{index}." for index in range(layer, depth))
    state = {
        name: value
        for name, value in model.state.items()
        if name.startswith("encoder.") and name != BIAS and not name.startswith(deeper)
    }
    # without its output layer, a model of XLM's form is one of XLM-R's form
    exported = counterpart(replace(model, state=state, options=model.options | {"output_form": "dense"}), head=False)
    layout, zeros = exported.layout, state[TOKENS].new_zeros(state[TOKENS].size(1), state[TOKENS].size(1))
    prefix = f"{layout.encoder_prefix}pooler.dense"
    if model.origin is None:  # the class has a pooler, which is not used
        exported.weights.update({f"{prefix}.weight": zeros, f"{prefix}.bias": zeros[0].clone()})
    return exported
