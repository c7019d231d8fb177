"""Counts the updates of a fine-tuning, for learning rates that decay to 0 at its end.

    python -m recipes.updates SHARE DATA --task xl_classification … --max-epoch 3      # options of fairseq-train

prints ``--total-num-update N`` (with --lr-scheduler polynomial_decay) and ``--warmup-updates``, SHARE of N: the flags
by which ``recipes/launch.py`` replaces ``warmup-share: SHARE``.
"""

import logging
import os
import sys
from typing import Any

from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from fairseq_xl import register
from fairseq_xl.errors import UserError
from fairseq_xl.io import error_reporting
from fairseq_xl.tasks.training import TrainingTask
from recipes.entry_point import call


def configuration(arguments: list[str]) -> Any:
    """Returns the configuration of a command line of fairseq-train in which --total-num-update may be missing."""
    # fairseq stops at a linear decay without a number of updates
    decays = any(argument.rpartition("=")[2] == "polynomial_decay" for argument in arguments)
    placeholder = ["--total-num-update", "1"] if decays else []
    arguments = [arguments[0], *placeholder, *arguments[1:]]
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), arguments))


def count(cfg: Any) -> int:
    """Counts the updates of a training: batches of --max-epoch epochs over processes and --update-freq.

    Args:
        cfg: the configuration of fairseq-train; all objectives of the task are labelled.

    Training examples are read and encoded, so that the batches are those of the training. Raises `UserError`.
    """
    if not cfg.optimization.max_epoch:
        raise UserError("--warmup-share: --max-epoch is needed, the number of epochs")
    if cfg.optimization.skip_remainder_batch:
        raise UserError("--warmup-share: updates cannot be counted with --skip-remainder-batch")
    task = tasks.setup_task(cfg.task)
    if not isinstance(task, TrainingTask) or task.labelled.keys() != task.objectives.keys():
        raise UserError(f"--warmup-share: --task {cfg.task._name} is not fine-tuning of an encoder")
    task.learn()
    task.load_dataset("train")
    total, batch = 0, cfg.dataset
    for epoch in range(1, cfg.optimization.max_epoch + 1):
        batches = task.get_batch_iterator(
            task.dataset("train"),
            max_tokens=batch.max_tokens,
            max_sentences=batch.batch_size,
            seed=cfg.common.seed,
            training=True,
            num_shards=int(os.environ.get("WORLD_SIZE", cfg.distributed_training.distributed_world_size)),
            epoch=epoch,
        )
        update_freq = cfg.optimization.update_freq
        total += -(-len(batches) // update_freq[min(epoch, len(update_freq)) - 1])
    return total


def flags(cfg: Any, share: float) -> list[str]:
    """Returns the flags that replace ``--warmup-share``."""
    total = count(cfg)
    if cfg.optimization.max_update:
        total = min(total, cfg.optimization.max_update)
    decay = cfg.lr_scheduler._name == "polynomial_decay"
    # fairseq's schedule needs an update after the warm-up
    warmup = min(int(share * total), total - 1)
    return [*(["--total-num-update", str(total)] if decay else []), "--warmup-updates", str(warmup)]


def main(share: str, arguments: list[str]) -> None:
    error_reporting.install()
    try:
        value = float(share)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise UserError(f"--warmup-share {share}: expected a number from 0 up to, but not including, 1")
    register()
    logging.disable(logging.WARNING)  # the training repeats the warnings
    try:
        sys.stdout.write(" ".join(flags(configuration(arguments), value)) + "\n")
    finally:
        logging.disable(logging.NOTSET)


if __name__ == "__main__":
    call(lambda share, *arguments: main(share, list(arguments)), __doc__)
