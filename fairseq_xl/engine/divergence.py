"""Errors of a training whose gradients or weights are NaN or infinite, or differ between ranks."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairseq_xl.engine.interfaces import Sample
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import is_finite
from fairseq_xl.optimizers.precision import Diverged

if TYPE_CHECKING:
    from fairseq_xl.engine.trainer import Trainer

#: the largest relative difference of the ranks' gradient norms, as in fairseq
TOLERANCE = 1e-6


def check_equal(norms: Sequence[float]) -> None:
    """Raises `Diverged` if the finite gradient norms of the ranks differ."""
    if max(abs(norm - norms[0]) for norm in norms) >= TOLERANCE * (norms[0] + TOLERANCE):
        ranks = ", ".join(f"rank {rank} = {norm:.8f}" for rank, norm in enumerate(norms))
        raise Diverged(f"gradients are inconsistent between workers: {ranks}")


def error(trainer: "Trainer", samples: Sequence[Sample], reason: str) -> UserError:
    """The error of an update that diverged, with its number, objectives and languages, and with advice."""
    batches = dict.fromkeys(trainer.task.describe_batch(sample) for sample in samples if sample)
    update = f"update {trainer.get_num_updates() + 1} ({'; '.join(batches)})"
    return UserError(f"{update}: {reason}; {advice(trainer)}")


def check_weights(trainer: "Trainer") -> None:
    """Raises `UserError` before NaN or infinite weights overwrite the last good checkpoint."""
    for name, value in trainer.get_model().named_parameters():
        if not is_finite(value):
            raise UserError(f"update {trainer.get_num_updates()}: {name} is NaN or infinite; {advice(trainer)}")


def advice(trainer: "Trainer") -> str:
    """The state of the last checkpoint and options to change, for messages."""
    cfg = trainer.cfg.checkpoint
    last = os.path.join(cfg.save_dir, f"checkpoint_last{cfg.checkpoint_suffix}.pt")
    status = f"{last} is unchanged" if os.path.exists(last) else "no checkpoint has been saved"
    return f"{status}; a lower --lr, more --warmup-updates or a --clip-norm may help"
