"""Reads a checkpoint of this package for conversion. C channels.

The language module becomes part of the weights; `for_languages` adds language embeddings to the positions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_xl.checkpoints import language_modules
from fairseq_xl.checkpoints.identity import open_checkpoint
from fairseq_xl.checkpoints.layouts.name_mapping import State
from fairseq_xl.checkpoints.layouts.stored_origin import Origin, stored_origin
from fairseq_xl.checkpoints.parameter_names import DECODER_LANGUAGES, DECODER_POSITIONS, LANGUAGES, POSITIONS
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.io.configuration import registered_model
from fairseq_xl.io.options import ABSENT


@dataclass(frozen=True)
class Own:
    """A model of this package."""

    path: str
    options: dict[str, Any]  # of the model, `framing`, and `pooling` and `pooler_activation` of the head
    state: State  # special symbols in the table of all others
    dictionary: XLDictionary
    languages: list[str]  # of the language embeddings; empty without them
    directions: list[str]  # translation directions that it was trained for, such as en-de; empty for other models
    is_causal: bool  # whether it was pre-trained as a causal language model alone
    head_dropout: float  # dropout of the head of fine-tuning
    longest: int  # number of tokens to which inputs were truncated in training, or that it has positions for
    head: str | None  # the task type that it was fine-tuned for
    type_state: dict[str, Any]  # state of the task type from its training files, such as the names of classes
    same_language: bool = False  # whether it was fine-tuned to write text in the language of its source
    absent: Mapping[str, Any] = field(default_factory=dict)  # {option: its value that describes models without it}
    updates: int = 0  # of its training; 0: a published model
    head_class: str | None = None  # the head in transformers, as its class name ends: SequenceClassification
    origin: Origin | None = None  # the published folder that it came from

    @property
    def has_decoder(self) -> bool:
        """Whether it is an encoder-decoder."""
        return any(name.startswith("decoder.") for name in self.state)


def read_own(
    path: str, data: Path, heads: Mapping[str, str], language_module: str | None = None, language: str | None = None
) -> Own:
    """Reads a checkpoint of this package, with the dict.txt of the folder `data`; `heads` is {task type: `head_class`}.

    The file `language_module` replaces its language module by that of `language`, whose dict.txt `data` has then.
    Raises `UserError` for a checkpoint of another program or dictionary, and a module of another model.
    """
    dictionary = XLDictionary.load(data / "dict.txt")
    checkpoint = open_checkpoint(path, None if language_module else dictionary, data / "dict.txt")
    cfg, task, identity, state = checkpoint.options, checkpoint.task, checkpoint.identity, checkpoint.state
    _, config = registered_model(cfg.get("_name"))
    if config is None:
        raise UserError(f"{path} is damaged: its configuration names no known model")
    options = {field.name: cfg.get(field.name, getattr(config(), field.name)) for field in fields(config)}
    if "heads" not in options:
        raise UserError(f"{path} has --arch {cfg['_name']}, which is no Transformer: it cannot be exported")
    if language_module:
        if language_modules.SPECIAL not in state:
            raise UserError(f"--language-module {language_module}: the model is not an xl_monotrans_* model")
        module = language_modules.read(language_module, language)
        module.check_dictionary(language_module, dictionary, data / "dict.txt")
        module.check_positions(language_module, bool(options["language_positions"]))
        state = module.put_into(state, language_module, identity.get("body"))
        options["adapters"] = module.adapters
    state = language_modules.without_special(state, len(dictionary.languages))
    head_options = {name: task.get(name) for name in ("pooling", "pooler_activation")}
    length = task.get("length") or options["max_positions"]
    return Own(
        path=path,
        options={**options, "framing": identity["framing"], "_name": cfg["_name"], **head_options},
        state=state,
        dictionary=dictionary,
        languages=list(dictionary.languages) if LANGUAGES in state else [],
        directions=list(identity.get("lang_pairs") or []),
        is_causal=identity.get("objectives") == "clm" and identity.get("head") is None,
        head_dropout=task.get("head_dropout") or 0.0,
        longest=min(length, options["max_positions"]),
        head=identity.get("head"),
        type_state=identity.get("type_state", {}),
        same_language="writes" in identity,
        absent={item.name: item.metadata[ABSENT] for item in fields(config) if ABSENT in item.metadata},
        updates=(checkpoint.content.get("optimizer_history") or [{}])[-1].get("num_updates", 0),
        head_class=heads.get(identity.get("head", "")),
        origin=stored_origin(checkpoint.content["task_state"], path),
    )


def for_languages(model: Own, source: str, target: str | None = None) -> Own:
    """Adds the language embeddings of source and target to the positions; `UserError` for an unknown language."""
    if not model.languages:
        return model
    state = dict(model.state)
    for positions, table, language in ((POSITIONS, LANGUAGES, source), (DECODER_POSITIONS, DECODER_LANGUAGES, target)):
        embeddings = state.pop(table, None)
        if embeddings is None:
            continue
        if language is None:
            raise UserError(f"{model.path} has a decoder: name its direction, as in --lang en-de")
        state[positions] = state[positions] + embeddings[model.dictionary.language_id(language)]
    return replace(model, state=state, languages=[], options=model.options | {"language_embeddings": "none"})


def with_offset(positions: Tensor, offset: int, new_offset: int) -> Tensor:
    """Position embeddings (rows, C) whose position 0 is in row `new_offset`, not `offset`; new rows are zeros."""
    if offset == new_offset:
        return positions.clone()
    rows = positions[offset:]
    return torch.cat((rows.new_zeros(new_offset, rows.size(1)), rows))
