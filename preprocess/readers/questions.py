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
    """Yields a file as one example, its text; questions and answers that are wrong are problems.

    Ids that occur several times in training text, as in XTREME's TyDiQA-GoldP, are numbered: `1`, `1#2`. With
    `problems.leave_out`, wrong answers are left out, and in training text wrong questions and those without a right
    answer. A question of validation and test text is never left out: it is predicted.

    Args:
        prefix: only questions whose id begins with it are read, for a file of several languages.
    """
    try:
        text, content = read_content(path, language)
        if prefix:
            examine(content, path, language)  # for its error in another format
            content = changed(content, lambda _, question: question if _has_prefix(question, prefix) else None)
        _, wrong = examine(content, path, language)
        as_read, numbered = content, training and any(each.repeated for each in wrong)
        if numbered:
            logger.warning("%s: ids of questions that occur several times are numbered: 1, 1#2", path)
            content = with_unique_ids(content)
            _, wrong = examine(content, path, language)
    except UserError as error:
        problems.add(str(error))
        return
    refused = [each for each in wrong if not problems.leave_out or (each.question and not training)]
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
    """The content in which the second question of an id has the id with #2, and so on."""
    seen: Counter[str] = Counter()

    def named(_: int, question: Any) -> Any:
        if not isinstance(question, dict) or "id" not in question:
            return question
        name = str(question["id"])
        seen[name] += 1
        return question | {"id": f"{name}#{seen[name]}"} if seen[name] > 1 else question

    return changed(content, named)


def left_out(content: Any, wrong: list[Problem], training: bool) -> tuple[Any, Counter[str]]:
    """The content without what is wrong, and the numbers of answers and questions that were left out."""
    found, counts = {each.index: each for each in wrong}, Counter()

    def kept(number: int, question: Any) -> Any:
        if number not in found:
            return question
        if found[number].question:
            counts["wrong questions"] += 1
            return None
        counts["wrong answers"] += len(found[number].answers)
        right = [each for place, each in enumerate(question["answers"]) if place not in found[number].answers]
        if right or not training:
            return question | {"answers": right}
        counts["questions without a right answer"] += 1
        return None

    return changed(content, kept), counts


def changed(content: Any, kept: Callable[[int, Any], Any]) -> Any:
    """The content with `kept(number, question)` in place of each question, without those that are None."""
    found = defaultdict(list)
    for number, (paragraph, question) in enumerate(iter_questions(content)):
        if (made := kept(number, question)) is not None:
            found[id(paragraph)].append(made)
    articles = []
    for article in content["data"]:
        paragraphs = [each | {"qas": found[id(each)]} for each in article["paragraphs"] if found[id(each)]]
        if paragraphs:
            articles.append(article | {"paragraphs": paragraphs})
    return content | {"data": articles}
