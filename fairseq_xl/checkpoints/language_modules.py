"""Language modules: the parameters of a MonoTrans model that belong to one language (Artetxe et al. 2020, section 2).

A language module has the token embeddings and the output bias, the language embedding where the model has one and,
where they are chosen, positions and adapters. All other parameters are the body, which all languages share. They also
share the embeddings of special symbols: zero-shot evaluation uses the fine-tuned ones.

A file has one module. The command is `fairseq-xl model language-module`.

Each module stores the SHA-256 of the body that it was learned with; a fine-tuned checkpoint, that of the body that it
started from.
"""

import hashlib
import logging
import os
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from fairseq_xl.checkpoints.embedding_files import Vectors
from fairseq_xl.checkpoints.identity import Checkpoint, check_languages, open_checkpoint
from fairseq_xl.checkpoints.parameter_names import BIAS, LANGUAGES, POSITIONS, SEGMENTS, TOKENS
from fairseq_xl.checkpoints.stacks import State
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.checkpoints import load_plain, save_checkpoint
from fairseq_xl.io.files import FORMATS, File, check_format

logger = logging.getLogger(__name__)

KIND = "fairseq_xl language module"
SPECIAL = "encoder.token_embeddings.special.weight"
SHARED = 4  # special symbols at the beginning of a dictionary; the fifth, <mask>, precedes the language symbols


@dataclass(frozen=True)
class LanguageModule:
    """The language module of one language, or of several that share it."""

    languages: list
    dictionary: str  # `XLDictionary.digest`
    body: str  # `body_digest` of the body that the module was learned with
    language_positions: bool
    adapters: int  # channels; 0: it has none
    state: dict  # {name of the parameter in the model: tensor}

    @property
    def name(self) -> str:
        """The languages, as in "de" or "de+fr"."""
        return "+".join(self.languages)

    def check_dictionary(self, file: File, dictionary: XLDictionary, dictionary_file: Path) -> None:
        """Raises `UserError` unless the module, of --language-module `file`, has a dictionary."""
        if self.dictionary != dictionary.digest():
            raise UserError(
                f"--language-module {file} is of another dictionary (languages {', '.join(self.languages)}) than "
                f"{dictionary_file} (languages {', '.join(dictionary.languages)})"
            )

    def check_positions(self, file: File, language_positions: bool) -> None:
        """Raises `UserError` unless a model with `language_positions` or without can take the module."""
        if self.language_positions != language_positions:
            has = {True: "with", False: "without"}
            raise UserError(
                f"--language-module {file} is {has[self.language_positions]} positions of its own "
                f"(--language-positions), the model {has[language_positions]}"
            )

    def put_into(self, state: State, file: File, body: str | None) -> State:
        """A state dict with this module in place of its own; `UserError` if it was learned with another body."""
        if self.body not in (body, body_digest(state, self.language_positions)):
            raise UserError(f"--language-module {file} was learned with another body than the model's")
        return split(state, self.language_positions)[1] | self.state


# --- state dicts -----------------------------------------------------------------------------------------------


def in_module(name: str, language_positions: bool) -> bool:
    """Whether the parameter `name` belongs to the language module, in a model with positions per language or not."""
    return name in (TOKENS, BIAS, LANGUAGES) or "_adapter." in name or (language_positions and name == POSITIONS)


def split(state: State, language_positions: bool) -> tuple[State, State]:
    """A model's state dict -> the part of the language module, and the rest with special symbols and heads."""
    module = {name: value for name, value in state.items() if in_module(name, language_positions)}
    return module, {name: value for name, value in state.items() if name not in module}


def body_digest(state: State, language_positions: bool) -> str:
    """SHA-256 of the body: the parameters of the encoder that are in no language module.

    Special symbols are left out because fine-tuning changes them.
    """
    digest = hashlib.sha256()
    for name, value in sorted(split(state, language_positions)[1].items()):
        if name.startswith("encoder.") and name != SPECIAL:
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def special_rows(state: State, languages: int) -> list[int]:
    """Rows of the special symbols in token embeddings that end in the symbols of `languages` languages."""
    return [*range(SHARED), len(state[TOKENS]) - languages - 1]


def with_special(state: State, languages: int) -> State:
    """A state dict with a table of the special symbols, copied from the token embeddings if it has none."""
    if SPECIAL in state:
        return state
    return state | {SPECIAL: state[TOKENS][special_rows(state, languages)]}


def without_special(state: State, languages: int) -> State:
    """A state dict without a table of the special symbols: their embeddings are in the token embeddings."""
    if SPECIAL not in state:
        return state
    tokens = state[TOKENS].clone()
    tokens[special_rows(state, languages)] = state[SPECIAL]
    return {name: value for name, value in state.items() if name != SPECIAL} | {TOKENS: tokens}


def with_language_positions(state: State, offset: int, scale: float = 1) -> State:
    """A state dict with common positions as one whose positions belong to the language module.

    The first token, ``<s>``, then has neither position nor segment: its embedding gets both, so that the hidden states
    are the same. `offset` is the row of the first position, `scale` the factor of token embeddings.
    """
    special = state[SPECIAL].clone()
    special[0] += (state[POSITIONS][offset] + (state[SEGMENTS][0] if SEGMENTS in state else 0)) / scale
    return state | {SPECIAL: special}


