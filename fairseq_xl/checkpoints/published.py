"""Reads published models and converts their weights to our parameter names.

======================= ======================================= =============================================
model                   weights                                 symbols, in the same folder or file
======================= ======================================= =============================================
XLM-R (fairseq)         model.pt                                dict.txt, or sentencepiece.bpe.model
XLM-R (transformers)    model.safetensors or pytorch_model.bin  sentencepiece.bpe.model, or dict.txt
XLM (transformers)      the same, with config.json              vocab.json
XLM, Unicoder           NAME.pth, a dict with model and params  dico_id2word in the file
XLM's translation       NAME.pth, with encoder and decoder      the same
======================= ======================================= =============================================

XLM-R's vocabulary is ``<s> <pad> </s> <unk>``, the pieces of its SentencePiece model and ``<mask>``. A dictionary of
this package for text that was prepared with that model is the same, followed by the language symbols. XLM's vocabulary
is ``<s> </s> <pad> <unk>``, ten ``<specialN>`` and the words of its BPE codes. Its rows are put in our order, with
``<special1>`` as ``<mask>`` and without the other nine. Its words must be the pieces of our dictionary, in order and
spelled as in the file: ``th@@ e`` in a .pth, ``th e</w>`` in a vocab.json.

XLM's decoder input begins with ``</s>``, and only the language embedding identifies the language; our decoder input
begins with ``[xx]``. So the rows of ``[xx]`` are copies of the row of ``</s>``, and their output bias keeps them from
being predicted.

Files are read as plain data. The layouts follow the programs that write them; no released weights have been read so
far.
"""

import argparse
import json
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import sentencepiece
import torch
from torch import Tensor

from fairseq_xl.checkpoints.keys import (
    BIAS,
    LANGUAGES,
    POSITIONS,
    TOKENS,
    from_fairseq_roberta,
    from_transformers_xlm,
    from_transformers_xlm_roberta,
    from_xlm_decoder,
)
from fairseq_xl.data.symbols import MASK, SPECIAL
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import load_plain

XLM_MASK = "<special1>"
XLM_SPECIAL = re.compile(r"<special\d+>")

DECODER_TOKENS, DECODER_BIAS, DECODER_LANGUAGES = (
    name.replace("encoder", "decoder") for name in (TOKENS, BIAS, LANGUAGES)
)
NEVER = -100.0  # added to the output bias of symbols that are never predicted: exp(-100) is 0 beside 1 in 32 bits

XLM_SUFFIX = ".pth"
CONFIG = "config.json"
TRANSFORMERS_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
FAIRSEQ_WEIGHTS = "model.pt"
DICTIONARY, PIECES, WORDS = "dict.txt", "sentencepiece.bpe.model", "vocab.json"

Settings = dict[str, Any]  # the model's settings in a file


@dataclass(frozen=True)
class Published:
    """A published encoder, or encoder and decoder.

    Attributes:
        state: weights under our names, without output bias and output.* if the file has no output layer.
        symbols: symbols of the token embeddings, in our order: <s> <pad> </s> <unk>, pieces, <mask>.
        symbols_from: the file that lists them.
        languages: languages of the language embeddings; empty without such embeddings.
        options: options that our model and task need, by name: framing, heads, layer_norm_eps, ...
        counts: frequencies of symbols in the training text, if known.
    """

    state: dict[str, Tensor]
    symbols: list[str]
    symbols_from: Path
    languages: list[str]
    options: Settings
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def depths(self) -> dict[str, int]:
        """{"encoder": number of layers}, and "decoder" where there is one."""
        layers = {tuple(name.split(".")[:3]) for name in self.state if re.match(r"(en|de)coder\.layers\.", name)}
        return Counter(stack for stack, _, _ in layers)


