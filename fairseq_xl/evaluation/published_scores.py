"""Published scores of tasks of XGLUE and XTREME, and of groups of their tasks, from `published_scores.yaml`.

A task's figures are {system: figures}, those of the main paper first, with their `source`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_xl.io.yaml_files import load

Figures = dict[str, Any]
Papers = dict[str, Figures]

ALL = "VECO, translate-train-all"


def _papers(listed: Mapping[str, Mapping[str, Any]]) -> Papers:
    """{paper: {system: figures}} of a task -> {system: figures}."""
    papers: Papers = {}
    for source, systems in listed.items():
        for system, scores in systems.items():
            figures = scores if isinstance(scores, dict) else {"average": scores}
            if isinstance(scores, list):
                f1, exact = scores
                figures = {"average": round((f1 + exact) / 2, 2), "f1": f1, "exact_match": exact}
            papers[system] = {"source": source, **figures}
    return papers


_LISTED = {
    name: {task: _papers(listed) for task, listed in tasks.items()}
    for name, tasks in load(Path(__file__).with_suffix(".yaml")).items()
    if name != "other languages"
}
XGLUE, XGLUE_GROUPS = _LISTED["xglue"], _LISTED["xglue groups"]
XTREME, XTREME_GROUPS = _LISTED["xtreme"], _LISTED["xtreme groups"]


def mean_of_tasks(tasks: tuple[str, ...]) -> Papers:
    """Means over `tasks` of VECO's published scores, computed here."""
    note = "the mean of the paper's task scores; the paper prints none"
    means: Papers = {}
    for system in ("VECO", ALL):
        scores = [XTREME[task][system]["average"] for task in tasks if system in XTREME[task]]
        if len(scores) == len(tasks):
            means[system] = {"source": "Luo et al. 2020", "average": round(sum(scores) / len(tasks), 2), "note": note}
    return means
