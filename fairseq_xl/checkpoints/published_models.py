"""Reads published models and converts their weights to our parameter names.

Each family is a class in `layouts`, which names its files; recipes/interchange/README.md lists them. The files of
transformers have a config.json beside them, and may be shards with an index. The orders of symbols are in
`layouts.published_vocabularies`. XLM's words must be the pieces of our dictionary, in order and spelled ``th@@ e``, as
in a .pth and in text that was prepared with its codes; the words of a vocab.json, ``th e</w>``, are respelled when they
are read.

XLM's decoder input begins with ``</s>``, and only the language embedding identifies the language; our decoder input
begins with ``[xx]``. So the rows of ``[xx]`` are copies of the row of ``</s>``, and their output bias keeps them from
being predicted.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_xl.checkpoints.layouts import published_files, published_vocabularies
from fairseq_xl.checkpoints.layouts.base import LAYOUTS, PIECES, PLUGIN, TOKENIZER, WORDS, Head, Layout, Settings
from fairseq_xl.checkpoints.layouts.lora import Adapter, read_adapter
from fairseq_xl.checkpoints.layouts.name_mapping import State
from fairseq_xl.checkpoints.layouts.published_origin import origin_of
from fairseq_xl.checkpoints.layouts.stored_origin import Origin
from fairseq_xl.checkpoints.layouts.tokenizer_json import PAIRS, pair_template
from fairseq_xl.checkpoints.layouts.weight_checks import check_parameters, check_settings
from fairseq_xl.checkpoints.parameter_names import (
    BIAS,
    DECODER_BIAS,
    DECODER_LANGUAGES,
    DECODER_TOKENS,
    LANGUAGES,
    TOKENS,
)
from fairseq_xl.checkpoints.stacks import count_layers
from fairseq_xl.data.vocabulary.joint_dictionary import write_dictionary
from fairseq_xl.data.vocabulary.special_symbols import MASK, SPECIAL, language_symbols
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.files import json_object

NEVER = -100.0  # added to the output bias of symbols that are never predicted: exp(-100) is 0 beside 1 in float32
XLM_SUFFIX = ".pth"
_BETWEEN = {1: "bert", 2: "xl"}  # special symbols between the texts of a pair -> framing


@dataclass(frozen=True)
class Published:
    """A published encoder, or encoder and decoder."""

    layout: Layout
    state: State  # our names, float32; without output bias and output.* if the file has no output layer
    symbols: list[str]  # symbols of the token embeddings, in our order: <s> <pad> </s> <unk>, pieces, <mask>
    symbols_from: Path  # the file that lists them
    languages: list[str]  # of the language embeddings, or of the rows after `symbols`
    has_language_rows: bool  # whether the token embeddings have a row for each language after those of `symbols`
    options: Settings  # options that our model and task need, by name: framing, heads, layer_norm_eps, ...
    dtype: torch.dtype  # type of the weights in the file
    counts: dict[str, int] = field(default_factory=dict)  # frequencies of symbols in the training text, if known
    left_out: tuple[str, ...] = ()  # parameters of the file that are not read: of a head of fine-tuning
    head: Head | None = None  # of fine-tuning
    rows: Sequence[int] | None = None  # the row of the file of each symbol and language; None: their order; -1: none
    origin: Origin | None = None  # what checkpoints store of its folder; None without config.json or values

    @property
    def depths(self) -> dict[str, int]:
        """{"encoder": number of layers}, and "decoder" where there is one."""
        depths = {stack: count_layers(self.state, stack) for stack in ("encoder", "decoder")}
        return {stack: depth for stack, depth in depths.items() if depth}

    def symbols_of_rows(self) -> list[str]:
        """The symbol of each row of the file; empty if there are rows without one, such as XLM's ``<special2>``."""
        symbols = [*self.symbols, *(language_symbols(self.languages) if self.has_language_rows else ())]
        rows = range(len(symbols)) if self.rows is None else self.rows
        ordered = [(row, symbol) for row, symbol in sorted(zip(rows, symbols)) if row >= 0]
        return [symbol for _, symbol in ordered] if ordered[-1][0] == len(ordered) - 1 else []

    def write_dictionary(self, path: Any, languages: Sequence[str]) -> None:
        """Writes the model's dict.txt with the symbols of `languages`."""
        pieces, last = self.symbols[len(SPECIAL) : -1], [MASK, *language_symbols(languages)]
        write_dictionary(path, [*pieces, *last], [*(self.counts.get(piece, 1) for piece in pieces), *(0 for _ in last)])


