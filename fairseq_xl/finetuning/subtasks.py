"""Several subtasks with one encoder and a head each (Liang et al. 2020, XGLUE's multi-task fine-tuning). B: inputs."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from fairseq_xl.data.finetuning import Input
from fairseq_xl.data.framing import Framing
from fairseq_xl.errors import UserError
from fairseq_xl.finetuning.base import Encode, Metric, Sample, TaskType


@dataclass(frozen=True)
class SubtaskExample:
    """An example of a subtask."""

    subtask: str
    example: Any

    @property
    def language(self) -> str:
        """Its language."""
        return str(self.example.language)

    @property
    def place(self) -> str:
        """File and place in it, for messages."""
        return str(self.example.place)


class Subtasks(TaskType):
    """Combines several task types; each batch has examples of one subtask and uses its head.

    Its statistics are SUBTASK.STATISTIC, its metrics METRIC_SUBTASK.

    Args:
        cfg: options of the task.
        framing: the `Framing` of the inputs.
        types: {name of a subtask: its `TaskType`}, each with a head of its own.
    """

    name = "multitask"
    example_name = "an example"

    def __init__(self, cfg: Any, framing: Framing, types: dict[str, TaskType]):
        self.types = types
        super().__init__(cfg, framing)

    @property
    def framing(self) -> Framing:
        """The `Framing` of the inputs of all subtasks."""
        return self._framing

    @framing.setter
    def framing(self, framing: Framing) -> None:
        self._framing = framing
        for each in self.types.values():
            each.framing = framing

    def _of(self, sample: Sample) -> TaskType:
        return self.types[sample["target"]["subtask"]]

    def _by_subtask(self, rows: list[Any], subtask_of: Any) -> Iterator[tuple[str, TaskType, list[Any]]]:
        """(name, type, its rows in order) of each subtask that has rows."""
        for name, each in self.types.items():
            own = [row for row in rows if subtask_of(row) == name]
            if own:
                yield name, each, own

    # --- state -------------------------------------------------------------------------------------------------

    @property
    def learned(self) -> bool:
        """Whether all subtasks have learned their state."""
        return all(each.learned for each in self.types.values())

    def learned_state(self) -> dict[str, Any]:
        """{"subtasks": their names and types, "SUBTASK.NAME": value}."""
        names = " ".join(f"{name}={each.name}" for name, each in self.types.items())
        states = {f"{name}.{key}": value for name, each in self.types.items() for key, value in _state(each)}
        return {"subtasks": names} | states

    def load_state(self, found: dict[str, Any], path: Any) -> None:
        """Takes over the states; raises `UserError` for a checkpoint of other subtasks."""
        ours, theirs = self.learned_state()["subtasks"], found.get("subtasks")
        if ours != theirs:
            raise UserError(f"{path} has the subtasks {theirs}, --subtasks names {ours}")
        for name, each in self.types.items():
            own = {key.removeprefix(f"{name}."): value for key, value in found.items() if key.startswith(f"{name}.")}
            each.load_state(own, path)

    def learn(self, examples: list[SubtaskExample]) -> None:
        """Each subtask learns from its training examples."""
        for _, each, own in self._by_subtask(examples, _subtask):
            each.learn([row.example for row in own])

    # --- data --------------------------------------------------------------------------------------------------

    def read(self, path: Any, language: str) -> list[Any]:
        """Not used: `read_subtask` reads."""
        raise NotImplementedError("Subtasks.read")

    def read_subtask(self, name: str, path: Any, language: str) -> list[SubtaskExample]:
        """The examples of a file of a subtask."""
        return [SubtaskExample(name, example) for example in self.types[name].read(path, language)]

    def check(self, examples: list[SubtaskExample]) -> None:
        """Raises `UserError` for an example that does not fit the training examples of its subtask."""
        for _, each, own in self._by_subtask(examples, _subtask):
            each.check([row.example for row in own])

    def inputs(self, example: SubtaskExample, encode: Encode) -> list[Input]:
        """The inputs of an example; their targets have the subtask's name too."""
        made = self.types[example.subtask].inputs(example.example, encode)
        return [replace(each, target=each.target | {"subtask": example.subtask}) for each in made]

    def truncation_option(self) -> str:
        """The options that truncate texts, with their values, for messages."""
        return " or ".join(dict.fromkeys(each.truncation_option() for each in self.types.values()))

    def training_items(
        self, examples: list[SubtaskExample], inputs: list[list[Input]]
    ) -> tuple[list[SubtaskExample], list[list[Input]]]:
        """Items for shuffling in training: examples and their inputs, by subtask."""
        items: list[SubtaskExample] = []
        made: list[list[Input]] = []
        for name, each, own in self._by_subtask(list(zip(examples, inputs, strict=True)), lambda row: row[0].subtask):
            found, their_inputs = each.training_items([row.example for row, _ in own], [row for _, row in own])
            items += [SubtaskExample(name, example) for example in found]
            made += their_inputs
        return items, made

    def collate(self, inputs: list[Input]) -> dict[str, Any]:
        """The targets of a batch of one subtask, and its name."""
        (name,) = {each.target["subtask"] for each in inputs}
        return self.types[name].collate(inputs) | {"subtask": name}

    # --- model -------------------------------------------------------------------------------------------------

    def heads(self, model_cfg: Any) -> dict[str, nn.Module]:
        """The heads of all subtasks."""
        return {name: head for each in self.types.values() for name, head in each.heads(model_cfg).items()}

    def num_outputs(self) -> int:
        """Number of outputs of all heads."""
        return sum(each.num_outputs() for each in self.types.values())

    def outputs(self, model: Any, sample: Sample) -> Tensor:
        """The outputs of the subtask's head."""
        return self._of(sample).outputs(model, sample)

    def loss(self, outputs: Tensor, sample: Sample) -> tuple[Tensor, int]:
        """Returns the mean loss times the number of examples, and that number.

        An update that sums several batches (--update-freq or several processes) thus weights subtasks by their numbers
        of examples: a sentence to tag counts as much as one to classify.
        """
        loss, size = self._of(sample).loss(outputs, sample)
        examples = min(size, sample["nsentences"])
        return (loss * (examples / size) if size > examples else loss), examples

    # --- predictions -------------------------------------------------------------------------------------------

    def predict(self, outputs: Tensor, sample: Sample, inputs: list[list[Input]]) -> list[Any]:
        """Predictions of the subtask's examples."""
        return self._of(sample).predict(outputs, sample, inputs)

    @property
    def statistics(self) -> tuple[str, ...]:
        """SUBTASK.STATISTIC of all subtasks."""
        return tuple(
            f"{name}.{key}"
            for name, each in self.types.items()
            for key in dict.fromkeys(("examples", *each.statistics))
        )

    def is_labeled(self, example: SubtaskExample) -> bool:
        """Whether the label is known."""
        return self.types[example.subtask].is_labeled(example.example)

    def count(self, example: SubtaskExample, prediction: Any) -> dict[str, float]:
        """The statistics of its subtask."""
        counted = {"examples": 1.0} | self.types[example.subtask].count(example.example, prediction)
        return {f"{example.subtask}.{key}": value for key, value in counted.items()}

    @property
    def training_statistics(self) -> tuple[str, ...] | None:  # type: ignore[override]  # an attribute in the base class
        """SUBTASK.STATISTIC of the subtasks that have any."""
        return tuple(f"{name}.{key}" for name, each in self.types.items() for key in _in_training(each)) or None

    def count_in_training(self, outputs: Tensor, sample: Sample) -> Tensor:
        """Counts the statistics of the batch's subtask, with zeros for the others, of each of B inputs: (1 + S, B)."""
        sizes = {name: len(_in_training(each)) for name, each in self.types.items()}
        values = outputs.new_zeros(1 + sum(sizes.values()), len(sample["batch"]["languages"])).float()
        subtask, start = sample["target"]["subtask"], 1
        for name, size in sizes.items():
            if name == subtask and size:
                values[start : start + size] = self.types[name].count_in_training(outputs, sample)
                values[0] = values[start]
            start += size
        return values

    def metrics(self) -> dict[str, Metric]:
        """METRIC_SUBTASK of all subtasks."""
        return {
            f"{metric}_{name}": self._measured(name, function)
            for name, each in self.types.items()
            for metric, function in each.metrics().items()
        }

    def _measured(self, name: str, function: Metric) -> Metric:
        def measured(sums: dict[str, float]) -> float | None:
            own = _own(sums, name)
            return function(own) if own.get("examples") else None

        return measured

    def main_metrics(self) -> list[str]:
        """METRIC_SUBTASK of the main metric of each subtask."""
        return [f"{each.main_metric}_{name}" for name, each in self.types.items()]

    def class_shares(self, sums: dict[str, float]) -> Iterator[tuple[str, float, float]]:
        """Shares of the classes of all subtasks."""
        for name, each in self.types.items():
            own = _own(sums, name)
            for label, predicted, gold in each.class_shares(own) if own.get("examples") else ():
                yield f"{name}: {label}", predicted, gold

    def format_prediction(self, example: SubtaskExample, prediction: Any) -> str:
        """Text of an example in the file of its subtask."""
        return self.types[example.subtask].format_prediction(example.example, prediction)

    def folders(self) -> dict[str, str]:
        """{subtask: name of its task type}."""
        return {name: each.name for name, each in self.types.items()}

    def files_of(self, split: str, language: str, rows: list[tuple[SubtaskExample, Any]]) -> dict[str, str]:
        """{"SUBTASK/FILE": content} of the subtasks that have examples in the language."""
        files: dict[str, str] = {}
        for name, each, own in self._by_subtask(rows, lambda row: row[0].subtask):
            made = each.files_of(split, language, [(example.example, prediction) for example, prediction in own])
            files |= {f"{name}/{file}": content for file, content in made.items()}
        return files


def _subtask(row: SubtaskExample) -> str:
    return row.subtask


def _state(task_type: TaskType) -> Iterator[tuple[str, Any]]:
    return iter(task_type.learned_state().items())


def _in_training(task_type: TaskType) -> tuple[str, ...]:
    """Names of what `count_in_training` of a type counts."""
    return () if task_type.training_statistics is None else ("examples", *task_type.training_statistics)


def _own(sums: dict[str, float], name: str) -> dict[str, float]:
    """The sums of a subtask by the names of its type."""
    return {key.removeprefix(f"{name}."): value for key, value in sums.items() if key.startswith(f"{name}.")}
