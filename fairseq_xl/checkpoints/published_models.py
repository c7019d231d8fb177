"""Reads published models and converts their weights to our parameter names.

============================= ======================================= =============================================
model                         weights                                 symbols, in the same folder or file
============================= ======================================= =============================================
XLM-R (fairseq)               model.pt                                dict.txt, or sentencepiece.bpe.model
XLM-R (transformers)          model.safetensors or pytorch_model.bin  sentencepiece.bpe.model, tokenizer.json, dict.txt
XLM (transformers)            the same                                vocab.json
BERT (transformers)           the same                                vocab.txt or tokenizer.json
mBART (transformers)          the same                                sentencepiece.bpe.model or tokenizer.json
XLM, Unicoder                 NAME.pth, a dict with model and params  dico_id2word in the file
XLM's translation             NAME.pth, with encoder and decoder      the same
VECO's translation (fairseq)  model.pt                                dict.txt
mBART (fairseq)               model.pt                                dict.txt
============================= ======================================= =============================================

The files of transformers have a config.json beside them, and may be shards with an index. The tables of names are in
`layouts.layout_tables`, the orders of symbols in `layouts.published_vocabularies`. XLM's words must be the pieces of
our dictionary, in order and spelled ``th@@ e``, as in a .pth and in text that was prepared with its codes; the words of
a vocab.json, ``th e</w>``, are respelled when they are read.

XLM's decoder input begins with ``</s>``, and only the language embedding identifies the language; our decoder input
begins with ``[xx]``. So the rows of ``[xx]`` are copies of the row of ``</s>``, and their output bias keeps them from
being predicted.

Files are read as plain data. The layouts follow the programs that write them; no released weights have been read so
far.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_xl.checkpoints.layouts import encoder_decoder_pairs, published_vocabularies
from fairseq_xl.checkpoints.layouts.layout_tables import DECODER_BIAS, DECODER_LANGUAGES, DECODER_TOKENS
from fairseq_xl.checkpoints.layouts.model_settings import Settings, to_options
from fairseq_xl.checkpoints.layouts.name_mapping import State
from fairseq_xl.checkpoints.layouts.published_files import (
    CONFIG,
    as_settings,
    beside,
    fairseq_settings,
    has_xlm_tokenizer,
    load_weights,
    weights_file,
)
from fairseq_xl.checkpoints.layouts.state_dict_conversion import to_ours
from fairseq_xl.checkpoints.layouts.weight_checks import check_parameters, check_settings
from fairseq_xl.checkpoints.parameter_names import BIAS, LANGUAGES, TOKENS
from fairseq_xl.checkpoints.stacks import count_layers
from fairseq_xl.data.vocabulary.joint_dictionary import write_dictionary
from fairseq_xl.data.vocabulary.special_symbols import MASK, SPECIAL, language_symbols
from fairseq_xl.data.vocabulary.xlm_bpe import END, read_numbered, spelled_words
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.files import json_object

NEVER = -100.0  # added to the output bias of symbols that are never predicted: exp(-100) is 0 beside 1 in float32
XLM_SUFFIX = ".pth"
DICTIONARY, PIECES, WORDS, WORDPIECES = "dict.txt", "sentencepiece.bpe.model", "vocab.json", "vocab.txt"
TOKENIZER = "tokenizer.json"
#: model_type of a config.json -> layout
TRANSFORMERS = {"xlm-roberta": "xlm-roberta", "xlm": "xlm", "bert": "bert", "mbart": "bart", "bart": "bart"}
TRANSFORMERS |= {encoder_decoder_pairs.MODEL_TYPE: encoder_decoder_pairs.MODEL_TYPE}
#: parameters of the heads of fine-tuned models of transformers
_HEADS = re.compile(r"(classifier|qa_outputs|sequence_summary)\.")


@dataclass(frozen=True)
class Published:
    """A published encoder, or encoder and decoder.

    Attributes:
        layout: its layout, a key of `fairseq_xl.checkpoints.layouts.layout_tables.TABLES`, or `pairs.MODEL_TYPE`.
        state: weights under our names in float32, without output bias and output.* if the file has no output layer.
        symbols: symbols of the token embeddings, in our order: <s> <pad> </s> <unk>, pieces, <mask>.
        symbols_from: the file that lists them.
        languages: languages of the language embeddings, or of the rows after `symbols`.
        has_language_rows: whether the token embeddings have a row for each of `languages` after those of `symbols`.
        options: options that our model and task need, by name: framing, heads, layer_norm_eps, ...
        dtype: type of the weights in the file.
        counts: frequencies of symbols in the training text, if known.
        left_out: parameters of the file that are not read: the head of fine-tuning.
    """

    layout: str
    state: State
    symbols: list[str]
    symbols_from: Path
    languages: list[str]
    has_language_rows: bool
    options: Settings
    dtype: torch.dtype
    counts: dict[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def depths(self) -> dict[str, int]:
        """{"encoder": number of layers}, and "decoder" where there is one."""
        depths = {stack: count_layers(self.state, stack) for stack in ("encoder", "decoder")}
        return {stack: depth for stack, depth in depths.items() if depth}

    def write_dictionary(self, path: Any, languages: Sequence[str]) -> None:
        """Writes the model's dict.txt with the symbols of `languages`."""
        pieces, last = self.symbols[len(SPECIAL) : -1], [MASK, *language_symbols(languages)]
        write_dictionary(path, [*pieces, *last], [*(self.counts.get(piece, 1) for piece in pieces), *(0 for _ in last)])


