"""Patches of reading checkpoints: plain data only, checked before use, and one sentence for one that does not fit."""

import argparse
import contextlib
import functools
import logging
import math
import os
import re

import omegaconf
import torch
from fairseq import checkpoint_utils
from fairseq.distributed.utils import _TensorPlaceholder
from fairseq.file_io import PathManager
from fairseq.optim import OPTIMIZER_REGISTRY, FairseqOptimizer
from fairseq.tasks import TASK_REGISTRY
from omegaconf.errors import OmegaConfBaseException

from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import (
    NO_CHECKPOINT,
    NOT_FINITE,
    allow_plain_types,
    check_finite,
    load_checkpoint,
    load_plain,
    readable,
    refuse_hub_name,
)
from fairseq_xl.io.configuration import BUILT, OUTPUTS, check_configuration, check_size
from fairseq_xl.io.literals import literal
from fairseq_xl.patches import log, save_dir, training
from fairseq_xl.patches.processes import check_processes_are_joined
from fairseq_xl.renamed import refuse_old_options

logger = logging.getLogger(__name__)

#: sections of a configuration whose options are settings of the training
SETTINGS = ("model", "task", "criterion", "optimizer", "lr_scheduler", "optimization", "ema", "bmuf")
#: sections whose class is a setting too; the classes of the others are compared elsewhere
CLASSES = {"criterion", "optimizer", "lr_scheduler"}
#: options that a resumed run may change without a warning
NO_SETTINGS = {"max_epoch", "max_update", "stop_time_hours", "stop_min_lr", "validation_examples"} | OUTPUTS
#: options of other sections that change batches, gradients, precision or the choice of the best checkpoint
OTHER_SETTINGS = {
    "common": {"fp16", "memory_efficient_fp16", "bf16", "memory_efficient_bf16", "amp"}
    | {"fp16_init_scale", "fp16_scale_window", "fp16_scale_tolerance", "min_loss_scale", "threshold_loss_scale"}
    | {"amp_init_scale", "amp_scale_window", "amp_batch_retries"},
    "dataset": {"max_tokens", "batch_size", "train_subset", "curriculum", "grouped_shuffling"}
    | {"update_ordered_indices_seed", "valid_subset", "combine_valid_subsets", "max_valid_steps"},
    "distributed_training": {"distributed_world_size", "ddp_comm_hook", "localsgd_frequency"}
    | {"slowmo_momentum", "slowmo_base_algorithm"},
    "checkpoint": {"best_checkpoint_metric", "maximize_best_checkpoint_metric"},
}
#: options without effect on a resumed run, which continues from a state in the checkpoint -> reason
STORED = {
    "fp16_init_scale": "no effect: the loss scale is the checkpoint's",
    "amp_init_scale": "no effect: the loss scale is the checkpoint's",
}
TUPLES = str.maketrans("()", "[]")
PLATEAU = "reduce_lr_on_plateau"
#: options on which it depends whether two validation results can be compared
COMPARED = [
    ("checkpoint", "best_checkpoint_metric"),
    ("checkpoint", "maximize_best_checkpoint_metric"),
    ("dataset", "valid_subset"),
]

#: flags of precision, those before others first ("": 32 bits) -> fairseq's class that wraps the optimizer
PRECISIONS = {
    "--memory-efficient-bf16": "MemoryEfficientFP16Optimizer",
    "--memory-efficient-fp16": "MemoryEfficientFP16Optimizer",
    "--amp": "AMPOptimizer",
    "--bf16": "FP16Optimizer",
    "--fp16": "FP16Optimizer",
    "": None,
}


def install() -> None:
    """Makes fairseq read checkpoints through this module only."""
    allow_plain_types()  # also in what ranks send each other
    torch.serialization.add_safe_globals([_TensorPlaceholder])
    FairseqOptimizer.load_state_dict = _with_options_of_run(FairseqOptimizer.load_state_dict)
    _make_loading_safe()


