"""A wrapper of fairseq's criterions of encoder-decoders, which log to fairseq's global aggregators."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairseq.criterions import FairseqCriterion
from fairseq.logging import meters, metrics as fairseq_metrics

from fairseq_xl.criterions.combined import CombinedCriterion
from fairseq_xl.objectives.sequence import with_whole_batch


class FairseqCriterionWrapper(CombinedCriterion):
    """Wraps a criterion of fairseq; in validation adds the statistics of the objective's scorer."""

    def __init__(self, criterion: FairseqCriterion):
        super().__init__(criterion.task)
        self.criterion = criterion

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Any, Any, dict[str, Any]]:
        """Loss, sample size and log of the criterion, with the sums of the objective's statistics."""
        loss, size, log = self.criterion(model, sample)
        batch = with_whole_batch(sample)["batch"]
        scored = {} if self.training else self.objectives[sample["objective"]].scored(model, batch)
        return loss, size, log | self.sums(scored, sample, loss)

    def log(self, metrics: Any, logging_outputs: Sequence[Mapping[str, Any]]) -> None:
        """Logs the scores of the objective, and what the criterion logs."""
        super().log(metrics, logging_outputs)
        with fairseq_metrics.aggregate(new_root=True) as logged:
            self.criterion.reduce_metrics(logging_outputs)
        for name, meter in logged.items():
            if isinstance(meter, meters.AverageMeter):
                metrics.average(name, meter.val, meter.count, meter.round)
            else:
                metrics.derived(name, lambda values, name=name, meter=meter: {name: meter.fn(values)})
