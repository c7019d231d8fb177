"""XGLUE's scores, from files as its release distributes them and its submissions have them (Liang et al. 2020).

Scores are those of its program, averages are over the paper's languages. POS has the precision of spans, where a span
is a run of equal tags, and not accuracy; nDCG has linear gains, over lines in a row with the same query; BLEU is
sacreBLEU's of lower-cased text.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
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
#: languages of the release that the paper does not average, and XGLUE's program does
OTHERS = {"WPR": ("es",), "QG": ("es", "it", "pt")}
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


def labeled_rows(path: Path, columns: int, header: bool = False) -> list[list[str]]:
    """The fields of each line; raises `UserError` for one of fewer than `columns`, which has no label."""
    rows = [line.strip().split("\t") for line in read_lines(path) if line.strip()]
    for number, row in enumerate(rows, start=1):
        if len(row) < columns:
            raise UserError(f"{path}, line {number}: no label; expected {columns} columns, found {len(row)}")
    return rows[1:] if header else rows


def lines_of(path: Path) -> list[str]:
    """The lines that are not empty, without white space around them."""
    return [line.strip() for line in read_lines(path) if line.strip()]


def classification(predictions: Path, references: Path, language: str, columns: int, header: bool = False) -> Scores:
    """Accuracy of labels, the last one of `columns`."""
    labels = [row[-1].strip() for row in labeled_rows(references, columns, header)]
    return labels_accuracy(lines_of(predictions), labels, predictions)


def tagging(predictions: Path, references: Path, language: str) -> Scores:
    """Scores of tags; missing tags at the end of a sentence are O, as in XGLUE's program."""
    predicted, gold = sentences_of(predictions), sentences_of(references, columns=2)
    for ours, right in zip(predicted, gold):
        ours += ["O"] * (len(right) - len(ours))
    return span_scores(predicted, gold, predictions)


def relevance(predictions: Path, references: Path, language: str) -> Scores:
    """nDCG of the predicted ratings or scores."""
    found, rows = lines_of(predictions), labeled_rows(references, 4)
    if len(found) != len(rows):
        raise UserError(f"{predictions}: expected {len(rows)} predictions, one for each line, found {len(found)}")
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
    expected = [line.split("\t")[-1].strip() for line in lines_of(references)]
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
        "XNLI": (labels, "XNLI/{language}.{split}", partial(classification, columns=3)),
        "PAWSX": (labels, "PAWSX/{language}/{split}_2k.tsv", partial(classification, columns=4, header=True)),
        "MLQA": (("f1", "F1, MLQA's normalization"), mlqa, partial(answer_scores, normalization="mlqa")),
        "WPR": (("ndcg", "nDCG, linear gains"), "WPR/xglue.wpr.{language}.{split}", relevance),
        "QG": (written, "QG/xglue.qg.{language}.tgt.{split}", generated),
        "NTG": (written, "NTG/xglue.ntg.{language}.tgt.{split}", generated),
    }
    found = {}
    for name, languages in LANGUAGES.items():
        columns = 4 if name == "QADSM" else 3  # of NC and QAM
        default = (labels, named.format(name=name, lower=name.lower()), partial(classification, columns=columns))
        (metric, description), references, score = kinds.get(name, default)
        predictions = f"{name}/{{language}}.prediction"
        column = {"MLQA": None, "WPR": SCORE}.get(name, 2)
        metrics = (metric,)
        task = Task(tuple(languages.split()), metrics, description, predictions, references, score, column, PAPER[name])
        found[name] = replace(task, others=OTHERS.get(name, ()))
    return found
