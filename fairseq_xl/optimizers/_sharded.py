"""--zero-sharding os: each process has the optimizer state of its share of the parameters."""

import logging
from itertools import chain, count

import torch
from fairseq import utils
from fairseq.distributed import utils as distributed_utils
from fairseq.optim import FairseqOptimizer
from torch import Tensor
from torch.distributed.optim import ZeroRedundancyOptimizer

from fairseq_xl.errors import UserError
from fairseq_xl.io.ranks import broadcast
from fairseq_xl.optimizers.float32_state import optimizer_parameters

logger = logging.getLogger(__name__)


class ShardedOptimizer(ZeroRedundancyOptimizer):
    """An optimizer whose state for a parameter one process holds; in checkpoints it is the same as without sharding."""

    supports_memory_efficient_fp16 = True
    disable_mem_eff_fp16_loading_hack = True  # as of the sharded optimizer, whose state stays in float32

    _all_state_dicts: list[dict]  # of all ranks, once they are gathered

    def load_state_dict(self, state_dict: dict) -> None:
        """Loads this rank's part of a state of all parameters."""
        positions = {id(parameter): position for position, parameter in enumerate(optimizer_parameters(self))}
        saved = list(chain(*(group["params"] for group in state_dict["param_groups"])))
        if len(saved) != len(positions):
            raise UserError(f"the checkpoint's optimizer has {len(saved)} parameters, this run {len(positions)}")
        keys = [saved[positions[id(parameter)]] for parameter in optimizer_parameters(self.optim)]
        state = {position: state_dict["state"][key] for position, key in enumerate(keys) if key in state_dict["state"]}
        numbers = count()
        groups = [
            {**settings, "params": [next(numbers) for _ in group["params"]]}
            for group, settings in zip(self.optim.param_groups, state_dict["param_groups"])
        ]
        self.optim.load_state_dict({"state": state, "param_groups": groups})
        self._sync_param_groups(self.optim.param_groups, self.param_groups)  # type: ignore[attr-defined]

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Gathers the state of all ranks on rank `to`, as plain data: torch's method reads pickles."""
        self._sync_param_groups(self.param_groups, self.optim.param_groups)  # type: ignore[attr-defined]
        self._all_state_dicts = []
        for rank in range(self.world_size):
            local_state = self.optim.state_dict() if rank == self.rank else None
            state = broadcast(local_state, rank, self.process_group)
            if self.rank == to:
                self._all_state_dicts.append(utils.apply_to_sample(Tensor.cpu, state))

    def state_dict(self) -> dict:
        """The state of all parameters, once after `consolidate_state_dict` and on rank 0; else an empty state."""
        if not self._all_state_dicts:
            logger.warning("the state of the optimizer is not saved: the processes failed before they gathered it")
            return {"state": {}, "param_groups": torch.optim.Optimizer.state_dict(self)["param_groups"]}
        whole: dict = super().state_dict()
        self._all_state_dicts = []  # a copy of all state in the host's memory
        return whole


def shard(optimizer: FairseqOptimizer) -> None:
    """Distributes the state of an optimizer over all processes."""
    if torch.distributed.is_initialized():
        unsharded, group = optimizer.optimizer, distributed_utils.get_data_parallel_group()
        optimizer.optimizer = ShardedOptimizer(
            unsharded.param_groups, type(unsharded), process_group=group, **optimizer.optimizer_config
        )
        elements = [
            sum(map(torch.numel, optimizer_parameters(part))) for part in (optimizer.optimizer.optim, unsharded)
        ]
        logger.info("--zero-sharding os: this process holds the state of %d of %d weights", *elements)
