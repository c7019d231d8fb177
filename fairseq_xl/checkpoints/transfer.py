"""Weight transfer: a new model starts from the weights of this package's checkpoints or of published ones.

`transfer_weights` copies parts of one checkpoint into a model's state dict and reports what was copied, what is new and
what is unused; `initialize` does so for every checkpoint that a run names. Before anything is copied, `read` compares
the configs of both models: metadata of a config's fields says which of them change the meaning of weights (`TRANSFER`).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_xl.checkpoints import language_modules, published_models, stacks, word_vectors
from fairseq_xl.checkpoints.identity import check_encoding, check_vocabulary, open_checkpoint
from fairseq_xl.checkpoints.layouts.stored_origin import Origin, stored_origin
from fairseq_xl.checkpoints.parameter_names import OF_LANGUAGES, OF_SYMBOLS, TOKENS
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.special_symbols import language_symbols
from fairseq_xl.errors import UserError
from fairseq_xl.io.configuration import registered_model
from fairseq_xl.io.fingerprints import symbols_digest
from fairseq_xl.io.options import ABSENT, ACCEPTED_BY, ADDED, IN_MODULE, TRANSFER, option_name

logger = logging.getLogger(__name__)

State = stacks.State

#: part of a model that can be transferred -> rank: fields of this rank and of lower ranks are compared
PARTS = {"embeddings": 0, "encoder": 1, "decoder": 2, "model": 2}
#: the `backbone` of every published model
TRANSFORMER = "a Transformer"
#: prefix of the parameters of a published model's fine-tuned head
PUBLISHED_HEAD = "heads.published"


@dataclass(frozen=True)
class Requirements:
    """Settings of the run that weights must match, besides the config of the new model."""

    dictionary: XLDictionary
    dictionary_file: Path  # for messages
    framing: str
    options: Any  # of the task; those that `ACCEPTED_BY` names accept weights of another model
    own_tokens: bool  # whether token embeddings are transferred too: the checkpoint needs the run's pieces then


@dataclass(frozen=True)
class Pretrained:
    """Weights to start from; the state dict has our names, the identity of published weights is {}."""

    path: str
    state: dict[str, Tensor]
    identity: dict[str, Any]
    origin: Origin | None = None  # the published folder that they came from


@dataclass(frozen=True)
class Report:
    """Report of a transfer."""

    pretrained: Pretrained
    copied: dict[str, int]  # number of tensors by part
    new: dict[str, list[str]]  # names of the new model's tensors that the checkpoint lacks, by part
    unused: list[str]  # parts of the checkpoint that the new model does not take, as `unused_parameters` names them

    def log(self) -> None:
        """Logs a line for each part, and one for the unused parts."""
        path = self.pretrained.path
        for part, count in self.copied.items():
            logger.info("%s from %s: %d tensors, new: %s", part, path, count, ", ".join(self.new[part]) or "none")
        logger.info("%s: not used: %s", path, ", ".join(self.unused) or "none")


def transfer_weights(
    pretrained: Pretrained, model: State, parts: Sequence[str], layers: str, heads: Mapping[str, str]
) -> tuple[State, Report]:
    """Copies parts of a checkpoint into a model.

    Args:
        model: state dict of the new model; it stays as it is.
        parts: ``model``, or any of ``embeddings`` (of encoder and decoder), ``encoder`` and ``decoder``, in this order.
        layers: layers of a deeper checkpoint that the decoder takes, one of `LAYERS`.
        heads: {parameter of a new head: parameter of a pretrained head}, copied with the encoder.

    Returns: the new state dict, and the report. Raises `UserError` where numbers of layers or shapes differ.
    """
    state, taken, copied, new = dict(model), [], {}, {}
    for part in parts:
        tensors, new[part] = _copy(pretrained, model, part, layers, heads)
        state.update(tensors)
        copied[part] = len(tensors)
        taken += tensors.values()
    return state, Report(pretrained, copied, new, stacks.unused_parameters(pretrained.state, taken))


def _copy(
    pretrained: Pretrained, model: State, part: str, layers: str, heads: Mapping[str, str]
) -> tuple[State, list[str]]:
    """Returns the tensors of one part by their keys in the model, and the part's keys that the checkpoint lacks."""
    weights, path = pretrained.state, pretrained.path
    if part == "model":
        return stacks.copy_common(model, weights, path)
    if part == "decoder":
        return stacks.copy_stack(model, weights, "decoder", path, layers=layers)
    if part == "encoder":
        copied, new = stacks.copy_stack(model, weights, "encoder", path)
        copied |= {key: weights[key] for key in model if key.startswith("output.") and key in weights}
        copied |= {key: weights[source] for key, source in heads.items() if source in weights}
        return copied, [*new, *(key for key in heads if key not in copied)]
    copied = {}
    for stack in ("encoder", "decoder"):
        copied |= stacks.copy_stack(model, weights, stack, path, only="token_embeddings.table")[0]
    return copied, []


