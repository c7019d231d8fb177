"""Scores of a benchmark's tasks by language, from predictions and references in the benchmark's own files."""

import argparse
import json
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_xl.errors import UserError, names_of
from fairseq_xl.evaluation import classification, question_answering, spans
from fairseq_xl.evaluation.bleu import read_lines
from fairseq_xl.evaluation.squad import read_questions
from fairseq_xl.io.files import replacing
from fairseq_xl.versions import version

logger = logging.getLogger(__name__)

SCORE = 3  # column of the scores of ranking in the files of --predictions-to
#: scores of a language: each metric, and its interval with `_interval` behind the name
Scores = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A task of a benchmark.

    `score` is a function of the files of predictions and references, and the language: it returns `n` and the metrics.
    """

    languages: tuple[str, ...]
    metrics: tuple[str, ...]  # the task's score is their mean
    description: str  # how they are computed, for the table
    predictions: str  # path in the folder of predictions, with {language} and {split}
    references: str  # path in the folder of references
    score: Callable[[Path, Path, str], Scores]
    column: int | None = 2  # of a prediction file, which the submission has; None: the whole file
    paper: dict[str, float] = field(default_factory=dict)  # system -> published average
    others: tuple[str, ...] = ()  # languages that are scored, and not averaged: the published average is without them


def write_submission(task: Task, predictions: Path, destination: Path, split: str) -> list[Path]:
    """Writes the predictions of a fine-tuned model in the benchmark's submission format; returns the files.

    A warning names the languages without predictions.

    Args:
        predictions: folder of ``SPLIT.LANGUAGE`` files that fairseq-validate wrote with --predictions-to.
        destination: folder of the submission.

    Raises `UserError` if no language of the task has a file.
    """
    written, missing = [], []
    for language in (*task.languages, *task.others):
        path = predictions / f"{split}.{language}.{'json' if task.column is None else 'tsv'}"
        if not path.is_file():
            missing.append(language)
            continue
        lines = read_lines(path) if task.column is None else predicted_column(path, task.column)
        made = destination / task.predictions.format(language=language, split=split)
        made.parent.mkdir(parents=True, exist_ok=True)
        with replacing(made) as file:
            file.write("".join(f"{line}\n" for line in lines).encode("utf-8"))
        written.append(made)
    if not written:
        raise UserError(f"{predictions}: no file {split}.LANGUAGE of {', '.join(task.languages)}")
    if missing:
        logger.warning("%s: no predictions of %s, which the submission lacks", predictions, ", ".join(missing))
    return written


def predicted_column(path: Path, column: int) -> list[str]:
    """A column of a file of --predictions-to; scores of ranking in the order of the lines, and not by query."""
    rows = [line.split("\t") for line in read_lines(path)]
    wrong = column == SCORE and not all(row[0].isdigit() for row in rows)
    if wrong or any(len(row) <= column and row != [""] for row in rows):
        raise UserError(f"{path} is not a file of predictions: expected {column + 1} columns")
    if column == SCORE:
        rows.sort(key=lambda row: int(row[0]))
    return [row[column] if row != [""] else "" for row in rows]


def score_task(task: Task, predictions: Path, references: Path, split: str) -> dict[str, Any]:
    """Scores the languages of a task that have predictions; the average appears if none is missing.

    Raises `UserError` if a language with predictions has no references.
    """
    found = {}
    for language in (*task.languages, *task.others):
        ours = predictions / task.predictions.format(language=language, split=split)
        right = references / task.references.format(language=language, split=split)
        if not ours.is_file():
            continue
        if not right.is_file():
            raise UserError(f"{right}: no such file: the references of {ours}")
        found[language] = task.score(ours, right, language)
    missing = [language for language in task.languages if language not in found]
    result: dict[str, Any] = {"metric": task.description, "languages": found, "missing": missing}
    if not missing:
        means = {name: mean(found[language][name] for language in task.languages) for name in task.metrics}
        result |= means | {"average": mean(means.values())}
    return result | ({"paper": task.paper} if task.paper else {})


def score_benchmark(
    tasks: Mapping[str, Task],
    groups: Mapping[str, tuple[str, ...]],
    chosen: list[str],
    predictions: Path,
    references: Path,
    split: str,
) -> dict[str, Any]:
    """Scores the chosen tasks that have predictions. A group of tasks is averaged if it is complete.

    Raises `UserError` if no task has predictions.
    """
    results = {name: score_task(tasks[name], predictions, references, split) for name in chosen}
    results = {name: result for name, result in results.items() if result["languages"]}
    if not results:
        expected = tasks[chosen[0]].predictions.format(language=tasks[chosen[0]].languages[0], split=split)
        raise UserError(f"{predictions}: no predictions of {', '.join(chosen)}; expected files such as {expected}")
    result: dict[str, Any] = {"split": split, "tasks": results}
    averages = {name: entry["average"] for name, entry in results.items() if "average" in entry}
    result["missing"] = [name for name in tasks if name not in averages]
    result["complete"] = len(averages)
    for group, names in groups.items():
        if averages.keys() >= set(names):
            result[group] = mean(averages[name] for name in names)
    return result


def mean(values: Any) -> float:
    """The mean, to two digits."""
    return round(float(np.mean(list(values))), 2)


def table(result: dict[str, Any], tasks: Mapping[str, Task]) -> str:
    """Markdown: a row for each task, with its average, published ones, and its metrics in each language."""
    papers = list(dict.fromkeys(paper for name in result["tasks"] for paper in tasks[name].paper))
    rows = [["task", "metric", "average", *papers, "by language"]]
    for name, entry in result["tasks"].items():
        task = tasks[name]
        shown = [
            f"{language} {' / '.join(f'{scores[metric]:.1f}' for metric in task.metrics)}"
            for language, scores in entry["languages"].items()
        ]
        missing = [f"missing: {' '.join(entry['missing'])}"] if entry["missing"] else []
        average = f"{entry['average']:.1f}" if "average" in entry else ""
        published = [f"{task.paper[paper]:.1f}" if paper in task.paper else "" for paper in papers]
        rows.append([name, task.description, average, *published, ", ".join([*shown, *missing])])
    lines = [f"| {' | '.join(row)} |\n" for row in rows]
    return "".join([lines[0], "|" + "---|" * len(rows[0]) + "\n", *lines[1:]])


def run(
    name: str,
    description: str | None,
    tasks: Mapping[str, Task],
    groups: Mapping[str, tuple[str, ...]],
    arguments: list[str] | None,
) -> None:
    """Runs `fairseq-xl score NAME`; `groups` name the tasks of each average."""
    parser = argparse.ArgumentParser(f"fairseq-xl score {name}", description=description)
    parser.add_argument("--predictions", required=True, type=Path, help="folder of predictions")
    parser.add_argument("--references", required=True, type=Path, help="folder of the labeled files")
    parser.add_argument("--split", default="test", help="split in the names of files (default: %(default)s)")
    parser.add_argument("--tasks", default=",".join(tasks), help="tasks, separated by commas (default: %(default)s)")
    parser.add_argument("--table", help="write a table in Markdown to this file too")
    options = parser.parse_args(arguments)
    chosen = names_of("--tasks", options.tasks)
    unknown = [task for task in chosen if task not in tasks]
    if unknown:
        raise UserError(f"--tasks {options.tasks}: {unknown[0]} is none of {', '.join(tasks)}")
    result = score_benchmark(tasks, groups, chosen, options.predictions, options.references, options.split)
    if options.table:
        with replacing(options.table) as file:
            file.write(table(result, tasks).encode("utf-8"))
    versions = {package: version(package) for package in ("fairseq_xl", "sacrebleu")}
    sys.stdout.write(json.dumps({"benchmark": name, "versions": versions} | result) + "\n")


# Scores of a language from two files


def labels_accuracy(predictions: list[str], labels: list[str], path: Path) -> Scores:
    """Accuracy of one label per line; `majority` is that of the most frequent label.

    Raises `UserError` naming `path` for another number of predictions.
    """
    if len(predictions) != len(labels) or not labels:
        raise UserError(f"{path}: expected {len(labels)} predictions, one for each label, found {len(predictions)}")
    found = classification.score(labels, predictions)
    return {
        "n": found["n"],
        "accuracy": found["accuracy"],
        "accuracy_interval": found["interval"],
        "majority": found["majority"],
    }


def sentences_of(path: Path, columns: int = 1) -> list[list[str]]:
    """Tags of the sentences of a file with a word per line and an empty line after each sentence: its last column.

    Lines that begin with -DOCSTART- are skipped. Raises `UserError` for a line of fewer than `columns`.
    """
    found: list[list[str]] = [[]]
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split()
        if not fields or line.startswith("-DOCSTART-"):
            found.append([])
        else:
            if len(fields) < columns:
                raise UserError(f"{path}, line {number}: no tag; expected {columns} columns, found {len(fields)}")
            found[-1].append(fields[-1])
    return [sentence for sentence in found if sentence]


def span_scores(predicted: list[list[str]], gold: list[list[str]], path: Path) -> Scores:
    """Scores of tags (`fairseq_xl.evaluation.spans`); `UserError` naming `path` for other sentences or words."""
    if len(predicted) != len(gold) or not gold:
        raise UserError(f"{path}: {len(predicted)} sentences of {len(gold)}")
    for number, (ours, right) in enumerate(zip(predicted, gold), start=1):
        if len(ours) != len(right):
            raise UserError(f"{path}, sentence {number}: {len(ours)} tags of {len(right)} words")
    return spans.score(gold, predicted)


def answer_scores(predictions: Path, references: Path, language: str, normalization: str) -> Scores:
    """F1 and exact match of a JSON object {id: answer} against a file in SQuAD's format."""
    questions = read_questions(references, language, check_offsets=False)
    expected = {question.id: [text for text, _ in question.answers] for question in questions}
    return question_answering.score(read_answers(predictions), expected, normalization, language)


def read_answers(path: Path) -> dict[str, str]:
    """A JSON object {id: answer}; raises `UserError` for anything else."""
    try:
        found = json.loads("\n".join(read_lines(path)))
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(answer, str) for answer in found.values()):
        raise UserError(f"{path}: expected one JSON object of answers by id")
    return found
