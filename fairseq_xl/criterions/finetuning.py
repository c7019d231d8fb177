"""Loss and statistics of all fine-tuning tasks."""

import math

from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics


class FineTuningCriterion(FairseqCriterion):
    """The loss of the task's type, with its statistics by language.

    The mean of a metric over languages selects checkpoints (Liang et al. 2020, section 6.1).
    """

    def forward(self, model, sample, reduce=True):
        """Computes the summed loss in nats, the number of losses and the log of a `FineTuningDataset` sample."""
        outputs = model(self.task.type.outputs, sample)
        loss, size, log = self.score(outputs, sample)
        if self.task.type.metrics_in_training:
            log |= self.task.counted(sample, self.task.predict(outputs.detach(), sample))
        return loss, size, log

    def score(self, outputs, sample):
        """Computes what `forward` returns, without statistics, from the outputs of the head."""
        loss, size = self.task.type.loss(outputs, sample)
        log = {
            "loss": loss.detach(),
            "sample_size": size,
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
        }
        return loss, size, log

    @staticmethod
    def reduce_metrics(logging_outputs):
        """Logs the mean loss in bits, and sums each statistic by language.

        `_STATISTIC XX`, the sum over language XX, is not printed by fairseq; the task computes metrics from it.
        """

        def total(key):
            return float(sum(log.get(key, 0) for log in logging_outputs))

        size = total("sample_size") or 1  # 0 without any label
        metrics.log_scalar("loss", total("loss") / size / math.log(2), size, round=3)
        for key in logging_outputs[0]:
            if key.startswith("_"):
                metrics.log_scalar_sum(key, total(key))

    @staticmethod
    def logging_outputs_can_be_summed():
        """True: every rank logs the same keys, zeros included."""
        return True


@register_criterion("xl_classification", dataclass=FairseqDataclass)
class XLClassificationCriterion(FineTuningCriterion):
    """Cross-entropy of the class (Lample & Conneau 2019, section 4.1), with accuracy by language."""


@register_criterion("xl_ranking", dataclass=FairseqDataclass)
class XLRankingCriterion(FineTuningCriterion):
    """Listwise cross-entropy of a query's texts, with nDCG by language (Liang et al. 2020, section 2.2)."""


@register_criterion("xl_tagging", dataclass=FairseqDataclass)
class XLTaggingCriterion(FineTuningCriterion):
    """Cross-entropy of the words' tags, with F1 and accuracy by language (Liang et al. 2020, section 2.2)."""


@register_criterion("xl_question_answering", dataclass=FairseqDataclass)
class XLQuestionAnsweringCriterion(FineTuningCriterion):
    """Cross-entropy of the answer's first and last token, with F1 and exact match (Liang et al. 2020, section 2.2)."""
