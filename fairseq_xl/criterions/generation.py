"""Cross-entropy of same-language generation, with perplexity by language."""

import math
from dataclasses import dataclass, field
from functools import partial

from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics

from fairseq_xl.errors import check_number
from fairseq_xl.objectives.sequence import sequence_terms


@dataclass
class XLGenerationCriterionConfig(FairseqDataclass):
    """Options of the criterion `xl_generation`."""

    label_smoothing: float = field(
        default=0.0, metadata={"help": "label smoothing in training: total probability of all symbols but the target"}
    )


@register_criterion("xl_generation", dataclass=XLGenerationCriterionConfig)
class XLGenerationCriterion(FairseqCriterion):
    """Cross-entropy per target token, summed over predicting streams (Liang et al. 2020, section 4.2: weights of 1).

    Validation logs the perplexity of the first stream, which predicts the next token, by language. `ppl`, the mean over
    languages, selects checkpoints (section 6.1).
    """

    def __init__(self, task, label_smoothing):
        super().__init__(task)
        check_number("--label-smoothing", label_smoothing, "probability")
        self.label_smoothing = label_smoothing

    def forward(self, model, sample, reduce=True):
        """Computes the summed loss in nats, the number of target tokens and the log of a `GenerationDataset` sample."""
        label_smoothing = self.label_smoothing if model.training else 0.0
        terms = model(partial(sequence_terms, label_smoothing=label_smoothing), sample["batch"])
        loss, count = sum(term.sum for term in terms), terms[0].count
        log = {
            "loss": loss.detach(),
            "sample_size": count,
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
        }
        languages = dict.fromkeys((*self.task.eval_languages, *self.task.valid_languages))
        for code in languages:  # the same keys in every step and on every rank
            here = code == sample["language"]
            log[f"sum {code}"] = terms[0].sum.detach() if here else loss.new_zeros(())
            log[f"count {code}"] = count if here else 0
        return loss, count, log

    @staticmethod
    def reduce_metrics(logging_outputs):
        """Logs the loss in bits per token, summed over streams, and in validation the perplexities."""

        def total(key):
            return float(sum(log.get(key, 0) for log in logging_outputs))

        size = total("sample_size")
        metrics.log_scalar("loss", total("loss") / size / math.log(2), size, round=3)
        codes = [key.removeprefix("sum ") for key in logging_outputs[0] if key.startswith("sum ")]
        for code in codes:
            count = total(f"count {code}")
            if count:
                metrics.log_scalar(f"_bits_{code}", total(f"sum {code}") / count / math.log(2), count)
                metrics.log_derived(f"ppl_{code}", _perplexity(f"_bits_{code}"))
        if any(total(f"count {code}") for code in codes):
            metrics.log_derived("ppl", _mean_perplexity(codes))

    @staticmethod
    def logging_outputs_can_be_summed():
        """True: every rank logs the same keys, zeros included."""
        return True


def _perplexity(key):
    return lambda meters: utils.get_perplexity(meters[key].avg, round=3)


def _mean_perplexity(codes):
    def mean(meters):
        bits = [meters[f"_bits_{code}"].avg for code in codes if f"_bits_{code}" in meters]
        values = [utils.get_perplexity(value, round=9) for value in bits if value is not None]
        return round(sum(values) / len(values), 3) if values else None

    return mean