def read(path) -> Published | Any:
    """Reads a published model.

    Args:
        path: the file of weights, or its folder.

    Returns: `Published`, or the content of a file of torch.save that is not a published model.
    Raises `UserError` for a file that cannot be read or needs another one, and for a model that cannot be converted.
    """
    file = _file_of(Path(path))
    content = _load_safetensors(file) if file.suffix == ".safetensors" else load_plain(file)
    if not isinstance(content, dict):
        return content
    model = content.get("encoder" if "decoder" in content else "model")
    try:
        if isinstance(model, dict):
            names = _names(model)
            if "attentions.0.q_lin.weight" in names:
                state = from_transformers_xlm(_in_32_bits(names))
                if "decoder" in content:
                    state |= _decoder(content["decoder"])
                found = _xlm(state, _settings(content.get("params")), content.get("dico_id2word"), file)
                return replace(found, counts=_settings(content.get("dico_counts")))
            if any(".sentence_encoder." in name for name in names):
                settings = content.get("args") or (content.get("cfg") or {}).get("model")
                return _fairseq(_in_32_bits(names), _settings(settings), file)
        elif content and all(isinstance(value, Tensor) for value in content.values()):
            return _transformers(_in_32_bits(content), file)
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
    state, new = dict(found.state), [f"[{language}]" for language in languages]
    state[TOKENS] = torch.cat((found.state[TOKENS], model[TOKENS][len(found.symbols) :]))
    if BIAS in state:
        state[BIAS] = torch.cat((found.state[BIAS], found.state[BIAS].new_zeros(len(languages))))
    if DECODER_TOKENS in state:
        begin, bias = (state[name][[SPECIAL.index("</s>")] * len(languages)] for name in (DECODER_TOKENS, DECODER_BIAS))
        state[DECODER_TOKENS] = torch.cat((state[DECODER_TOKENS], begin))
        state[DECODER_BIAS] = torch.cat((state[DECODER_BIAS], bias + NEVER))
    for name in (LANGUAGES, DECODER_LANGUAGES):
        if name in state and name in model:
            state[name] = model[name].clone()
            for row, language in enumerate(languages):
                if language in found.languages:
                    state[name][row] = found.state[name][found.languages.index(language)]
                elif name == LANGUAGES:
                    new.append(f"embedding of {language}")
    return state, new


def _names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix("module."): value for name, value in state.items()}


def _decoder(given) -> dict[str, Tensor]:
    if not isinstance(given, dict):
        raise UserError("its 'decoder' holds no parameters")
    try:
        return from_xlm_decoder(_in_32_bits(_names(given)))
    except UserError as error:
        raise UserError(f"its decoder: {error}") from error


def _in_32_bits(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.float() for name, value in state.items()}


# --- the kinds -------------------------------------------------------------------------------------------------


def _fairseq(given: dict[str, Tensor], settings: Settings, file: Path) -> Published:
    activation = _needed(settings, "activation_fn")
    _check_activation(activation, ("gelu",))  # its output layer has the same one
    state = from_fairseq_roberta(given)
    options = _options(state, _needed(settings, "encoder_attention_heads"), activation, 1e-5, "xl")
    return _with_pieces(state, options, _beside(file, DICTIONARY, PIECES))


def _transformers(given: dict[str, Tensor], file: Path) -> Published:
    config = _read_json(_beside(file, CONFIG))
    kind = config.get("model_type")
    if kind == "xlm":
        words = _beside(file, WORDS)
        numbered = {number: word for word, number in _read_json(words).items()}
        return _xlm(from_transformers_xlm(given), config, numbered, words)
    if kind != "xlm-roberta":
        raise UserError(f"{CONFIG} has model_type {kind!r}; xlm-roberta and xlm can be converted")
    _check_activation(_needed(config, "hidden_act"), ("gelu", "relu"))
    if _needed(config, "pad_token_id") != 1:
        raise UserError(f"{CONFIG} has pad_token_id {config['pad_token_id']}, where XLM-R has 1")
    state = from_transformers_xlm_roberta(given)
    heads, eps = _needed(config, "num_attention_heads"), _needed(config, "layer_norm_eps")
    options = _options(state, heads, config["hidden_act"], eps, "xl")
    return _with_pieces(state, options, _beside(file, PIECES, DICTIONARY))


def _with_pieces(state: dict[str, Tensor], options: Settings, symbols_from: Path) -> Published:
    """XLM-R: its rows are in our order."""
    pieces = _read_dictionary(symbols_from) if symbols_from.name == DICTIONARY else _read_model(symbols_from)
    symbols = [*SPECIAL, *(piece for piece in pieces if piece not in (*SPECIAL, MASK)), MASK]
    _check_rows(state, symbols, symbols_from)
    return Published(state, symbols, symbols_from, [], options)


def _xlm(state: dict[str, Tensor], settings: Settings, numbered, symbols_from: Path) -> Published:
    """XLM: its rows are put in our order; `numbered` is {row: word}, from the file `symbols_from`."""
    if not isinstance(numbered, dict):
        raise UserError("it holds no 'dico_id2word', which lists the words of its rows")
    if numbered.keys() != set(range(len(numbered))):
        raise UserError(f"the words of {symbols_from} are not numbered from 0 without a gap")
    words = [numbered[row] for row in range(len(numbered))]
    _check_rows(state, words, symbols_from)
    rows, symbols = _in_our_order(words, symbols_from)
    for name in (TOKENS, BIAS, DECODER_TOKENS, DECODER_BIAS):
        if name in state:
            state[name] = state[name][rows]
    eps = settings.get("layer_norm_eps", 1e-12)  # a constant in XLM's code, which its files do not store
    activation = "gelu" if _needed(settings, "gelu_activation") else "relu"
    options = _options(state, _needed(settings, "n_heads"), activation, eps, "xlm")
    languages = _languages(settings, state)
    return Published(state, symbols, symbols_from, languages, options)


