"""Files and scores of task types for commands, also of task types of other packages."""

from pathlib import Path
from typing import Any

import numpy as np

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import bootstrap
from fairseq_xl.evaluation.classification_scores import UnlabeledError
from fairseq_xl.objectives.labelled import LabelledObjective, labelled_objectives


def transformers_heads() -> dict[str, str]:
    """{task type: its `transformers_head`} of those that have one."""
    return {name: kind.transformers_head for name, kind in labelled_objectives().items() if kind.transformers_head}


def file_reader(name: str) -> LabelledObjective:
    """The objective of a task type with default options, to read files only; `UserError` for an unknown type."""
    kinds: dict[str, Any] = labelled_objectives()
    if name not in kinds:
        raise UserError(f"{name}: there is no such task type, expected one of {', '.join(sorted(kinds))}")
    return kinds[name](kinds[name].Config(), None, None, named=False)


def score(objective: LabelledObjective, path: Path, language: str) -> dict[str, Any]:
    """The metrics of an objective over a file of --predictions-to, with their 95 % intervals, and `n` examples."""
    pairs = [pair for pair in objective.read_predictions(path, language) if objective.is_labeled(pair[0])]
    if not pairs:
        raise UnlabeledError(f"{path} has no predictions of labeled examples: it cannot be scored")
    names = objective.summed_statistics
    counts = [{"examples": 1} | objective.count(*pair) for pair in pairs]
    rows = [[values.get(name, 0) for name in names] for values in counts]
    metrics = {
        name: lambda sums, metric=metric: np.apply_along_axis(
            lambda row: np.array(metric(dict(zip(names, row))), dtype=float), -1, sums
        )
        for name, metric in objective.metrics().items()
    }
    return {"n": len(pairs)} | bootstrap.corpus_metrics(rows, metrics)
