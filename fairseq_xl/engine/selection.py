"""The choice of the best checkpoint by --best-checkpoint-metric, and --patience."""

import logging
import math
import numbers
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from fairseq_xl.engine.divergence import advice
from fairseq_xl.engine.interfaces import Task
from fairseq_xl.errors import UserError

if TYPE_CHECKING:
    from fairseq_xl.engine.trainer import Trainer

logger = logging.getLogger(__name__)

#: validation metrics, and prefixes of their names by language or direction
HIGHER_IS_BETTER = ("accuracy", "bleu", "exact_match", "f1", "ndcg", "round_trip_bleu", "score")


class Selection:
    """The best validation value, and the number of validations since then for --patience.

    Attributes:
        best: the best value so far; None before the first validation.
        best_by_language: the best value of each language so far; only with --best-by-language.
        waited: number of validations without a better one; only with --patience.
    """

    def __init__(self, cfg: DictConfig, by_language: bool = False):
        self.metric: str = cfg.best_checkpoint_metric
        self.patience: int = cfg.patience
        self._higher: bool = cfg.maximize_best_checkpoint_metric
        self._by_language = by_language
        self.best: float | None = None
        self.best_by_language: dict[str, float] = {}
        self._patience_best: float | None = None  # the value to exceed
        self.waited = 0

    def is_no_worse(self, value: float, reference: float) -> bool:
        """Whether a value is at least as good as the reference."""
        return value >= reference if self._higher else value <= reference

    def ends(self, value: float | None) -> bool:
        """Whether --patience ends the run after this validation value; None: there was no validation."""
        if value is None or self.patience <= 0:
            return False
        if self._patience_best is None or not self.is_no_worse(self._patience_best, value):
            self._patience_best, self.waited = value, 0
            return False
        self.waited += 1
        return self.waited >= self.patience

    def add(self, value: float | None) -> None:
        """Updates the best value by that of the next checkpoint."""
        if value is not None and (self.best is None or self.is_no_worse(value, self.best)):
            self.best = value

    def add_languages(self, values: dict[str, float]) -> list[str]:
        """Updates the best values of languages by those of the next checkpoint; returns those that it is best for."""
        best = self.best_by_language
        improved = [code for code, value in values.items() if self.is_no_worse(value, best.get(code, value))]
        best.update({code: values[code] for code in improved})
        return improved

    def best_of(self, value: float) -> dict[str, float]:
        """{name in the log: the best value}, this one included; {} before the first checkpoint."""
        if self.best is None:
            return {}
        return {f"best_{self.metric}": value if self.is_no_worse(value, self.best) else self.best}

    def validation_value(self, statistics: dict[str, Any], trainer: "Trainer") -> float | None:
        """The metric's value in a validation; None if nothing was predicted. `UserError` for NaN or no value."""
        if self.metric not in statistics:
            steps = trainer.cfg.dataset.max_valid_steps
            reason = f"--max-valid-steps {steps} ends validation before the text of {self.metric}"
            raise UserError(
                reason if steps else f"--best-checkpoint-metric {self.metric}: validation has no such value"
            )
        value: float | None = statistics[self.metric]
        if value is None:
            sentence = "validation predicted nothing: %s has no value, and no checkpoint becomes the best"
            logger.warning(sentence, self.metric)
        elif math.isnan(value):
            updates = trainer.get_num_updates()
            raise UserError(f"validation after update {updates}: {self.metric} is NaN; {advice(trainer)}")
        return value

    def values_by_language(self, statistics: dict[str, Any]) -> dict[str, float]:
        """{language: the metric's value in a validation}; {} without --best-by-language."""
        by_language = by_language_of(self.metric, statistics) if self._by_language else {}
        return {code: value for code, value in by_language.items() if value is not None}

    def waiting(self) -> dict[str, float]:
        """The state of --patience in a checkpoint, with fairseq's names; {} before the first value."""
        return {} if self._patience_best is None else {"best": self._patience_best, "num_runs": self.waited}

    def restore(self, best: Any, waiting: Any, best_by_language: Any) -> None:
        """Restores the best values and the result of `waiting` from a checkpoint, unless they are no numbers."""
        self.best = float(best) if isinstance(best, numbers.Real) else None
        by_language = best_by_language if isinstance(best_by_language, dict) else {}
        self.best_by_language = {c: float(value) for c, value in by_language.items() if isinstance(value, numbers.Real)}
        state = waiting if isinstance(waiting, dict) else {}
        patience_best, waited = state.get("best"), state.get("num_runs")
        if isinstance(patience_best, numbers.Real) and isinstance(waited, numbers.Integral):
            self._patience_best, self.waited = float(patience_best), int(waited)


def by_language_of(metric: str, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """{language: value} of the statistics METRIC_LANGUAGE."""
    prefix = f"{metric}_"
    return {name.removeprefix(prefix): value for name, value in statistics.items() if name.startswith(prefix)}


def check_selection(run: Any, task: Task) -> None:
    """Raises `UserError` unless --best-checkpoint-metric is a metric of the task, and its direction is right."""
    metrics = None if run is None or run.dataset.disable_validation else task.metrics()
    if metrics is None:
        return
    metric, maximize = run.checkpoint.best_checkpoint_metric, run.checkpoint.maximize_best_checkpoint_metric
    if metric not in metrics:
        raise UserError(f"--best-checkpoint-metric {metric}: choose one of {', '.join(metrics)}")
    if run.task.get("best_by_language") and not by_language_of(metric, dict.fromkeys(metrics)):
        raise UserError(f"--best-by-language: --best-checkpoint-metric {metric} has no values by language")
    if not maximize and any(metric == name or metric.startswith(f"{name}_") for name in HIGHER_IS_BETTER):
        raise UserError(
            f"--best-checkpoint-metric {metric}: higher is better, so it needs --maximize-best-checkpoint-metric"
        )
    if maximize and {"loss", "ppl"} & {metric, metric.split("_")[0], metric.split("_")[-1]}:
        raise UserError(
            f"--best-checkpoint-metric {metric}: lower is better, so leave out --maximize-best-checkpoint-metric (in "
            "YAML, maximize-best-checkpoint-metric: false)"
        )
