"""Scores of a benchmark's tasks by language, from predictions and references in the benchmark's own files."""

import argparse
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fairseq_xl.errors import UserError, names_of
from fairseq_xl.evaluation import bootstrap, classification_scores, comparisons, question_answering_scores, spans
from fairseq_xl.evaluation.bleu import fold_letters, read_generated
from fairseq_xl.evaluation.classification_scores import UNLABELED
from fairseq_xl.evaluation.paper_figures import Papers, compared_tables, example, selected
from fairseq_xl.evaluation.prediction_folders import check_predictions, check_same_origin, write_predictions
from fairseq_xl.evaluation.squad import read_questions
from fairseq_xl.io.files import FORMATS, parsed_json, replacing
from fairseq_xl.io.lines import read_lines
from fairseq_xl.io.text import is_blank
from fairseq_xl.io.versions import version

logger = logging.getLogger(__name__)

MIN_ANSWERS = 10  # fewer answers are not compared with the contexts
#: scores of a language: each metric, and its interval with `_interval` after the name
Scores = dict[str, Any]
#: {task type: function that makes the lines of a submission from its file of predictions}
Kinds = Mapping[str, Callable[[Path], list[str]]]


@dataclass(frozen=True)
class Variant:
    """A way to score a task; `score` maps files of predictions and references, and the language, to `n` and metrics."""

    metrics: tuple[str, ...]  # the task's score is their mean
    description: str  # how they are computed, for the table
    signature: str  # in sacreBLEU's form, without bootstrap and version
    score: Callable[[Path, Path, str], Scores]