def read(path: Any, values: bool = True) -> Published | Any:
    """Reads a published model.

    Args:
        path: the file of weights, or its folder.
        values: whether the weights are read; if not, they are on the meta device and have only shapes and types, but
            for an EncoderDecoderModel.

    Returns: `Published`, or the content of a file of torch.save that is not a published model.
    Raises `UserError` for a file that cannot be read or needs another one, and for a model that cannot be converted.
    """
    file = weights_file(Path(path))
    content = load_weights(file, values)
    if not isinstance(content, dict):
        return content
    model = content.get("encoder" if "decoder" in content else "model")
    try:
        if isinstance(model, dict):
            model = check_parameters(model)
            names = {name.removeprefix("module.") for name in model}
            settings = check_settings(fairseq_settings(content))
            if "attentions.0.q_lin.weight" in names or "transformer.attentions.0.q_lin.weight" in names:
                return _xlm_file(content, model, file)
            if any(".sentence_encoder." in name for name in names):
                return _fairseq_roberta(model, settings, file)
            if {"encoder.embed_tokens.weight", "decoder.layers.0.encoder_attn.q_proj.weight"} <= names:
                return _fairseq_transformer(model, settings, file)
        elif content and all(isinstance(value, Tensor) for value in content.values()):
            return _transformers(check_parameters(content), file)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return content


def check_symbols(found: Published, symbols: list[str], origin) -> None:
    """Raises `UserError` if our `symbols`, of the file `origin`, differ from the model's, with the first difference."""
    for row, (theirs, ours) in enumerate(zip_longest(found.symbols, symbols)):
        if theirs != ours:
            there, here = ("nothing" if symbol is None else repr(symbol) for symbol in (theirs, ours))
            raise UserError(
                f"the rows of {found.symbols_from} are not those of {origin}: symbol {row} is {there} there and {here} "
                "here (the text has to be prepared with the sub-words of the weights)"
            )


