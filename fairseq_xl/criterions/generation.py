"""Cross-entropy of same-language generation, with perplexity by language."""

from dataclasses import dataclass
from functools import cached_property, partial

import torch
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass

from fairseq_xl.criterions.sums import bits, log_losses, total
from fairseq_xl.errors import check_number
from fairseq_xl.objectives.sequence import sequence_terms
from fairseq_xl.options import option


@dataclass
class XLGenerationCriterionConfig(FairseqDataclass):
    """Options of the criterion `xl_generation`."""

    label_smoothing: float = option(0.0, "label smoothing in training: total probability of all symbols but the target")


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
        # one place for each language: the same keys in every step and on every rank
        languages = self.task.logged_languages
        log |= {kind: loss.new_zeros(len(languages), dtype=torch.double) for kind in ("sums", "counts")}
        if sample["language"] in languages:
            place = languages.index(sample["language"])
            log["sums"][place], log["counts"][place] = terms[0].sum.detach(), count
        return loss, count, log

    def log(self, metrics, logging_outputs):
        """Logs the loss and the perplexities by language (`log_languages`)."""
        log_languages(metrics, logging_outputs, self.names)

    @cached_property
    def names(self):
        """Names of what `log_languages` sums: "loss" and the logged languages."""
        return ["loss", *self.task.logged_languages]

    @staticmethod
    def logging_outputs_can_be_summed():
        """True: every rank logs the same keys, zeros included."""
        return True


def log_languages(metrics, logging_outputs, names):
    """Logs the loss in bits per token, summed over streams, and the perplexities by language.

    The sums stay on their device until values are read, at the log interval.

    Args:
        metrics: `fairseq_xl.engine.metrics.Metrics`.
        logging_outputs: of all micro-steps, or their sum over ranks.
        names: "loss" and the logged languages; the same object in each call.
    """
    loss, size, sums, counts = (total(logging_outputs, key) for key in ("loss", "sample_size", "sums", "counts"))
    log_losses(metrics, loss, size, names, sums, counts, _perplexities)


def _perplexities(found):
    """`ppl_XX` of each language from {language: (nats, tokens)}, and `ppl`, their mean."""
    means = {code: bits(sums) for code, sums in found.items() if code != "loss" and sums[1]}
    if not means:
        return {}
    by_language = {f"ppl_{code}": utils.get_perplexity(mean, round=3) for code, mean in means.items()}
    ppl = sum(utils.get_perplexity(mean, round=9) for mean in means.values()) / len(means)
    return by_language | {"ppl": round(ppl, 3)}
