"""--zero-sharding os: each process keeps the optimizer state of its share of the parameters."""

import logging

import torch
from fairseq.distributed import utils as distributed_utils
from omegaconf import DictConfig

from fairseq_xl.engine.distributed import BACKENDS
from fairseq_xl.engine.precision import Updates
from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)


def check(cfg: DictConfig) -> None:
    """Raises `UserError` for options with which the state cannot be distributed."""
    name, backend = cfg.optimizer._name, cfg.distributed_training.ddp_backend
    if name not in ("xl_adam", "xl_lamb"):
        raise UserError(f"--zero-sharding os needs --optimizer xl_adam or xl_lamb, not {name}")
    for option, given in (("--amp", cfg.common.amp), (f"--ddp-backend {backend}", backend not in BACKENDS)):
        if given:
            raise UserError(
                f"--zero-sharding os does not support {option}: "
                "it needs --ddp-backend pytorch_ddp or legacy_ddp, and fp32, --fp16 or --bf16"
            )


def shard(updates: Updates) -> None:
    """Distributes the state of an optimizer over all processes; one process has all of it."""
    if not torch.distributed.is_initialized():
        return
    from fairseq_xl.engine.sharded_optimizer import ShardedOptimizer, parameters  # takes half a second

    alone, group = updates.optimizer, distributed_utils.get_data_parallel_group()
    sharded = ShardedOptimizer(alone.param_groups, type(alone), process_group=group, **updates.wrapped.optimizer_config)
    updates.wrapped.optimizer = sharded
    elements = [sum(map(torch.numel, parameters(each))) for each in (sharded.optim, alone)]
    logger.info("--zero-sharding os: this process holds the state of %d of %d weights", *elements)
