"""Reads checkpoints for fairseq's commands, and loads their models for evaluation: in place of fairseq's functions."""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import omegaconf
from fairseq import checkpoint_utils, tasks
from fairseq.dataclass.utils import overwrite_args_by_name
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from omegaconf import OmegaConf

from fairseq_xl.checkpoints.identity import open_checkpoint
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import check_checkpoint, load_plain, refuse_hub_name
from fairseq_xl.io.configuration import BUILT, check_plain_configuration, check_size
from fairseq_xl.io.options import literal

_load_ensemble = checkpoint_utils.load_model_ensemble_and_task
#: sections of a training's configuration that its continuation reads
SECTIONS = (*BUILT, "common", "optimization", "distributed_training")


def load_checkpoint_to_cpu(
    path: str,
    arg_overrides: dict[str, Any] | None = None,
    load_on_all_ranks: bool = False,
) -> dict[str, Any]:
    """Opens a checkpoint, and overrides its options, in place of fairseq's function; ignores `load_on_all_ranks`.

    Raises as `open_checkpoint`, and for the checkpoint of a task of fairseq as `check_plain_configuration`.
    """
    content = load_plain(path)
    if not is_fairseqs(content):
        return load_own_checkpoint(path, arg_overrides, content)
    content = check_plain_configuration(check_checkpoint(content, path), path)
    state = {**content, "cfg": OmegaConf.create(content["cfg"], flags={"allow_objects": True})}
    overwrite_args_by_name(state["cfg"], arg_overrides or {})
    return state


def load_own_checkpoint(path: str, overrides: dict[str, Any] | None = None, content: Any = None) -> dict[str, Any]:
    """Opens a checkpoint of this package, and overrides its options; raises as `open_checkpoint`.

    `content` is that of the file if it has been read.
    """
    state = _opened(path, load_plain(path) if content is None else content, finite=True)
    overwrite_args_by_name(state["cfg"], overrides or {})
    return state


def is_fairseqs(content: Any) -> bool:
    """Whether the content of a checkpoint has a configuration, but no identity of this package."""
    is_checkpoint = isinstance(content, dict) and isinstance(content.get("cfg"), dict)
    return is_checkpoint and "fairseq_xl" not in (content.get("task_state") or {})


def _opened(path: str, content: Any, finite: bool) -> dict[str, Any]:
    """The content of a checkpoint with its checked configuration; `finite`: whether its weights must be numbers."""
    checkpoint = open_checkpoint(path, content=content, finite=finite)
    return {**checkpoint.content, "cfg": OmegaConf.create(checkpoint.cfg, flags={"allow_objects": True})}


def check_training(state: dict[str, Any], path: str) -> None:
    """Raises `UserError` for a checkpoint without its configuration, or without a state of its training."""
    _check_sections(state, path, SECTIONS)
    last, extra = (state["optimizer_history"] or [{}])[-1], state.get("extra_state") or {}
    for key, part, needed in (
        ("optimizer_history", last, ("criterion_name", "optimizer_name", "lr_scheduler_state", "num_updates")),
        ("extra_state.train_iterator", extra.get("train_iterator") or {}, ("epoch", "iterations_in_epoch")),
    ):
        if missing := [name for name in needed if name not in part]:
            raise UserError(f"{path} is damaged: its {key!r} lacks {', '.join(missing)}")


def _check_sections(state: dict[str, Any], path: str, needed: Iterable[str]) -> None:
    if not (cfg := state.get("cfg")):
        raise UserError(f"{path} is not a fairseq checkpoint: it holds no configuration under the key 'cfg'")
    if missing := [name for name in needed if not hasattr(cfg.get(name), "items")]:
        raise UserError(f"{path} is damaged: its 'cfg' lacks {', '.join(missing)}")


def load_model_ensemble_and_task(
    filenames: Sequence[str],
    arg_overrides: dict[str, Any] | None = None,
    task: Any = None,
    strict: bool = True,
    suffix: str = "",
    num_shards: int = 1,
    state: dict[str, Any] | None = None,
) -> tuple[list[Any], Any, Any]:
    """Loads models for evaluation, from checkpoints that fit the command and its task.

    With a task of fairseq, its own models are loaded by fairseq's function.

    Args:
        filenames: checkpoints; with a task that converts them (`checkpoint_of`) also published models.
        arg_overrides: options of the command line or of a program; with a task, those of --model-overrides.
        task: the task that the command line made; None if the first checkpoint's configuration makes it.
        strict: whether the weights must be those of the model.
        suffix: --checkpoint-suffix, which stands before ``.pt``.
        num_shards: 1; parts of a model are not joined.
        state: the content of the only checkpoint if it has been read.

    Returns: the models, the configuration of the last one and the task.
    """
    overrides = dict(arg_overrides or {})
    if num_shards != 1:
        raise UserError(f"--checkpoint-shard-count {num_shards} is not supported: parts of a model are not joined")
    if state is None and type(task).__module__.startswith("fairseq.") and _are_fairseqs(filenames):
        return _load_ensemble(filenames, overrides, task, strict, suffix, num_shards)
    models, cfg = [], None
    for name in filenames:
        path = checkpoint_utils.get_maybe_sharded_checkpoint_filename(name, suffix, 0, 1)
        checkpoint = _read(path, task, overrides) if state is None else _checked(state, path, overrides)
        cfg = checkpoint["cfg"]
        if task is None:
            languages = checkpoint["task_state"]["fairseq_xl"]["languages"]
            task = tasks.setup_task(cfg.task, from_checkpoint=True, languages=languages)
        task.load_state_dict(checkpoint["task_state"])
        with naming_misfit(filenames):
            model = task.build_model(cfg.model, from_checkpoint=True)
            model.set_num_updates(checkpoint["optimizer_history"][-1]["num_updates"])
            model.load_state_dict(checkpoint["model"], strict=strict, model_cfg=cfg.model)
        models.append(model)
    return models, cfg, task


