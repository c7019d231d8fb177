"""Patches of --zero-sharding os: torch's ZeroRedundancyOptimizer in place of fairscale's."""

import functools
import logging
from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from fairseq import optim, trainer
from fairseq.distributed import utils as distributed_utils
from torch import Tensor
from torch.distributed.optim import ZeroRedundancyOptimizer

from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)


def install() -> None:
    """Keeps each parameter's optimizer state in one process, in checkpoints of one file."""
    optim.shard_ = _shard
    trainer.Trainer._build_optimizer = _check_options(trainer.Trainer._build_optimizer)
    trainer.Trainer.consolidate_optimizer = _consolidate_only_together(trainer.Trainer.consolidate_optimizer)


class _ShardedOptimizer(ZeroRedundancyOptimizer):
    """An optimizer of this package whose state of each parameter is held by one process, which updates the parameter.

    Its state in a checkpoint is that of the optimizer without sharding.
    """

    supports_memory_efficient_fp16 = True
    disable_mem_eff_fp16_loading_hack = True  # as of the sharded optimizer, whose state stays in float32

    _all_state_dicts: list[dict]  # of all ranks, once they are gathered

    @property
    def can_skip(self) -> bool:
        """Whether `found_inf` has an effect."""
        can: bool = self.optim.can_skip
        return can

    @property
    def found_inf(self) -> Tensor | None:
        """1 on the device skips an update: see `MultiTensorOptimizer`."""
        found: Tensor | None = self.optim.found_inf
        return found

    @found_inf.setter
    def found_inf(self, found: Tensor | None) -> None:
        self.optim.found_inf = found

    def broadcast_global_state_dict(self, state_dict: dict) -> dict:
        """Sends the state that rank 0 has read to all ranks; each loads its part."""
        whole: dict = distributed_utils.broadcast_object(state_dict, src_rank=0, group=self.process_group)
        return whole

    def load_state_dict(self, state_dict: dict) -> None:
        """Loads this rank's part of the state of all parameters."""
        places = {id(parameter): place for place, parameter in enumerate(_parameters(self))}
        saved = list(chain(*(group["params"] for group in state_dict["param_groups"])))
        if len(saved) != len(places):
            raise UserError(f"the checkpoint's optimizer has {len(saved)} parameters, this run {len(places)}")
        own = [saved[places[id(parameter)]] for parameter in _parameters(self.optim)]
        state = {place: state_dict["state"][key] for place, key in enumerate(own) if key in state_dict["state"]}
        first = 0
        groups = []
        for group, settings in zip(self.optim.param_groups, state_dict["param_groups"]):
            last = first + len(group["params"])
            groups.append({**settings, "params": list(range(first, last))})
            first = last
        self.optim.load_state_dict({"state": state, "param_groups": groups})
        self._sync_param_groups(self.optim.param_groups, self.param_groups)  # type: ignore[attr-defined]

    def state_dict(self) -> dict:
        """Returns the state of all parameters once after `consolidate_state_dict`, on rank 0; else none."""
        if not self._all_state_dicts:
            logger.warning("the state of the optimizer is not saved: the processes failed before they gathered it")
            return {"state": {}, "param_groups": torch.optim.Optimizer.state_dict(self)["param_groups"]}
        whole: dict = super().state_dict()
        self._all_state_dicts = []  # a copy of all state in the host's memory
        return whole


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """The parameters in the order in which a state numbers them."""
    return list(chain(*(group["params"] for group in optimizer.param_groups)))


def _shard(optimizer: Any, group: Any) -> None:
    """Distributes the state of fairseq's `optimizer` over the processes of `group`."""
    if not torch.distributed.is_initialized():  # one process has all of it
        return
    alone = optimizer.optimizer
    optimizer.optimizer = _ShardedOptimizer(
        alone.param_groups, type(alone), process_group=group, **optimizer.optimizer_config
    )
    elements = [sum(map(torch.numel, _parameters(each))) for each in (optimizer.optimizer.optim, alone)]
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
                        f"--zero-sharding os does not work with {option}: "
                        "it works with --ddp-backend pytorch_ddp and legacy_ddp, in 32 bits, --fp16 and --bf16"
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