def read(path: Any, values: bool = True) -> Published | Any:
    """Reads a published model, a LoRA adapter with its base; without `values` weights are on the meta device.

    Those of an EncoderDecoderModel are read.

    Returns `Published`, or the content of another file of torch.save. Raises `UserError` for unreadable models.
    """
    try:
        adapter = read_adapter(Path(path))
        if adapter:
            file = published_files.weights_file(adapter.base)
            return _transformers(check_parameters(published_files.load_weights(file, values)), file, adapter)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    file = published_files.weights_file(Path(path))
    content = published_files.load_weights(file, values)
    if not isinstance(content, dict):
        return content
    model = content.get("encoder" if "decoder" in content else "model")
    try:
        if isinstance(model, dict):
            model = check_parameters(model)
            check_settings(published_files.fairseq_settings(content))
            names = {name.removeprefix("module.") for name in model}
            layout = next((layout for layout in LAYOUTS.values() if layout.recognizes(names)), None)
            if layout is not None:
                return _published(layout, model, layout.settings(content), file)
        elif content and all(isinstance(value, Tensor) for value in content.values()):
            return _transformers(check_parameters(content), file)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return content


def check_symbols(model: Published, symbols: list[str], origin: object) -> None:
    """Raises `UserError` if our `symbols`, of the file `origin`, differ from the model's, with the first difference."""
    for row, (expected, actual) in enumerate(zip_longest(model.symbols, symbols)):
        if expected != actual:
            raise UserError(
                f"the rows of {model.symbols_from} are not those of {origin}: symbol {row} is "
                f"{expected or 'nothing'!r} there and {actual or 'nothing'!r} here "
                "(prepare the text with the sub-words of the weights)"
            )


def with_new_rows(published: Published, model: dict[str, Tensor], languages: list[str]) -> tuple[dict, list[str]]:
    """Adds rows for our languages to a published state dict: their symbols, and missing language embeddings.

    The published symbols are the first ones of our dictionary, those of `languages` the last. `model`, the new one's
    state dict, gives the new rows; their output bias is 0. Returns the state dict, and names of the new rows.
    """
    state, first = dict(published.state), len(published.symbols)
    rows = {name: first + row for row, name in enumerate(published.languages)} if published.has_language_rows else {}
    new = [f"[{language}]" for language in languages if language not in rows]
    state[TOKENS] = torch.cat((published.state[TOKENS][:first], model[TOKENS][first:]))
    if BIAS in state:
        state[BIAS] = torch.cat((published.state[BIAS][:first], published.state[BIAS].new_zeros(len(languages))))
    if DECODER_TOKENS in state:
        begin, bias = (state[name][[SPECIAL.index("</s>")] * len(languages)] for name in (DECODER_TOKENS, DECODER_BIAS))
        state[DECODER_TOKENS] = torch.cat((state[DECODER_TOKENS][:first], begin))
        state[DECODER_BIAS] = torch.cat((state[DECODER_BIAS][:first], bias + NEVER))
    for index, language in enumerate(languages):
        for name in (TOKENS, BIAS, DECODER_TOKENS, DECODER_BIAS):
            if language in rows and name in state:
                state[name][first + index] = published.state[name][rows[language]]
    for name in (LANGUAGES, DECODER_LANGUAGES):
        if name in state and name in model:
            state[name] = model[name].clone()
            for row, language in enumerate(languages):
                if language in published.languages:
                    state[name][row] = published.state[name][published.languages.index(language)]
                elif name == LANGUAGES:
                    new.append(f"embedding of {language}")
    return state, new


def _transformers(weights: State, file: Path, adapter: Adapter | None = None) -> Published:
    config = check_settings(json_object(published_files.beside(file, published_files.CONFIG)))
    layouts = {model_type: layout for layout in LAYOUTS.values() for model_type in layout.model_types}
    layout = layouts.get(config.get("model_type") or "")
    if layout is None:
        types = ", ".join(sorted(layouts))
        raise UserError(f"config.json has model_type {config.get('model_type')!r}; {types} can be converted")
    _refuse_code(file.parent)
    if layout.compares_values and any(value.is_meta for value in weights.values()):
        weights = check_parameters(published_files.load_weights(file))
    if adapter:
        weights = check_parameters(adapter.merged(weights, layout))
        config |= {"architectures": [layout.class_name(adapter.head)]} if adapter.head else {}
    head = layout.read_head(weights, config)
    heads = tuple(name for name in weights if re.match(layout.ignored_heads, name))
    read_weights = {name: value for name, value in weights.items() if name not in heads}
    published = _published(layout, read_weights, config, file)
    origin = None
    if not any(value.is_meta for value in weights.values()):
        framing = published.options["framing"]
        origin = origin_of(layout, weights, config, published.state, framing, file.parent, head is not None)
    return replace(published, left_out=() if head else heads, head=head, origin=origin)


