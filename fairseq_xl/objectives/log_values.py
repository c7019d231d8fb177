"""The values in the log from the sums of all objectives of a run."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fairseq_xl.objectives.base import Objective, Sums, bits


def sums_by_objective(named_sums: Mapping[str, tuple[float, ...]]) -> dict[str, Sums]:
    """{objective: sums} from {"OBJECTIVE TAB TERM TAB CORPUS": (sum, count)}."""
    sums: dict[str, Sums] = {}
    for name, values in named_sums.items():
        if name.count("\t") == 2:  # not the total loss
            objective, key, corpus = name.split("\t")
            sums.setdefault(objective, {}).setdefault(key, {})[corpus] = values
    return sums


def ppl_terms(objectives: Mapping[str, Objective], logged: Collection[tuple[str, str]]) -> dict[str, Sequence[str]]:
    """{objective: terms} whose perplexities `ppl` averages: of language modeling, else all `logged` ones."""
    terms = {name: [term for term in item.terms if (name, term) in logged] for name, item in objectives.items()}
    modeling = {
        name: [term for term in names if term in objectives[name].language_modeling] for name, names in terms.items()
    }
    return modeling if any(modeling.values()) else terms  # type: ignore[return-value]


def main_metrics(objectives: Mapping[str, Objective]) -> list[str]:
    """The metrics whose mean is `score`: the main metrics of trained objectives."""
    metrics = [objective.main_metric for objective in objectives.values() if objective.is_trained]
    return [metric for metric in metrics if metric]


def log_values(
    objectives: Mapping[str, Objective],
    modeling_terms: Mapping[str, Sequence[str]],
    named_sums: Mapping[str, tuple[float, ...]],
) -> dict[str, Any]:
    """{name in the log: value}; None for one without a value.

    `loss` is in bits. `ppl`, the stopping criterion (Lample & Conneau 2019, section 5.1), is the mean over the
    `modeling_terms` of the means of their perplexities over corpora. `score` is the mean of the main metrics of
    several objectives (`main_metrics`). Further values are those of `Objective.values` and of scorers. `named_sums` are
    {name of a sum: its sum and count}.
    """
    sums, mean = sums_by_objective(named_sums), bits(named_sums.get("loss"))
    logged: dict[str, Any] = {"loss": None if mean is None else round(mean, 3)}
    for name, objective in objectives.items():
        logged |= objective.values(sums.get(name, {}))
    for scorer in dict.fromkeys(objective.scorer for objective in objectives.values() if objective.scorer is not None):
        logged |= scorer.values(sums)
    if any(modeling_terms.values()):
        perplexities = [
            value
            for name, terms in modeling_terms.items()
            for value in objectives[name].perplexities(sums.get(name, {}), terms)
        ]
        logged["ppl"] = round(sum(perplexities) / len(perplexities), 3) if perplexities else None
    main = main_metrics(objectives)
    if len(main) > 1 and all(logged.get(name) is not None for name in main):
        logged["score"] = round(sum(logged[name] for name in main) / len(main), 3)
    return logged
