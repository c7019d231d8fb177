"""Loss and statistics of all fine-tuning tasks."""

import torch
from fairseq.criterions import CRITERION_REGISTRY, FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass

from fairseq_xl.criterions.sums import log_losses, total
from fairseq_xl.finetuning import TASK_TYPES
from fairseq_xl.finetuning.base import camel_case


class FineTuningCriterion(FairseqCriterion):
    """The loss of the task's type, with its statistics by language.

    The mean of a metric over languages selects checkpoints (Liang et al. 2020, section 6.1).
    """

    def forward(self, model, sample, reduce=True):
        """Computes the summed loss in nats, the number of losses and the log of a `FineTuningDataset` sample."""
        outputs = model(self.task.type.outputs, sample)
        loss, size, log = self.score(outputs, sample)
        return loss, size, log | self.task.counted_in_training(sample, outputs.detach())

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
    def log(metrics, logging_outputs):
        """Logs the mean loss in bits, and sums each statistic by language.

        `_STATISTIC XX`, the sum over language XX, is not shown; the task computes metrics from it.
        """
        size = total(logging_outputs, "sample_size")  # 0 without any label
        log_losses(metrics, total(logging_outputs, "loss"), size.clamp(min=1) if torch.is_tensor(size) else size or 1)
        for key in logging_outputs[0]:
            if key.startswith("_"):
                metrics.average(key, float(total(logging_outputs, key)))

    @staticmethod
    def logging_outputs_can_be_summed():
        """True: every rank logs the same keys, zeros included."""
        return True


def define_criterions():
    """Defines and registers the criterion `xl_{name}` of each task type that has none yet, and `xl_multitask`."""
    for name in (*TASK_TYPES, "multitask"):
        if f"xl_{name}" not in CRITERION_REGISTRY:
            described = {"__doc__": FineTuningCriterion.__doc__}
            made = type(f"XL{camel_case(name)}Criterion", (FineTuningCriterion,), described)
            register_criterion(f"xl_{name}", dataclass=FairseqDataclass)(made)


define_criterions()