def initialize(
    model: Any,
    files: dict[str, str | None],
    requirements: Requirements,
    layers: str = "all",
    adapt: Callable[[Pretrained], Pretrained] = lambda pretrained: pretrained,
) -> list[Report]:
    """Initializes a new model from {part: a checkpoint, or None: random weights}; logs and returns the reports.

    Parts and `layers` as in `transfer_weights`; `adapt` changes weights before they are copied. Raises `UserError` for
    checkpoints that do not fit the run, the model or each other.
    """
    paths = {part: path for part, path in files.items() if path}
    state = model.state_dict()
    heads = {
        f"{path}.{name}": f"{module.pretrained_from}.{name}"
        for path, module in model.named_modules()
        if hasattr(module, "pretrained_from")
        for name, _ in module.named_parameters()
    }
    option = "--share-embeddings" if hasattr(model.cfg, "share_embeddings") else f"--arch {model.cfg._name}"
    both = {"encoder", "decoder"} <= paths.keys() and stacks.shares_token_embeddings(state)
    if both and paths["encoder"] != paths["decoder"]:
        raise UserError(f"{option}: encoder and decoder must be initialized from the same checkpoint")
    most = {path: part for part, path in sorted(paths.items(), key=lambda item: PARTS[item[0]])}
    checkpoints = {path: adapt(read(path, model, most[path], requirements)) for path in dict.fromkeys(paths.values())}
    if both and not stacks.shares_token_embeddings(checkpoints[paths["decoder"]].state):
        raise UserError(f"{option}: encoder and decoder of {paths['decoder']} have token embeddings of their own")
    if "decoder" in paths and stacks.has_streams(state) and not stacks.has_streams(checkpoints[paths["decoder"]].state):
        decoder = paths.pop("decoder")
        if "encoder" not in paths:
            raise UserError(f"{decoder} has no decoder with streams: --init-encoder-from takes its encoder")
        logger.warning("%s has no decoder with streams as that of %s has: only its encoder is taken", decoder, option)
    reports = []
    for path, pretrained in checkpoints.items():
        parts = [part for part, file in paths.items() if file == path]
        state, report = transfer_weights(pretrained, state, parts, layers, heads)
        report.log()
        reports.append(report)
    model.load_state_dict(state)
    return reports


def read(path: str, model: Any, part: str, requirements: Requirements) -> Pretrained:
    """Reads weights for a part of a new model, `model`, which gives the rows that a published model lacks.

    `path` is a checkpoint, a published model or word vectors. Raises `UserError` for another file, and for weights that
    mean something else in the new model.
    """
    state, dictionary = model.state_dict(), requirements.dictionary
    if word_vectors.is_word_vectors(path):
        if part != "embeddings":
            raise UserError(f"{path} holds word vectors: give it as --init-embeddings-from")
        rows, count = word_vectors.read(path, dictionary.symbols, state[TOKENS])
        logger.info("%s: vectors of %d of %d symbols", path, count, len(dictionary.symbols))
        return Pretrained(path, {TOKENS: rows}, {})
    word_vectors.check_not_binary(path)
    content = published_models.read(path)
    if isinstance(content, published_models.Published):
        if content.left_out:
            logger.warning("%s: the head of fine-tuning is not read: %s", path, ", ".join(content.left_out))
        if type(model).backbone != TRANSFORMER:
            raise UserError(f"{path} holds {TRANSFORMER}, this model is {type(model).backbone}")
        options, origin = content.options, content.origin
        _check_fields(path, options, {}, model, part, requirements)
        weights, identity, languages = content.state, {}, []
        if requirements.own_tokens:
            languages, symbols = dictionary.languages, dictionary.symbols[: dictionary.first_language]
            published_models.check_symbols(content, symbols, requirements.dictionary_file)
            weights, new = published_models.with_new_rows(content, state, languages)
            logger.info("%s: published weights, new rows: %s", path, ", ".join(new) or "none")
        if content.head:
            weights = weights | {f"{PUBLISHED_HEAD}.{name}": value for name, value in content.head.state.items()}
    else:
        checkpoint = open_checkpoint(path, content=content)
        identity, weights = checkpoint.identity, checkpoint.state
        origin = stored_origin(checkpoint.content["task_state"], path)
        tokens = requirements.own_tokens
        matched = tokens and has_same_pieces(identity, dictionary)  # by language; else the dictionaries must be equal
        if matched:
            check_encoding(identity["encoding"], path, requirements.dictionary_file.parent)
        elif tokens:
            check_vocabulary(identity, path, dictionary, requirements.dictionary_file)
        check_backbone(path, checkpoint.options, type(model))
        declared = transfer_fields(checkpoint.options.get("_name"))
        options = {name: checkpoint.options.get(name, metadata.get(ABSENT)) for name, metadata in declared.items()}
        missing = [name for name, value in options.items() if value is None]
        if missing or not declared:
            raise UserError(f"{path} is damaged: it doesn't say its model's {', '.join(missing) or 'config'}")
        if part in ("decoder", "model") and stacks.has_streams(weights) and not stacks.has_streams(state):
            raise UserError(f"{path} has a decoder with predicting streams: it is for --arch xl_xfnp_* alone")
        _check_fields(path, options | {"framing": identity["framing"]}, declared, model, part, requirements)
        languages = identity["languages"]
        if matched and languages != dictionary.languages:
            weights = with_languages(weights, state, languages, dictionary, path)
            languages = dictionary.languages
    has_special = language_modules.SPECIAL in state
    convert = language_modules.with_special if has_special else language_modules.without_special
    weights = convert(weights, len(languages))
    added = getattr(model.cfg, "language_positions", False) and not options.get("language_positions")
    if added and part != "embeddings":
        if requirements.framing == "xlm":
            raise UserError(f"{path} needs --language-positions False: an input of --framing xlm begins with </s>")
        embeddings = model.encoder.embeddings
        weights = language_modules.with_language_positions(weights, embeddings.position_offset, embeddings.scale or 1)
        identity = {name: value for name, value in identity.items() if name != "body"}
    return Pretrained(path, weights, identity, origin)


