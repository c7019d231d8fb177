"""Statistics of fine-tuning tasks, summed by language, and the metrics that are computed from them."""

import logging

logger = logging.getLogger(__name__)

COLLAPSED = 98.0  # percent of the predictions in one class from which on the model is reported as collapsed


class LanguageMetrics:
    """Counts statistics by language and logs metrics: all in validation, `training_statistics` in training.

    `_STATISTIC XX` in the log is the sum over language XX, which is not shown.
    """

    def counted(self, sample, predictions):
        """{"_STATISTIC XX": sum over the examples in language XX}, for all languages of the split."""
        examples = self.datasets[sample["split"]].examples
        names = ("examples", *self.type.statistics)
        languages = self._languages(sample["split"])
        sums = {f"_{name} {language}": 0.0 for language in languages for name in names}
        for index, prediction in zip(sample["id"].tolist(), predictions, strict=True):
            if self.type.is_labeled(examples[index]):
                for name, value in ({"examples": 1} | self.type.count(examples[index], prediction)).items():
                    sums[f"_{name} {examples[index].language}"] += float(value)
        return sums

    def counted_in_training(self, sample, outputs):
        """{"counted": sums of "examples" and `training_statistics` by language (statistics, languages)}, or {}.

        The tensor stays on its device until it is logged.
        """
        if self.type.training_statistics is None:
            return {}
        values = self.type.count_in_training(outputs, sample)
        sums = values.new_zeros(len(values), len(self.dictionary.languages))
        return {"counted": sums.index_add_(1, sample["batch"]["languages"][:, 0], values)}

    def _training_metrics(self, found):
        """{name in the log: value} from {language: sums of "examples" and `training_statistics`}."""
        names, values = ("examples", *self.type.training_statistics), {}
        sums = {language: dict(zip(names, column, strict=True)) for language, column in found.items()}
        for name, function in self.type.metrics().items():
            measured = {language: function(each) for language, each in sums.items() if each["examples"]}
            measured = {language: round(value, 2) for language, value in measured.items() if value is not None}
            values |= {f"{name}_{language}": value for language, value in measured.items()}
            if measured:
                values[name] = round(sum(measured.values()) / len(measured), 3)
        return values

    def log(self, metrics, logging_outputs, criterion):
        """Logs the metrics by language and their means over languages."""
        super().log(metrics, logging_outputs, criterion)
        if "counted" in logging_outputs[0]:  # in training
            counted = sum(log["counted"] for log in logging_outputs).double()
            metrics.sums("_counted", counted, self.dictionary.languages, self._training_metrics)
            return
        metrics.derived("metrics", self._metrics)

    def _metrics(self, meters):
        """{name in the log: value} of all metrics: the mean over languages, and those of each language that has any."""
        values = {}
        for name, function in self.type.metrics().items():
            by_language = {code: self._metric(function, code)(meters) for code in self.dictionary.languages}
            values |= {f"{name}_{code}": value for code, value in by_language.items() if value is not None}
            values[name] = self._mean(function)(meters)
        return values

    def _sums(self, meters, language):
        """{statistic: sum} of a language in logged meters; None without examples."""
        names = ("examples", *self.type.statistics)
        sums = {name: float(meters[f"_{name} {language}"].sum) for name in names if f"_{name} {language}" in meters}
        return sums if sums.get("examples") else None

    def _metric(self, function, language):
        def metric(meters):
            sums = self._sums(meters, language)
            value = sums and function(sums)
            return None if value is None else round(value, 2)

        return metric

    def _mean(self, function):
        """The mean of a metric over the languages that have it."""

        def mean(meters):
            values = [self._metric(function, language)(meters) for language in self.dictionary.languages]
            found = [value for value in values if value is not None]
            return round(sum(found) / len(found), 3) if found else None

        return mean

    def warn_of_collapse(self, meters):
        """Warns of each language in which nearly all predictions are the same class."""
        for language in self.dictionary.languages:
            sums = self._sums(meters, language)
            for label, predicted, gold in self.type.class_shares(sums) if sums else ():
                if predicted >= COLLAPSED > gold:
                    logger.warning(
                        "the model has collapsed in %s: %.1f %% of its predictions are %r, which is right for %.1f %%; "
                        "a lower --lr, more updates or a warm-up that is shorter than the training may help",
                        language,
                        predicted,
                        label,
                        gold,
                    )