def with_new_rows(found: Published, model: dict[str, Tensor], languages: list[str]) -> tuple[dict, list[str]]:
    """Adds rows for our languages to a published state dict: their symbols, and missing language embeddings.

    Args:
        found: the published model; its symbols are the first ones of our dictionary.
        model: state dict of the new model, which gives the new rows; their output bias is 0.
        languages: ours in order; their symbols are the last of the dictionary.

    Returns: the state dict, and names of the new rows.
    """
    state, first = dict(found.state), len(found.symbols)
    rows = {name: first + row for row, name in enumerate(found.languages)} if found.has_language_rows else {}
    new = [f"[{language}]" for language in languages if language not in rows]
    state[TOKENS] = torch.cat((found.state[TOKENS][:first], model[TOKENS][first:]))
    if BIAS in state:
        state[BIAS] = torch.cat((found.state[BIAS][:first], found.state[BIAS].new_zeros(len(languages))))
    if DECODER_TOKENS in state:
        begin, bias = (state[name][[SPECIAL.index("</s>")] * len(languages)] for name in (DECODER_TOKENS, DECODER_BIAS))
        state[DECODER_TOKENS] = torch.cat((state[DECODER_TOKENS][:first], begin))
        state[DECODER_BIAS] = torch.cat((state[DECODER_BIAS][:first], bias + NEVER))
    for number, language in enumerate(languages):
        for name in (TOKENS, BIAS, DECODER_TOKENS, DECODER_BIAS):
            if language in rows and name in state:
                state[name][first + number] = found.state[name][rows[language]]
    for name in (LANGUAGES, DECODER_LANGUAGES):
        if name in state and name in model:
            state[name] = model[name].clone()
            for row, language in enumerate(languages):
                if language in found.languages:
                    state[name][row] = found.state[name][found.languages.index(language)]
                elif name == LANGUAGES:
                    new.append(f"embedding of {language}")
    return state, new


# --- the kinds -------------------------------------------------------------------------------------------------


def _fairseq_roberta(given: State, settings: Settings, file: Path) -> Published:
    state = _converted("fairseq_roberta", given)
    vocabulary = published_vocabularies.of_pieces(len(state[TOKENS]), beside(file, DICTIONARY, PIECES))
    options = to_options("fairseq_roberta", settings, state)
    return _published("fairseq_roberta", state, options, settings, vocabulary, given)


def _fairseq_transformer(given: State, settings: Settings, file: Path) -> Published:
    state = _converted("fairseq_transformer", given)
    langs = settings.get("langs") or ""
    if not isinstance(langs, str):
        raise UserError(f"its 'langs' is {quoted(langs)}, expected language codes separated by commas")
    codes = [code for code in langs.split(",") if code]
    vocabulary = published_vocabularies.of_fairseq_translation(len(state[TOKENS]), beside(file, DICTIONARY), codes)
    options = to_options("fairseq_transformer", settings, state)
    return _published("fairseq_transformer", state, options, settings, vocabulary, given)


def _transformers(given: State, file: Path) -> Published:
    config = check_settings(json_object(beside(file, CONFIG)))
    layout = TRANSFORMERS.get(config.get("model_type"))
    if layout is None:
        known = ", ".join(TRANSFORMERS)
        raise UserError(f"{CONFIG} has model_type {config.get('model_type')!r}; {known} can be converted")
    if layout == encoder_decoder_pairs.MODEL_TYPE and any(value.is_meta for value in given.values()):
        given = check_parameters(load_weights(file))  # their values say whether two tables are one
    heads = tuple(name for name in given if _HEADS.match(name))
    given = {name: value for name, value in given.items() if name not in heads}
    if layout == encoder_decoder_pairs.MODEL_TYPE:
        state, options = encoder_decoder_pairs.pair_to_ours(_in_32_bits(given), config)
    else:
        state = _converted(layout, given)
        options = to_options(layout, config, state)
    count = len(state[TOKENS])
    if (layout == "xlm" or has_xlm_tokenizer(file.parent)) and file.with_name(WORDS).is_file():
        words = beside(file, WORDS)
        listed = read_numbered(words)
        marked = any(word.endswith(END) for word in listed)  # a vocabulary without marks of words stays as it is
        spelled = spelled_words(listed) if marked else listed
        vocabulary = published_vocabularies.of_xlm(count, dict(enumerate(spelled)), words)
    elif layout == "bert":
        vocabulary = published_vocabularies.of_bert(count, beside(file, WORDPIECES, TOKENIZER))
    elif config["model_type"] == "mbart":
        vocabulary = published_vocabularies.of_mbart(count, beside(file, PIECES, TOKENIZER))
    else:
        expected = (WORDS, TOKENIZER) if layout == "xlm" else (PIECES, TOKENIZER, DICTIONARY)
        vocabulary = published_vocabularies.of_pieces(count, beside(file, *expected))
    return replace(_published(layout, state, options, config, vocabulary, given), left_out=heads)