def check_fits(
    state: dict, path: str, current: dict[str, Any], dictionary: Any, dictionary_file: Path, model_class: type
) -> None:
    """Raises `UserError` unless a whole checkpoint's weights mean the same in a run of the identity `current`."""
    identity = state["task_state"]["fairseq_xl"]
    check_vocabulary(identity, path, dictionary, dictionary_file)
    check_backbone(path, (state.get("cfg") or {}).get("model") or {}, model_class)
    if identity["heads"] != current["heads"]:
        raise UserError(
            f"{path} has {identity['heads']} attention heads, this model {current['heads']}: the shapes of the weights "
            "fit, but this model would compute something else"
        )
    if identity["framing"] != current["framing"]:
        raise UserError(f"{path} was trained with --framing {identity['framing']}, this run has {current['framing']}")


def check_backbone(path: str, options: dict, model_class: Any) -> None:
    """Raises `UserError` for a model with `options` of another kind of network than `model_class`, such as a DAN."""
    trained, _ = registered_model(options.get("_name"))
    if trained is not None and trained.backbone != model_class.backbone:
        raise UserError(f"{path} holds {trained.backbone}, this model is {model_class.backbone}")


def transfer_fields(architecture: str | None) -> dict[str, Mapping[str, Any]]:
    """{field of an architecture's config that changes the meaning of weights: its metadata}"""
    _, config = registered_model(architecture)
    return {} if config is None else {f.name: f.metadata for f in fields(config) if TRANSFER in f.metadata}


def _check_fields(
    path: str, options: dict, declared: Mapping[str, Any], model: Any, part: str, requirements: Requirements
) -> None:
    model_fields = transfer_fields(model.cfg._name)
    wrong = []
    for name in {**options, **model_fields}:
        metadata = model_fields.get(name) or declared.get(name, {})
        needed = options.get(name, metadata.get(ABSENT))
        value = requirements.framing if name == "framing" else getattr(model.cfg, name, metadata.get(ABSENT))
        is_equal = needed is None or value is None or str(value) == str(needed)
        if is_equal or PARTS[part] < PARTS[metadata.get(TRANSFER, "encoder")]:
            continue
        accepting = metadata.get(ACCEPTED_BY, "")
        accepted = getattr(requirements.options, accepting, None) if accepting else None
        if accepted or (IN_MODULE in metadata and not requirements.own_tokens) or (ADDED in metadata and value):
            continue
        hint = "" if accepted is None else f" (or {option_name(accepting)})"
        wrong.append(f"{option_name(name)} {needed}{hint}, this run has {value}")
    if wrong:
        raise UserError(f"{path} needs {'; '.join(wrong)}")


def has_same_pieces(identity: dict[str, Any], dictionary: XLDictionary) -> bool:
    """Whether the dictionary of a checkpoint with this identity has the pieces of a run's `dictionary`."""
    pieces = dictionary.symbols[: dictionary.first_language]
    return identity["dictionary"] == symbols_digest([*pieces, *language_symbols(identity["languages"])])


def with_languages(state: State, model: State, before: list[str], dictionary: XLDictionary, path: str) -> State:
    """Matches rows of ``[xx]`` and language embeddings to the languages of a run by name; logs the new ones.

    `model`, a state dict, gives rows of languages that `before` lacks; their output bias is 0. Raises `UserError` if a
    table has another number of rows than the dictionary.
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
