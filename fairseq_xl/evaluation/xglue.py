"""XGLUE's scores, from files in the formats of its release and of its submissions (Liang et al. 2020).

Scores are computed as in its program, averages over the paper's languages. POS: precision of spans, not accuracy; a
span is a run of equal tags. WPR: nDCG with linear gains; consecutive lines with the same query are one query. QG and
NTG: sacreBLEU of lower-cased text. POS, MLQA and WPR can be scored in other ways.
"""

import itertools
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.evaluation import benchmarks, ranking_scores
from fairseq_xl.evaluation.benchmarks import ANSWERS, GENERATED, LABELS, TAGS, Benchmark, Kinds, Scores, Task, Variant
from fairseq_xl.evaluation.bleu import bleu
from fairseq_xl.evaluation.classification_scores import parse_number
from fairseq_xl.evaluation.paper_figures import published
from fairseq_xl.evaluation.question_answering_scores import NORMALIZATIONS
from fairseq_xl.evaluation.spans import SCHEME
from fairseq_xl.io.lines import read_lines
from fairseq_xl.io.text import is_blank

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
#: languages that XGLUE's program averages and the paper does not
EXTRA_LANGUAGES = {"WPR": ("es",), "QG": ("es", "it", "pt")}
#: averages of the paper
GROUPS = {"understanding": tuple(LANGUAGES)[:9], "generation": tuple(LANGUAGES)[9:]}


def labeled_rows(path: Path, columns: int, header: bool = False) -> list[list[str]]:
    """The fields of each line; raises `UserError` for one of fewer than `columns` or with an empty label."""
    rows = [line.split("\t") for line in complete_lines(path)]
    for line_number, row in enumerate(rows, start=1):
        if len(row) < columns:
            raise UserError(f"{path}, line {line_number}: no label; expected {columns} columns, found {len(row)}")
        if is_blank(row[-1]):
            raise UserError(f"{path}, line {line_number}: the label is empty")
    return rows[1:] if header else rows


def complete_lines(path: Path) -> list[str]:
    """The lines up to the last one that is not empty; raises `UserError` for an empty one before it."""
    lines = read_lines(path)
    while lines and is_blank(lines[-1]):
        lines.pop()
    for line_number, line in enumerate(lines, start=1):
        if is_blank(line):
            raise UserError(f"{path}, line {line_number}: the line is empty")
    return lines


def classification(predictions: Path, references: Path, language: str, columns: int, header: bool = False) -> Scores:
    """Accuracy of labels, the last one of `columns`."""
    labels = [row[-1].strip() for row in labeled_rows(references, columns, header)]
    return benchmarks.accuracy_scores([line.strip() for line in complete_lines(predictions)], labels, predictions)


def xnli(predictions: Path, references: Path, language: str) -> Scores:
    """`classification`; xnli.SPLIT.tsv, XNLI's file of all languages, is filtered by language."""
    if not references.name.startswith("xnli."):
        return classification(predictions, references, language, columns=3)
    header, *rows = (line.split("\t") for line in complete_lines(references))
    records = [dict(zip(header, row)) for row in rows]
    labels = [row["gold_label"] for row in records if row.get("language") == language and row.get("gold_label")]
    return benchmarks.accuracy_scores([line.strip() for line in complete_lines(predictions)], labels, predictions)


def tagging(predictions: Path, references: Path, language: str) -> Scores:
    """Scores of tags; missing tags at the end of a sentence are O, as in XGLUE's program."""
    predicted, gold = benchmarks.read_tag_sequences(predictions), benchmarks.read_tag_sequences(references, columns=2)
    for tags, gold_tags in zip(predicted, gold):
        tags += ["O"] * (len(gold_tags) - len(tags))
    return benchmarks.span_scores(predicted, gold, predictions)


def predicted_scores(path: Path) -> list[str]:
    """The score of each text, in the order of the task file, not by query."""
    ranking_scores.read_rows(path)
    return [row[3] for row in sorted((line.split("\t") for line in read_lines(path)), key=lambda row: int(row[0]))]


def predicted_ratings(path: Path) -> list[str]:
    """Predicted labels that are numbers; raises `UserError` for others."""
    lines = LABELS["classification"](path)
    if not all(map(math.isfinite, map(parse_number, lines))):
        raise UserError(f"{path}: expected scores or ratings, found {quoted(lines[0])}")
    return lines


#: `Task.kinds` of tasks that are not classification. XGLUE trains WPR as 5 classes and submits the class, a rating
KINDS: dict[str, Kinds] = {"NER": TAGS, "POS": TAGS, "MLQA": ANSWERS, "QG": GENERATED, "NTG": GENERATED}
KINDS["WPR"] = {"ranking": predicted_scores, "classification": predicted_ratings}


