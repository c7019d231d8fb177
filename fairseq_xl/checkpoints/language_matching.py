"""Matches the languages of a checkpoint with those of a run, by name; the pieces of both are the same.

Shapes: `V` symbols, the last `L` of which are the languages, `C` channels.
"""

import logging
from typing import Any

import torch
from torch import Tensor

from fairseq_xl.checkpoints.parameter_names import OF_LANGUAGES, OF_SYMBOLS
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.special_symbols import language_symbols
from fairseq_xl.errors import UserError
from fairseq_xl.io.fingerprints import symbols_digest

logger = logging.getLogger(__name__)


def has_same_pieces(identity: dict[str, Any], dictionary: XLDictionary) -> bool:
    """Whether the dictionary of a checkpoint with this identity has the pieces of a run's `dictionary`."""
    pieces = dictionary.symbols[: dictionary.first_language]
    return identity["dictionary"] == symbols_digest([*pieces, *language_symbols(identity["languages"])])


def with_languages(
    state: dict[str, Tensor], model: dict[str, Tensor], before: list[str], dictionary: XLDictionary, path: str
) -> dict[str, Tensor]:
    """Changes the languages of weights to those of a run: rows of ``[xx]`` and language embeddings, matched by name.

    Args:
        model: state dict of the new model, which gives the rows of languages that the checkpoint lacks; their output
            bias is 0, as with published weights.
        before: languages of the checkpoint.
        path: the checkpoint's file, for messages.

    Logs a line with the new rows. Raises `UserError` if a table has another number of rows than the dictionary.
    """
    languages, changed = dictionary.languages, dict(state)
    added = [code for code in languages if code not in before]
    new = dict.fromkeys(f"[{code}]" for code in added)
    for name, value in state.items():
        has_symbols = OF_SYMBOLS.fullmatch(name)
        if not has_symbols and not OF_LANGUAGES.fullmatch(name):
            continue
        pieces = dictionary.first_language if has_symbols else 0
        if len(value) != pieces + len(before):
            raise UserError(f"{path} is damaged: {name} has {len(value)} rows, expected {pieces + len(before)}")
        if value.dim() == 1:  # an output bias (V,)
            fresh = value.new_zeros(len(languages))
        else:
            shared = name.replace("decoder.", "encoder.") if has_symbols else name  # both may share their tokens
            table = model.get(name, model.get(shared))
            if table is None:  # the new model has no such table
                continue
            fresh = table[pieces:].to(value, copy=True)  # (L, C)
        for row, code in enumerate(languages):
            if code in before:
                fresh[row] = value[pieces + before.index(code)]
        changed[name] = torch.cat((value[:pieces], fresh))
        new |= {} if has_symbols else dict.fromkeys(f"embedding of {code}" for code in added)
    left_out = [code for code in before if code not in languages]
    logger.info(
        "%s: languages are matched by name; random rows: %s; dropped: %s",
        *(path, ", ".join(new) or "none", ", ".join(left_out) or "none"),
    )
    return changed
