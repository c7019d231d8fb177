"""The loss of a batch from the terms of its objective, and the log of all terms and statistics.

K: pairs of a term or statistic and a corpus. Sums stay on their device until the log shows values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.criterions import CRITERION_REGISTRY, FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from omegaconf import II
from torch import Tensor

from fairseq_xl.errors import UserError, check_number
from fairseq_xl.finetuning import TASK_TYPES
from fairseq_xl.finetuning.base import camel_case
from fairseq_xl.objectives.base import Objective, Sums, Term, bits
from fairseq_xl.options import option

#: how much a batch counts in an update, whose gradients are divided by the sum over micro-steps and ranks: as 1 batch
#: with the means of its terms; or its loss is a sum over predictions (tokens, labels), divided by their number or by
#: that of the sentences; or a mean over predictions that counts as often as the batch has examples
BATCH, PREDICTIONS, EXAMPLES, SENTENCES = "batch", "predictions", "examples", "sentences"


def total(logging_outputs: Sequence[Mapping[str, Any]], key: str) -> Any:
    """The sum of an entry over logging outputs."""
    return sum(log[key] for log in logging_outputs)


class CombinedCriterion(FairseqCriterion):
    """Combines the terms of a batch's objective, and logs them.

    The task calls `set_objectives` before the first batch.
    """

    unit = PREDICTIONS

    def set_objectives(self, objectives: Mapping[str, Objective], corpora: Mapping[str, Sequence[str]]) -> None:
        """Sets the objectives of a run, and the names of the corpora of each."""
        self.objectives = objectives
        keys = [(name, *key) for name, each in objectives.items() for key in each.logged_keys(corpora[name])]
        self.names = ["loss", *map("\t".join, keys)]
        self.positions = {key: position for position, key in enumerate(keys)}
        self.begins = {name: position for position, (name, *_) in reversed(list(enumerate(keys)))}
        self.logged = {(name, term) for name, term, _ in keys}
        every = {
            name: [term for term in each.terms if (name, term) in self.logged] for name, each in objectives.items()
        }
        modeling = {
            name: [term for term in terms if term in objectives[name].language_modeling]
            for name, terms in every.items()
        }
        #: the terms of which `ppl` is the mean: those of language modeling or, without any, all that are logged
        self.selecting = modeling if any(modeling.values()) else every

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, Any, dict[str, Any]]:
        """Loss, sample size, and the log of a sample of `PlannedBatches`."""
        objective = self.objectives[sample["objective"]]
        return self.combined(model(compute=objective.loss, batch=sample["batch"]), sample)

    def combined(self, terms: dict[str, Term], sample: dict[str, Any]) -> tuple[Tensor, Any, dict[str, Any]]:
        """Loss, sample size, and the log of terms.

        ``weight`` of the sample is the factor of its objective; in validation it is the largest of the schedule.
        """
        objective, corpus = self.objectives[sample["objective"]], sample["corpus"]
        losses = [term for term in terms.values() if term.weight or term.sum.ndim == 0]
        factor = sample.get("weight", objective.full_weight)
        if self.unit == BATCH:
            loss = factor * sum(term.weight * term.sum / max(term.count, 1) for term in losses)
            size = int(objective.is_trained)
        else:
            loss, size = sum(term.weight * term.sum for term in losses if term.weight), losses[0].count
            if self.unit == SENTENCES:
                size = sample["nsentences"]
            elif self.unit == EXAMPLES and size > sample["nsentences"]:
                loss, size = loss * (sample["nsentences"] / size), sample["nsentences"]
        sums = {kind: loss.new_zeros(len(self.positions), dtype=torch.double) for kind in ("sums", "counts")}
        for name, term in terms.items():
            if term.sum.ndim:
                begin = self.begins[objective.name]
                sums["sums"][begin : begin + len(term.sum)] = term.sum.detach()
                continue
            position = self.positions.get((objective.name, name, corpus))
            if position is not None:
                sums["sums"][position] = term.sum.detach()
                sums["counts"][position].fill_(term.count)  # `[position] = term.count` would wait for a copy
            elif name not in objective.terms or (objective.name, name) in self.logged:
                raise UserError(
                    f"the loss of {objective.name} returned terms that its `terms` do not name: {name} of {corpus}"
                )
        log = {"loss": loss.detach(), "sample_size": size}
        return loss, size, log | {name: sample[name] for name in ("ntokens", "nsentences")} | sums

    # --- log ---------------------------------------------------------------------------------------------------

    def log(self, metrics: Any, logging_outputs: Sequence[Mapping[str, Any]]) -> None:
        """Logs the mean loss in bits, and what the objectives compute from their sums (`Objective.values`).

        `ppl`, the stopping criterion (Lample & Conneau 2019, section 5.1), is the mean over the language-modeling
        terms, or else over all terms, of the means of their perplexities over corpora.
        """
        loss, size, sums, counts = (total(logging_outputs, key) for key in ("loss", "sample_size", "sums", "counts"))
        if self.unit == BATCH:
            size = counts.any() * size  # a step without predictions does not count
        loss = loss.double()
        size = size.to(loss) if isinstance(size, Tensor) else torch.full_like(loss, size)
        losses = torch.stack([loss, size])[:, None]
        metrics.sums("_losses", torch.cat([losses, torch.stack([sums, counts])], dim=1), self.names, self._values)
        metrics.derived("loss", lambda meters: {"loss": _rounded(bits(meters["_losses"].read().get("loss")))})
        if any(self.selecting.values()):
            metrics.derived("ppl", lambda meters: self._perplexity(self.by_objective(meters)))

    @staticmethod
    def by_objective(meters: Mapping[str, Any]) -> dict[str, Sums]:
        """{objective: its sums} of the meters of a period."""
        return _by_objective(meters["_losses"].read()) if "_losses" in meters else {}

    def _values(self, found: dict[str, tuple[float, ...]]) -> dict[str, Any]:
        logged: dict[str, Any] = {}
        for name, sums in _by_objective(found).items():
            logged |= self.objectives[name].values(sums)
        return logged

    def _perplexity(self, sums: dict[str, Sums]) -> dict[str, Any]:
        found = [
            value
            for name, terms in self.selecting.items()
            for value in self.objectives[name].perplexities(sums.get(name, {}), terms)
        ]
        return {"ppl": round(sum(found) / len(found), 3) if found else None}

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: every rank logs the same keys, zeros included."""
        return True