@dataclass(frozen=True)
class Task:
    """A task of a benchmark."""

    languages: tuple[str, ...]
    variants: Mapping[str, Variant]  # the first one is the benchmark's
    predictions: str  # path in the folder of predictions, with {language} and {split}
    references: str  # path in the folder of references
    kinds: Kinds = field(default_factory=dict)  # of several, the last one is that of ratings
    extra_languages: tuple[str, ...] = ()  # languages that are scored, but not in the average, as in the paper
    alternative_references: str = ""  # path of references that may be there instead
    benchmark_metric: str = ""  # the benchmark's name of its score, if misleading (POS: accuracy)
    papers: Papers = field(default_factory=dict)  # published scores of the benchmark's variant

    def reference_paths(self, folder: Path, language: str, split: str) -> list[Path]:
        """The files that may have the references of a language; the first one there is read."""
        patterns = filter(None, (self.references, self.alternative_references))
        return [folder / pattern.format(language=language, split=split) for pattern in patterns]

    @property
    def official(self) -> str:
        """The benchmark's variant."""
        return next(iter(self.variants))

    def metric(self, name: str) -> str:
        """The description of a variant, and how it differs from the benchmark's."""
        description = self.variants[name].description
        if name != self.official:
            return f"{description}; a variant: the benchmark has {self.variants[self.official].description}"
        return description + (f"; the benchmark calls this {self.benchmark_metric}" if self.benchmark_metric else "")


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: its tasks, and groups of tasks that it averages."""

    name: str
    tasks: Mapping[str, Task]
    groups: Mapping[str, tuple[str, ...]]
    papers: Mapping[str, Papers] = field(default_factory=dict)  # published averages of groups


def write_submission(task: Task, predictions: Path, destination: Path, split: str) -> list[Path]:
    """Writes predictions ``SPLIT.LANGUAGE`` of a folder in the benchmark's submission format; returns the files.

    Those of fairseq-generate are ``LANGUAGE/generate-SPLIT.txt``. Warns of missing languages. Raises `UserError` if
    there are none, for predictions of another task, and for files of several models.
    """
    languages = (*task.languages, *task.extra_languages)
    patterns = {code: (f"{split}.{code}.*", f"{code}/generate-{split}.txt") for code in languages}
    files = {code: path for code in languages for name in patterns[code] for path in sorted(predictions.glob(name))}
    check_same_origin(files.values())
    if not files:
        name = f"LANGUAGE/generate-{split}.txt" if "xl_generation" in task.kinds else f"{split}.LANGUAGE"
        raise UserError(f"{predictions}: no file {name} of {', '.join(task.languages)}")
    folders: dict[Path, dict[str, str]] = {}  # folder -> name -> text
    for language, path in files.items():
        origin = check_predictions(path, task.kinds)
        lines = task.kinds[origin.task if origin else _task_type(path, task.kinds)](path)
        target = destination / task.predictions.format(language=language, split=split)
        folders.setdefault(target.parent, {})[target.name] = "\n".join([*lines, ""])
    for folder, texts in folders.items():
        write_predictions(folder, origin, texts)
    if missing := [code for code in languages if code not in files]:
        logger.warning("%s: no predictions of %s, which the submission lacks", predictions, ", ".join(missing))
    return [folder / name for folder, texts in folders.items() for name in texts]


def _task_type(path: Path, kinds: Iterable[str]) -> str:
    """The task type of predictions without a note: the first of `kinds`, or the last one for ratings."""
    rows = [line.split("\t") for line in read_lines(path)]
    is_rated = all(len(row) > 1 and (row[1] == UNLABELED or row[1].isdigit()) for row in rows)
    return list(kinds)[-1 if is_rated else 0]


def predicted_answers(path: Path) -> list[str]:
    """The lines of a JSON object of answers."""
    read_answers(path)
    return read_lines(path)


LABELS: Kinds = {"classification": lambda path: [row[2] for row in classification_scores.read_rows(path)]}
#: an empty line ends a sentence
TAGS: Kinds = {"tagging": lambda path: [tag for rows in spans.read_rows(path) for *_, tag in (*rows, [""])]}
ANSWERS: Kinds = {"question_answering": predicted_answers}
GENERATED: Kinds = {"xl_generation": lambda path: read_generated(path)[0]}


def score_task(task: Task, name: str, predictions: Path, references: Path, split: str) -> dict[str, Any]:
    """Scores the languages of a task that have predictions, by the variant `name`.

    If languages are missing, averages of others are under `partial`.
    """
    variant, scores = task.variants[name], {}
    for language in (*task.languages, *task.extra_languages):
        prediction_path = predictions / task.predictions.format(language=language, split=split)
        if not prediction_path.is_file():
            continue
        reference_path = next(path for path in task.reference_paths(references, language, split) if path.is_file())
        scores[language] = variant.score(prediction_path, reference_path, language)
    missing = [language for language in task.languages if language not in scores]
    result: dict[str, Any] = {"metric": task.metric(name), "variant": name}
    result |= {"signature": signature(variant, scores.values()), "languages": scores, "missing": missing}
    scored = [language for language in task.languages if language in scores]
    if scored:
        means = {metric: mean(scores[language][metric] for language in scored) for metric in variant.metrics}
        means["average"] = mean(means.values())
        result |= {"partial": means | {"languages": scored}} if missing else means
    return result | ({"paper": task.papers} if task.papers and name == task.official else {})


def signature(variant: Variant, scores: Iterable[Scores]) -> str:
    """Returns the signature of a variant's scores in sacreBLEU's form; `bs`, `seed`: the bootstrap of the intervals.

    The version is that of this package, or of sacreBLEU where that computes the scores and has its own signature, which
    is moved from the scores of the languages.
    """
    signatures = {text for language_scores in scores if (text := language_scores.pop("signature", None))}
    return f"{variant.signature}|{signatures.pop()}" if signatures else bootstrap.signature(variant.signature)


def score_benchmark(
    benchmark: Benchmark,
    task_names: Iterable[str],
    predictions: Path,
    references: Path,
    split: str,
    variants: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Scores those of `task_names` that have predictions, by `variants` {task: variant} in place of the benchmark's.

    A group of tasks is averaged if it is complete and each task has the benchmark's variant. Of other groups, `partial`
    has the average over the tasks with all languages and the benchmark's variant, and names them. Raises `UserError` if
    no task has predictions, for predictions that differ from the note of their folder, and for missing references.
    """
    tasks, task_names = benchmark.tasks, list(task_names)
    for option, folder in (("--references", references), ("--predictions", predictions)):
        if not folder.is_dir():
            raise UserError(f"{option} {folder}: there is no such folder")
    absent: dict[str, list[tuple[Path, Path]]] = {}  # task -> references and predictions
    present: list[str] = []  # tasks with references
    for name, task in ((name, tasks[name]) for name in task_names):
        for language in (*task.languages, *task.extra_languages):
            paths = task.reference_paths(references, language, split)
            predicted = predictions / task.predictions.format(language=language, split=split)
            if predicted.is_file():
                check_predictions(predicted)
                if any(map(Path.is_file, paths)):
                    present.append(name)
                else:
                    absent.setdefault(name, []).append((paths[0], predicted))
    if absent:
        _refuse_absent(benchmark.name, absent, present, predictions, references, split)
    used = {name: (variants or {}).get(name, tasks[name].official) for name in task_names}
    results = {name: score_task(tasks[name], used[name], predictions, references, split) for name in task_names}
    results = {name: result for name, result in results.items() if result["languages"]}
    if not results:
        first = tasks[task_names[0]]
        expected = first.predictions.format(language=first.languages[0], split=split)
        raise UserError(f"{predictions}: no predictions of {', '.join(task_names)}; expected files such as {expected}")
    result: dict[str, Any] = {"split": split, "tasks": results}
    averages = {name: entry["average"] for name, entry in results.items() if "average" in entry}
    result["missing"] = [name for name in tasks if name not in averages]
    result["complete"] = len(averages)
    official = {name: average for name, average in averages.items() if used[name] == tasks[name].official}
    result["partial"] = {}
    for group, names in benchmark.groups.items():
        scored = [name for name in names if name in official]
        if scored == list(names):
            result[group] = mean(official[name] for name in names)
        elif scored:
            result["partial"][group] = {"average": mean(official[name] for name in scored), "tasks": scored}
    return result | {"paper": dict(benchmark.papers)}


