"""Reads files in SQuAD's format."""

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.squad import Problem, examine, iter_questions, problem_messages, read_content
from preprocess.readers.labeled import Example
from preprocess.readers.problems import Problems

logger = logging.getLogger(__name__)

FILE = "files"  # label of a file, which manifests count


def read_file(path: Path, problems: Problems, language: str, training: bool, prefix: str = "") -> Iterator[Example]:
    """Yields a file as one example, its text; wrong questions and answers are problems.

    Ids that occur several times in training text, as in XTREME's TyDiQA-GoldP, are numbered: `1`, `1#2`. With
    `problems.leave_out`, wrong answers are left out, and in training text wrong questions and those without a right
    answer. Questions of validation and test text are never left out: they are predicted.

    Args:
        prefix: prefix of the ids of the questions to read, for a file of several languages.
    """
    try:
        text, content = read_content(path, language)
        if prefix:
            examine(content, path, language)  # for its error in another format
            content = changed(content, lambda _, question: question if _has_prefix(question, prefix) else None)
        _, wrong = examine(content, path, language)
        as_read, numbered = content, training and any(problem.repeated for problem in wrong)
        if numbered:
            logger.warning("%s: ids of questions that occur several times are numbered: 1, 1#2", path)
            content = with_unique_ids(content)
            _, wrong = examine(content, path, language)
    except UserError as error:
        problems.add(str(error))
        return
    refused = [problem for problem in wrong if not problems.leave_out or (problem.question and not training)]
    for message in problem_messages(text, as_read, path, refused):
        problems.add(message)
    if wrong and not refused:
        content, counts = left_out(content, wrong, training)
        problems.left_out.update(counts)
        if not content["data"]:
            problems.add(f"{path}: every question is wrong")
    changed_text = prefix or numbered or (wrong and not refused)
    yield Example(language, FILE, (json.dumps(content, ensure_ascii=False) if changed_text else text,))


def _has_prefix(question: Any, prefix: str) -> bool:
    return isinstance(question, dict) and str(question.get("id")).startswith(prefix)


def with_unique_ids(content: Any) -> Any:
    """Appends #2 to the second question of an id, and so on."""
    seen: Counter[str] = Counter()

    def with_unique_id(_: int, question: Any) -> Any:
        if not isinstance(question, dict) or "id" not in question:
            return question
        name = str(question["id"])
        seen[name] += 1
        return question | {"id": f"{name}#{seen[name]}"} if seen[name] > 1 else question

    return changed(content, with_unique_id)


def left_out(content: Any, wrong: list[Problem], training: bool) -> tuple[Any, Counter[str]]:
    """Removes wrong answers and questions; returns the content, and the counts of both."""
    by_index, counts = {problem.index: problem for problem in wrong}, Counter()

    def without_errors(index: int, question: Any) -> Any:
        if index not in by_index:
            return question
        if by_index[index].question:
            counts["wrong questions"] += 1
            return None
        counts["wrong answers"] += len(by_index[index].answers)
        right = [problem for i, problem in enumerate(question["answers"]) if i not in by_index[index].answers]
        if right or not training:
            return question | {"answers": right}
        counts["questions without a right answer"] += 1
        return None

    return changed(content, without_errors), counts


def changed(content: Any, change: Callable[[int, Any], Any]) -> Any:
    """Replaces each question by `change(index, question)`, and removes it if that is None."""
    questions = defaultdict(list)
    for index, (paragraph, question) in enumerate(iter_questions(content)):
        if (result := change(index, question)) is not None:
            questions[id(paragraph)].append(result)
    articles = []
    for article in content["data"]:
        paragraphs = [
            paragraph | {"qas": questions[id(paragraph)]}
            for paragraph in article["paragraphs"]
            if questions[id(paragraph)]
        ]
        if paragraphs:
            articles.append(article | {"paragraphs": paragraphs})
    return content | {"data": articles}
