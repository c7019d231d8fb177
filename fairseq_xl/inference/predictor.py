"""Base class of the predictors of labels and of text, which predict for the lines that are not blank."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from fairseq import utils

from fairseq_xl.data.vocabulary.text_encoder import TextEncoder
from fairseq_xl.io.text import is_blank

LISTED = 10  # line numbers that a warning shows

logger = logging.getLogger(__name__)

Record = dict[str, Any]  # prediction for a line, a JSON object


@dataclass(frozen=True)
class BatchLimits:
    """Sizes of a batch."""

    tokens: int = 4096  # with padding
    lines: int | None = None


class Predictor(ABC):
    """A function from lines of text to predictions, with limits of batches and a name of the input for messages."""

    def __init__(self, model: Any, task: Any, limits: BatchLimits, name: str):
        self.model, self.task, self.limits, self.name = model, task, limits, name
        self.encode = TextEncoder(task.folder(), task.dictionary)

    def __call__(self, lines: Sequence[str], first: int = 1) -> list[Record | None]:
        """Predicts for n lines, numbered from `first`: n records, None for a blank line."""
        filled = [index for index, line in enumerate(lines) if not is_blank(line)]
        results: list[Record | None] = [None] * len(lines)
        if filled:
            records = self.predict([lines[index] for index in filled], [first + index for index in filled])
            self.encode.warn_of_unknown(self.name)
            for index, record in zip(filled, records, strict=True):
                results[index] = record
        return results

    @abstractmethod
    def predict(self, lines: Sequence[str], numbers: Sequence[int]) -> list[Record]:
        """Predicts for lines that are not blank; `numbers`: their line numbers, for messages."""

    @abstractmethod
    def to_line(self, record: Record) -> str:
        """A record as a line of text."""

    def on_device(self, sample: Any) -> Any:
        """A sample on the model's device."""
        device = next(self.model.parameters()).device
        return utils.apply_to_sample(lambda tensor: tensor.to(device), sample) if device.type != "cpu" else sample

    def warn_of_truncation(self, numbers: Sequence[int], limit: str) -> None:
        """Warns of truncated lines; `numbers`: their line numbers, `limit`: their length, for the message."""
        if numbers:
            shown = ", ".join(map(str, numbers[:LISTED])) + (", …" if len(numbers) > LISTED else "")
            logger.warning("%s: %d lines are truncated to %s: %s", self.name, len(numbers), limit, shown)


def on_best_device(model: Any, fp16: bool) -> Any:
    """The model on a GPU if there is one, with 16-bit weights if `fp16`."""
    return model.to("cuda" if torch.cuda.is_available() else "cpu", torch.float16 if fp16 else None)