def relevance(predictions: Path, references: Path, language: str, gain: str) -> Scores:
    """nDCG of the predicted ratings or scores; `gain` as in `ranking.ndcg`."""
    lines, rows = complete_lines(predictions), labeled_rows(references, 4)
    if len(lines) != len(rows):
        raise UserError(f"{predictions}: expected {len(rows)} predictions, one for each line, found {len(lines)}")
    try:
        pairs = [(float(row[-1]), float(line)) for row, line in zip(rows, lines)]
        if not all(map(math.isfinite, itertools.chain(*pairs))):
            raise ValueError
    except ValueError:
        raise UserError(f"{predictions}: expected a rating or score on each line, as {references} has") from None
    groups = itertools.groupby(zip(rows, pairs), lambda item: item[0][0])
    queries = [tuple(map(list, zip(*(pair for _, pair in group)))) for _, group in groups]
    return ranking_scores.score(((gold, line) for gold, line in queries), predictions, gain)


def generated(predictions: Path, references: Path, language: str) -> Scores:
    """sacreBLEU of lower-cased text, with tokenizer 13a in every language."""
    hypotheses = [line.strip() for line in read_lines(predictions)]
    expected = [line.split("\t")[-1].strip() for line in read_lines(references)]
    measured = bleu(hypotheses, expected, lowercase=True, bootstrap=1000)
    score, half = measured["score"], measured["interval"]
    interval = [round(score - half, 2), round(score + half, 2)]
    return {"n": len(expected), "bleu": score, "bleu_interval": interval, "signature": measured["signature"]}


def tasks() -> dict[str, Task]:

    def labels(columns: int, header: bool = False) -> Mapping[str, Variant]:
        return benchmarks.accuracy_variants(partial(classification, columns=columns, header=header))

    spans = {"f1": benchmarks.span_f1(tagging)}
    precision = Variant(("precision",), "precision of spans (seqeval)", f"metric:span-precision|{SCHEME}", tagging)
    answered = {
        name: Variant(
            *(("f1",), f"F1, {shown}'s normalization", f"metric:f1|norm:{name}"),
            partial(benchmarks.answer_scores, normalization=name),
        )
        for name, shown in reversed(NORMALIZATIONS.items())  # MLQA's is XGLUE's
    }
    ranked = {
        gain: Variant(("ndcg",), f"nDCG, {gain} gains", f"metric:ndcg|gain:{gain}", partial(relevance, gain=gain))
        for gain in ranking_scores.GAINS
    }
    written = {"bleu": Variant(("bleu",), "sacreBLEU of lower case, 13a", "metric:bleu", generated)}
    files: dict[str, tuple[Mapping[str, Variant], str]] = {
        "NER": (spans, "NER/{language}.{split}"),
        "POS": (
            {"precision": precision, "accuracy": benchmarks.word_accuracy(tagging), **spans},
            "POS/{language}.{split}",
        ),
        "NC": (labels(3), "NC/xglue.nc.{language}.{split}"),
        "MLQA": (answered, "MLQA/MLQA_V1/{split}/{split}-context-{language}-question-{language}.json"),
        "XNLI": (benchmarks.accuracy_variants(xnli), "XNLI/{language}.{split}"),
        "PAWSX": (labels(4, header=True), "PAWSX/{language}/{split}_2k.tsv"),
        "QADSM": (labels(4), "QADSM/xglue.qadsm.{language}.{split}"),
        "WPR": (ranked, "WPR/xglue.wpr.{language}.{split}"),
        "QAM": (labels(3), "QAM/xglue.qam.{language}.{split}"),
        "QG": (written, "QG/xglue.qg.{language}.tgt.{split}"),
        "NTG": (written, "NTG/xglue.ntg.{language}.tgt.{split}"),
    }
    return {
        name: Task(
            *(tuple(LANGUAGES[name].split()), variants, f"{name}/{{language}}.prediction", references),
            kinds=KINDS.get(name, LABELS),
            extra_languages=EXTRA_LANGUAGES.get(name, ()),
            alternative_references="XNLI/xnli.{split}.tsv" if name == "XNLI" else "",
            benchmark_metric="accuracy" if name == "POS" else "",
            papers=published("xglue", name, LANGUAGES[name].split(), next(iter(variants.values())).metrics),
        )
        for name, (variants, references) in files.items()
    }


BENCHMARK = Benchmark("xglue", tasks(), GROUPS, {group: published("xglue", group) for group in GROUPS})
