"""State of fairseq-train that it does not save, and what ends it where numbers are none any more."""

import functools
import logging
import numbers
import os
import re
import sys

from fairseq import checkpoint_utils, trainer
from fairseq.optim import AMPOptimizer

from fairseq_xl.compat.configuration import is_finite
from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)


def install() -> None:
    """End a training that explodes in one sentence, its last checkpoint kept."""
    AMPOptimizer.next_loss_scale = _of_a_scaler(AMPOptimizer.next_loss_scale)
    trainer.NanDetector = _no_second_pass
    trainer.Trainer.train_step = _telling_of_explosion(trainer.Trainer.train_step)
    checkpoint_utils.save_checkpoint = _saving_numbers(checkpoint_utils.save_checkpoint)


def begin() -> None:
    """What is to be done once fairseq-train runs: only then its module is there.

    fairseq keeps the best values on functions, from one job of a sweep to the next.
    """
    for function in (checkpoint_utils.save_checkpoint, *_early_stopping_functions()):
        for name in ("best", "num_runs"):
            vars(function).pop(name, None)
    for module in _modules_of_training():
        module.get_valid_stats = _comparing_numbers(module.get_valid_stats)


def _no_second_pass(model):
    """fairseq looks for the first NaN in a second forward and backward, in which torch ends with `StopIteration`."""
    raise sys.exc_info()[1]


def _of_a_scaler(original):
    """--amp: without CUDA the loss is not scaled, and there is no smaller scale to try."""
    return property(lambda self: original.fget(self) if self.scaler.is_enabled() else 0.0)


def _telling_of_explosion(original):
    @functools.wraps(original)
    def train_step(self, samples, raise_oom=False):
        try:
            return original(self, samples, raise_oom)
        except FloatingPointError as error:
            where = f"update {self.get_num_updates() + 1}"
            if hasattr(self.task, "contents"):  # a task of ours
                where += f" ({'; '.join(dict.fromkeys(self.task.contents(sample) for sample in samples if sample))})"
            raise UserError(f"{where}: {_explosion(str(error))}; {_kept(self)}") from error

    return train_step


def _explosion(message: str) -> str:
    if "inimum loss scale" in message:
        return "gradients are NaN or infinite with the smallest loss scale too"
    if "inconsistent between workers" in message and not re.search("= -?(nan|inf)", message):
        return message.splitlines()[0]
    return "gradients are NaN or infinite"


def _kept(trainer_of_run) -> str:
    cfg = trainer_of_run.cfg.checkpoint
    last = os.path.join(cfg.save_dir, f"checkpoint_last{trainer_of_run.checkpoint_suffix}.pt")
    kept = f"{last} is kept as it was" if os.path.exists(last) else "no checkpoint was saved before"
    return f"{kept}; a lower --lr, a longer --warmup-updates or --clip-norm may help"


def _saving_numbers(original):
    """A checkpoint of what exploded would take the place of the last good one."""

    @functools.wraps(original)
    def save_checkpoint(cfg, trainer, epoch_itr, val_loss):
        for name, value in trainer.model.named_parameters():
            if not is_finite(value):
                raise UserError(f"update {trainer.get_num_updates()} made {name} NaN or infinite; {_kept(trainer)}")
        return original(cfg, trainer, epoch_itr, val_loss)

    return save_checkpoint


def _comparing_numbers(original):
    """A validation without a prediction has no value, and NaN would be the best value for ever."""
    if hasattr(original, "__wrapped__"):
        return original

    @functools.wraps(original)
    def get_valid_stats(cfg, trainer, stats, tracking_best):
        metric = cfg.checkpoint.best_checkpoint_metric
        value = stats.get(metric, 0.0)
        if value is None:
            logger.warning("validation has nothing to predict: no %s, and no checkpoint is the best one by it", metric)
        elif value != value:
            raise UserError(f"validation after update {trainer.get_num_updates()}: {metric} is NaN; {_kept(trainer)}")
        return original(cfg, trainer, stats, tracking_best and value is not None)

    return get_valid_stats


def _modules_of_training() -> list:
    """`python -m fairseq_cli.train` runs another module than an import gives."""
    modules = [sys.modules.get(name) for name in ("__main__", "fairseq_cli.train")]
    return [module for module in modules if hasattr(module, "should_stop_early")]


def _early_stopping_functions() -> list:
    """fairseq keeps the state on its function."""
    return [module.should_stop_early for module in _modules_of_training()]


def early_stopping() -> dict:
    """The best value that --patience compares with and how many validations it has waited, as far as there are any."""
    state = {}
    for function in _early_stopping_functions():
        state |= {name: getattr(function, name) for name in ("best", "num_runs") if hasattr(function, name)}
    return state


def restore_early_stopping(state: dict) -> None:
    """Put back what `early_stopping` returned, of a file that may hold anything."""
    kept = {name: state[name] for name in ("best", "num_runs") if isinstance(state.get(name), numbers.Real)}
    for function in _early_stopping_functions():
        vars(function).update(kept)
