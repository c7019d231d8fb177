"""Classes, scores, tags and answers that a fine-tuned encoder predicts for lines of text."""

from collections.abc import Sequence
from typing import Any

import torch

from fairseq_xl.data.labelled.labelled_examples import LabelledExamples
from fairseq_xl.errors import UserError
from fairseq_xl.inference.predictor import BatchLimits, Predictor, Record
from fairseq_xl.tasks.planned_batches import PlannedBatches


class LabelPredictor(Predictor):
    """An encoder with a fine-tuned head, as a function from lines of text in a language to predictions.

    `objective` names one of several labelled objectives; raises `UserError` for a wrong name, or if it is missing.
    """

    def __init__(
        self, model: Any, task: Any, limits: BatchLimits, name: str, language: str, objective: str | None = None
    ):
        super().__init__(model, task, limits, name)
        if objective is None and len(task.labelled) == 1:
            (objective,) = task.labelled
        if objective not in task.labelled:
            problem = f"--objective {objective}" if objective else "--objective is missing"
            raise UserError(f"{problem}: expected one of {', '.join(task.labelled)}")
        self.objective, self.language = task.labelled[objective], language
        self.objective.cfg.batch_tokens = self.objective.cfg.batch_sentences = None  # those of the command apply
        task.dictionary.language_id(language)

    @torch.no_grad()
    def predict(self, lines: Sequence[str], numbers: Sequence[int]) -> list[Record]:
        examples = [self.objective.from_line(line, self.language, self.name, n) for line, n in zip(lines, numbers)]
        inputs = [self.objective.inputs(example, self.encode) for example in examples]
        truncated = [n for n, group in zip(numbers, inputs) if any(item.truncated for item in group)]
        self.warn_of_truncation(truncated, f"{self.objective.truncation_limit} tokens")
        corpus = LabelledExamples(examples, inputs)
        self.objective.check_longest(corpus, self.limits.tokens)
        predicted: dict[int, Any] = {}
        dataset = PlannedBatches(self.task.objectives, {self.objective.name: {self.language: corpus}})
        epochs = self.task.get_batch_iterator(dataset, max_tokens=self.limits.tokens, max_sentences=self.limits.lines)
        for sample in map(self.on_device, epochs.next_epoch_itr(shuffle=False)):
            outputs, ids = self.model(self.objective.outputs, sample["batch"]), sample["id"].cpu().numpy()
            predictions = self.objective.predictions(outputs, sample["batch"], corpus.inputs_of(ids))
            predicted |= zip(ids.tolist(), predictions, strict=True)
        return [self.objective.to_record(example, predicted[index]) for index, example in enumerate(examples)]

    def to_line(self, record: Record) -> str:
        return self.objective.to_line(record)
