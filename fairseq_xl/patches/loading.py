"""Patches of reading checkpoints: plain data only, checked before use, and one sentence for one that does not fit."""

import contextlib
import functools
import os

import omegaconf
import torch
from fairseq import checkpoint_utils
from fairseq.distributed.utils import _TensorPlaceholder
from fairseq.tasks import TASK_REGISTRY
from omegaconf.errors import OmegaConfBaseException

from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import (
    allow_plain_types,
    check_finite,
    load_checkpoint,
    naming_misfit,
    readable,
    refuse_hub_name,
)
from fairseq_xl.io.configuration import BUILT, check_configuration, check_size
from fairseq_xl.io.literals import literal
from fairseq_xl.renamed import refuse_old_options


def install() -> None:
    """Makes fairseq read checkpoints through this module only."""
    allow_plain_types()  # also in what ranks send each other
    torch.serialization.add_safe_globals([_TensorPlaceholder])
    _make_loading_safe()


class _TorchOfCheckpoints:
    """torch for `fairseq.checkpoint_utils`: `load` reads plain data and checks it, whatever its arguments.

    All of fairseq's commands read checkpoints through it before they build anything.
    """

    @staticmethod
    def load(stream, **_):
        """Reads a file with `load_checkpoint`, and checks its weights and its configuration."""
        state, name = load_checkpoint(stream), getattr(stream, "name", "the checkpoint")
        check_finite(state, name)
        return check_configuration(state, name)

    def __getattr__(self, name: str):
        return getattr(torch, name)


def _make_loading_safe() -> None:
    checkpoint_utils.torch = _TorchOfCheckpoints()
    to_cpu = checkpoint_utils.load_checkpoint_to_cpu
    ensemble = checkpoint_utils.load_model_ensemble_and_task

    @functools.wraps(to_cpu)
    def load_checkpoint_to_cpu(path, *args, **kwargs):
        """Reads a checkpoint; raises `UserError` for one that cannot be read or upgraded."""
        with readable(path), _unreadable(path):
            return to_cpu(path, *args, **kwargs)

    @functools.wraps(ensemble)
    def load_model_ensemble_and_task(
        filenames, arg_overrides=None, task=None, strict=True, suffix="", num_shards=1, state=None
    ):
        """Loads models for evaluation, from checkpoints that fit the command and its task."""
        overrides, read = dict(arg_overrides or {}), checkpoint_utils.load_checkpoint_to_cpu
        refuse_old_options(f"--{name.replace('_', '-')}" for name in overrides)
        for name in filenames if state is None else ():
            if not os.path.exists(name):
                refuse_hub_name(name)
        if state is not None:
            state = _check_buildable(functools.partial(_check_loaded_state, state), overrides)(filenames[0])
        read = _with_options(task, _check_buildable(read, overrides), overrides)
        read = _with_path(_with_published_models(task, read))
        with _as_user_error(OSError, "Model file not found"), naming_misfit(filenames), _reading(read):
            return ensemble(filenames, overrides, task, strict, suffix, num_shards, state)

    checkpoint_utils.load_checkpoint_to_cpu = load_checkpoint_to_cpu
    checkpoint_utils.load_model_ensemble_and_task = load_model_ensemble_and_task


def _with_published_models(task, read):
    """Lets the task convert a published model to a checkpoint (`checkpoint_of`), in commands that evaluate."""

    def convert(path, *args, **kwargs):
        """Reads a checkpoint, or converts a published model to one."""
        state = task.checkpoint_of(path) if hasattr(task, "checkpoint_of") else None
        return read(path, *args, **kwargs) if state is None else state

    return convert


def _check_loaded_state(state: dict, path) -> dict:
    """Checks a checkpoint that a program has read itself; its configuration may be one of omegaconf."""
    cfg = state.get("cfg")
    if omegaconf.OmegaConf.is_config(cfg):
        cfg = omegaconf.OmegaConf.to_container(cfg, enum_to_str=True)
    state = check_configuration({**state, "cfg": cfg}, path)
    return {**state, "cfg": omegaconf.OmegaConf.create(state["cfg"] or {}, flags={"allow_objects": True})}


