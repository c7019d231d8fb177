"""Classes, scores, tags and answers that a fine-tuned encoder predicts for lines of text."""

from collections.abc import Sequence
from typing import Any

import torch

from fairseq_xl.data.labelled import LabelledExamples
from fairseq_xl.errors import UserError
from fairseq_xl.objectives.labelled import LabelledObjective
from fairseq_xl.prediction.base import BatchLimits, Predictor, Record
from fairseq_xl.tasks.planned_batches import PlannedBatches


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
        self.objective, self.language = _objective_of(task, subtask), language
        self.type = self.objective.type
        task.dictionary.language_id(language)

    @torch.no_grad()
    def predict(self, lines: Sequence[str], numbers: Sequence[int]) -> list[Record]:
        """The records of the task type."""
        examples = [self.type.from_line(line, self.language, self.name, n) for line, n in zip(lines, numbers)]
        inputs = [self.type.inputs(example, self.encode) for example in examples]
        truncated = [n for n, of_one in zip(numbers, inputs) if any(each.truncated for each in of_one)]
        self.warn_of_truncation(truncated, f"{self.type.truncation_option()} tokens")
        corpus = LabelledExamples(examples, inputs)
        self.task.check_longest(self.objective.name, corpus, self.limits.tokens)
        found: dict[int, Any] = {}
        dataset = PlannedBatches(self.task.objectives, {self.objective.name: {self.language: corpus}})
        epochs = self.task.get_batch_iterator(dataset, max_tokens=self.limits.tokens, max_sentences=self.limits.lines)
        for sample in map(self.on_device, epochs.next_epoch_itr(shuffle=False)):
            outputs, numbers = self.model(self.objective.outputs, sample["batch"]), sample["id"].cpu().numpy()
            predictions = self.type.predict(outputs, sample["batch"], corpus.inputs_of(numbers))
            found |= zip(numbers.tolist(), predictions, strict=True)
        return [self.type.to_record(example, found[index]) for index, example in enumerate(examples)]

    def to_line(self, record: Record) -> str:
        """The line of the task type."""
        return self.type.to_line(record)


def _objective_of(task: Any, subtask: str | None) -> LabelledObjective:
    """The objective of a task, or of one of its subtasks; raises `UserError` for a subtask that it lacks."""
    objectives: dict[str, LabelledObjective] = task.objectives
    if len(objectives) == 1 and subtask is None:
        return next(iter(objectives.values()))
    if task.type is not None:
        raise UserError(f"--subtask {subtask}: only models of xl_multitask have subtasks")
    if subtask not in objectives:
        names = ", ".join(objectives)
        raise UserError(
            f"--subtask {subtask}: expected one of {names}"
            if subtask
            else f"--subtask is missing: expected one of {names}"
        )
    return objectives[subtask]
