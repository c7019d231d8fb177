"""The values in the log from the sums of all objectives of a run."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fairseq_xl.objectives.base import Objective, Sums, bits


def by_objective(found: Mapping[str, tuple[float, ...]]) -> dict[str, Sums]:
    """{objective: its sums} from {"OBJECTIVE TAB TERM TAB CORPUS": (sum, count)}, the names in the log's sums."""
    sums: dict[str, Sums] = {}
    for name, each in found.items():
        if name.count("\t") == 2:  # not the loss of all
            objective, key, corpus = name.split("\t")
            sums.setdefault(objective, {}).setdefault(key, {})[corpus] = each
    return sums


def ppl_terms(objectives: Mapping[str, Objective], logged: Collection[tuple[str, str]]) -> dict[str, Sequence[str]]:
    """{objective: terms} of which `ppl` is the mean: those of language modeling or, without any, all that are logged.

    Args:
        logged: (objective, term) of all sums that are logged.
    """
    every = {name: [term for term in each.terms if (name, term) in logged] for name, each in objectives.items()}
    modeling = {
        name: [term for term in terms if term in objectives[name].language_modeling] for name, terms in every.items()
    }
    return modeling if any(modeling.values()) else every  # type: ignore[return-value]


def main_metrics(objectives: Mapping[str, Objective]) -> list[str]:
    """The metrics whose mean is `score`: the main ones of the objectives that are trained and have one."""
    return [each.main_metric for each in objectives.values() if each.main_metric and each.is_trained]


def log_values(
    objectives: Mapping[str, Objective],
    terms_of_ppl: Mapping[str, Sequence[str]],
    named_sums: Mapping[str, tuple[float, ...]],
) -> dict[str, Any]:
    """{name in the log: value}; None for one without a value.

    `loss` is in bits. `ppl`, the stopping criterion (Lample & Conneau 2019, section 5.1), is the mean over the
    `terms_of_ppl` of the means of their perplexities over corpora. `score` is the mean of the main metrics of
    several objectives (`main_metrics`). The others are those of `Objective.values` and of the scorers of objectives.

    Args:
        named_sums: {name of a sum: its sum and count}.
    """
    sums, mean = by_objective(named_sums), bits(named_sums.get("loss"))
    logged: dict[str, Any] = {"loss": None if mean is None else round(mean, 3)}
    for name, objective in objectives.items():
        logged |= objective.values(sums.get(name, {}))
    for scorer in dict.fromkeys(each.scorer for each in objectives.values() if each.scorer is not None):
        logged |= scorer.values(sums)
    if any(terms_of_ppl.values()):
        perplexities = [
            value
            for name, terms in terms_of_ppl.items()
            for value in objectives[name].perplexities(sums.get(name, {}), terms)
        ]
        logged["ppl"] = round(sum(perplexities) / len(perplexities), 3) if perplexities else None
    main = main_metrics(objectives)
    if len(main) > 1 and all(logged.get(name) is not None for name in main):
        logged["score"] = round(sum(logged[name] for name in main) / len(main), 3)
    return logged