def from_embeddings(module: LanguageModule, vectors: Vectors, dictionary: XLDictionary, std: float) -> LanguageModule:
    """Makes a language module of embeddings of length 1, scaled to `std`, for the body of a checkpoint's `module`.

    Raises `UserError` for missing pieces, another number of channels, and a module with more than embeddings.
    """
    surplus = sorted(module.state.keys() - {TOKENS, BIAS})
    if surplus:
        raise UserError(f"the checkpoint's language module has {surplus[0]}: only embeddings can be mapped")
    channels = module.state[TOKENS].shape[1]
    if vectors.rows.shape[1] != channels:
        raise UserError(f"the embeddings have {vectors.rows.shape[1]} channels, the model {channels}")
    positions = {symbol: position for position, symbol in enumerate(vectors.symbols)}
    missing = [symbol for symbol in map(dictionary.symbols.__getitem__, dictionary.pieces) if symbol not in positions]
    if missing:
        raise UserError(f"{len(missing)} pieces of the dictionary have no embedding, the first is {missing[0]!r}")
    tokens = torch.zeros(len(dictionary), channels)
    rows = torch.from_numpy(vectors.rows)[[positions[dictionary.symbols[index]] for index in dictionary.pieces]]
    tokens[torch.from_numpy(dictionary.pieces)] = rows * (std * channels**0.5)
    return replace(
        module,
        languages=list(dictionary.languages),
        dictionary=dictionary.digest(),
        state={TOKENS: tokens, BIAS: torch.zeros(len(dictionary))},
    )


# --- files -----------------------------------------------------------------------------------------------------


def extract(checkpoint: Checkpoint) -> LanguageModule:
    """The language module of a checkpoint; raises `UserError` for one of another model."""
    identity, options = checkpoint.identity, checkpoint.options
    if SPECIAL not in checkpoint.state or not {"language_positions", "adapters"} <= options.keys():
        raise UserError(f"{checkpoint.path} has no language module: it is not a checkpoint of an xl_monotrans_* model")
    positions = bool(options["language_positions"])
    return LanguageModule(
        languages=list(identity["languages"]),
        dictionary=identity["dictionary"],
        body=identity.get("body") or body_digest(checkpoint.state, positions),
        language_positions=positions,
        adapters=int(options["adapters"]),
        state=split(checkpoint.state, positions)[0],
    )


def read(path: File, language: str | None = None) -> LanguageModule:
    """Reads a language module from its file or a checkpoint; `UserError` for a damaged file, and without `language`."""
    content = load_plain(path)
    if isinstance(content, dict) and isinstance(content.get("model"), dict):
        module = extract(open_checkpoint(path, content=content, finite=False))
    else:
        module = _check(content, path)
    if language is not None and language not in module.languages:
        raise UserError(f"--lang {language}: {path} is the language module of {', '.join(module.languages)}")
    return module


def write(module: LanguageModule, path: File) -> None:
    """Writes a language module to a file of its own."""
    _check_replaceable(path, module)
    content = {field.name: getattr(module, field.name) for field in fields(module)}
    save_checkpoint({"kind": KIND, "format": FORMATS["language module"]} | content, path)
    logger.info("%s is the language module of %s", path, module.name)


def _check_replaceable(path: File, module: LanguageModule) -> None:
    """Raises `UserError` unless `path` is free, or has a version of the module: only `state` differs."""
    if not os.path.lexists(path):
        return
    try:
        loaded = _check(load_plain(path), path)
    except UserError as error:
        raise UserError(f"{error}; nothing is written over it: remove it or name another file") from None
    names = [field.name for field in fields(module) if field.name != "state"]
    names = [name for name in names if getattr(loaded, name) != getattr(module, name)]
    if names:
        raise UserError(
            f"{path} is a language module of {', '.join(loaded.languages)} with other {', '.join(names)}: remove it or "
            "name another file"
        )


def _check(content: Any, path: object) -> LanguageModule:
    """Makes a `LanguageModule` of a file's content; raises `UserError` for any other content."""
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise UserError(f"{path} is not a language module; `fairseq-xl model language-module extract` extracts one")
    check_format("language module", content, path)
    kinds: dict[str, Any] = {field.name: field.type for field in fields(LanguageModule)}
    wrong = [name for name, kind in kinds.items() if not isinstance(content.get(name), kind)]
    state = {} if "state" in wrong else content["state"]
    strange = [name for name, value in state.items() if not (isinstance(name, str) and torch.is_tensor(value))]
    if strange:
        raise UserError(f"{path} is damaged: {quoted(strange[0])} is not the name of a tensor")
    if wrong or TOKENS not in state:
        raise UserError(f"{path} is damaged: it lacks {', '.join(wrong) or TOKENS}")
    if state[TOKENS].dim() != 2:
        raise UserError(f"{path} is damaged: its token embeddings have {state[TOKENS].dim()} dimensions, expected 2")
    check_languages(content["languages"], path)
    return LanguageModule(**{name: content[name] for name in kinds})
