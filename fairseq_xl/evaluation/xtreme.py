"""XTREME's scores, from files as its submissions have them (Hu et al. 2020).

Scores are those of its program. Both tagging tasks have F1 of spans; for parts of speech a span is a run of equal tags.
TyDiQA and XQuAD have SQuAD's normalization, MLQA its own. The score of a question answering task is the mean of F1 and
exact match.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.benchmarks import (
    Scores,
    Task,
    answer_scores,
    labels_accuracy,
    sentences_of,
    span_scores,
)
from fairseq_xl.evaluation.bleu import read_lines
from fairseq_xl.evaluation.bootstrap import of_sums

LANGUAGES = {
    "xnli": "ar bg de el en es fr hi ru sw th tr ur vi zh",
    "pawsx": "de en es fr ja ko zh",
    "udpos": "af ar bg de el en es et eu fa fi fr he hi hu id it ja kk ko mr nl pt ru ta te th tl tr ur vi yo zh",
    "panx": (
        "ar he vi id jv ms tl eu ml ta te af nl en de el bn hi mr ur fa fr it pt es bg ru ja ka ko th sw yo my zh kk "
        "tr et fi hu"
    ),
    "xquad": "en es de el ru tr ar vi th zh hi",
    "mlqa": "en es de ar hi vi zh",
    "tydiqa": "en ar bn fi id ko ru sw te",
    "bucc2018": "de fr ru zh",
    "tatoeba": (
        "ar he vi id jv tl eu ml ta te af nl de el bn hi mr ur fa fr it pt es bg ru ja ka ko th sw zh kk tr et fi hu"
    ),
}
#: averages of its program
GROUPS = {
    "average": tuple(LANGUAGES),
    "classification": ("xnli", "pawsx"),
    "tagging": ("udpos", "panx"),
    "qa": ("xquad", "mlqa", "tydiqa"),
    "retrieval": ("bucc2018", "tatoeba"),
}
#: Luo et al. 2020, table 3: transfer from English; of question answering F1 and exact match
PAPER = {
    "xnli": 79.9,
    "pawsx": 88.7,
    "udpos": 75.1,
    "panx": 65.7,
    "xquad": (77.3 + 61.8) / 2,
    "mlqa": (71.7 + 53.2) / 2,
    "tydiqa": (67.6 + 49.1) / 2,
    "bucc2018": 85.0,
    "tatoeba": 75.1,
}


def labels(path: Path) -> list[str]:
    """The lines of a file, without white space around them."""
    return [line.strip() for line in read_lines(path)]


def classification(predictions: Path, references: Path, language: str) -> Scores:
    """Accuracy of labels, or of the numbers of the sentences that were found."""
    return labels_accuracy(labels(predictions), labels(references), predictions)


def tagging(predictions: Path, references: Path, language: str) -> Scores:
    """Scores of one tag per line."""
    return span_scores(sentences_of(predictions), sentences_of(references), predictions)


def mined(predictions: Path, references: Path, language: str) -> Scores:
    """F1 of mined pairs, a line with two ids each."""
    found, gold = ({tuple(line.split("\t")) for line in labels(path) if line} for path in (predictions, references))
    if not gold:
        raise UserError(f"{references} holds no pairs")
    rows = [(pair in found and pair in gold, pair in found, pair in gold) for pair in sorted(found | gold)]
    measured = of_sums(rows, {"f1": lambda sums: 200 * sums[..., 0] / (sums[..., 1] + sums[..., 2])})["f1"]
    return {"n": len(gold), "f1": measured["score"], "f1_interval": measured["interval"]}


def tasks() -> dict[str, Task]:
    """XTREME's tasks by name."""
    both = ("f1", "exact_match")
    squad = (both, "mean of F1 and exact match, SQuAD's normalization", partial(answer_scores, normalization="squad"))
    mlqa = (both, "mean of F1 and exact match, MLQA's normalization", partial(answer_scores, normalization="mlqa"))
    tags = (("f1",), "F1 of spans, as seqeval", tagging)
    other: dict[str, tuple[tuple[str, ...], str, Callable[[Path, Path, str], Scores]]] = {
        **{"xquad": squad, "mlqa": mlqa, "tydiqa": squad, "udpos": tags, "panx": tags},
        "bucc2018": (("f1",), "F1 of pairs", mined),
    }
    found = {}
    for name, languages in LANGUAGES.items():
        metrics, description, score = other.get(name, (("accuracy",), "accuracy", classification))
        answered = metrics == both
        path = f"{name}/{{split}}-{{language}}.{'json' if answered else 'tsv'}"
        column, paper = None if answered else 2, {"VECO": PAPER[name]}
        found[name] = Task(tuple(languages.split()), metrics, description, path, path, score, column, paper)
    return found
