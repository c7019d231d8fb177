"""What is wrong in files in SQuAD's format: all of it is named, with the line of the question's id."""

import json

import pytest

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.squad import read_questions

CONTEXT = 'Die Elbe fließt nach Hamburg. Sie hat "id": 7 Häfen.'


def question(name, *answers, **more):
    return {
        "id": name,
        "question": "Wohin?",
        "answers": [dict(zip(("text", "answer_start"), a)) for a in answers],
    } | more


def write(path, questions, **options):
    content = {"data": [{"paragraphs": [{"context": CONTEXT, "qas": questions}]}]}
    path.write_text(json.dumps(content, **options), encoding="utf-8")
    return path


def problems(path, **options):
    with pytest.raises(UserError) as error:
        read_questions(path, "de", **options)
    return str(error.value).splitlines()


def test_every_wrong_answer_is_named_with_its_line(tmp_path):
    """`"id"` in a context or an answer is no id; lines are those of the ids, found by eye in the file below."""
    wrong = [
        question("ä", ("Hamburg", 21)),
        question('b "id": "ä"', ("Hamburg", 20), ("Hamburg", 21), ("Elbe", -1)),
        question("c", ('"id": 7', 38)),
        question(4, ("Hafen", "46")),
    ]
    path = write(tmp_path / "train.de.json", wrong, indent=1)
    lines = path.read_text(encoding="utf-8").splitlines()
    numbers = [number for number, line in enumerate(lines, start=1) if line.startswith('       "id":')]
    assert len(numbers) == 4
    assert problems(path) == [
        "3 problems:",
        f"  - {path}, line {numbers[1]}, question 'b \"id\": \"ä\"': the answer 'Hamburg' is not at 20, where there is "
        "' Hambur'",
        f"  - {path}, line {numbers[1]}, question 'b \"id\": \"ä\"': the answer 'Elbe' is not at -1, where there is no "
        "text",
        f"  - {path}, line {numbers[3]}, question '4': the answer 'Hafen' is not at '46', where there is no text",
    ]
    assert len(read_questions(path, "de", check_offsets=False)) == 4


def test_questions_that_are_wrong_themselves(tmp_path):
    """They are named even where offsets are not checked: predictions of such a file could not be told apart."""
    path = tmp_path / "test.de.json"
    broken = [question("a"), question("a"), question("b", question=" "), {"id": "c"}, question("d", question=3), "e"]
    broken.append(question("f", question="\ud800?"))
    write(path, broken)
    assert problems(path, check_offsets=False) == [
        "6 problems:",
        f"  - {path}, line 1, question 'a': the id occurs twice",
        f"  - {path}, line 1, question 'b': an empty question or context",
        f"  - {path}, line 1, question 'c': not in SQuAD's format: it lacks 'question'",
        f"  - {path}, line 1, question 'd': not in SQuAD's format: it has a value of another type",
        f"  - {path}, line 1, question '': not in SQuAD's format: it has a value of another type",
        f"  - {path}, line 1, question 'f': half of a character, an escape \\ud800 to \\udfff without its other half",
    ]


def test_the_second_question_of_an_id_has_its_own_line(tmp_path):
    path = write(tmp_path / "f.json", [question("a"), question("a")], indent=0)
    lines = path.read_text(encoding="utf-8").splitlines()
    second = [number for number, line in enumerate(lines, start=1) if line.startswith('"id"')][1]
    assert problems(path) == [f"{path}, line {second}, question 'a': the id occurs twice"]


def test_answers_that_xtreme_removed_are_none(tmp_path):
    path = write(tmp_path / "f.json", [question("a", ("", 0)), question("b", ("Elbe", 4))])
    assert [each.answers for each in read_questions(path, "de")] == [(), (("Elbe", 4),)]


@pytest.mark.parametrize(
    "content, message",
    [
        (b"{", "line 1: not JSON"),
        (b"\xff", "not UTF-8"),
        (b"[]", "f.json is not in SQuAD's format"),
        (
            b'{"data": [{"paragraphs": [{"qas": [{"id": "a", "question": "b"}]}]}]}',
            "question 'a': not in SQuAD's format: it lacks 'context'",
        ),
        (b'{"version": "1.1"}', "f.json is not in SQuAD's format: it lacks 'data'"),
        (b'{"data": [3]}', "f.json is not in SQuAD's format: it has a value of another type"),
        (b'{"data": []}', "f.json holds no questions"),
    ],
)
def test_files_of_another_format(tmp_path, content, message):
    (tmp_path / "f.json").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_questions(tmp_path / "f.json", "de")