def _check_buildable(read, overrides):
    """Refuses a checkpoint that lacks a section of `BUILT`, or whose task is not that of the command.

    Args:
        read: function that reads a checkpoint.
        overrides: options of the command line, of which fairseq-validate ignores --task.
    """

    def checked(path, *args, **kwargs):
        """Reads a checkpoint and checks the sections of its configuration."""
        state = read(path, *args, **kwargs)
        if not state.get("cfg"):
            raise UserError(f"{path} is not a fairseq checkpoint: it holds no configuration under the key 'cfg'")
        missing = [part for part in BUILT if not omegaconf.OmegaConf.is_dict(state["cfg"].get(part))]
        if missing:
            raise UserError(f"{path} is damaged: its configuration lacks {', '.join(missing)}")
        trained, named = state["cfg"].task._name, overrides.get("task")
        if isinstance(named, str) and named != trained:
            raise UserError(f"{path} was trained with --task {trained}, not with {named}")
        trained, named = state["cfg"].criterion._name, overrides.get("criterion")
        if isinstance(named, str) and named != trained:
            raise UserError(f"--criterion {named}: {path} is evaluated with {trained}, as it was trained")
        for part in ("optimizer", "lr_scheduler", "bpe", "tokenizer", "scoring"):
            if isinstance(overrides.get(part), str):
                raise UserError(f"--{part.replace('_', '-')} {overrides[part]} has no effect on fairseq-validate")
        check_size(state["cfg"].model, state.get("model"), path)  # again, with the options of the command line
        return state

    return checked


def _with_options(task, read, overrides: dict):
    """Gives an evaluation the options of its command line and, for the others, those of the checkpoint.

    Args:
        task: the task that the command line made; None if the checkpoint's configuration makes it.
        read: function that reads a checkpoint and overrides its options.
        overrides: options of the command line or of a program; with a task, those of --model-overrides.
    """

    def overridden(path, options=None, **kwargs):
        """Reads a checkpoint with the options of the evaluation; its task sets DATA, since it compares both."""
        options = {name: value for name, value in (options or {}).items() if task is not None or name != "data"}
        state = read(path, options, **kwargs)
        cfg = state["cfg"]
        if task is not None:
            if hasattr(task, "adopt_options"):
                task.adopt_options(cfg.task, _identity(state))
            _check_model_overrides(overrides, {"model": cfg.model}, path, cfg.task)
            return state
        _check_model_overrides(literal(overrides.get("model_overrides") or "{}"), cfg, path)
        owner, trained = TASK_REGISTRY.get(cfg.task._name), cfg.task.data
        if hasattr(owner, "override_options"):
            with omegaconf.open_dict(cfg.task):
                owner.override_options(cfg.task, overrides, _identity(state))
            owner.check_data_folder(cfg.task, trained, _identity(state), path)
        return state

    return overridden


def _check_model_overrides(overrides: dict, sections, path, of_task=()) -> None:
    """Raises `UserError` for an option of --model-overrides that the checkpoint's `sections` lack.

    Args:
        of_task: options of the checkpoint's task, which the command line sets.
    """
    for name in overrides:
        if not any(name in (sections.get(part) or ()) for part in BUILT):
            if name in of_task:
                raise UserError(f"--model-overrides {name}: a task option of {path}: give --{name.replace('_', '-')}")
            raise UserError(f"--model-overrides {name}: the model of {path} has no such option")


def _identity(state: dict) -> dict:
    """The identity in a checkpoint (`fairseq_xl.checkpoints.identity`); {} if there is none."""
    return (state.get("task_state") or {}).get("fairseq_xl") or {}


def _with_path(read):
    """Adds the file name to the checkpoint's task state; without a state fairseq does not call the task."""

    def add_path(path, *args, **kwargs):
        """Reads a checkpoint and adds its path to the state of the task."""
        state = read(path, *args, **kwargs)
        state["task_state"] = {**(state.get("task_state") or {}), "path": str(path)}
        return state

    return add_path


@contextlib.contextmanager
def _reading(read):
    """fairseq reads checkpoints with the function `read` in this block."""
    before, checkpoint_utils.load_checkpoint_to_cpu = checkpoint_utils.load_checkpoint_to_cpu, read
    try:
        yield
    finally:
        checkpoint_utils.load_checkpoint_to_cpu = before


@contextlib.contextmanager
def _unreadable(path):
    """Raises `UserError` where fairseq cannot upgrade a file that it did not write: it fails in many ways."""
    try:
        yield
    except (KeyError, IndexError, TypeError, AttributeError, OmegaConfBaseException) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(f"{path} is not a checkpoint that fairseq can upgrade ({reason})") from error


@contextlib.contextmanager
def _as_user_error(kind: type, *beginnings: str):
    """Raises `UserError` in place of fairseq's errors of the type `kind` that begin with one of these texts."""
    try:
        yield
    except kind as error:
        if isinstance(error, UserError) or not str(error).startswith(beginnings):
            raise
        raise UserError(str(error).split(": {")[0]) from error  # one of them ends in the whole configuration
