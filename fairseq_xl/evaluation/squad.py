"""Files in SQuAD's format (Rajpurkar et al. 2016), which XQuAD, MLQA and TyDiQA-GoldP share."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.compressed import read_text, stored


@dataclass(frozen=True)
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


def read_questions(path: Any, language: str, check_offsets: bool = True) -> list[Question]:
    """Reads a file in SQuAD's format: a list of `Question`.

    Raises `UserError` that names file and question for a missing or damaged file, a missing field, an id that occurs
    twice, no question, and, unless `check_offsets` is False, answers that are not the text at their offsets.
    """
    path = stored(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file of questions in language {language!r}")
    try:
        content = json.loads(read_text(path).decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: not JSON: {error.msg}") from None
    examples, where = {}, "the file"
    try:
        for paragraph in (each for article in content["data"] for each in article["paragraphs"]):
            for question in paragraph["qas"]:
                where = f"question {question['id']!r}"
                if str(question["id"]) in examples:
                    raise UserError(f"{path}: {where} occurs twice")
                found = ((each["text"], each["answer_start"]) for each in question.get("answers", ()))
                answers = tuple(answer for answer in found if answer != ("", 0))  # XTREME's test files
                made = Question(
                    *(str(question["id"]), question["question"], paragraph["context"]),
                    *(answers, language, str(path)),
                )
                if not all(isinstance(text, str) and text.strip() for text in (made.question, made.context)):
                    raise UserError(f"{path}: {where} has an empty question or context")
                examples[made.id] = made
    except KeyError as error:
        raise UserError(f"{path} is not in SQuAD's format: {where} lacks {quoted(error.args[0])}") from None
    except (TypeError, AttributeError):
        raise UserError(f"{path} is not in SQuAD's format: {where} has a value of another type") from None
    if not examples:
        raise UserError(f"{path} holds no questions")
    if check_offsets:
        _check_offsets(path, examples.values())
    return list(examples.values())


def _check_offsets(path: Any, examples: Iterable[Question]) -> None:
    wrong = [
        (example, text, start)
        for example in examples
        for text, start in example.answers
        if not isinstance(start, int) or start < 0 or not text or not example.context.startswith(text, start)
    ]
    if wrong:
        example, text, start = wrong[0]
        raise UserError(
            f"{path}: {len(wrong)} answers are not the text at their answer_start; the first is {quoted(text)} at "
            f"{start} of question {example.id!r}"
        )
