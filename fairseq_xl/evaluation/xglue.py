"""XGLUE's scores, from files as its release distributes them and its submissions have them (Liang et al. 2020).

Figures are those of its program: POS has the precision of spans, where a span is a run of equal tags, and not accuracy;
nDCG has linear gains, over lines in a row with the same query; BLEU is sacreBLEU's of lower-cased text.
"""

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import ranking
from fairseq_xl.evaluation.benchmarks import (
    SCORE,
    Scores,
    Task,
    answer_scores,
    labels_accuracy,
    sentences_of,
    span_scores,
)
from fairseq_xl.evaluation.bleu import bleu, read_lines

LANGUAGES = {
    "NER": "de en es nl",
    "POS": "pl ar ru bg de el en es fr hi it nl pt th tr ur vi zh",
    "NC": "de en es fr ru",
    "MLQA": "ar de en es hi vi zh",
    "XNLI": "ar bg de el en es fr hi ru sw th tr ur vi zh",
    "PAWSX": "de en es fr",
    "QADSM": "de en fr",
    "WPR": "de en fr it pt zh",
    "QAM": "de en fr",
    "QG": "de en fr",
    "NTG": "de en es fr ru",
}
#: averages of the paper
GROUPS = {"understanding": tuple(LANGUAGES)[:9], "generation": tuple(LANGUAGES)[9:]}
#: Liang et al. 2020, tables 4 and 5: averages of Unicoder (large corpus), xDAE and xFNP
PAPER = {
    "NER": {"Unicoder": 79.7},
    "POS": {"Unicoder": 79.7},
    "NC": {"Unicoder": 83.4},
    "MLQA": {"Unicoder": 66.0},
    "XNLI": {"Unicoder": 75.3},
    "PAWSX": {"Unicoder": 90.1},
    "QADSM": {"Unicoder": 69.3},
    "WPR": {"Unicoder": 73.7},
    "QAM": {"Unicoder": 67.7},
    "QG": {"xDAE": 7.9, "xFNP": 6.5},
    "NTG": {"xDAE": 11.0, "xFNP": 9.1},
}


def last_column(path: Path, header: bool = False) -> list[str]:
    """The last field of each line."""
    rows = [line.split("\t")[-1].strip() for line in read_lines(path) if line.strip()]
    return rows[1:] if header else rows


def classification(predictions: Path, references: Path, language: str, header: bool = False) -> Scores:
    """Accuracy of labels."""
    return labels_accuracy(last_column(predictions), last_column(references, header), predictions)


def tagging(predictions: Path, references: Path, language: str) -> Scores:
    """Scores of tags; missing tags at the end of a sentence are O, as in XGLUE's program."""
    predicted, gold = sentences_of(predictions), sentences_of(references)
    for ours, right in zip(predicted, gold):
        ours += ["O"] * (len(right) - len(ours))
    return span_scores(predicted, gold, predictions)


def relevance(predictions: Path, references: Path, language: str) -> Scores:
    """nDCG of the predicted ratings or scores."""
    found = last_column(predictions)
    rows = [line.split("\t") for line in read_lines(references) if line.strip()]
    if len(found) != len(rows):
        raise UserError(f"{predictions}: {len(found)} predictions of {len(rows)} lines")
    try:
        pairs = [(float(row[-1]), float(ours)) for row, ours in zip(rows, found)]
    except ValueError:
        raise UserError(f"{predictions}: expected a rating or score on each line, as {references} has") from None
    groups = itertools.groupby(zip(rows, pairs), lambda item: item[0][0])
    queries = [tuple(map(list, zip(*(pair for _, pair in group)))) for _, group in groups]
    return ranking.score((right, ours) for right, ours in queries)


def generated(predictions: Path, references: Path, language: str) -> Scores:
    """sacreBLEU of lower-cased text, with tokenizer 13a in every language."""
    hypotheses = [line.strip() for line in read_lines(predictions)]
    expected = last_column(references)
    measured = bleu(hypotheses, expected, lowercase=True, bootstrap=1000)
    low, high = measured["score"] - measured["interval"], measured["score"] + measured["interval"]
    interval = [round(low, 2), round(high, 2)]
    return {
        "n": len(expected),
        "bleu": measured["score"],
        "bleu_interval": interval,
        "signature": measured["signature"],
    }


def tasks() -> dict[str, Task]:
    """XGLUE's tasks by name."""
    named = "{name}/xglue.{lower}.{{language}}.{{split}}"
    mlqa = "MLQA/MLQA_V1/{split}/{split}-context-{language}-question-{language}.json"
    labels = ("accuracy", "accuracy")
    written = ("bleu", "sacreBLEU of lower case, 13a")
    kinds: dict[str, tuple[tuple[str, str], str, Callable[[Path, Path, str], Scores]]] = {
        "NER": (("f1", "F1 of spans, as seqeval"), "NER/{language}.{split}", tagging),
        "POS": (("precision", "precision of spans, as seqeval"), "POS/{language}.{split}", tagging),
        "XNLI": (labels, "XNLI/{language}.{split}", classification),
        "PAWSX": (labels, "PAWSX/{language}/{split}_2k.tsv", partial(classification, header=True)),
        "MLQA": (("f1", "F1, MLQA's normalization"), mlqa, partial(answer_scores, normalization="mlqa")),
        "WPR": (("ndcg", "nDCG, linear gains"), "WPR/xglue.wpr.{language}.{split}", relevance),
        "QG": (written, "QG/xglue.qg.{language}.tgt.{split}", generated),
        "NTG": (written, "NTG/xglue.ntg.{language}.tgt.{split}", generated),
    }
    found = {}
    for name, languages in LANGUAGES.items():
        default = (labels, named.format(name=name, lower=name.lower()), classification)
        (measure, metric), references, score = kinds.get(name, default)
        predictions = f"{name}/{{language}}.prediction"
        column = {"MLQA": None, "WPR": SCORE}.get(name, 2)
        measures = (measure,)
        found[name] = Task(
            tuple(languages.split()), measures, metric, predictions, references, score, column, PAPER[name]
        )
    return found
