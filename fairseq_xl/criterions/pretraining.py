"""Combines and logs the terms of pre-training objectives."""

from functools import cached_property

import torch
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass

from fairseq_xl.criterions.sums import bits, log_losses, total
from fairseq_xl.errors import UserError

NOT_LM = "not-lm"  # in keys of the log: the term is not language modeling and does not count in `ppl`


@register_criterion("xl_pretraining", dataclass=FairseqDataclass)
class XLPretrainingCriterion(FairseqCriterion):
    """Weighted sum of the means of terms.

    Each batch has `sample_size` 1: an update averages its batches over micro-steps and ranks. Each term is averaged
    over its own count in the batch. An objective that predicts every token thus does not outweigh one that predicts one
    bit per pair.
    """

    def forward(self, model, sample, reduce=True):
        """Computes the loss, the sample size, and the sums and counts of all terms of a `PlannedBatches` sample."""
        objective = self.task.objectives[sample["objective"]]
        terms = model(objective.loss, sample["batch"])
        unnamed = sorted(term for term in terms if (term, sample["corpus"]) not in self.positions)
        if unnamed:
            raise UserError(
                f"the loss of {sample['objective']} returned terms that its `terms` do not name: {', '.join(unnamed)}"
            )
        means = [term.weight * term.sum / max(term.count, 1) for term in terms.values()]
        # in validation the loss does not depend on the update, and an objective for validation only does not count
        factor = objective.weight(self.task.update_num) if model.training else objective.full_weight
        loss, size = factor * sum(means), int(objective.is_trained)
        log = {
            "loss": loss.detach(),
            "sample_size": size,
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
        }
        # one place for each of the K pairs (term, corpus): every rank logs the same keys in every step
        log |= {kind: loss.new_zeros(len(self.positions), dtype=torch.double) for kind in ("sums", "counts")}
        for name, term in terms.items():
            position = self.positions[name, sample["corpus"]]
            log["sums"][position] = term.sum.detach()
            log["counts"][position].fill_(term.count)  # `[position] = term.count` would wait for a copy
        return loss, size, log

    @cached_property
    def positions(self):
        """{(term, corpus): its place in "sums" and "counts" of the log}."""
        return {key: position for position, key in enumerate(self.task.log_keys)}

    def log(self, metrics, logging_outputs):
        """Logs the loss, and the losses and perplexities of all terms (`log_terms`)."""
        log_terms(metrics, logging_outputs, self.names)

    @cached_property
    def names(self):
        """Names of what `log_terms` sums: the loss, and "TERM CORPUS" with `NOT_LM` behind it or not."""
        keys = ([*key] + [NOT_LM] * (key[0] not in self.task.language_modeling) for key in self.task.log_keys)
        return ["loss", *map(" ".join, keys)]

    @staticmethod
    def logging_outputs_can_be_summed():
        """True: every rank logs the same keys, zeros included."""
        return True


def log_terms(metrics, logging_outputs, names):
    """Logs bits per prediction and perplexity of every term, by corpus and over all corpora.

    `ppl`, the stopping criterion (Lample & Conneau 2019, section 5.1), averages the perplexities of each term over its
    corpora, and then over terms. Only language-modeling terms count, since others have perplexities of 1 to 2; if there
    are none, all terms count. Without predictions `ppl` and `loss` have no value.

    The sums stay on their device until values are read, at the log interval.

    Args:
        metrics: `fairseq_xl.engine.metrics.Metrics`.
        logging_outputs: of all micro-steps, or their sum over ranks.
        names: (1 + K) names as `XLPretrainingCriterion.names`; the same object in each call.
    """
    loss, size, sums, counts = (total(logging_outputs, key) for key in ("loss", "sample_size", "sums", "counts"))
    size = counts.any() * size  # a step without predictions does not count
    log_losses(metrics, loss, size, names, sums, counts, _values)
    metrics.derived("ppl", lambda meters: {"ppl": _mean_perplexity(meters["_losses"])})


def _values(found):
    """{name in the log: value} of all terms, from {name: (nats, predictions)}."""
    groups = {}
    for name, sums in found.items():
        if name != "loss":
            term, corpus, *_ = name.split(" ")
            for group in (f"{term}_{corpus}", term):
                before = groups.get(group, (0.0, 0.0))
                groups[group] = (before[0] + sums[0], before[1] + sums[1])
    means = {group: bits(sums) for group, sums in groups.items() if sums[1]}
    losses = {f"{group}_loss": round(value, 3) for group, value in means.items()}
    return losses | {f"{group}_ppl": utils.get_perplexity(value, round=3) for group, value in means.items()}


def _mean_perplexity(meter):
    selecting = [name for name in meter.names[1:] if not name.endswith(f" {NOT_LM}")] or meter.names[1:]
    by_term, found = {}, meter.read()
    for name in selecting:
        mean = bits(found.get(name))
        if mean is not None:
            # fairseq's is infinite where the power overflows
            by_term.setdefault(name.split(" ")[0], []).append(utils.get_perplexity(mean, round=9))
    means = [sum(values) / len(values) for values in by_term.values()]
    return round(sum(means) / len(means), 3) if means else None
