"""Cross-entropy over classes, with accuracy by language."""

import math

import torch
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch.nn import functional as F

#: name of the classifier in `model.heads`
HEAD = "classification"


def class_scores(model, batch):
    """Logits (B, classes) of the classifier on the first token's last hidden state."""
    return model.heads[HEAD](model.encode(**batch)[:, 0])


@register_criterion("xl_classification", dataclass=FairseqDataclass)
class XLClassificationCriterion(FairseqCriterion):
    """Cross-entropy of the class (Lample & Conneau 2019, section 4.1), with accuracy by language.

    `accuracy`, the mean over languages, selects checkpoints (Liang et al. 2020, section 6.1).
    """

    def forward(self, model, sample, reduce=True):
        """Computes the summed loss in nats, the number of examples and the log of a `ClassificationDataset` sample."""
        return self.score(model(class_scores, sample["batch"]), sample)

    def score(self, logits, sample):
        """What `forward` returns, from logits (B, classes)."""
        target, languages = sample["target"], sample["batch"]["languages"][:, 0]
        loss = F.cross_entropy(logits.float(), target, reduction="sum")
        predicted = logits.argmax(-1)
        log = {
            "loss": loss.detach(),
            "sample_size": sample["nsentences"],
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
        }
        classes, codes = logits.size(-1), self.task.dictionary.languages
        classes_of = [f"{code} {number}" for code in codes for number in range(classes)]
        counted = {
            "count": (languages, codes),
            "right": (languages[predicted == target], codes),
            "predicted": (languages * classes + predicted, classes_of),
            "gold": (languages * classes + target, classes_of),
        }
        for what, (numbers, names) in counted.items():
            counts = torch.bincount(numbers, minlength=len(names)).tolist()
            log |= {f"{what} {name}": count for name, count in zip(names, counts)}
        return loss, sample["nsentences"], log

    @staticmethod
    def reduce_metrics(logging_outputs):
        """Logs the loss in bits per example and, in percent, the accuracy by language and their mean, `accuracy`.

        `_predicted_XX_N` and `_gold_XX_N`, which fairseq does not print, are the shares of class N in language XX.
        """

        def total(key):
            return float(sum(log.get(key, 0) for log in logging_outputs))

        def names(what):
            return [key.removeprefix(f"{what} ") for key in logging_outputs[0] if key.startswith(f"{what} ")]

        size = total("sample_size")
        metrics.log_scalar("loss", total("loss") / size / math.log(2), size, round=3)
        for language in names("count"):
            count = total(f"count {language}")
            if count:
                metrics.log_scalar(f"accuracy_{language}", 100 * total(f"right {language}") / count, count, round=2)
        metrics.log_derived("accuracy", _mean([f"accuracy_{language}" for language in names("count")]))
        for what in ("predicted", "gold"):
            for name in names(what):
                language, number = name.split(" ")
                count = total(f"count {language}")
                if count:
                    metrics.log_scalar(f"_{what}_{language}_{number}", 100 * total(f"{what} {name}") / count, count)

    @staticmethod
    def logging_outputs_can_be_summed():
        """True: every rank logs the same keys, zeros included."""
        return True


def _mean(keys):
    def mean(meters):
        values = [float(meters[key].avg) for key in keys if key in meters and meters[key].avg is not None]
        return round(sum(values) / len(values), 3) if values else None

    return mean
