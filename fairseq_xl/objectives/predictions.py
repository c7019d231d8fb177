"""The predictions of labelled objectives in a validation, which are written when a split is complete."""

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
    """Collects the predictions of a validation, and writes the files of a split once it has all of them.

    Args:
        objectives: the labelled objectives by name; in pre-training each has a subfolder of its name.
        folder: --predictions-to.
        origin: the model.
        splits: the splits that are evaluated.

    Raises `UserError` if the folder would keep predictions of another model.
    """

    def __init__(self, objectives: Mapping[str, LabelledObjective], folder: str, origin: Origin, splits: Sequence[str]):
        self.objectives, self.folder, self.origin, self.splits = objectives, folder, origin, splits
        # split -> {(objective, language, number of the example): prediction}
        self.kept: dict[str, dict[tuple[str, str, int], Any]] = {}
        for name, each in objectives.items():
            each.keep = self.keep
            check_replaceable(self._folder(name), origin._replace(task=each.type.name), self._prefixes(each))

    def _folder(self, name: str) -> Path:
        return Path(self.folder, name if self.objectives[name].named else "")

    def _prefixes(self, objective: LabelledObjective) -> list[str]:
        """What the names of its files begin with."""
        return [f"{split}.{language}." for split in self.splits for language in objective.languages_of(split)]

    def keep(self, sample: dict[str, Any], numbers: np.ndarray, predictions: list[Any]) -> None:
        """Adds those of a batch, of examples (n,)."""
        if distributed_utils.get_data_parallel_world_size() > 1:
            raise UserError("--predictions-to works in one process only")
        split, place = sample["split"], (sample["objective"], sample["corpus"])
        kept = self.kept.setdefault(split, {})
        kept |= {(*place, number): each for number, each in zip(numbers.tolist(), predictions, strict=True)}
        if len(kept) == self._counts(split).total():
            self._write(split, kept)

    def _counts(self, split: str) -> Counter[str]:
        """{language: number of examples} of a split."""
        counts: Counter[str] = Counter()
        for each in self.objectives.values():
            counts.update({code: corpus.sentences for code, corpus in each.evaluated[split].items()})
        return counts

    def _write(self, split: str, kept: dict[tuple[str, str, int], Any]) -> None:
        try:
            for name, each in self.objectives.items():
                texts = {}
                for language, corpus in each.evaluated[split].items():
                    rows = [(example, kept[name, language, n]) for n, example in enumerate(corpus.examples)]
                    texts |= each.type.files_of(split, language, rows)
                origin = self.origin._replace(task=each.type.name)
                write_predictions(self._folder(name), origin, texts, self._prefixes(each))
        except OSError as error:
            raise UserError(f"--predictions-to {self.folder}: {error.strerror}") from error

    def check_complete(self, option: str) -> None:
        """Raises `UserError` with the `option` that skipped examples, since they have no predictions."""
        for split, kept in self.kept.items():
            of_each, there = self._counts(split), Counter(language for _, language, _ in kept)
            skipped = [f"{n - there[code]} of {n} examples of {code}" for code, n in of_each.items() if n > there[code]]
            if skipped:
                counts = ", ".join(skipped)
                raise UserError(f"--predictions-to: {option} skipped {counts} of the split {split}; remove {option}")
