"""The interface of a task type. B: inputs, T: time, C: channels."""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from torch import Tensor, nn

from fairseq_xl.data.finetuning import Input
from fairseq_xl.data.framing import Framing
from fairseq_xl.modules.initialization import init_weights

NO_CLASS = -100  # class of unlabeled text, which torch's cross-entropy ignores
Sample = dict[str, Any]  # what `FineTuningDataset.collater` returns
Encode = Any  # `fairseq_xl.data.text.TextEncoder`
#: function of the sums of the statistics over a language, and of "examples", their number
Metric = Callable[[dict[str, float]], float]


class TaskType(ABC):
    """Reads the examples of a fine-tuning task, computes its loss, predicts and metrics.

    Args:
        cfg: options of the task.
        framing: the `Framing` of its inputs.
    """

    #: name of its module in `model.heads`, and of what a checkpoint has
    name: str
    #: ending of its files
    suffix = "tsv"
    #: these files and their format
    files: str
    #: what has a length in tokens
    what = "an input"
    #: attributes learned from the training files, which checkpoints store
    state: tuple[str, ...] = ()
    #: whether training logs the metrics too
    metrics_in_training = False

    def __init__(self, cfg: Any, framing: Framing):
        self.cfg, self.framing = cfg, framing

    # --- data --------------------------------------------------------------------------------------------------

    @abstractmethod
    def read(self, path: Any, language: str) -> list[Any]:
        """The examples of a file; each has `language`. Raises `UserError` that names file and line."""

    def learn(self, examples: list[Any]) -> None:
        """Sets the attributes of `state` from the training examples."""
        assert not self.state, "a type with a state learns it"

    def check(self, examples: list[Any]) -> None:
        """Raises `UserError` for the first example that does not fit the training examples; by default, all fit."""
        return None

    @abstractmethod
    def inputs(self, example: Any, encode: Encode) -> list[Input]:
        """The inputs of an example, of at most --length tokens."""

    def training_items(self, examples: list[Any], inputs: list[list[Input]]) -> tuple[list[Any], list[list[Input]]]:
        """What training shuffles: examples and their inputs."""
        return examples, inputs

    @abstractmethod
    def collate(self, inputs: list[Input]) -> dict[str, Any]:
        """The targets of a batch: tensors."""

    # --- model -------------------------------------------------------------------------------------------------

    @abstractmethod
    def outputs_of_head(self) -> int:
        """Number of outputs of the head, for each hidden state that it reads."""

    def head(self, model_cfg: Any) -> nn.Module:
        """Dropout and a linear layer: (…, C) -> (…, outputs); with --pooler a linear layer (C, C) and tanh before."""
        channels, dropout = model_cfg.embed_dim, nn.Dropout(self.cfg.head_dropout)
        head = nn.Sequential(dropout, nn.Linear(channels, self.outputs_of_head()))
        if getattr(self.cfg, "pooler", False):
            named = {"pooler": nn.Linear(channels, channels), "tanh": nn.Tanh(), "dropout": dropout, "output": head[1]}
            head = nn.Sequential(OrderedDict(named))
        head.apply(lambda module: init_weights(module, model_cfg.init_std))
        return head

    @abstractmethod
    def outputs(self, model: Any, sample: Sample) -> Tensor:
        """Runs the model on a sample; called inside `model.forward`."""

    @abstractmethod
    def loss(self, outputs: Tensor, sample: Sample) -> tuple[Tensor, int]:
        """The sum of the losses in nats, and their number."""

    # --- predictions -------------------------------------------------------------------------------------------

    @abstractmethod
    def predict(self, outputs: Tensor, sample: Sample, inputs: list[list[Input]]) -> list[Any]:
        """Predictions of the examples of a sample, with the inputs of each."""

    @property
    @abstractmethod
    def statistics(self) -> tuple[str, ...]:
        """Names of what `count` returns; `examples`, which is 1 by default, may be among it too."""

    @abstractmethod
    def is_labeled(self, example: Any) -> bool:
        """Whether the label of an example is known; otherwise it can only be predicted."""

    @abstractmethod
    def count(self, example: Any, prediction: Any) -> dict[str, float]:
        """`statistics` of a labeled example: numbers that are summed over a language."""

    @abstractmethod
    def metrics(self) -> dict[str, Metric]:
        """The metrics by name."""

    def shares(self, sums: dict[str, float]) -> Iterable[tuple[str, float, float]]:
        """(class, percent of predictions, percent of right answers), to warn of a collapsed model."""
        return ()

    @abstractmethod
    def written(self, example: Any, prediction: Any) -> str:
        """Text of an example in the file of --predictions-to."""

    def file_of(self, rows: list[tuple[Any, Any]]) -> str:
        """The file of --predictions-to, from (example, prediction) in the order of the examples."""
        return "".join(self.written(example, prediction) for example, prediction in rows)


def of_examples(values: np.ndarray, sizes: list[int]) -> list[np.ndarray]:
    """Values (B, …) of the inputs of a batch -> those of each example."""
    return np.split(values, np.cumsum(sizes)[:-1])
