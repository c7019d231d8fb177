"""Cross-entropy of translation with label smoothing, without the logits of a whole batch."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Dict, List, Tuple

from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import meters, metrics as fairseq_metrics
from omegaconf import II
from torch import Tensor

from fairseq_xl.criterions.sums import total
from fairseq_xl.errors import check_number
from fairseq_xl.options import option


@dataclass
class XLTranslationCriterionConfig(FairseqDataclass):
    """Options of the criterion `xl_translation`."""

    label_smoothing: float = option(0.0, "label smoothing: total probability of all symbols but the target")
    sentence_avg: bool = II("optimization.sentence_avg")


class FairseqStatistics:
    """The statistics of one of fairseq's criterions, which logs to fairseq's global aggregators."""

    def __init__(self, criterion: FairseqCriterion):
        self.criterion = criterion

    def log(self, metrics: Any, logging_outputs: List[Dict[str, Any]]) -> None:
        """Logs what the criterion logs."""
        with fairseq_metrics.aggregate(new_root=True) as meters_of_step:
            self.criterion.reduce_metrics(logging_outputs)
        for name, meter in meters_of_step.items():
            if isinstance(meter, meters.AverageMeter):
                metrics.average(name, meter.val, meter.count, meter.round)
            else:
                metrics.derived(name, partial(self._derived, name, meter.fn))

    @staticmethod
    def _derived(name: str, function: Callable[[Any], Any], logged: Any) -> Dict[str, Any]:
        return {name: function(logged)}


@register_criterion("xl_translation", dataclass=XLTranslationCriterionConfig)
class XLTranslationCriterion(FairseqCriterion):
    """fairseq's label_smoothed_cross_entropy, computed by chunks of predictions (`OutputLayer.losses`).

    The log has the same entries: the loss, the negative log-likelihood without smoothing, and its perplexity.
    """

    def __init__(self, task: Any, label_smoothing: float, sentence_avg: bool):
        super().__init__(task)
        check_number("--label-smoothing", label_smoothing, "probability")
        self.label_smoothing, self.sentence_avg = label_smoothing, sentence_avg

    def forward(self, model: Any, sample: Dict[str, Any], reduce: bool = True) -> Tuple[Tensor, int, Dict[str, Any]]:
        """Computes the summed loss in nats, the number of target tokens and the log of a `TranslationDataset` sample.

        With --sentence-avg it counts sentences instead.
        """
        loss, nll = model(compute=self._losses, batch=sample)
        size = sample["nsentences"] if self.sentence_avg else sample["ntokens"]
        log = {
            "loss": loss.detach(),
            "nll_loss": nll,
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": size,
        }
        return loss, size, log

    def _losses(self, model: Any, sample: Dict[str, Any]) -> Tuple[Tensor, Tensor]:
        """Summed loss and summed negative log-likelihood of a sample's targets."""
        source, positions = sample["net_input"], sample["predicted_positions"]
        languages = source["src_languages"][:, None]
        packing, target_packing = source.get("src_packing"), source.get("target_packing")
        encoder_out = model.encoder.encode(source["src_tokens"], languages, sample["padding_mask"], packing)
        hidden, _ = model.decoder.extract_features(
            source["prev_output_tokens"], encoder_out, packing=target_packing, memory_packing=packing
        )
        chosen = hidden.flatten(0, 1).index_select(0, positions)  # (N, C)
        target = sample["target"].flatten().index_select(0, positions)
        return model.decoder.output.losses(chosen, target, self.label_smoothing)

    @staticmethod
    def log(metrics: Any, logging_outputs: List[Dict[str, Any]]) -> None:
        """Logs loss, nll_loss and ppl, with fairseq's names."""
        for name, weight in (("loss", "sample_size"), ("nll_loss", "ntokens")):
            count = total(logging_outputs, weight)
            metrics.average(name, total(logging_outputs, name) / count / math.log(2), count, digits=3)
        metrics.derived("ppl", lambda meters: {"ppl": utils.get_perplexity(meters["nll_loss"].avg)})

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: every rank logs the same keys."""
        return True
