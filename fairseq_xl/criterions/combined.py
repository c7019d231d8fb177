"""The loss of a batch from the terms of its objective, and the log of all terms and statistics.

K: keys (objective, term or statistic, corpus). Sums stay on their device until the log shows values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from fairseq.criterions import CRITERION_REGISTRY, FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import meters, metrics as fairseq_metrics
from omegaconf import II
from torch import Tensor

from fairseq_xl.errors import UserError, check_number
from fairseq_xl.io.options import option
from fairseq_xl.objectives.base import Objective, Term
from fairseq_xl.objectives.labelled import camel_case, labelled_objectives
from fairseq_xl.objectives.log_values import log_values, ppl_terms
from fairseq_xl.objectives.sequence import with_whole_batch

#: sample size of a batch, by whose sum over micro-steps and ranks the gradients are divided: 1, with the mean loss of
#: each term; or the number of predictions or of sentences, with the summed loss
BATCH, PREDICTIONS, SENTENCES = "batch", "predictions", "sentences"


class CombinedCriterion(FairseqCriterion):
    """Combines and logs the terms of a batch's objective; the task calls `set_objectives` before the first batch."""

    size_unit = PREDICTIONS

    def set_objectives(self, objectives: Mapping[str, Objective], corpora: Mapping[str, Sequence[str]]) -> None:
        """Sets the objectives of a run, and the names of their corpora."""
        self.objectives = objectives
        keys = [(name, *key) for name, objective in objectives.items() for key in objective.logged_keys(corpora[name])]
        self.names = ["loss", *map("\t".join, keys)]
        self.positions = {key: position for position, key in enumerate(keys)}
        self.begins = {name: position for position, (name, *_) in reversed(list(enumerate(keys)))}
        self.logged = {(name, term) for name, term, _ in keys}
        #: makes the values of the log from the sums
        self.values = partial(log_values, objectives, ppl_terms(objectives, self.logged))

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, Any, dict[str, Any]]:
        """Loss, sample size, and the log of a sample of `PlannedBatches`.

        ``weight`` of the sample is the factor of its objective; in validation it is the largest of the schedule.
        """
        objective, full = self.objectives[sample["objective"]], with_whole_batch(sample)
        terms = model(compute=objective.loss, batch=full["batch"]) if self.training else objective.evaluate(model, full)
        losses = [term for term in terms.values() if term.weight or term.sum.ndim == 0]
        if self.size_unit == BATCH:
            mean = sum(term.weight * term.sum / max(term.count, 1) for term in losses)
            loss, size = sample.get("weight", objective.full_weight) * mean, int(objective.is_trained)
        else:
            loss = sum(term.weight * term.sum for term in losses if term.weight)
            size = sample["nsentences"] if self.size_unit == SENTENCES else losses[0].count
        log = {"loss": loss.detach(), "sample_size": size} | {name: sample[name] for name in ("ntokens", "nsentences")}
        return loss, size, log | self.sums(terms, sample, loss)

    def sums(self, terms: dict[str, Term], sample: dict[str, Any], loss: Tensor) -> dict[str, Tensor]:
        """{"sums", "counts"}: (K,) of the terms and statistics of a sample, on the device of the loss."""
        objective, corpus = self.objectives[sample["objective"]], sample["corpus"]
        sums, counts = (loss.new_zeros(len(self.positions), dtype=torch.double) for _ in range(2))
        for name, term in terms.items():
            position = self.positions.get((objective.name, name, corpus))
            if term.sum.ndim:  # statistics
                begin = self.begins[objective.name]
                sums[begin : begin + len(term.sum)] = term.sum.detach()
            elif position is not None:
                sums[position] = term.sum.detach()
                counts[position].fill_(term.count)  # `[position] = term.count` would wait for a copy
            elif name not in objective.terms or (objective.name, name) in self.logged:
                expected = f"one of its `terms` {', '.join(objective.terms)}, and a corpus of `logged_keys`"
                raise UserError(f"the loss of {objective.name} returned {name} of {corpus}: expected {expected}")
        return {"sums": sums, "counts": counts}

    def log(self, metrics: Any, logging_outputs: Sequence[Mapping[str, Any]]) -> None:
        """Logs what `log_values` computes from the loss and the sums of batches."""
        names = ("loss", "sample_size", "sums", "counts")
        loss, size, sums, counts = (sum(log[name] for log in logging_outputs) for name in names)
        if self.size_unit == BATCH:
            size = counts.any() * size  # a step without predictions does not count
        loss = loss.double()
        size = size.to(loss) if isinstance(size, Tensor) else torch.full_like(loss, size)
        losses = torch.stack([loss, size])[:, None]
        metrics.sums("_losses", torch.cat([losses, torch.stack([sums, counts])], dim=1), self.names, self.values)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: every rank logs the same keys, zeros included."""
        return True


class FairseqCriterionWrapper(CombinedCriterion):
    """Wraps a criterion of fairseq, which logs to fairseq's global aggregators; in validation adds scores."""

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


# --- the registered names ------------------------------------------------------------------------------------


@register_criterion("xl_pretraining", dataclass=FairseqDataclass)
class XLPretrainingCriterion(CombinedCriterion):
    """Weighted sum of the means of terms: a batch counts as 1, however many predictions it has."""

    size_unit = BATCH


@dataclass
class LabelSmoothingConfig(FairseqDataclass):
    """Options of the criterions of encoder-decoders."""

    label_smoothing: float = option(
        0.0, "label smoothing, in translation also in validation: total probability of all symbols but the target"
    )


@register_criterion("xl_generation", dataclass=LabelSmoothingConfig)
class XLGenerationCriterion(CombinedCriterion):
    """Cross-entropy per target token, summed over predicting streams (Liang et al. 2020, section 4.2: weights of 1)."""

    def __init__(self, task: Any, label_smoothing: float):
        super().__init__(task)
        check_number("--label-smoothing", label_smoothing, "probability")


@dataclass
class XLTranslationCriterionConfig(LabelSmoothingConfig):
    """Options of the criterion `xl_translation`."""

    sentence_avg: bool = II("optimization.sentence_avg")


@register_criterion("xl_translation", dataclass=XLTranslationCriterionConfig)
class XLTranslationCriterion(XLGenerationCriterion):
    """fairseq's label_smoothed_cross_entropy by chunks of predictions, with the same entries in the log."""

    def __init__(self, task: Any, label_smoothing: float, sentence_avg: bool):
        super().__init__(task, label_smoothing)
        self.size_unit = SENTENCES if sentence_avg else PREDICTIONS


def define_criterions() -> None:
    """Defines and registers the criterion `xl_{name}` of each labelled objective that has none yet."""
    for name in labelled_objectives():
        if f"xl_{name}" not in CRITERION_REGISTRY:
            namespace = {"__doc__": "The loss of a labelled objective, per prediction."}
            criterion = type(f"XL{camel_case(name)}Criterion", (CombinedCriterion,), namespace)
            register_criterion(f"xl_{name}", dataclass=FairseqDataclass)(criterion)


define_criterions()
