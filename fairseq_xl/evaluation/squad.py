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
    def place(self) -> str:
        """File and question, for messages."""
        return f"{self.file}, question {self.id!r}"


@dataclass
class Problem:
    """A problem of a question, or of some of its answers."""

    number: int  # of the question in the file, from 0 on
    question: str = ""  # the problem of the question
    answers: dict[int, str] = field(default_factory=dict)  # number of an answer -> its problem
    repeated: bool = False  # whether the problem is that the id occurs twice


def read_questions(path: Any, language: str, check_offsets: bool = True) -> list[Question]:
    """Reads a file in SQuAD's format: a list of `Question`.

    Raises `UserError` for a missing or damaged file. It lists file, line and question of a missing field, an empty
    question or context, an id that occurs twice, and, unless `check_offsets` is False, answers that are not the text at
    their offsets.
    """
    text, content = read_content(path, language)
    found, problems = examine(content, path, language)
    messages = problem_messages(text, content, path, [each for each in problems if each.question or check_offsets])
    if messages:
        raise UserError(listed(messages))
    return found


def read_content(path: Any, language: str) -> tuple[str, Any]:
    """The text of a JSON file and its content; raises `UserError` for a missing or damaged file."""
    path = stored(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file of questions in language {language!r}")
    text = decoded(read_text(path, lines=False), path)
    return text, parsed_json(text, path)


def examine(content: Any, path: Any, language: str) -> tuple[list[Question], list[Problem]]:
    """Returns the questions of a file and their problems; raises `UserError` for another format.

    The first list omits wrong questions and keeps questions with wrong answers.
    """
    found, problems, ids = [], [], set()
    try:
        asked = list(each_question(content))
    except KeyError as error:
        raise UserError(f"{path} is not in SQuAD's format: it lacks {quoted(error.args[0])}") from None
    except (TypeError, AttributeError):
        raise UserError(f"{path} is not in SQuAD's format: it has a value of another type") from None
    if not asked:
        raise UserError(f"{path} holds no questions")
    for number, (paragraph, question) in enumerate(asked):
        try:
            made = _question(paragraph, question, str(path), language)
        except KeyError as error:
            problems.append(Problem(number, f"not in SQuAD's format: it lacks {quoted(error.args[0])}"))
            continue
        except (TypeError, AttributeError):
            problems.append(Problem(number, "not in SQuAD's format: it has a value of another type"))
            continue
        if made.id in ids:
            problems.append(Problem(number, "the id occurs twice", repeated=True))
        elif is_blank(made.question) or is_blank(made.context):
            problems.append(Problem(number, "an empty question or context"))
        elif SURROGATE.search(made.question + made.context):
            problems.append(Problem(number, "half of a character, an escape \\ud800 to \\udfff without its other half"))
        else:
            found.append(made)
            if answers := _wrong_answers(made):
                problems.append(Problem(number, answers=answers))
        ids.add(made.id)
    return found, problems


def each_question(content: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the paragraph and the question of each question of a file in order."""
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                yield paragraph, question


def _question(paragraph: Any, question: Any, file: str, language: str) -> Question:
    found = tuple((each["text"], each["answer_start"]) for each in question.get("answers", ()))
    texts = question["question"], paragraph["context"], *(text for text, _ in found)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError
    answers = () if found == (("", 0),) else found  # XTREME's test files
    return Question(str(question["id"]), question["question"], paragraph["context"], answers, language, file)


def _wrong_answers(question: Question) -> dict[int, str]:
    wrong = {}
    for number, (text, start) in enumerate(question.answers):
        if isinstance(start, int) and start >= 0 and text and question.context.startswith(text, start):
            continue
        there = question.context[start : start + len(text)] if isinstance(start, int) and start >= 0 else ""
        at = f"at {start!r}, where there is {quoted(there) if there else 'no text'}"
        wrong[number] = f"the answer {quoted(text)} is not {at}"
    return wrong


def problem_messages(text: str, content: Any, path: Any, problems: list[Problem]) -> list[str]:
    """Returns a message for each problem of `content`, with file, line and id. `text` is the text of the file."""
    if not problems:
        return []
    ends = [match.start() for match in re.finditer("\n", text)]
    ids = defaultdict(list)  # id -> lines
    for match in ID.finditer(text):
        ids[str(json.loads(match[1]))].append(bisect.bisect_left(ends, match.start()) + 1)
    seen, places = defaultdict(int), []
    for _, question in each_question(content):
        name = str(question.get("id")) if isinstance(question, dict) else ""
        lines = ids[name]
        line = lines[min(seen[name], len(lines) - 1)] if lines else 1
        places.append(f"{path}, line {line}, question {quoted(name)}")
        seen[name] += 1
    sentences = [(each.number, what) for each in problems for what in (each.answers.values() or [each.question])]
    return [f"{places[number]}: {what}" for number, what in sentences]
