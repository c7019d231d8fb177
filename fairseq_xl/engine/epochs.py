"""Distributes the batches of a plan over ranks, epoch by epoch, from any position of an epoch on."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from fairseq.data import iterators
from torch.utils.data import DataLoader, Sampler

from fairseq_xl.engine.data_loader import ErrorsAsItems, leave_signals_to_the_parent, read_ahead
from fairseq_xl.errors import UserError

MAX_READ_AHEAD = 20  # batches that are read ahead, as in fairseq

#: batch specifications (dataclasses with `is_dummy`) of all ranks; None: a micro-step has no batch for a rank
Plan = Sequence[Any]


def micro_steps_of(frequencies: Sequence[int], epoch: int) -> int:
    """The number of micro-steps of an update in an epoch, by the numbers of --update-freq."""
    return int(frequencies[min(epoch, len(frequencies)) - 1])


class Epochs(iterators.EpochBatchIterating):
    """The batches of each epoch for one rank; a micro-step has one batch for each rank.

    (epoch, number of micro-steps) is the whole state of sampling. An epoch that is one pass over the data also stores
    the numbers of ranks and micro-steps with which it began, so that a run resumed with other numbers reads the rest.

    Args:
        dataset: maps a batch specification to a batch, and None to {}.
        plan: a function from an epoch, the number of ranks, and the number of micro-steps in an update to the plan;
            with `logs=False` it logs nothing.
        ranks, rank: the number of processes, and that of this one.
        micro_steps: of an update, by epoch (--update-freq); the last number applies to all later epochs.
        keeps_layout: whether an epoch stores the numbers with which it began.
        keeps_updates: whether the rest of an epoch needs as many batches in an update as its beginning.
        pads: whether a rank without a batch gets a dummy of its micro-step, for training; otherwise it gets {}.
        epoch: the epoch to begin with.
        num_workers, buffer_size: processes that collate (0: this one does), and batches that are read ahead.
    """

    def __init__(
        self,
        dataset: Any,
        plan: Callable[..., Plan],
        ranks: int = 1,
        rank: int = 0,
        micro_steps: Sequence[int] = (1,),
        *,
        keeps_layout: bool = False,
        keeps_updates: bool = False,
        pads: bool = False,
        epoch: int = 1,
        num_workers: int = 0,
        buffer_size: int = 0,
    ):
        self.dataset, self.plan, self.ranks, self.rank = dataset, plan, ranks, rank
        self.micro_steps, self.pads = micro_steps, pads
        self.keeps_layout, self.keeps_updates = keeps_layout, keeps_updates
        self.num_workers, self.buffer_size = num_workers, min(buffer_size, MAX_READ_AHEAD)
        self.epoch = max(epoch, 1)
        self._batches: iterators.CountingIterator | None = None  # of the epoch
        self._is_resumed = False  # whether the next epoch's batches are `_batches`, from a checkpoint's position on
        self._specs: tuple[int, Plan] | None = None  # the epoch, and its plan
        self._begun: tuple[int, int, int] | None = None  # epoch, ranks and micro-steps, from a checkpoint

    def _layout(self, epoch: int) -> tuple[int, int]:
        """The numbers of ranks and of micro-steps of an update with which an epoch began."""
        if self._begun is not None and self._begun[0] == epoch:
            return self._begun[1:]
        return self.ranks, micro_steps_of(self.micro_steps, epoch)

    @property
    def specs(self) -> Plan:
        """The plan of the epoch."""
        if self._specs is None or self._specs[0] != self.epoch:
            self._specs = self.epoch, self.plan(self.epoch, *self._layout(self.epoch))
        return self._specs[1]

    def __len__(self) -> int:
        """The number of micro-steps of the epoch."""
        return -(-len(self.specs) // self.ranks)

    def number_of_updates(self, epoch: int, skips_remainder: bool) -> int:
        """The number of updates of an epoch; `skips_remainder`: without a last one of fewer micro-steps."""
        ranks, micro_steps = self._layout(epoch)
        steps = -(-len(self.plan(epoch, ranks, micro_steps, logs=False)) // ranks)
        return steps // micro_steps if skips_remainder else -(-steps // micro_steps)

    @property
    def next_epoch_idx(self) -> int:
        """The epoch whose batches `next_epoch_itr` returns."""
        return self.epoch + (self._batches is not None and not self._is_resumed and self.end_of_epoch())

    def next_epoch_itr(
        self, shuffle: bool = True, fix_batches_to_gpus: bool = False, set_dataset_epoch: bool = True
    ) -> iterators.CountingIterator:
        """The batches of the next epoch, or the rest of a checkpoint's epoch; the arguments are fairseq's."""
        self.epoch = self.next_epoch_idx
        if not self._is_resumed or self._batches is None:
            self._batches = self._from(0)
        self._is_resumed = False
        return self._batches

    def end_of_epoch(self) -> bool:
        return self._batches is not None and not self._batches.has_next()

    @property
    def iterations_in_epoch(self) -> int:
        return 0 if self._batches is None else int(self._batches.n)

    def state_dict(self) -> dict[str, Any]:
        if self.end_of_epoch():
            return {"epoch": self.epoch + 1, "iterations_in_epoch": 0}
        ranks, micro_steps = self._layout(self.epoch)
        layout = {"ranks": ranks, "micro_steps": micro_steps} if self.keeps_layout else {}
        return {"epoch": self.epoch, "iterations_in_epoch": self.iterations_in_epoch} | layout

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues an epoch after its past micro-steps; after the last one, the next epoch begins.

        Raises `LookupError` if the epoch has fewer of them, and `UserError` if it was no pass over the data.
        """
        self.epoch, position = state_dict["epoch"], state_dict["iterations_in_epoch"]
        if not position:
            return
        if self.keeps_layout and "micro_steps" not in state_dict:
            raise UserError(f"epoch {self.epoch} was no pass over the data: restart it with --reset-dataloader")
        if self.keeps_layout:
            layout, begun_layout = self._layout(self.epoch), (int(state_dict["ranks"]), int(state_dict["micro_steps"]))
            if self.keeps_updates and math.prod(layout) != math.prod(begun_layout):
                raise UserError(
                    f"epoch {self.epoch} was begun with {math.prod(begun_layout)} batches in an update, this run has "
                    f"{math.prod(layout)}: set --update-freq for as many, or restart the epoch with --reset-dataloader"
                )
            self._begun, self._specs = (self.epoch, *begun_layout), None
        if position > len(self):
            raise LookupError(f"epoch {self.epoch} has {len(self)} micro-steps, {position} were made")
        if position == len(self):
            self.epoch += 1
        else:
            self._batches, self._is_resumed = self._from(position), True

    def _from(self, offset: int) -> iterators.CountingIterator:
        """The batches of the epoch after the first `offset` micro-steps."""
        total = len(self)
        specs = _RankSpecs(self.specs, range(offset, total), self.ranks, self.rank, self.pads)
        loader: DataLoader[Any] = DataLoader(
            ErrorsAsItems(self.dataset),
            batch_size=None,  # an item is a batch
            sampler=specs,
            collate_fn=_identity,
            num_workers=self.num_workers,
            pin_memory=torch.cuda.is_initialized(),
            worker_init_fn=leave_signals_to_the_parent,
        )
        return iterators.CountingIterator(read_ahead(loader, self.buffer_size), start=offset, total=total)


class _RankSpecs(Sampler[Any]):
    """The specifications of a rank in micro-steps; where it has none, a dummy of another rank's, or None."""

    def __init__(self, specs: Plan, steps: range, ranks: int, rank: int, pads: bool):
        self.specs, self.steps, self.ranks, self.rank, self.pads = specs, steps, ranks, rank, pads

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Any]:
        latest = None
        for step in self.steps:
            spec = self._at(step * self.ranks + self.rank)
            if spec is None and self.pads:
                candidates = (self._at(step * self.ranks + rank) for rank in range(self.ranks))
                latest = next((candidate for candidate in candidates if candidate is not None), latest)
                yield None if latest is None else replace(latest, is_dummy=True)
            else:
                latest = spec or latest
                yield spec

    def _at(self, position: int) -> Any:
        return self.specs[position] if position < len(self.specs) else None


def _identity(batch: Any) -> Any:
    return batch
