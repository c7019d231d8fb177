"""The log of fairseq's criterions, which log to fairseq's global aggregators."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fairseq.criterions import FairseqCriterion
from fairseq.logging import meters, metrics as fairseq_metrics


class FairseqStatistics:
    """The statistics of one of fairseq's criterions."""

    def __init__(self, criterion: FairseqCriterion):
        self.criterion = criterion

    def log(self, metrics: Any, logging_outputs: Sequence[Mapping[str, Any]]) -> None:
        """Logs what the criterion logs."""
        with fairseq_metrics.aggregate(new_root=True) as meters_of_step:
            self.criterion.reduce_metrics(logging_outputs)
        for name, meter in meters_of_step.items():
            if isinstance(meter, meters.AverageMeter):
                metrics.average(name, meter.val, meter.count, meter.round)
            else:
                metrics.derived(name, partial(self._derived, name, meter.fn))

    @staticmethod
    def _derived(name: str, function: Callable[[Any], Any], logged: Any) -> dict[str, Any]:
        return {name: function(logged)}
