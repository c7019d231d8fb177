"""Classes, scores, tags and answers that a fine-tuned encoder predicts for lines of text."""

from collections.abc import Sequence
from typing import Any

import torch

from fairseq_xl.data.finetuning import FineTuningDataset
from fairseq_xl.errors import UserError
from fairseq_xl.finetuning.base import TaskType
from fairseq_xl.finetuning.subtasks import Subtasks
from fairseq_xl.prediction.base import BatchLimits, Predictor, Record


class LabelPredictor(Predictor):
    """An encoder with the head of a task type, as a function from lines of text to predictions.

    Args:
        model, task, limits, name: as in `Predictor`; the task is a `FineTuningTask`.
        language: language of the text.
        subtask: name of a subtask of `xl_multitask`; None for other tasks.
    """

    def __init__(
        self, model: Any, task: Any, limits: BatchLimits, name: str, language: str, subtask: str | None = None
    ):
        super().__init__(model, task, limits, name)
        self.type, self.language = _type_of(task, subtask), language
        task.dictionary.language_id(language)

    @torch.no_grad()
    def predict(self, lines: Sequence[str], numbers: Sequence[int]) -> list[Record]:
        """The records of the task type."""
        examples = [self.type.from_line(line, self.language, self.name, n) for line, n in zip(lines, numbers)]
        inputs = [self.type.inputs(example, self.encode) for example in examples]
        truncated = [n for n, of_one in zip(numbers, inputs) if any(each.truncated for each in of_one)]
        self.warn_of_truncation(truncated, f"{self.type.truncation_option()} tokens")
        dataset = FineTuningDataset("predict", examples, inputs, self.type.collate, self.task.dictionary)
        self.task.check_longest(dataset, self.limits.tokens)
        found: dict[int, Any] = {}
        for batch in dataset.batch_by_size(dataset.ordered_indices(), self.limits.tokens, self.limits.lines):
            sample = self.on_device(dataset.collater(batch))
            outputs = self.model(self.type.outputs, sample)
            found |= zip(batch, self.type.predict(outputs, sample, [inputs[index] for index in batch]), strict=True)
        return [self.type.to_record(example, found[index]) for index, example in enumerate(examples)]

    def to_line(self, record: Record) -> str:
        """The line of the task type."""
        return self.type.to_line(record)


def _type_of(task: Any, subtask: str | None) -> TaskType:
    """The task type of a task, or of one of its subtasks; raises `UserError` for a subtask that it lacks."""
    if not isinstance(task.type, Subtasks):
        if subtask is not None:
            raise UserError(f"--subtask {subtask}: only models of xl_multitask have subtasks")
        found: TaskType = task.type
        return found
    if subtask not in task.type.types:
        names = ", ".join(task.type.types)
        raise UserError(
            f"--subtask {subtask}: expected one of {names}"
            if subtask
            else f"--subtask is missing: expected one of {names}"
        )
    return task.type.types[subtask]
