"""Combines and logs the terms of pre-training objectives."""

import math

import torch
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics

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
        logged = {term for term, corpus in self.task.log_keys if corpus == sample["corpus"]}
        if not logged.issuperset(terms):
            unnamed = ", ".join(sorted(terms.keys() - logged))
            raise UserError(f"the loss of {sample['objective']} returned terms that its `terms` do not name: {unnamed}")
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
        nothing = torch.zeros_like(log["loss"])
        for term, corpus in self.task.log_keys:
            key = " ".join([term, corpus] + [NOT_LM] * (term not in self.task.language_modeling))
            here = terms[term] if corpus == sample["corpus"] and term in terms else None
            log[f"sum {key}"], log[f"count {key}"] = (here.sum.detach(), here.count) if here else (nothing, 0)
        return loss, size, log

    @staticmethod
    def reduce_metrics(logging_outputs):
        """Logs bits per prediction and perplexity of every term, by corpus and over all corpora.

        `ppl`, the stopping criterion (Lample & Conneau 2019, section 5.1), averages the perplexities of each term over
        its corpora, and then over terms. Only language-modeling terms count, since others have perplexities of 1 to 2;
        if there are none, all terms count. Without predictions `ppl` has no value.
        """

        def total(key):
            return float(sum(log.get(key, 0) for log in logging_outputs))

        keys = [key.removeprefix("sum ") for key in logging_outputs[0] if key.startswith("sum ")]
        size = total("sample_size") if any(total(f"count {key}") for key in keys) else 0
        metrics.log_scalar("loss", total("loss") / size / math.log(2) if size else None, size, round=3)
        groups = {}
        for key in keys:
            term, corpus, *_ = key.split(" ")
            groups.setdefault(f"{term}_{corpus}", []).append(key)
            groups.setdefault(term, []).append(key)
        for name, members in groups.items():
            count = sum(total(f"count {key}") for key in members)
            if count:
                nats = sum(total(f"sum {key}") for key in members)
                metrics.log_scalar(f"{name}_loss", nats / count / math.log(2), count, round=3)
                metrics.log_derived(f"{name}_ppl", _perplexity(f"{name}_loss"))
        selecting = [key for key in keys if not key.endswith(f" {NOT_LM}")] or keys
        metrics.log_derived("ppl", _mean_perplexity([key.split(" ")[:2] for key in selecting]))

    @staticmethod
    def logging_outputs_can_be_summed():
        """True: every rank logs the same keys, zeros included."""
        return True


def _perplexity(key):
    def perplexity(meters):
        bits = meters[key].avg  # None if no batch had the corpus since fairseq reset the meters
        return None if bits is None else utils.get_perplexity(bits, round=3)

    return perplexity


def _mean_perplexity(keys):
    def mean(meters):
        by_term = {}
        for term, corpus in keys:
            meter = meters.get(f"{term}_{corpus}_loss")
            if meter is not None and meter.avg is not None:
                # fairseq's is infinite where the power overflows
                by_term.setdefault(term, []).append(utils.get_perplexity(meter.avg, round=9))
        means = [sum(values) / len(values) for values in by_term.values()]
        return round(sum(means) / len(means), 3) if means else None

    return mean
