"""The interface of a task type, and options of several types. B: inputs, T: time, C: channels.

Adding one takes one file in this package or in another one (`fairseq_xl/README.md`).
"""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from fairseq.dataclass import FairseqDataclass
from torch import Tensor, nn

from fairseq_xl.data.framing import Framing
from fairseq_xl.data.labelled.labelled_examples import Input
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.configuration import check_values
from fairseq_xl.io.options import option
from fairseq_xl.io.text import is_blank
from fairseq_xl.modules.initialization import init_weights

MANY_CLASSES = 10  # number of classes from which on it is compared with the number of texts
NO_CLASS = -100  # class of unlabeled text, which torch's cross-entropy ignores
Batch = dict[str, Any]  # what `LabelledObjective.collate` returns
Encode = Any  # `fairseq_xl.data.vocabulary.text_encoder.TextEncoder`
#: maps a language's summed statistics, with "examples", to a value, or to None if it has none
Metric = Callable[[dict[str, float]], float | None]
TypeClass = TypeVar("TypeClass", bound=type["TaskType"])
#: name -> class of every registered task type
TASK_TYPES: dict[str, type["TaskType"]] = {}


@dataclass
class TypeConfig(FairseqDataclass):
    """Options of a task type in addition to those of every fine-tuning task."""


@dataclass
class FirstTokenConfig(TypeConfig):
    """Options of task types whose head reads the first token."""

    pooler: bool = option(
        False,
        "BERT's linear layer and tanh before the output layer; its weights are those of next-sentence "
        "prediction if the checkpoint of --init-from has them",
    )


def check_columns(path: Any, labels: Collection[str], texts: Collection[str], expected: str) -> None:
    """Raises `UserError` if a task's file has many more different labels than different texts."""
    if len(labels) >= MANY_CLASSES and len(labels) > 2 * len(texts):
        counts = f"{len(labels)} different labels and {len(texts)} different texts"
        raise UserError(f"{path}: expected {expected}, found {counts}: are the columns swapped?")


