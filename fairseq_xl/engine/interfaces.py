"""The interface of a task to the training loop."""

from collections.abc import Callable
from typing import Any, Protocol

from fairseq.data import iterators
from omegaconf import DictConfig
from torch import nn

from fairseq_xl.engine.metrics import Metrics
from fairseq_xl.io.fingerprints import Inputs

#: a batch, as the task's data set collates it; a dummy where a rank has none
Sample = Any
#: statistics of a step: numbers and tensors, with the same names on all ranks
Logged = dict[str, Any]


class Task(Protocol):
    """A task of this package; `fairseq_xl.tasks.base.XLTask` says what its methods do."""

    cfg: Any
    dictionary: Any
    inputs: Inputs
    objectives: dict[str, Any]
    # of fairseq:
    load_dataset: Callable[..., None]
    dataset: Callable[[str], Any]
    get_batch_iterator: Callable[..., iterators.EpochBatchIterating]
    has_sharded_data: Callable[[str], bool]
    max_positions: Callable[[], Any]
    state_dict: Callable[[], dict[str, Any]]
    begin_valid_epoch: Callable[[int, nn.Module], None]
    valid_step: Callable[[Sample, nn.Module, nn.Module], tuple[Any, Any, Logged]]

    def stored_options(self) -> dict[str, Any]: ...
    def begin_training(self) -> None: ...
    def metrics(self) -> list[str] | None: ...
    def options_without_effect(self, run: DictConfig) -> dict[str, str]: ...
    def resume_from(self, state: dict[str, Any], path: str) -> None: ...
    def describe_batch(self, sample: Sample) -> str: ...
    def end_validation(self, metrics: Metrics, updates: int) -> None: ...
    def train_step(
        self, sample: Sample, model: nn.Module, criterion: nn.Module, optimizer: Any, update_num: int, ignore_grad: bool
    ) -> tuple[Any, Any, Logged]: ...