def _xlm_file(content: dict, encoder: State, file: Path) -> Published:
    state = _converted("xlm", encoder)
    if "decoder" in content:
        try:
            decoder = _converted("xlm_decoder", check_parameters(content["decoder"]))
        except UserError as error:
            raise UserError(f"its decoder: {error}") from error
        if DECODER_BIAS not in decoder:
            raise UserError("its decoder: the weights have no output layer (pred_layer.proj)")
        if len(decoder[DECODER_TOKENS]) != len(state[TOKENS]):
            rows = f"{len(state[TOKENS])} rows of tokens in its encoder, {len(decoder[DECODER_TOKENS])} in its decoder"
            raise UserError(f"it has {rows}")
        state |= decoder
    vocabulary = published_vocabularies.of_xlm(len(state[TOKENS]), content.get("dico_id2word"), file)
    settings = check_settings(as_settings(content.get("params")))
    found = _published("xlm", state, to_options("xlm", settings, state), settings, vocabulary, encoder)
    return replace(found, counts=as_settings(content.get("dico_counts")))


def _converted(layout: str, given: State) -> State:
    return to_ours(layout, _in_32_bits(given))


def _in_32_bits(given: State) -> State:
    """The weights in float32; integers stay as they are, and are refused where they are needed."""
    return {name: value.float() if value.is_floating_point() else value for name, value in given.items()}


def _published(
    layout: str,
    state: State,
    options: Settings,
    settings: Settings,
    vocabulary: published_vocabularies.Vocabulary,
    given: State,
) -> Published:
    """The model with its rows in our order."""
    if vocabulary.rows is not None:
        for name in (TOKENS, BIAS, DECODER_TOKENS, DECODER_BIAS):
            if name in state:
                state[name] = _rows(state[name], vocabulary.rows, NEVER if name in (BIAS, DECODER_BIAS) else 0.0)
    of_tokens, of_embeddings = vocabulary.languages, _languages(settings, state)
    if of_tokens and of_embeddings and of_tokens != of_embeddings:
        raise UserError(
            f"{vocabulary.origin} has symbols of {of_tokens}, the language embeddings are of {of_embeddings}"
        )
    return Published(
        layout=layout,
        state=state,
        symbols=vocabulary.symbols,
        symbols_from=vocabulary.origin,
        languages=of_tokens or of_embeddings,
        has_language_rows=bool(of_tokens),
        options=options,
        dtype=next(value.dtype for value in given.values() if value.is_floating_point()),
    )


def _rows(table: Tensor, rows: list[int], absent: float) -> Tensor:
    """The rows of a table, (V,) or (V, C), in this order; -1 stands for a row of `absent`."""
    if -1 not in rows:
        return table[rows]
    return torch.cat((table, torch.full_like(table[:1], absent)))[rows]


def _languages(settings: Settings, state: State) -> list[str]:
    """Languages in the order of the rows of the language embeddings; empty without such embeddings."""
    counts = [len(state[name]) if name in state else 0 for name in (LANGUAGES, DECODER_LANGUAGES)]
    count = counts[0]
    if DECODER_TOKENS in state and counts[1] != count:
        raise UserError(f"its encoder has {count} language embeddings, its decoder {counts[1]}")
    if not count:
        return []
    named = {int(number): language for number, language in (settings.get("id2lang") or {}).items()}
    if named.keys() != set(range(count)):
        raise UserError(f"it has {count} language embeddings, and its 'id2lang' doesn't name them all")
    numbered = settings.get("lang2id") or {language: number for number, language in named.items()}
    if any(numbered.get(language) != number for number, language in named.items()):
        raise UserError(f"its 'id2lang' {named} and its 'lang2id' {numbered} number the languages differently")
    return [named[number] for number in range(count)]