def _with_options_of_run(original):
    """Gives a restored optimizer the run's options, such as --weight-decay; fairseq takes those of the checkpoint."""

    @functools.wraps(original)
    def load_state_dict(self, state_dict, optimizer_overrides=None):
        """Restores the state; the scheduler sets the learning rate."""
        options = {name: value for name, value in self.optimizer_config.items() if name != "lr"}
        original(self, state_dict, options | (optimizer_overrides or {}))

    return load_state_dict


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
    resume = checkpoint_utils.load_checkpoint

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
        with _as_user_error(OSError, "Model file not found"), _name_misfit(filenames), _reading(read):
            return ensemble(filenames, overrides, task, strict, suffix, num_shards, state)

    @functools.wraps(resume)
    def load_checkpoint_and_iterator(cfg, trainer, **kwargs):
        """Restores a training, or starts a new one, after its checkpoint is checked."""
        training.prepare()
        check_processes_are_joined(trainer.cfg)
        if hasattr(trainer.task, "begin_training"):
            trainer.task.begin_training()
        _check_restore_file(cfg, trainer)
        read = _report_changes(trainer.cfg, checkpoint_utils.load_checkpoint_to_cpu)
        read = _check_precision(trainer.cfg, _with_position(trainer.cfg, read))
        read = _check_with_task(trainer.task, read)
        other = _as_user_error(AssertionError, "Criterion does not match", "Optimizer does not match")
        with (
            _as_user_error(ValueError, "--finetune-from-model"),
            other,
            _name_misfit([cfg.restore_file]),
            _shorter_epoch(cfg.restore_file),
            _reading(read),
        ):
            state, iterator = resume(cfg, trainer, **kwargs)
        iterator = _of_unfinished_epoch(trainer, iterator, kwargs)
        save_dir.lock(trainer)
        log.start_clock(trainer)
        _stop_if_done(trainer)
        return state, iterator

    checkpoint_utils.load_checkpoint_to_cpu = load_checkpoint_to_cpu
    checkpoint_utils.load_model_ensemble_and_task = load_model_ensemble_and_task
    checkpoint_utils.load_checkpoint = load_checkpoint_and_iterator


def _check_with_task(task, read):
    """Calls the task's checks on each checkpoint before its weights are used; fairseq does so later or never."""

    def checked(path, *args, **kwargs):
        """Reads a checkpoint and calls `check_fits` and `check_inputs` of the task."""
        state = read(path, *args, **kwargs)
        if hasattr(task, "check_fits"):
            task.check_fits(state, path)
            task.check_inputs(state, path)
        return state

    return checked


def _check_precision(cfg, read):
    """Refuses a checkpoint whose optimizer state is of another precision: fairseq names classes of optimizers only."""

    def checked(path, *args, **kwargs):
        """Reads a checkpoint and compares its precision with that of the run, if its optimizer state is used."""
        state = read(path, *args, **kwargs)
        unused = cfg.checkpoint.reset_optimizer or path == cfg.checkpoint.finetune_from_model
        if unused or state.get("last_optimizer_state") is None:
            return state
        _check_optimizer(state.get("cfg"), cfg, path)
        before, now = (_precision(_options(each, "common")) for each in (state.get("cfg"), cfg))
        if PRECISIONS[before] != PRECISIONS[now]:
            trained, advice = (f"with {before}", f"add {before}") if before else ("in 32 bits", f"leave out {now}")
            runs = f"has {now}" if now else "is in 32 bits"
            if before and now:
                advice = f"give {before} instead of {now}"
            raise UserError(
                f"{path} was trained {trained}, and this run {runs}: {advice}, or start with a new optimizer state "
                "(--reset-optimizer)"
            )
        return state

    return checked


def _check_optimizer(before, now, path) -> None:
    """Refuses the state of another class of optimizers, which fairseq does not notice in 16 bits."""
    names = [_options(cfg, "optimizer").get("_name") for cfg in (before, now)]
    classes = [getattr(OPTIMIZER_REGISTRY.get(name), "__name__", None) for name in names]
    if None not in classes and classes[0] != classes[1]:
        raise UserError(
            f"Optimizer does not match: {path} was trained with --optimizer {names[0]}, this run has --optimizer "
            f"{names[1]}: start with a new optimizer state (--reset-optimizer)"
        )


