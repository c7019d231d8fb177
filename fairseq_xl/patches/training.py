"""Patches of fairseq-train: the state of early stopping, and the end of a training that diverges."""

import contextlib
import functools
import logging
import numbers
import os
import re
import sys

from fairseq import checkpoint_utils, trainer
from fairseq.optim import AMPOptimizer

from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import is_finite
from fairseq_xl.patches import norms

logger = logging.getLogger(__name__)


def install() -> None:
    """Ends a diverging training with one sentence and keeps its last checkpoint."""
    AMPOptimizer.next_loss_scale = _unscaled_without_cuda(AMPOptimizer.next_loss_scale)
    trainer.NanDetector = _skip_nan_detector
    trainer.Trainer.train_step = _report_divergence(trainer.Trainer.train_step)
    trainer.Trainer.lr_step = _check_end_of_epoch(trainer.Trainer.lr_step)
    trainer.Trainer.save_checkpoint = _save_current_state(trainer.Trainer.save_checkpoint)
    checkpoint_utils.save_checkpoint = _refuse_non_finite_weights(checkpoint_utils.save_checkpoint)


def prepare() -> None:
    """Clears best values of an earlier job and patches fairseq-train, whose module is loaded by then.

    fairseq keeps the best values on functions, from one job of a sweep to the next.
    """
    for function in (checkpoint_utils.save_checkpoint, *_early_stopping_functions()):
        for name in ("best", "num_runs"):
            vars(function).pop(name, None)
    for module in _train_modules():
        module.get_valid_stats = _check_validation_metric(module.get_valid_stats)


def _skip_nan_detector(model):
    """Raises the current error again, in place of fairseq's NanDetector, which fails with `StopIteration`."""
    raise sys.exc_info()[1]


def _unscaled_without_cuda(original):
    """Loss scale of --amp: 0 without CUDA, where the loss is not scaled and no smaller scale can be tried."""
    return property(lambda self: original.fget(self) if self.scaler.is_enabled() else 0.0)


def _report_divergence(original):
    """Raises `UserError` with update, objective and language when gradients become NaN or infinite."""

    @functools.wraps(original)
    def train_step(self, samples, raise_oom=False):
        """Makes an update; raises `UserError` if it diverges, or the one before did."""
        self.samples_of_update = samples
        try:
            return original(self, samples, raise_oom)
        except FloatingPointError as error:
            raise _divergence(self, error) from error
        finally:
            self.samples_of_update = None

    return train_step


def _check_last_update(trainer_of_run) -> None:
    """Raises `UserError` if the last update diverged."""
    try:
        norms.check_last_update(trainer_of_run)
    except norms.Diverged as error:
        raise _divergence(trainer_of_run, error) from error


def _check_end_of_epoch(original):
    @functools.wraps(original)
    def lr_step(self, epoch, val_loss=None):
        """Ends an epoch after its last update is checked: the training may end here without saving."""
        _check_last_update(self)
        return original(self, epoch, val_loss)

    return lr_step


def _save_current_state(original):
    @functools.wraps(original)
    def save_checkpoint(self, filename, extra_state):
        """Writes a checkpoint that counts an overflow in the last update; fairseq writes crash.pt after any error."""
        with contextlib.suppress(norms.Diverged):
            norms.check_last_update(self)
        return original(self, filename, extra_state)

    return save_checkpoint


def _divergence(trainer_of_run, error) -> UserError:
    """The error of a training that diverged in the current update, or in the one of `norms.Diverged`."""
    current = trainer_of_run.get_num_updates() + 1, trainer_of_run.samples_of_update
    update, samples = (error.update, error.samples) if isinstance(error, norms.Diverged) else current
    where, task = f"update {update}", trainer_of_run.task
    if hasattr(task, "describe_batch"):  # a task of this package
        batches = dict.fromkeys(task.describe_batch(sample) for sample in samples if sample)
        where += f" ({'; '.join(batches)})"
    return UserError(f"{where}: {_divergence_reason(str(error))}; {_advice(trainer_of_run)}")


def _divergence_reason(message: str) -> str:
    if "inimum loss scale" in message:
        return "gradients are NaN or infinite even with the smallest loss scale"
    if "inconsistent between workers" in message and not re.search("= -?(nan|inf)", message):
        return message.splitlines()[0]
    return "gradients are NaN or infinite"


def _advice(trainer_of_run) -> str:
    """The state of the last checkpoint and options to change, for messages."""
    cfg = trainer_of_run.cfg.checkpoint
    last = os.path.join(cfg.save_dir, f"checkpoint_last{trainer_of_run.checkpoint_suffix}.pt")
    kept = f"{last} is unchanged" if os.path.exists(last) else "no checkpoint has been saved"
    return f"{kept}; a lower --lr, more --warmup-updates or a --clip-norm may help"


def _refuse_non_finite_weights(original):
    """Raises `UserError` before NaN or infinite weights overwrite the last good checkpoint."""

    @functools.wraps(original)
    def save_checkpoint(cfg, trainer, epoch_itr, val_loss):
        """Saves a checkpoint of finite weights, after the last update is checked."""
        _check_last_update(trainer)
        for name, value in trainer.model.named_parameters():
            if not is_finite(value):
                raise UserError(f"update {trainer.get_num_updates()}: {name} is NaN or infinite; {_advice(trainer)}")
        return original(cfg, trainer, epoch_itr, val_loss)

    return save_checkpoint


def _check_validation_metric(original):
    """Keeps a validation without predictions from being the best, and raises `UserError` for a metric that is NaN."""
    if hasattr(original, "__wrapped__"):
        return original

    @functools.wraps(original)
    def get_valid_stats(cfg, trainer, stats, tracking_best):
        """Returns the statistics of a validation after its metric is checked."""
        metric, steps = cfg.checkpoint.best_checkpoint_metric, cfg.dataset.max_valid_steps
        if steps and metric not in stats:
            raise UserError(f"--max-valid-steps {steps} ends validation before the text of {metric}")
        value = stats.get(metric, 0.0)
        if value is None:
            logger.warning("validation predicted nothing: %s has no value, and no checkpoint becomes the best", metric)
        elif value != value:
            raise UserError(f"validation after update {trainer.get_num_updates()}: {metric} is NaN; {_advice(trainer)}")
        return original(cfg, trainer, stats, tracking_best and value is not None)

    return get_valid_stats


def _train_modules() -> list:
    """The modules that may run fairseq-train: `python -m fairseq_cli.train` runs as __main__."""
    modules = [sys.modules.get(name) for name in ("__main__", "fairseq_cli.train")]
    return [module for module in modules if hasattr(module, "should_stop_early")]


def _early_stopping_functions() -> list:
    """The functions on which fairseq keeps the state of early stopping."""
    return [module.should_stop_early for module in _train_modules()]


def early_stopping() -> dict:
    """The best value, with which --patience compares, and the number of validations without a better one, if any."""
    state = {}
    for function in _early_stopping_functions():
        state |= {name: getattr(function, name) for name in ("best", "num_runs") if hasattr(function, name)}
    return state


def restore_early_stopping(state: dict) -> None:
    """Restores what `early_stopping` returned; drops anything but numbers, which a damaged file may hold."""
    kept = {name: state[name] for name in ("best", "num_runs") if isinstance(state.get(name), numbers.Real)}
    for function in _early_stopping_functions():
        vars(function).update(kept)
