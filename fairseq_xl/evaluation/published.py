"""Published scores of tasks of XGLUE and XTREME, and of groups of their tasks, in percent.

A task's figures are {system: figures}; the main paper comes first: XGLUE's own, for XTREME VECO's (Luo et al. 2020).
`average` is the score of the task, as `fairseq-xl score` averages it over languages; `languages` has the scores by
language. `note` says what a reader of the figure has to know. `comparable` is False for an average over other
languages.
"""

from collections.abc import Mapping
from typing import Any

Figures = dict[str, Any]
Papers = dict[str, Figures]

LIANG, LUO = "Liang et al. 2020", "Luo et al. 2020"  # XGLUE; VECO
HUANG, ARTETXE = "Huang et al. 2019", "Artetxe et al. 2020"  # Unicoder; MonoTrans
CONNEAU = "Lample & Conneau 2019"  # XLM
ALL = "VECO, translate-train-all"
OTHER_LANGUAGES = {"note": "average over the languages of its paper", "comparable": False}


def averages(source: str, found: Mapping[str, float], **more: Any) -> Papers:
    """Published averages of a paper's systems; `more` is added to each."""
    return {system: {"source": source, "average": value} | more for system, value in found.items()}


def answers(source: str, found: Mapping[str, tuple[float, float]]) -> Papers:
    """Figures of question answering, from F1 and exact match, whose mean is the score."""
    return {
        system: {"source": source, "average": round((f1 + exact) / 2, 2), "f1": f1, "exact_match": exact}
        for system, (f1, exact) in found.items()
    }


MONOTRANS = (
    "MonoTrans",
    "MonoTrans + positions",
    "MonoTrans + positions + noise",
    "MonoTrans + positions + noise + adapters",
)
XNLI = {
    CONNEAU: averages(CONNEAU, {"XLM (MLM + TLM)": 75.1}, languages={"en": 85.0, "sw": 68.4, "ur": 67.3})
    | averages(CONNEAU, {"XLM (MLM)": 71.5, "XLM, translate-train": 76.7, "XLM, translate-test": 74.2}),
    LIANG: averages(LIANG, {"Unicoder": 75.3, "Unicoder, multi-language": 79.4}),
    LUO: averages(LUO, {"VECO": 79.9, ALL: 83.0}),
    HUANG: averages(
        HUANG,
        {
            "Unicoder of 2019, translate-train": 76.9,
            "Unicoder of 2019, translate-test": 74.9,
            "Unicoder of 2019, cross-lingual test": 75.4,
            "Unicoder of 2019, multi-language": 78.5,
            "XLM, multi-language": 77.8,
        },
    ),
    ARTETXE: averages(
        ARTETXE,
        dict(zip(MONOTRANS, (67.8, 69.1, 70.0, 69.5)))
        | {"JointPair, disjoint": 71.1, "JointPair, joint": 70.4, "JointMulti 200k": 70.5, "CLWE": 60.1},
    ),
}
PAWSX = averages(ARTETXE, dict(zip(MONOTRANS, (86.0, 86.9, 82.7, 82.0))), **OTHER_LANGUAGES)
XDAE_NTG = {"en": 16.7, "es": 11.1, "fr": 10.6, "de": 9.1, "ru": 7.5}

XGLUE: dict[str, Papers] = {
    "NER": averages(LIANG, {"Unicoder": 79.7}),
    "POS": averages(LIANG, {"Unicoder": 79.7}),
    "NC": averages(LIANG, {"Unicoder": 83.4}),
    "MLQA": averages(LIANG, {"Unicoder": 66.0}) | averages(LUO, {"VECO": 71.7, ALL: 73.1}),
    "XNLI": XNLI[LIANG] | XNLI[HUANG] | XNLI[CONNEAU] | XNLI[LUO] | XNLI[ARTETXE],
    "PAWSX": averages(LIANG, {"Unicoder": 90.1}) | PAWSX,
    "QADSM": averages(LIANG, {"Unicoder": 69.3}),
    "WPR": averages(LIANG, {"Unicoder": 73.7}),
    "QAM": averages(LIANG, {"Unicoder": 67.7}),
    "QG": averages(LIANG, {"xDAE": 7.9, "xFNP": 6.5, "mBERT": 4.5}),
    "NTG": averages(LIANG, {"xDAE": 11.0}, languages=XDAE_NTG)
    | averages(LIANG, {"xDAE, multi-language": 15.8, "xFNP": 9.1, "mBERT": 8.2}),
}
XGLUE_GROUPS: dict[str, Papers] = {
    "understanding": averages(LIANG, {"Unicoder": 76.1, "XLM-R base": 75.6, "mBERT": 71.9}),
    "generation": averages(LIANG, {"xDAE": 9.5, "xFNP": 7.8, "mBERT": 6.4}),
}

XTREME: dict[str, Papers] = {
    "xnli": XNLI[LUO] | XNLI[LIANG] | XNLI[HUANG] | XNLI[CONNEAU] | XNLI[ARTETXE],
    "pawsx": averages(LUO, {"VECO": 88.7, ALL: 91.1}) | PAWSX,
    "udpos": averages(LUO, {"VECO": 75.1}),
    "panx": averages(LUO, {"VECO": 65.7}),
    "xquad": answers(LUO, {"VECO": (77.3, 61.8), ALL: (79.9, 66.3)})
    | answers(ARTETXE, dict(zip(MONOTRANS, ((61.1, 43.6), (56.8, 41.6), (57.8, 43.2), (66.8, 50.5))))),
    "mlqa": answers(LUO, {"VECO": (71.7, 53.2), ALL: (73.1, 54.9)}),
    "tydiqa": answers(LUO, {"VECO": (67.6, 49.1), ALL: (75.0, 58.9)}),
    "bucc2018": averages(LUO, {"VECO": 85.0, ALL: 89.3}),
    "tatoeba": averages(LUO, {"VECO": 75.1, ALL: 86.9}),
}
XTREME_AVERAGE = (
    averages(LUO, {"VECO": 73.1}, note="the paper prints 73.1; the mean of its nine task scores is 73.3")
    | averages(LUO, {"XLM-R": 68.1})
    | averages(
        LUO, {ALL: 77.2}, note="equals the mean with udpos and panx of VECO; the paper has none for this setting"
    )
)


def mean_of_tasks(tasks: tuple[str, ...]) -> Papers:
    """Means over `tasks` of VECO's published scores, computed here."""
    found = {
        system: round(sum(XTREME[task][system]["average"] for task in tasks) / len(tasks), 2)
        for system in ("VECO", ALL)
        if all(system in XTREME[task] for task in tasks)
    }
    return averages(LUO, found, note="the mean of the paper's task scores; the paper prints none")
