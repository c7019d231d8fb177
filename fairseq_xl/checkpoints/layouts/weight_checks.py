"""Checks of the files of published models: types of parameters and settings, values and shapes of weights.

V symbols, C channels.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from fairseq_xl.checkpoints.parameter_names import OF_SYMBOLS
from fairseq_xl.data.vocabulary.special_symbols import PUBLISHED_LANGUAGE
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.checkpoints import NOT_FINITE, is_finite

#: ends of our names of embeddings, (rows, C)
_TABLES = ("table.weight", "positions.weight", "languages.weight", "segments.weight")


# --- weights ---------------------------------------------------------------------------------------------------


def check_parameters(content: Any) -> dict[str, Tensor]:
    """Returns a state dict without gradients; raises `UserError` for anything but {name: tensor on the CPU}."""
    if not isinstance(content, Mapping):
        raise UserError(f"{quoted(content)} stands where parameters are expected")
    for name, value in content.items():
        if not isinstance(name, str):
            raise UserError(f"a parameter has the name {quoted(name)}, expected text")
        if not isinstance(value, Tensor):
            raise UserError(f"{quoted(value)} stands in place of the parameter {name}, expected a tensor")
    return {name: value.detach() for name, value in content.items()}


def check_values(state: Mapping[str, Tensor]) -> None:
    """Raises `UserError` for tensors without dimensions, of other than floating-point numbers, or not finite."""
    for name, value in state.items():
        if not value.is_floating_point():
            kind = str(value.dtype).removeprefix("torch.")
            raise UserError(f"{name} has values of type {kind}, expected floating-point numbers")
        if not value.dim():
            raise UserError(f"{name} is a single number, expected a tensor with dimensions")
        if not value.is_meta and not is_finite(value):
            raise UserError(f"{name} {NOT_FINITE}")


def check_shapes(state: Mapping[str, Tensor]) -> None:
    """Raises `UserError` for our parameters of embeddings that do not fit each other: (V, C), (rows, C) and (V,)."""
    tables = check_tables(state)
    if len({value.size(1) for value in tables.values()}) > 1:
        sizes = ", ".join(f"{name} {value.size(1)}" for name, value in tables.items())
        raise UserError(f"its embeddings have different numbers of channels: {sizes}")
    rows = {name: value for name, value in state.items() if OF_SYMBOLS.fullmatch(name)}
    for name, value in rows.items():
        if name.endswith("bias") and value.dim() != 1:
            raise UserError(f"its {name} has {value.dim()} dimensions, expected 1")
    for stack in ("encoder", "decoder"):
        counts = {name: len(value) for name, value in rows.items() if name.startswith(stack)}
        if len(set(counts.values())) > 1:
            shown = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise UserError(f"its {stack} has different numbers of symbols: {shown}")


def check_tables(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns our embeddings, each (rows, C); raises `UserError` for another number of dimensions."""
    tables = {name: value for name, value in state.items() if name.endswith(_TABLES)}
    for name, value in tables.items():
        if value.dim() != 2:
            raise UserError(f"its embeddings {name} have {value.dim()} dimensions, expected 2")
    return tables


# --- settings --------------------------------------------------------------------------------------------------


def _is_mapping(value: Any, fits: Callable[[Any, Any], bool]) -> bool:
    return isinstance(value, Mapping) and all(fits(*item) for item in value.items())


def _is_language(value: Any) -> bool:
    return isinstance(value, str) and PUBLISHED_LANGUAGE.fullmatch(value) is not None


#: description of a value -> its test, and the names of the settings
_EXPECTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "a positive integer": (
        lambda value: type(value) is int and value > 0,
        "num_attention_heads n_heads encoder_attention_heads decoder_attention_heads encoder_ffn_dim decoder_ffn_dim "
        "encoder_ffn_embed_dim decoder_ffn_embed_dim",
    ),
    "a number": (
        lambda value: type(value) in (int, float),
        "layer_norm_eps pad_token_id classifier_dropout seq_classif_dropout qa_dropout",
    ),
    "true or false": (
        lambda value: type(value) in (bool, int),
        "gelu_activation scale_embedding no_scale_embedding encoder_normalize_before decoder_normalize_before",
    ),
    "text": (lambda value: isinstance(value, str), "model_type hidden_act activation_function activation_fn"),
    "a list of texts": (
        lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
        "architectures",
    ),
    "numbers with labels": (lambda value: isinstance(value, Mapping), "id2label"),
    "numbers with language codes": (
        lambda value: _is_mapping(value, lambda index, code: str(index).isdecimal() and _is_language(code)),
        "id2lang",
    ),
    "language codes with numbers": (
        lambda value: _is_mapping(value, lambda code, index: _is_language(code) and type(index) is int),
        "lang2id",
    ),
}


def check_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings of a model; raises `UserError` for one of another type. Those that are None are absent."""
    for expected, (fits, names) in _EXPECTED.items():
        for name in names.split():
            value = settings.get(name)
            if value is not None and not fits(value):
                raise UserError(f"its {name!r} is {quoted(value)}, expected {expected}")
    return settings