def _refuse_absent(
    benchmark: str,
    absent: dict[str, list[tuple[Path, Path]]],
    present: list[str],
    predictions: Path,
    references: Path,
    split: str,
) -> NoReturn:
    """Raises `UserError` with the references that are missing, and the ways to score the rest."""
    pairs = list(itertools.chain(*absent.values()))
    if not present:
        expected = pairs[0][0].relative_to(references)
        splits = "" if split in ("dev", "test") else f", {benchmark.upper()} has dev and test"
        raise UserError(
            f"{references}: no references of the split {split!r}{splits}; expected files such as {expected}"
        )
    rest = ",".join(name for name in dict.fromkeys(present) if name not in absent)
    ways = [f"--tasks {rest} scores the rest"] if rest else []
    if partial := ", ".join(name for name in absent if name in present):
        files = ", ".join(str(path.relative_to(predictions)) for name in absent for _, path in absent[name])
        ways.append(f"a folder of --predictions without {files} gives partial scores of {partial} too")
    names = ", ".join(str(path.relative_to(references)) for path, _ in pairs)
    raise UserError(f"{references}: there is no {names}, the references of predictions: {'; '.join(ways)}")


def mean(values: Any) -> float:
    """The mean, to two digits."""
    return round(float(np.mean(list(values))), 2)


def table(result: dict[str, Any], benchmark: Benchmark) -> str:
    """Markdown: a row for each task and each group of tasks, with averages, published ones and scores by language.

    Scores by language have their 95 % bootstrap interval over test examples; averages over some languages or tasks are
    marked as partial. Published averages are from the main paper; the score file has all. A second table has the
    comparisons.
    """
    published = "published" if result["split"] == "test" else "published: test, not comparable"
    rows = [["task", "metric", "average", published, "by language (95 % interval)", "signature"]]
    for name, entry in result["tasks"].items():
        metrics = benchmark.tasks[name].variants[entry["variant"]].metrics
        cells = [
            f"{language} {' / '.join(score_cell(scores, metric) for metric in metrics)}"
            for language, scores in entry["languages"].items()
        ]
        missing = [f"missing: {' '.join(entry['missing'])}"] if entry["missing"] else []
        average = f"{entry['average']:.1f}" if "average" in entry else ""
        if "partial" in entry:
            average = f"partial: {entry['partial']['average']:.1f} ({len(entry['partial']['languages'])} languages)"
        signature_cell = f"`{entry['signature']}`".replace("|", "\\|")
        papers = "" if "partial" in entry else paper_figures(entry.get("paper", {}))
        rows.append([name, entry["metric"], average, papers, ", ".join([*cells, *missing]), signature_cell])
    for group, names in benchmark.groups.items():
        if group in result:
            papers = paper_figures(result["paper"].get(group, {}))
            rows.append([group, f"mean of {len(names)} tasks", f"{result[group]:.1f}", papers, "", ""])
        elif group in result["partial"]:
            partial = result["partial"][group]
            description = f"mean of {', '.join(partial['tasks'])}"
            rows.append([f"partial {group}", description, f"{partial['average']:.1f}", "", "", ""])
    text = markdown(rows)
    return f"{text}\n{markdown(comparisons.table_rows(result['compare']))}" if result.get("compare") else text


def markdown(rows: list[list[str]]) -> str:
    """A Markdown table of a heading and rows."""
    lines = [f"| {' | '.join(row)} |\n" for row in rows]
    return "".join([lines[0], "|" + "---|" * len(rows[0]) + "\n", *lines[1:]])


def score_cell(scores: Scores, metric: str) -> str:
    """``50.0 (40.0–60.0)``; without the interval where there is none."""
    interval = scores.get(f"{metric}_interval")
    return f"{scores[metric]:.1f}" + (f" ({interval[0]:.1f}–{interval[1]:.1f})" if interval else "")


