"""XTREME's scores, from files in the format of its submissions (Hu et al. 2020).

Scores are computed as in its program. Both tagging tasks have F1 of spans; for parts of speech a span is a run of equal
tags, and the paper calls their score accuracy. TyDiQA and XQuAD have SQuAD's normalization, MLQA its own. The score of
a question answering task is the mean of F1 and exact match. Parts of speech and answers can be scored in other ways.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.evaluation import benchmarks
from fairseq_xl.evaluation.benchmarks import ANSWERS, LABELS, TAGS, Benchmark, Kinds, Scores, Task, Variant
from fairseq_xl.evaluation.bootstrap import corpus_metrics
from fairseq_xl.evaluation.paper_figures import Papers, published
from fairseq_xl.evaluation.question_answering_scores import NORMALIZATIONS
from fairseq_xl.io.lines import read_lines

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


#: `Task.kinds` by group of tasks
KINDS: dict[str, Kinds] = {"classification": LABELS, "tagging": TAGS, "qa": ANSWERS, "retrieval": {}}


def labels(path: Path) -> list[str]:
    """The lines of a file, without white space around them."""
    return [line.strip() for line in read_lines(path)]


def classification(predictions: Path, references: Path, language: str) -> Scores:
    return benchmarks.accuracy_scores(labels(predictions), labels(references), predictions)


def retrieved(predictions: Path, references: Path, language: str) -> Scores:
    """Accuracy of the line numbers of retrieved sentences."""
    line_numbers = labels(predictions)
    for line, text in enumerate(line_numbers, start=1):
        if not text.isdigit():
            raise UserError(f"{predictions}, line {line}: expected the number of a line, found {quoted(text)}")
    return benchmarks.accuracy_scores(line_numbers, labels(references), predictions, classes=False)


def tagging(predictions: Path, references: Path, language: str) -> Scores:
    """Scores of one tag per line."""
    return benchmarks.span_scores(
        benchmarks.read_tag_sequences(predictions), benchmarks.read_tag_sequences(references), predictions
    )


def mined(predictions: Path, references: Path, language: str) -> Scores:
    """F1 of mined pairs, a line with two ids each."""
    predicted, gold = ({tuple(line.split("\t")) for line in labels(path) if line} for path in (predictions, references))
    if not gold:
        raise UserError(f"{references} holds no pairs")
    if wrong := [pair for pair in sorted(predicted) if len(pair) != 2]:
        raise UserError(f"{predictions}: expected lines of two ids, found {quoted(wrong[0])}")
    rows = [(pair in predicted and pair in gold, pair in predicted, pair in gold) for pair in sorted(predicted | gold)]
    f1 = {"f1": lambda sums: 200 * sums[..., 0] / (sums[..., 1] + sums[..., 2])}
    return {"n": len(gold)} | corpus_metrics(rows, f1)


def tasks() -> dict[str, Task]:
    both = ("f1", "exact_match")
    answered = {
        name: Variant(
            *(both, f"mean of F1 and exact match, {shown}'s normalization", f"metric:f1+em|norm:{name}"),
            partial(benchmarks.answer_scores, normalization=name),
        )
        for name, shown in NORMALIZATIONS.items()
    }
    spans = {"f1": benchmarks.span_f1(tagging)}
    variants: dict[str, Mapping[str, Variant]] = {
        "udpos": spans | {"accuracy": benchmarks.word_accuracy(tagging)},
        "panx": spans,
        "xquad": answered,
        "mlqa": dict(reversed(answered.items())),
        "tydiqa": answered,
        "bucc2018": {"f1": Variant(("f1",), "F1 of pairs", "metric:pair-f1", mined)},
        "tatoeba": benchmarks.accuracy_variants(retrieved),
    }
    result = {}
    for name, languages in LANGUAGES.items():
        group = next(group for group in KINDS if name in GROUPS[group])
        path = f"{name}/{{split}}-{{language}}.{'json' if group == 'qa' else 'tsv'}"
        task_variants = variants.get(name, benchmarks.accuracy_variants(classification))
        result[name] = Task(
            *(tuple(languages.split()), task_variants, path, path),
            kinds=KINDS[group],
            benchmark_metric="accuracy" if name == "udpos" else "",
            papers=published("xtreme", name, languages.split(), next(iter(task_variants.values())).metrics),
        )
    return result


def mean_of_tasks(tasks: list[Task]) -> Papers:
    """Means over `tasks` of VECO's published scores, computed here."""
    note = "the mean of the paper's task scores; the paper prints none"
    means: Papers = {}
    for system in ("VECO", "VECO, translate-train-all"):
        scores = [task.papers[system]["average"] for task in tasks if system in task.papers]
        if len(scores) == len(tasks):
            means[system] = {"source": "Luo et al. 2020", "average": round(sum(scores) / len(tasks), 2), "note": note}
    return means


TASKS = tasks()
GROUP_PAPERS = {group: mean_of_tasks([TASKS[name] for name in names]) for group, names in GROUPS.items()}
BENCHMARK = Benchmark("xtreme", TASKS, GROUPS, GROUP_PAPERS | {"average": published("xtreme", "average")})
