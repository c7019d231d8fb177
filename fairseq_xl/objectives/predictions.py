"""Writes the predictions of labelled objectives in a validation, once a split is complete."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fairseq.distributed import utils as distributed_utils

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.prediction_folders import Origin, check_replaceable, write_predictions
from fairseq_xl.objectives.labelled import LabelledObjective


class Predictions:
    """Collects the predictions of a validation, and writes the files of each complete split.

    In pre-training each labelled objective has a subfolder of its name. Raises `UserError` if the folder would keep
    predictions of another model, and in several processes.
    """

    def __init__(self, objectives: Mapping[str, LabelledObjective], folder: str, origin: Origin, splits: Sequence[str]):
        if distributed_utils.get_data_parallel_world_size() > 1:
            raise UserError("--predictions-to works in one process only")
        self.objectives, self.folder, self.origin, self.splits = objectives, folder, origin, splits
        # split -> {(objective, language, index of the example): prediction}
        self.predictions: dict[str, dict[tuple[str, str, int], Any]] = {}
        for name, objective in objectives.items():
            objective.collect = self.collect
            check_replaceable(self._folder(name), origin._replace(task=type(objective).name), self._prefixes(objective))

    def _folder(self, name: str) -> Path:
        return Path(self.folder, name if self.objectives[name].named else "")

    def _prefixes(self, objective: LabelledObjective) -> list[str]:
        return [f"{split}.{language}." for split in self.splits for language in objective.languages_of(split)]

    def collect(self, sample: dict[str, Any], indices: np.ndarray, predictions: list[Any]) -> None:
        """Adds the predictions of a batch, of the examples `indices` (n,)."""
        split, key = sample["split"], (sample["objective"], sample["corpus"])
        stored = self.predictions.setdefault(split, {})
        stored |= {(*key, index): value for index, value in zip(indices.tolist(), predictions, strict=True)}
        if len(stored) == self._counts(split).total():
            self._write(split, stored)

    def _counts(self, split: str) -> Counter[str]:
        counts: Counter[str] = Counter()
        for objective in self.objectives.values():
            counts.update({code: corpus.sentences for code, corpus in objective.evaluated[split].items()})
        return counts

    def _write(self, split: str, predictions: dict[tuple[str, str, int], Any]) -> None:
        try:
            for name, objective in self.objectives.items():
                texts = {}
                for language, corpus in objective.evaluated[split].items():
                    rows = [(example, predictions[name, language, n]) for n, example in enumerate(corpus.examples)]
                    texts[f"{split}.{language}.{objective.suffix}"] = objective.prediction_file(rows)
                origin = self.origin._replace(task=type(objective).name)
                write_predictions(self._folder(name), origin, texts, self._prefixes(objective))
        except OSError as error:
            raise UserError(f"--predictions-to {self.folder}: {error.strerror}") from error

    def check_complete(self, option: str) -> None:
        """Raises `UserError` with the `option` that skipped examples, since they have no predictions."""
        for split, predictions in self.predictions.items():
            sizes, seen = self._counts(split), Counter(language for _, language, _ in predictions)
            skipped = [f"{n - seen[code]} of {n} examples of {code}" for code, n in sizes.items() if n > seen[code]]
            if skipped:
                counts = ", ".join(skipped)
                raise UserError(f"--predictions-to: {option} skipped {counts} of the split {split}; remove {option}")