def paper_figures(papers: Papers) -> str:
    """Figures of the main paper, with their notes."""
    texts = []
    for system, figures in first_paper(papers).items():
        parts = f" ({figures['f1']:.1f} / {figures['exact_match']:.1f})" if "exact_match" in figures else ""
        note = f" ({figures['note']})" if figures.get("note") else ""
        texts.append(f"{system} {figures['average']:.1f}{parts}{note}")
    return ", ".join(texts)


def first_paper(papers: Papers) -> Papers:
    """Figures of the main paper: those with the source of the first entry."""
    sources = [figures["source"] for figures in papers.values()]
    return {system: figures for system, figures in papers.items() if figures["source"] == sources[0]}


def parse_variants(text: str, benchmark: Benchmark, task_names: list[str]) -> dict[str, str]:
    """``POS=accuracy,WPR=exponential`` -> {task: variant}; raises `UserError` for unknown or repeated names."""
    variants: dict[str, str] = {}
    for argument in text.split(",") if text else ():
        task, _, name = argument.partition("=")
        if task not in task_names:
            raise UserError(f"--variant {text}: {task!r} is not one of the tasks {', '.join(task_names)}")
        if name not in benchmark.tasks[task].variants:
            expected = ", ".join(benchmark.tasks[task].variants)
            raise UserError(f"--variant {text}: expected {task}=VARIANT with one of {expected}")
        if task in variants:
            raise UserError(f"--variant {text}: {task} is named twice")
        variants[task] = name
    return variants


def add_arguments(parser: argparse.ArgumentParser, benchmark: Benchmark) -> None:
    """The arguments of `fairseq-xl score BENCHMARK`."""
    tasks = benchmark.tasks
    several = [f"{name}: {', '.join(task.variants)}" for name, task in tasks.items() if len(task.variants) > 1]
    parser.add_argument("--predictions", required=True, type=Path, help="folder of predictions")
    parser.add_argument("--references", required=True, type=Path, help="folder of the labeled files")
    parser.add_argument("--split", default="test", help="split in the names of files (default: %(default)s)")
    parser.add_argument("--tasks", default=",".join(tasks), help="tasks, separated by commas (default: %(default)s)")
    parser.add_argument(
        "--variant",
        default="",
        metavar="TASK=VARIANT,…",
        help=f"score tasks by another variant than the benchmark's, which is the first one listed "
        f"({'; '.join(several)}). Such a task has no published scores and is in no average over tasks",
    )
    parser.add_argument("--table", help="write a table in Markdown to this file too")
    parser.add_argument(
        "--compare",
        default=[],
        nargs="+",
        metavar="CODE[:ROW]",
        help="give the differences from figures of papers, of all rows of a table or of one, by task and language: "
        f"{example(benchmark.name)}. A wrong row lists those of the table; the codes are "
        f"{compared_tables(benchmark.name)}",
    )


def run(benchmark: Benchmark, options: argparse.Namespace) -> dict[str, Any]:
    """The scores of a benchmark, with its name, the format and the versions."""
    tasks, task_names = benchmark.tasks, names_of("--tasks", options.tasks)
    unknown = [task for task in task_names if task not in tasks]
    if unknown:
        raise UserError(f"--tasks {options.tasks}: {unknown[0]} is not one of {', '.join(tasks)}")
    variants = parse_variants(options.variant, benchmark, task_names)
    figures = selected(options.compare, benchmark.name)
    result = score_benchmark(benchmark, task_names, options.predictions, options.references, options.split, variants)
    if figures:
        result["compare"] = comparisons.compare(benchmark, result, figures)
        compared = {entry["paper"].partition(":")[0] for entry in result["compare"]}
        for code in dict.fromkeys(argument.partition(":")[0] for argument in options.compare):
            if code not in compared:
                logger.warning("--compare %s: no figure of it is of a score of %s", code, ", ".join(result["tasks"]))
    if options.table:
        with replacing(options.table) as file:
            file.write(table(result, benchmark).encode("utf-8"))
    versions = {package: version(package) for package in ("fairseq_xl", "sacrebleu")}
    header = {"benchmark": benchmark.name, "format": FORMATS["score file"], "versions": versions}
    return header | result