def _in_our_order(words: list[str], origin: Path) -> tuple[list[int], list[str]]:
    """XLM's words in the order of its rows -> rows in our order, and our symbols for them."""
    place = {word: row for row, word in enumerate(words)}
    missing = [symbol for symbol in (*SPECIAL, XLM_MASK) if symbol not in place]
    if missing:
        raise UserError(f"{origin} has no {missing[0]} among its words")
    plain = [row for row, word in enumerate(words) if word not in SPECIAL and not XLM_SPECIAL.fullmatch(word)]
    rows = [*(place[symbol] for symbol in SPECIAL), *plain, place[XLM_MASK]]
    return rows, [*(words[row] for row in rows[:-1]), MASK]


def _languages(settings: Settings, state: dict[str, Tensor]) -> list[str]:
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


def _options(state: dict[str, Tensor], heads: int, activation: str, eps: float, framing: str) -> Settings:
    """Options of our model. Heads change no shape, but weights for another number of heads mean something else."""
    positions = state[POSITIONS]
    offset = 0 if framing == "xlm" else 2
    options = {
        "framing": framing,
        "heads": heads,
        "embed_dim": positions.size(1),
        "ffn_dim": state["encoder.layers.0.ffn.up.bias"].size(0),
        "activation": activation,
        "layer_norm_eps": eps,
        "position_offset": offset,
        "max_positions": len(positions) - offset,
        "language_embeddings": "added" if LANGUAGES in state else "none",
    }
    if BIAS in state or DECODER_BIAS in state:  # without an output layer any form fits
        options["output_form"] = "dense" if "output.dense.weight" in state else "plain"
    return options


# --- files -----------------------------------------------------------------------------------------------------


def _file_of(path: Path) -> Path:
    if not path.is_dir():
        return path
    names = (*TRANSFORMERS_WEIGHTS, FAIRSEQ_WEIGHTS)
    for name in names:
        if (path / name).is_file():
            return path / name
    raise UserError(f"{path} is a folder without published weights: none of {', '.join(names)} is there")


def _beside(file: Path, *names: str) -> Path:
    """The first of `names` that is in the file's folder."""
    for name in names:
        if file.with_name(name).is_file():
            return file.with_name(name)
    raise UserError(f"{' or '.join(names)} is needed beside {file.name}")


def _load_safetensors(file: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load_file(file)
    except OSError as error:
        raise UserError(f"{file} cannot be read as a checkpoint: {error.strerror or error}") from error
    except safetensors.SafetensorError as error:
        raise UserError(f"{file} is not a safetensors file, or it is damaged or cut short ({error})") from error


def _read_json(file: Path) -> Settings:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{file} holds no JSON object")
    return content


def _read_dictionary(file: Path) -> list[str]:
    """Symbols of fairseq's dict.txt, a line "symbol count" each."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not a fairseq dictionary: {error}") from error
    return [line.rstrip().rpartition(" ")[0] for line in lines if line]


def _read_model(file: Path) -> list[str]:
    """The ordinary pieces of a SentencePiece model in order."""
    try:
        model = sentencepiece.SentencePieceProcessor(model_file=str(file))
    except (RuntimeError, OSError):
        raise UserError(f"{file} is not a SentencePiece model") from None
    ids = range(model.get_piece_size())
    return [model.id_to_piece(n) for n in ids if not (model.is_unknown(n) or model.is_control(n) or model.is_unused(n))]


def _settings(written) -> Settings:
    """A file's own settings, which programs save as a namespace or as a mapping."""
    return dict(vars(written) if isinstance(written, argparse.Namespace) else written or {})


def _needed(settings: Settings, name: str) -> Any:
    if settings.get(name) is None:
        raise UserError(f"it stores no {name}")
    return settings[name]


def _check_activation(found: str, valid: tuple[str, ...]) -> None:
    if found not in valid:
        raise UserError(f"its activation is {found}; {' and '.join(valid)} can be converted")


def _check_rows(state: dict[str, Tensor], symbols: list[str], symbols_from: Path) -> None:
    for rows in [len(state[name]) for name in (TOKENS, DECODER_TOKENS) if name in state]:
        if rows != len(symbols):
            raise UserError(f"it has {rows} rows of tokens, and {symbols_from} makes {len(symbols)} symbols")
