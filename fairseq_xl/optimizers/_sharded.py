"""--zero-sharding os: each process keeps the optimizer state of its share of the parameters."""

import logging
from itertools import chain

import torch
from fairseq import utils
from fairseq.distributed import utils as distributed_utils
from fairseq.optim import FairseqOptimizer
from torch import Tensor
from torch.distributed.optim import ZeroRedundancyOptimizer

from fairseq_xl.errors import UserError
from fairseq_xl.io.ranks import broadcast
from fairseq_xl.optimizers.base import parameters_of

logger = logging.getLogger(__name__)


class ShardedOptimizer(ZeroRedundancyOptimizer):
    """An optimizer of this package whose state of each parameter is held by one process, which updates the parameter.

    Its state in a checkpoint is that of the optimizer without sharding.
    """

    supports_memory_efficient_fp16 = True
    disable_mem_eff_fp16_loading_hack = True  # as of the sharded optimizer, whose state stays in float32

    _all_state_dicts: list[dict]  # of all ranks, once they are gathered

    def load_state_dict(self, state_dict: dict) -> None:
        """Loads this rank's part of the state of all parameters."""
        places = {id(parameter): place for place, parameter in enumerate(parameters_of(self))}
        saved = list(chain(*(group["params"] for group in state_dict["param_groups"])))
        if len(saved) != len(places):
            raise UserError(f"the checkpoint's optimizer has {len(saved)} parameters, this run {len(places)}")
        own = [saved[places[id(parameter)]] for parameter in parameters_of(self.optim)]
        state = {place: state_dict["state"][key] for place, key in enumerate(own) if key in state_dict["state"]}
        first = 0
        groups = []
        for group, settings in zip(self.optim.param_groups, state_dict["param_groups"]):
            last = first + len(group["params"])
            groups.append({**settings, "params": list(range(first, last))})
            first = last
        self.optim.load_state_dict({"state": state, "param_groups": groups})
        self._sync_param_groups(self.optim.param_groups, self.param_groups)  # type: ignore[attr-defined]

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Gathers the state of all ranks on rank `to`, as plain data: torch's own method reads pickles."""
        self._sync_param_groups(self.param_groups, self.optim.param_groups)  # type: ignore[attr-defined]
        self._all_state_dicts = []
        for rank in range(self.world_size):
            own = self.optim.state_dict() if rank == self.rank else None
            found = broadcast(own, rank, self.process_group)
            if self.rank == to:
                self._all_state_dicts.append(utils.apply_to_sample(Tensor.cpu, found))

    def state_dict(self) -> dict:
        """Returns the state of all parameters once after `consolidate_state_dict`, on rank 0; else none."""
        if not self._all_state_dicts:
            logger.warning("the state of the optimizer is not saved: the processes failed before they gathered it")
            return {"state": {}, "param_groups": torch.optim.Optimizer.state_dict(self)["param_groups"]}
        whole: dict = super().state_dict()
        self._all_state_dicts = []  # a copy of all state in the host's memory
        return whole


def shard(optimizer: FairseqOptimizer) -> None:
    """Distributes the state of an optimizer over all processes; one process has all of it."""
    if torch.distributed.is_initialized():
        alone, group = optimizer.optimizer, distributed_utils.get_data_parallel_group()
        optimizer.optimizer = ShardedOptimizer(
            alone.param_groups, type(alone), process_group=group, **optimizer.optimizer_config
        )
        elements = [sum(map(torch.numel, parameters_of(each))) for each in (optimizer.optimizer.optim, alone)]
        logger.info("--zero-sharding os: this process holds the state of %d of %d weights", *elements)