def _are_fairseqs(filenames: Iterable[str]) -> bool:
    """Whether all files are checkpoints of tasks of fairseq; reads no weights."""
    return all(os.path.isfile(name) and is_fairseqs(load_plain(name, mapped=True)) for name in filenames)


@contextlib.contextmanager
def naming_misfit(files: Sequence[str | os.PathLike]) -> Iterator[None]:
    """Raises `UserError` with the file and the first parameter that does not fit."""
    try:
        yield
    except Exception as error:
        whole, listed = str(error), str(error.__context__) if error.__context__ else str(error)
        if isinstance(error, UserError) or not whole.startswith("Error(s) in loading state_dict"):
            raise
        message = f"Cannot load model parameters from checkpoint {', '.join(map(str, files))}"
        first = " ".join([*listed.split("\n"), ""][1].split()).rstrip(". ").split('", "')[0]
        first = re.sub(r"torch\.Size\(\[(.*?)\]\)", r"(\1)", first)
        raise UserError(f"{message}: the model of this run is another one ({first or listed})") from error


def _read(path: str, task: Any, overrides: dict[str, Any]) -> dict[str, Any]:
    """Reads a checkpoint, overrides its options by those of the evaluation, and adds its path to its state.

    The task sets DATA, since it compares the folder with the checkpoint's.
    """
    if not os.path.exists(path):
        refuse_hub_name(path)
        raise UserError(f"Model file not found: {path}")
    state = task.checkpoint_of(path) if hasattr(task, "checkpoint_of") else None
    if state is None:
        options = {name: value for name, value in overrides.items() if task is not None or name != "data"}
        state = load_own_checkpoint(path, options)
        _check_fits(state, path, overrides)
        _set_options(state, path, task, overrides)
    state["task_state"] = {**state["task_state"], "path": str(path)}
    return state


def _checked(state: dict[str, Any], path: str, overrides: dict[str, Any]) -> dict[str, Any]:
    """Checks a checkpoint that a program has read itself; its configuration may be one of omegaconf."""
    cfg = state.get("cfg")
    if OmegaConf.is_config(cfg):
        cfg = OmegaConf.to_container(cfg, enum_to_str=True)
    state = _opened(path, {**state, "cfg": cfg}, finite=False)
    _check_fits(state, path, overrides)
    return state


def _check_fits(state: dict[str, Any], path: str, overrides: dict[str, Any]) -> None:
    """Refuses a checkpoint that lacks something, or whose task is not that of the command line's `overrides`."""
    _check_sections(state, path, BUILT)  # a command has the other sections of its own
    cfg = state["cfg"]
    for part, sentence in (
        ("task", "{path} was trained with --task {trained}, not with {named}"),
        ("criterion", "--criterion {named}: {path} is evaluated with {trained}, as it was trained"),
    ):
        trained, named = cfg[part]._name, overrides.get(part)
        if isinstance(named, str) and named != trained:
            raise UserError(sentence.format(path=path, trained=trained, named=named))
    for part in ("optimizer", "lr_scheduler", "bpe", "tokenizer", "scoring"):
        if isinstance(overrides.get(part), str):
            raise UserError(f"--{part.replace('_', '-')} {overrides[part]} has no effect on fairseq-validate")
    check_size(cfg.model, state.get("model"), path)  # again, with the options of the command line


def _set_options(state: dict[str, Any], path: str, task: Any, overrides: dict[str, Any]) -> None:
    """Sets the options of the evaluation in the task, or in the configuration that will make it."""
    cfg, identity = state["cfg"], state["task_state"]["fairseq_xl"]
    if task is not None:
        if hasattr(task, "adopt_options"):
            task.adopt_options(cfg.task, identity)
        return _check_model_overrides(overrides, {"model": cfg.model}, path, cfg.task)
    _check_model_overrides(literal(overrides.get("model_overrides") or "{}"), cfg, path)
    owner, trained = TASK_REGISTRY[cfg.task._name], cfg.task.data
    fields = TASK_DATACLASS_REGISTRY[cfg.task._name].__dataclass_fields__
    with omegaconf.open_dict(cfg.task):
        for name in overrides.keys() & fields.keys() - {"_name"}:  # also those that are newer than the checkpoint
            cfg.task[name] = overrides[name]
        if "valid_langs" in fields and overrides.get("eval_langs") is not None:
            cfg.task.valid_langs = overrides.get("valid_langs")
        if hasattr(owner, "override_options"):
            owner.override_options(cfg.task, overrides, identity)
    owner.check_data_folder(cfg.task, trained, identity, path)


def _check_model_overrides(overrides: dict[str, Any], sections: Any, path: str, task_options: Any = ()) -> None:
    """Raises `UserError` for --model-overrides that the checkpoint's `sections` lack, or of its `task_options`."""
    for name in overrides:
        if not any(name in (sections.get(part) or ()) for part in BUILT):
            if name in task_options:
                raise UserError(f"--model-overrides {name}: a task option of {path}: give --{name.replace('_', '-')}")
            raise UserError(f"--model-overrides {name}: the model of {path} has no such option")