def _by_objective(found: Mapping[str, tuple[float, ...]]) -> dict[str, Sums]:
    sums: dict[str, Sums] = {}
    for name, each in found.items():
        if name.count("\t") == 2:  # not the loss of all
            objective, key, corpus = name.split("\t")
            sums.setdefault(objective, {}).setdefault(key, {})[corpus] = each
    return sums


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


# --- the registered names ------------------------------------------------------------------------------------


@register_criterion("xl_pretraining", dataclass=FairseqDataclass)
class XLPretrainingCriterion(CombinedCriterion):
    """Weighted sum of the means of terms; each batch counts as 1.

    An objective that predicts every token thus does not outweigh one that predicts one bit per pair.
    """

    unit = BATCH


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
    """fairseq's label_smoothed_cross_entropy, computed by chunks of predictions (`OutputLayer.losses`).

    The log has the same entries: the loss, the negative log-likelihood without smoothing, and its perplexity; of
    several directions, the mean.
    """

    def __init__(self, task: Any, label_smoothing: float, sentence_avg: bool):
        super().__init__(task, label_smoothing)
        self.unit = SENTENCES if sentence_avg else PREDICTIONS


def define_criterions() -> None:
    """Defines and registers the criterion `xl_{name}` of each task type that has none yet, and `xl_multitask`."""
    for name in (*TASK_TYPES, "multitask"):
        if f"xl_{name}" not in CRITERION_REGISTRY:
            unit = EXAMPLES if name == "multitask" else PREDICTIONS
            described = {"__doc__": "The loss of a task type, per prediction.", "unit": unit}
            made = type(f"XL{camel_case(name)}Criterion", (CombinedCriterion,), described)
            register_criterion(f"xl_{name}", dataclass=FairseqDataclass)(made)


define_criterions()