def accuracy_scores(predictions: list[str], labels: list[str], path: Path, classes: bool = True) -> Scores:
    """Accuracy and `majority` of one label per line; `UserError` naming `path` for a wrong number of predictions.

    Warns of predictions that no line has as label, if labels are `classes`.
    """
    if len(predictions) != len(labels) or not labels:
        raise UserError(f"{path}: expected {len(labels)} predictions, one for each label, found {len(predictions)}")
    label_set = set(labels)
    unknown = [label for label in predictions if label not in label_set]
    check_labels(set(predictions), label_set, path)
    if unknown and classes:
        logger.warning(
            "%s: %d predictions are no label of the references, the first is %r", path, len(unknown), unknown[0]
        )
    scores = classification_scores.score(labels, predictions)
    return {name: scores[name] for name in ("n", "accuracy", "accuracy_interval", "majority")}


def check_labels(predicted: set[str], labels: set[str], path: Path) -> None:
    """Raises `UserError` if there are several labels, and no prediction is one of them: it is of another task."""
    if len(labels) > 1 and not predicted & labels:
        expected = ", ".join(sorted(labels)[:3])
        raise UserError(f"{path}: expected labels such as {expected}, found {', '.join(sorted(predicted)[:3])}")


def accuracy_variants(score: Callable[[Path, Path, str], Scores]) -> dict[str, Variant]:
    """The only variant of tasks of labels."""
    return {"accuracy": Variant(("accuracy",), "accuracy", "metric:accuracy", score)}


def span_f1(score: Callable[[Path, Path, str], Scores]) -> Variant:
    """F1 of spans, as seqeval computes it."""
    return Variant(("f1",), "F1 of spans (seqeval)", f"metric:span-f1|{spans.SCHEME}", score)


def word_accuracy(score: Callable[[Path, Path, str], Scores]) -> Variant:
    """Accuracy of the tags of words."""
    return Variant(("accuracy",), "accuracy of words", "metric:accuracy|unit:word", score)


def read_tag_sequences(path: Path, columns: int = 1) -> list[list[str]]:
    """Tags (last column) of each sentence, without -DOCSTART- lines; `UserError` for a line of fewer than `columns`."""
    sentences: list[list[str]] = [[]]
    for line_number, line in enumerate(read_lines(path), start=1):
        fields = line.split()
        if not fields or line.startswith("-DOCSTART-"):
            sentences.append([])
        else:
            if len(fields) < columns:
                raise UserError(f"{path}, line {line_number}: no tag; expected {columns} columns, found {len(fields)}")
            sentences[-1].append(fields[-1])
    return [sentence for sentence in sentences if sentence]


def span_scores(predicted: list[list[str]], gold: list[list[str]], path: Path) -> Scores:
    """Scores of tags (`fairseq_xl.evaluation.spans`); `UserError` naming `path` for other sentences or words."""
    if len(predicted) != len(gold) or not gold:
        raise UserError(f"{path}: expected {len(gold)} sentences, as in the references, found {len(predicted)}")
    for count, (tags, words) in enumerate(zip(predicted, gold), start=1):
        if len(tags) != len(words):
            raise UserError(f"{path}, sentence {count}: expected {len(words)} tags, one a word, found {len(tags)}")
    check_labels(set(itertools.chain(*predicted)), {*itertools.chain(*gold), spans.OUTSIDE[0]}, path)
    return spans.score(gold, predicted)


def answer_scores(predictions: Path, references: Path, language: str, normalization: str) -> Scores:
    """F1 and exact match of a JSON object {id: answer} against a file in SQuAD's format.

    Raises `UserError` if less than half of `MIN_ANSWERS` or more answers are in the contexts: references of another
    language, since parallel data sets have the same ids in all languages.
    """
    questions, answers = read_questions(references, language, check_offsets=False), read_answers(predictions)
    answered = [question for question in questions if not is_blank(answers.get(question.id, ""))]
    contexts = {text: fold_letters(text) for text in {question.context for question in answered}}
    in_context = sum(fold_letters(answers[question.id]) in contexts[question.context] for question in answered)
    if len(answered) >= MIN_ANSWERS and 2 * in_context < len(answered):
        raise UserError(
            f"{predictions}: only {in_context} of {len(answered)} answers are in the contexts of {references}: "
            "expected the references of the same language"
        )
    expected = {question.id: [text for text, _ in question.answers] for question in questions}
    return question_answering_scores.score(answers, expected, normalization, language, predictions)


def read_answers(path: Path) -> dict[str, str]:
    """A JSON object {id: answer}; raises `UserError` for anything else."""
    answers = parsed_json("\n".join(read_lines(path)), path)
    if not isinstance(answers, dict) or not all(isinstance(answer, str) for answer in answers.values()):
        raise UserError(f"{path}: expected one JSON object of answers by id")
    return answers
