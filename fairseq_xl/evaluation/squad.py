"""Files in SQuAD's format (Rajpurkar et al. 2016), which XQuAD, MLQA and TyDiQA-GoldP share."""

import bisect
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fairseq_xl.errors import UserError, listed, quoted
from fairseq_xl.io.compressed import read_text, stored
from fairseq_xl.io.files import SURROGATE, parsed_json
from fairseq_xl.io.text import decoded, is_blank

ID = re.compile(r'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)')  # in a string of JSON, quotes have a backslash


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a context."""

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...]  # (text, its first character in the context); the first one is trained on
    language: str
    file: str

    @property
    def location(self) -> str:
        """File and question, for messages."""
        return f"{self.file}, question {self.id!r}"


@dataclass
class Problem:
    """A problem of a question, or of some of its answers."""

    index: int  # of the question in the file, from 0 on
    question: str = ""  # the problem of the question
    answers: dict[int, str] = field(default_factory=dict)  # number of an answer -> its problem
    repeated: bool = False  # whether the problem is that the id occurs twice


def read_questions(path: Any, language: str, check_offsets: bool = True) -> list[Question]:
    """Reads a file in SQuAD's format; raises `UserError` for a missing or damaged file.

    It lists line and question of missing fields, empty text, repeated ids and, if `check_offsets`, answers that are
    not the text at their offsets.
    """
    text, content = read_content(path, language)
    questions, problems = examine(content, path, language)
    problems = [problem for problem in problems if problem.question or check_offsets]
    if problems:
        raise UserError(listed(problem_messages(text, content, path, problems)))
    return questions


def read_content(path: Any, language: str) -> tuple[str, Any]:
    """The text of a JSON file and its content; raises `UserError` for a missing or damaged file."""
    path = stored(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file of questions in language {language!r}")
    text = decoded(read_text(path, lines=False), path)
    return text, parsed_json(text, path)


def examine(content: Any, path: Any, language: str) -> tuple[list[Question], list[Problem]]:
    """Returns questions of a file, also those with wrong answers, and all problems; `UserError` for another format."""
    questions, problems, ids = [], [], set()
    try:
        items = list(iter_questions(content))
    except KeyError as error:
        raise UserError(f"{path} is not in SQuAD's format: it lacks {quoted(error.args[0])}") from None
    except (TypeError, AttributeError):
        raise UserError(f"{path} is not in SQuAD's format: it has a value of another type") from None
    if not items:
        raise UserError(f"{path} holds no questions")
    for index, (paragraph, question) in enumerate(items):
        try:
            parsed = _question(paragraph, question, str(path), language)
        except KeyError as error:
            problems.append(Problem(index, f"not in SQuAD's format: it lacks {quoted(error.args[0])}"))
            continue
        except (TypeError, AttributeError):
            problems.append(Problem(index, "not in SQuAD's format: it has a value of another type"))
            continue
        if parsed.id in ids:
            problems.append(Problem(index, "the id occurs twice", repeated=True))
        elif is_blank(parsed.question) or is_blank(parsed.context):
            problems.append(Problem(index, "an empty question or context"))
        elif SURROGATE.search(parsed.question + parsed.context):
            problems.append(Problem(index, "half of a character, an escape \\ud800 to \\udfff without its other half"))
        else:
            questions.append(parsed)
            if answers := _wrong_answers(parsed):
                problems.append(Problem(index, answers=answers))
        ids.add(parsed.id)
    return questions, problems


def iter_questions(content: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the paragraph and the question of each question of a file in order."""
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                yield paragraph, question


def _question(paragraph: Any, question: Any, file: str, language: str) -> Question:
    answers = tuple((answer["text"], answer["answer_start"]) for answer in question.get("answers", ()))
    texts = question["question"], paragraph["context"], *(text for text, _ in answers)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError
    answers = () if answers == (("", 0),) else answers  # XTREME's test files
    return Question(str(question["id"]), question["question"], paragraph["context"], answers, language, file)


def _wrong_answers(question: Question) -> dict[int, str]:
    wrong = {}
    for index, (text, start) in enumerate(question.answers):
        if isinstance(start, int) and start >= 0 and text and question.context.startswith(text, start):
            continue
        span = question.context[start : start + len(text)] if isinstance(start, int) and start >= 0 else ""
        actual = quoted(span) if span else "no text"
        wrong[index] = f"the answer {quoted(text)} is not at {start!r}, where there is {actual}"
    return wrong


def problem_messages(text: str, content: Any, path: Any, problems: list[Problem]) -> list[str]:
    """A message for each problem of `content`, with file, line and id; `text` is the text of the file."""
    ends = [match.start() for match in re.finditer("\n", text)]
    ids = defaultdict(list)  # id -> lines
    for match in ID.finditer(text):
        ids[str(json.loads(match[1]))].append(bisect.bisect_left(ends, match.start()) + 1)
    seen, locations = defaultdict(int), []
    for _, question in iter_questions(content):
        name = str(question.get("id")) if isinstance(question, dict) else ""
        lines = ids[name]
        line = lines[min(seen[name], len(lines) - 1)] if lines else 1
        locations.append(f"{path}, line {line}, question {quoted(name)}")
        seen[name] += 1
    return [f"{locations[p.index]}: {message}" for p in problems for message in (p.answers.values() or [p.question])]