class TaskType(ABC):
    """Reads the examples of a fine-tuning task, computes its loss, predictions and metrics.

    Args:
        cfg: options of every fine-tuning task, and the options of `Config`.
        framing: the `Framing` of its inputs.
        head_name: name of its module in `model.heads`; by default the type's.
    """

    #: dataclass of its own options
    Config: type[TypeConfig] = TypeConfig
    #: name: the task and the criterion are `xl_{name}`
    name: str
    #: the metric that `score` averages over labelled objectives
    main_metric: str
    #: ending of its files
    suffix = "tsv"
    #: names and format of its files, for messages
    files: str
    #: the part of an example that must fit into --max-tokens, for messages
    example_name = "an input"
    #: the option with the maximum length of a text, for messages about truncated examples
    truncation_option = "length"
    #: whether some examples of a file may lack labels
    partly_labeled = False
    #: attributes learned from the training files, which checkpoints store, with their types
    state: ClassVar[dict[str, Any]] = {}
    #: the statistics that training logs too, enough for all metrics; None: training logs no metric
    training_statistics: tuple[str, ...] | None = None

    def __init__(self, cfg: Any, framing: Framing, head_name: str | None = None):
        self.cfg, self.framing, self.head_name = cfg, framing, head_name or self.name

    @classmethod
    def register(cls, task_type: TypeClass) -> TypeClass:
        """Class decorator that registers the task type under its `name`."""
        if task_type.name in TASK_TYPES:
            raise ValueError(f"task type {task_type.name!r} is registered twice")
        TASK_TYPES[task_type.name] = task_type
        return task_type

    # --- state -------------------------------------------------------------------------------------------------

    @property
    def learned(self) -> bool:
        """Whether `state` has been learned, from the training files or a checkpoint."""
        return all(getattr(self, name) for name in self.state)

    def learned_state(self) -> dict[str, Any]:
        """`state` with its values: plain Python."""
        return {name: getattr(self, name) for name in self.state}

    def load_state(self, state: dict[str, Any], path: Any) -> None:
        """Restores the state from a checkpoint, the file `path`; raises `UserError` for a damaged one."""
        missing = self.state.keys() - state.keys()
        if missing:
            raise UserError(f"{path} is damaged: its identity lacks {', '.join(sorted(missing))}")
        check_values(state, self.state, "task_state.fairseq_xl.type_state", path)
        for name in self.state:
            setattr(self, name, state.get(name))

    # --- data --------------------------------------------------------------------------------------------------

    @abstractmethod
    def read(self, path: Any, language: str) -> list[Any]:
        """The examples of a file; each has `language`. Raises `UserError` that names file and line."""

    def classes(self, example: Any) -> Iterable[tuple[str, int]]:
        """Yields the classes of a labeled example with their lines, to compare files; by default, none."""
        return ()

    def text(self, example: Any) -> str:
        """The text of an example, to check its language; by default, none."""
        return ""

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
        """The examples that training shuffles, and their inputs."""
        return examples, inputs

    @abstractmethod
    def collate(self, inputs: list[Input]) -> dict[str, Any]:
        """The targets of a batch: tensors."""

    # --- model -------------------------------------------------------------------------------------------------

    def heads(self, model_cfg: Any) -> dict[str, nn.Module]:
        """The modules for `model.heads`."""
        return {self.head_name: self.head(model_cfg)}

    @abstractmethod
    def num_outputs(self) -> int:
        """Number of outputs of the head for a hidden state."""

    def head(self, model_cfg: Any) -> nn.Module:
        """Dropout and a linear layer: (…, C) -> (…, outputs); with --pooler a linear layer (C, C) and tanh before."""
        channels, dropout = model_cfg.embed_dim, nn.Dropout(self.cfg.head_dropout)
        head = nn.Sequential(dropout, nn.Linear(channels, self.num_outputs()))
        if issubclass(self.Config, FirstTokenConfig) and self.cfg.pooler:  # the options of several tasks have it too
            layers = {"pooler": nn.Linear(channels, channels), "tanh": nn.Tanh(), "dropout": dropout, "output": head[1]}
            head = nn.Sequential(OrderedDict(layers))
        head.apply(lambda module: init_weights(module, model_cfg.init_std))
        return head

    @staticmethod
    def encode(model: Any, batch: Batch) -> Tensor:
        """Hidden states (B, T, C) of a batch."""
        names = ("segments", "languages", "padding_mask", "packing")
        hidden: Tensor = model.encode(batch["tokens"], **{name: batch[name] for name in names if name in batch})
        return hidden

    @abstractmethod
    def outputs(self, model: Any, batch: Batch) -> Tensor:
        """Runs the model; returns the head's outputs, such as (B, classes), (N, tags) or (B, T, 2).

        Called inside `model.forward`.
        """

    @abstractmethod
    def loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, int]:
        """The sum of the losses in nats, and their number."""

    # --- unlabeled text ----------------------------------------------------------------------------------------

    def from_line(self, line: str, language: str, file: str, line_number: int) -> Any:
        """The unlabeled example of a line of text, which is not blank.

        Args:
            line: fields separated by tabs.
            file, line_number: the file and the line's number in it, from 1 on, for messages.

        Raises `UserError` for other fields, and for a type that reads no lines.
        """
        raise UserError(f"{self.name}: this task type reads no lines of unlabeled text, it has no `from_line`")

    def to_record(self, example: Any, prediction: Any) -> dict[str, Any]:
        """A prediction as a JSON object."""
        return {"prediction": prediction}

    def to_line(self, record: dict[str, Any]) -> str:
        """A record of `to_record` as a line of text; by default its values, separated by tabs."""
        return "\t".join(map(str, record.values()))

    # --- predictions -------------------------------------------------------------------------------------------

    @abstractmethod
    def predict(self, outputs: Tensor, batch: Batch, inputs: list[list[Input]]) -> list[Any]:
        """Predictions of the examples of a batch, with the inputs of each."""

    @property
    @abstractmethod
    def statistics(self) -> tuple[str, ...]:
        """Names of the values of `count`, which may also return "examples" (default 1)."""

    @abstractmethod
    def is_labeled(self, example: Any) -> bool:
        """Whether the label of an example is known; otherwise it can only be predicted."""

    @abstractmethod
    def count(self, example: Any, prediction: Any) -> dict[str, float]:
        """`statistics` of a labeled example: numbers that are summed over a language."""

    def count_in_training(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Counts "examples" and `training_statistics` of each of B inputs: (1 + S, B), on the batch's device."""
        raise NotImplementedError(f"{type(self).__name__}.count_in_training")

    @abstractmethod
    def metrics(self) -> dict[str, Metric]:
        """The metrics by name."""

    def class_shares(self, sums: dict[str, float]) -> Iterable[tuple[str, float, float]]:
        """Yields (class, percent of the predictions, percent of the gold labels), to warn of a collapsed model."""
        return ()

    @abstractmethod
    def format_prediction(self, example: Any, prediction: Any) -> str:
        """Text of an example in the file of --predictions-to."""

    def files_of(self, split: str, language: str, rows: list[tuple[Any, Any]]) -> dict[str, str]:
        """{name in the folder of --predictions-to: content} of the predictions of a split in a language."""
        return {f"{split}.{language}.{self.suffix}": self.file_of(rows)}

    def folders(self) -> dict[str, str]:
        """{subfolder of --predictions-to, "" for itself: name of the task type of its files}."""
        return {"": self.name}

    def file_of(self, rows: list[tuple[Any, Any]]) -> str:
        """The file of --predictions-to, from (example, prediction) in the order of the examples."""
        return "".join(self.format_prediction(example, prediction) for example, prediction in rows)


def split_fields(line: str, expected: Sequence[str], file: str, line_number: int) -> list[str]:
    """The fields of a line, separated by tabs; raises `UserError` unless it has those `expected`, none empty."""
    fields = line.split("\t")
    if len(fields) != len(expected) or any(map(is_blank, fields)):
        raise UserError(f"{file}, line {line_number}: expected {' TAB '.join(expected)}, found {quoted(line)}")
    return fields


def split_by_example(values: np.ndarray, inputs_per_example: list[int]) -> list[np.ndarray]:
    """Splits values (B, …) of a batch's inputs into one array (inputs of the example, …) per example."""
    return np.split(values, np.cumsum(inputs_per_example)[:-1])


def camel_case(name: str) -> str:
    """The name of a task type as in names of classes: question_answering -> QuestionAnswering."""
    return "".join(part.capitalize() for part in name.split("_"))
