"""Patches of --zero-sharding os: torch's ZeroRedundancyOptimizer in place of fairscale's."""

import functools
import logging
from collections.abc import Callable
from typing import Any

import torch
from fairseq import optim, trainer

from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)


def install() -> None:
    """Keeps each parameter's optimizer state in one process, in checkpoints of one file."""
    optim.shard_ = _shard
    trainer.Trainer._build_optimizer = _check_options(trainer.Trainer._build_optimizer)
    trainer.Trainer.consolidate_optimizer = _consolidate_only_together(trainer.Trainer.consolidate_optimizer)


def _shard(optimizer: Any, group: Any) -> None:
    """Distributes the state of fairseq's `optimizer` over the processes of `group`."""
    if not torch.distributed.is_initialized():  # one process has all of it
        return
    from fairseq_xl.patches.sharded_optimizer import ShardedOptimizer, parameters  # takes half a second

    alone = optimizer.optimizer
    optimizer.optimizer = ShardedOptimizer(
        alone.param_groups, type(alone), process_group=group, **optimizer.optimizer_config
    )
    elements = [sum(map(torch.numel, parameters(each))) for each in (optimizer.optimizer.optim, alone)]
    logger.info("--zero-sharding os: this process holds the state of %d of %d weights", *elements)


def _check_options(original: Callable) -> Callable:
    """Refuses options with which the state cannot be distributed; fairseq asks for fairscale, or goes on."""

    @functools.wraps(original)
    def _build_optimizer(self: Any) -> None:
        """Builds the optimizer after options are checked."""
        cfg = self.cfg
        if cfg.distributed_training.zero_sharding == "os":
            name, backend = cfg.optimizer._name, cfg.distributed_training.ddp_backend
            if name not in ("xl_adam", "xl_lamb"):
                raise UserError(f"--zero-sharding os needs --optimizer xl_adam or xl_lamb, not {name}")
            for option, given in (
                ("--amp", cfg.common.amp),
                ("--use-bmuf", cfg.optimization.use_bmuf),
                (f"--ddp-backend {backend}", backend not in ("c10d", "pytorch_ddp", "no_c10d", "legacy_ddp")),
            ):
                if given:
                    raise UserError(
                        f"--zero-sharding os does not support {option}: "
                        "it needs --ddp-backend pytorch_ddp or legacy_ddp, and fp32, --fp16 or --bf16"
                    )
        original(self)

    return _build_optimizer


def _consolidate_only_together(original: Callable) -> Callable:
    """Gathers the state on rank 0, unless an update failed: perhaps in one process only, which would wait for ever."""

    @functools.wraps(original)
    def consolidate_optimizer(self: Any) -> None:
        """Gathers the state of a sharded optimizer; all processes call this, between two updates."""
        if getattr(self, "samples_of_update", None) is None:
            original(self)
        else:
            self._gathered_optim_state = None  # as fairseq says that there is none of FSDP

    return consolidate_optimizer