def _refuse_code(folder: Path) -> None:
    for path in (folder / published_files.CONFIG, folder / published_files.TOKENIZER_CONFIG):
        code = json_object(path).get("auto_map") if path.is_file() else None
        if code:
            raise UserError(f"{path.name} names code of its own, auto_map {quoted(code)}: no code of a model is run")


def _published(layout: Layout, weights: State, settings: Settings, file: Path) -> Published:
    state = layout.to_ours(weights, settings)
    options = layout.options(settings, state)
    if "model_type" in settings and PLUGIN not in settings and options["framing"] in _BETWEEN.values():
        options |= _framing(file, options)
    words = file.with_name(WORDS)
    is_folder = "model_type" in settings and words.is_file()
    if is_folder and published_files.has_xlm_tokenizer(file.parent):  # an export of this package, of any layout
        vocabulary = published_vocabularies.from_xlm_words(len(state[TOKENS]), words)
    else:
        vocabulary = layout.vocabulary(len(state[TOKENS]), file, settings)
    if vocabulary.rows is not None:
        for name in (TOKENS, BIAS, DECODER_TOKENS, DECODER_BIAS):
            if name in state:
                if -1 in vocabulary.rows:  # a row that the file lacks
                    absent = torch.full_like(state[name][:1], NEVER if name in (BIAS, DECODER_BIAS) else 0.0)
                    state[name] = torch.cat((state[name], absent))
                state[name] = state[name][vocabulary.rows]
    listed, embedded = vocabulary.languages, _languages(settings, state)
    if listed and embedded and listed != embedded:
        raise UserError(f"{vocabulary.origin} has symbols of {listed}, the language embeddings are of {embedded}")
    return Published(
        layout=layout,
        state=state,
        symbols=vocabulary.symbols,
        symbols_from=vocabulary.origin,
        languages=listed or embedded,
        has_language_rows=bool(listed),
        options=options,
        dtype=next(value.dtype for value in weights.values() if value.is_floating_point()),
        counts=published_files.as_settings(settings.get("dico_counts")),
        rows=vocabulary.rows,
    )


def _framing(file: Path, options: Settings) -> Settings:
    """The options of a model's inputs that the tokenizer beside its weights decides, as far as it does."""
    tokenizer, template = file.with_name(TOKENIZER), None
    if tokenizer.is_file():
        template = pair_template(tokenizer)
    elif file.with_name(PIECES).is_file():  # XLM-R's
        template = PAIRS["RobertaProcessing"]
    if template is None:
        return {}
    symbols, token_type = template
    if symbols not in _BETWEEN:
        raise UserError(f"{tokenizer} has {symbols} special symbols between the texts of a pair; expected 1 or 2")
    is_first = options["segment_embeddings"] == "added" and not token_type
    return {"framing": _BETWEEN[symbols]} | ({"segment_embeddings": "first"} if is_first else {})


def _languages(settings: Settings, state: State) -> list[str]:
    """Languages in the order of the rows of the language embeddings; empty without such embeddings."""
    counts = [len(state[name]) if name in state else 0 for name in (LANGUAGES, DECODER_LANGUAGES)]
    count = counts[0]
    if DECODER_TOKENS in state and counts[1] != count:
        raise UserError(f"its encoder has {count} language embeddings, its decoder {counts[1]}")
    if not count:
        return []
    languages = {int(index): language for index, language in (settings.get("id2lang") or {}).items()}
    if languages.keys() != set(range(count)):
        raise UserError(f"it has {count} language embeddings, and its 'id2lang' doesn't name them all")
    numbered = settings.get("lang2id") or {language: index for index, language in languages.items()}
    if any(numbered.get(language) != index for index, language in languages.items()):
        raise UserError(f"its 'id2lang' {languages} and its 'lang2id' {numbered} number the languages differently")
    return [languages[index] for index in range(count)]