def _precision(common: dict) -> str:
    """The flag in `PRECISIONS` that options of the section `common` amount to."""
    flags = (flag for flag in PRECISIONS if flag and common.get(flag[2:].replace("-", "_")))
    return next(flags, "")


def _with_position(cfg, read):
    """Changes a checkpoint's position in the epoch, a number of batches of each process, to this number of processes.

    Where an epoch is a number of updates, the run continues after the same update, also with another --update-freq.
    Otherwise it continues after the batches that all processes have read together.
    """

    def scaled(path, *args, **kwargs):
        """Reads a checkpoint with the position of this run."""
        state = read(path, *args, **kwargs)
        position = (state.get("extra_state") or {}).get("train_iterator") or {}
        made = position.get("iterations_in_epoch")
        if made and "updates_per_epoch" in cfg.task:
            before, now = (_micro_steps(each, position["epoch"]) for each in (state.get("cfg"), cfg))
            position["iterations_in_epoch"] = made // before * now if before else made
        elif made:
            before, now = (_options(each, "distributed_training") for each in (state.get("cfg"), cfg))
            before, now = (options.get("distributed_world_size") for options in (before, now))
            position["iterations_in_epoch"] = -(-made * before // now) if before else made
        return state

    return scaled


def _of_unfinished_epoch(trainer, iterator, options: dict):
    """The iterator of the next epoch if `epoch_is_over`, else `iterator`.

    Args:
        options: those that fairseq passes to `get_train_iterator`.
    """
    if not getattr(iterator, "epoch_is_over", False):
        return iterator
    epoch, ranks = iterator.epoch, trainer.data_parallel_world_size
    logger.info("epoch %d has no batch left for %d processes: epoch %d begins", epoch - 1, ranks, epoch)
    return trainer.get_train_iterator(epoch, load_dataset=trainer.task.has_sharded_data("train"), **options)


def _micro_steps(cfg, epoch: int) -> int | None:
    """The batches that each process accumulates for an update of an epoch; None if the configuration is missing."""
    frequencies = _options(cfg, "optimization").get("update_freq")
    return int(frequencies[min(epoch, len(frequencies)) - 1]) if frequencies else None


def _report_changes(cfg, read):
    """Warns of settings that differ from those of the run's own checkpoint; if it is damaged, says how to resume.

    In a sweep other values of the swept options are refused.
    """

    def report(path, *args, **kwargs):
        """Reads a checkpoint; warns of changed settings if it is one of this run."""
        own = os.path.dirname(os.path.abspath(path)) == os.path.abspath(cfg.checkpoint.save_dir)
        try:
            state = read(path, *args, **kwargs)
        except UserError as error:
            if not own or not any(reason in str(error) for reason in (NO_CHECKPOINT, NOT_FINITE)):
                raise
            raise UserError(f"{error}; continue from another checkpoint of its folder with --restore-file") from error
        if path != cfg.checkpoint.finetune_from_model:
            _forget_incomparable(state, cfg)
        changes = other_settings(state.get("cfg"), cfg) if own else []
        if own:
            _check_combination(state.get("cfg"), cfg, changes, path)
        if changes:
            logger.warning("%s is resumed with other settings than before: %s", path, ", ".join(changes))
        return state

    return report


def _forget_incomparable(state: dict, now) -> None:
    """Removes state of another scheduler, and the best value of another validation metric or split.

    fairseq would load the state of any scheduler, and compare values of one metric with the best of another.
    """
    before, extra = state.get("cfg"), state.get("extra_state") or {}
    worst = -math.inf if now.checkpoint.maximize_best_checkpoint_metric else math.inf
    if any(_differs(before, now, *key) for key in COMPARED):
        for stored in (extra, *extra.values()):  # also of --patience
            for name in ("best", "num_runs") if isinstance(stored, dict) else ():
                stored.pop(name, None)
        state["optimizer_history"][-1]["lr_scheduler_state"]["best"] = worst
    if _differs(before, now, "lr_scheduler", "_name"):
        state["optimizer_history"][-1]["lr_scheduler_state"] = {"best": worst}


def _differs(before, now, section: str, name: str) -> bool:
    """Whether an option has another value in another configuration that has it too."""
    old, new = (_options(cfg, section) for cfg in (before, now))
    return name in old and name in new and str(old[name]) != str(new[name])


def other_settings(before, now) -> list:
    """Lists the settings that differ between two configurations: those of `SETTINGS` and `OTHER_SETTINGS`.

    Args:
        before: the configuration of a checkpoint, as it was loaded.
        now: the configuration of the run.

    Returns: texts such as ``--lr [0.5] (was [0.002])``, and ``DATA data-bin/new (was data-bin/old)``.
    """
    changes, stored = {}, dict(STORED)
    if _options(now, "lr_scheduler").get("_name") == PLATEAU:
        stored["lr"] = f"no effect after the warm-up: {PLATEAU} continues from the checkpoint's learning rate"
    for section in (*SETTINGS, *OTHER_SETTINGS):
        old, new = (_options(cfg, section) for cfg in (before, now))
        for name in old.keys() & new.keys() & OTHER_SETTINGS.get(section, old.keys()) - NO_SETTINGS:
            if name == "_name" and section not in CLASSES:
                continue
            same = _same_folders if name == "data" else _same_values
            if not same(str(old[name]), str(new[name])):
                option = f"--{(section if name == '_name' else name).replace('_', '-')}"
                remark = f"; {stored[name]}" if name in stored else ""
                changes[option] = f"{'DATA' if name == 'data' else option} {new[name]} (was {old[name]}{remark})"
    return [changes[option] for option in sorted(changes)]


def _check_combination(before, now, changes, path) -> None:
    """Refuses to resume a job of a sweep from a checkpoint of another combination of the swept values.

    Args:
        before: the configuration of the checkpoint `path`, as it was loaded.
        now: the configuration of the job.
        changes: `other_settings` of the two; all of them count if files of a config group are swept.
    """
    others = []
    for key in filter(None, os.environ.get(save_dir.SWEPT, "").split(",")):
        section, dot, option = key.partition(".")
        name = option.partition(".")[0]
        old, new = (_options(cfg, section).get(name) for cfg in (before, now))
        if str(old) != str(new):
            others.append(f"{section}.{name}={new} (was {old})")
        elif not dot:
            others += changes
    if others:
        raise UserError(
            f"{path} has another combination of the swept values than this job: {', '.join(dict.fromkeys(others))}; "
            "choose another checkpoint.save_dir"
        )


def _same_values(one: str, other: str) -> bool:
    """Whether two values are equal as text; a list equals a tuple of its items."""
    return one.translate(TUPLES) == other.translate(TUPLES)


def _same_folders(one: str, other: str) -> bool:
    """Whether two values of DATA, folders joined by ``:``, name the same folders in the same order."""
    return [*map(os.path.abspath, one.split(os.pathsep))] == [*map(os.path.abspath, other.split(os.pathsep))]


def _options(cfg, section: str) -> dict:
    """The options of a section of a configuration; fairseq keeps those of some of its own models in a Namespace."""
    found = (cfg or {}).get(section) or {}
    if isinstance(found, argparse.Namespace):
        return vars(found)
    return omegaconf.OmegaConf.to_container(found, resolve=True) if omegaconf.OmegaConf.is_config(found) else found


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
def _name_misfit(files):
    """Raises `UserError` with the file and the first parameter that does not fit, of perhaps hundreds."""
    try:
        yield
    except Exception as error:
        whole, listed = str(error), str(error.__context__) if error.__context__ else str(error)
        resuming = whole.startswith("Cannot load model parameters")
        if isinstance(error, UserError) or not (resuming or whole.startswith("Error(s) in loading state_dict")):
            raise
        names = ", ".join(map(str, files))
        message = whole.split(";")[0] if resuming else f"Cannot load model parameters from checkpoint {names}"
        first = " ".join([*listed.split("\n"), ""][1].split()).rstrip(". ").split('", "')[0]
        first = re.sub(r"torch\.Size\(\[(.*?)\]\)", r"(\1)", first)
        raise UserError(f"{message}: the model of this run is another one ({first or listed})") from error


@contextlib.contextmanager
def _shorter_epoch(path):
    """Raises `UserError` where the epoch, with other settings, has no batches after those that were read before."""
    try:
        yield
    except RuntimeError as error:
        if not str(error).startswith("Cannot resume training due to dataloader mismatch"):
            raise
        raise UserError(
            f"{path}: as many batches of the epoch were read as it now has, or more, since settings have changed: "
            "resume with the earlier ones, or restart the epoch with --reset-dataloader"
        ) from error


def _stop_if_done(trainer) -> None:
    """Makes no update in a finished run that is started again.

    fairseq compares with --max-update only after an update, and with --patience only after a validation.

    Raises:
        UserError: --continue-once names a checkpoint with --max-update updates or more.
    """
    cfg, made, limit = trainer.cfg.checkpoint, trainer.get_num_updates(), trainer.cfg.optimization.max_update
    patience, waited = cfg.patience, training.early_stopping().get("num_runs", 0)
    if limit and made >= limit:
        last = f"checkpoint_last{trainer.checkpoint_suffix}.pt"
        if cfg.continue_once and not os.path.exists(os.path.join(cfg.save_dir, last)):
            raise UserError(
                f"--continue-once {cfg.continue_once}: it has {made} updates, --max-update must be above {made}"
            )
        logger.info("nothing to do: %d updates are made, --max-update is %d", made, limit)
    elif made and 0 < patience <= waited:
        logger.info("nothing to do: %d validations were no better, --patience is %d", waited, patience)
    else:
        return
    trainer.cfg.optimization.stop_min_lr = math.inf  # compared before each epoch


def _check_restore_file(cfg, trainer) -> None:
    """Refuses a missing --restore-file, with which fairseq trains from scratch, unless it is checkpoint_last.pt."""
    suffix = trainer.checkpoint_suffix or ""
    path = cfg.restore_file.replace(".pt", f"{suffix}.pt")
    if os.path.basename(cfg.restore_file) != "checkpoint_last.pt" and not PathManager.isfile(path):
        raise UserError(f"--restore-file {path} does not exist")
    last = os.path.join(cfg.save_dir, path)  # a --restore-file that is a whole path is not looked up in --save-dir
    if os.path.lexists(last) and not os.path.isfile(last):
        raise UserError(f"{last} is not a file: it is where the run's last checkpoint is read and written")
    joined = torch.distributed.is_initialized()
    try:
        if not joined or torch.distributed.get_rank() == 0:
            save_dir.check_last_checkpoint(cfg, suffix, functools.partial(_is_of_run, trainer.cfg))
    finally:
        if joined:
            torch.distributed.barrier()  # all ranks then see the same files


def _is_of_run(run, path: str) -> bool:
    """Whether a checkpoint was saved by this run: in the same --save-dir, with the same settings."""
    try:
        before = load_plain(path, mapped=True)["cfg"]
        return _same_folders(before["checkpoint"]["save_dir"], run.checkpoint.save_dir) and not other_settings(
            before, run
        )
    except (UserError, LookupError, TypeError, AttributeError):
        return False


@contextlib.contextmanager
def _as_user_error(kind: type, *beginnings: str):
    """Raises `UserError` in place of fairseq's errors of the type `kind` that begin with one of these texts."""
    try:
        yield
    except kind as error:
        if isinstance(error, UserError) or not str(error).startswith(beginnings):
            raise
        raise UserError(str(error).split(": {")[0]) from error  # one of them ends in the whole configuration
