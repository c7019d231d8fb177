"""Task files that look wrong are warned of before training; labels in a part of a file are refused."""

import json

import pytest

from fairseq_xl.errors import UserError
from fairseq_xl.objectives import OBJECTIVES
from fairseq_xl.objectives.task_file_checks import count, warn_of_files

ENGLISH = "the committee has published its annual report on the roads of the north"
GERMAN = "der Ausschuss hat seinen Bericht über die Straßen im Norden veröffentlicht"


def checked(tmp_path, kind, files):
    """Counts files {name: text} of an objective, and warns of them."""
    counted, reader = [], OBJECTIVES[kind](OBJECTIVES[kind].Config(), None, None)
    for name, text in files.items():
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        split, language, _ = name.split(".")
        counted.append(count(split, path, reader.read(path, language), reader))
    warn_of_files(counted)


def labels(*groups):
    """Lines of a classification file, of (label, number of lines)."""
    return "".join(f"{label}\ttext\n" * number for label, number in groups)


BALANCED = labels(("a", 60), ("b", 60))
#: SQuAD 2.0: a question with an answer, and one without
QUESTIONS = [{"id": str(n), "question": "who?", "answers": [{"text": "he", "answer_start": 0}] * n} for n in (0, 1)]
SQUAD = json.dumps({"data": [{"paragraphs": [{"context": "he said", "qas": QUESTIONS}]}]})
HEADED = f"label\tt\n{BALANCED}"


@pytest.mark.parametrize(
    "files, expected",
    [
        ({"train.en": BALANCED, "valid.de": labels(("a", 50), ("b", 70)), "test.en": labels(("a", 3))}, []),
        ({"train.en": HEADED}, ["train.en", "'label' (1 of 121, first line 1)", "a header line?"]),
        ({"train.en": HEADED, "train.de": BALANCED, "valid.de": HEADED}, ["train.en", "'label'", "a header line?"]),
        ({"train.en": BALANCED + "c\tt\n", "train.de": BALANCED}, ["train.en", "'c' (1 of 121, first line 121)"]),
        (
            {"train.en": BALANCED, "train.de": labels(("A ", 60), ("b", 61))},
            ["train.de", "'A' (60 of 121, first line 1): differs from 'a' in case"],
        ),
        (
            {"train.en": BALANCED, "train.de": BALANCED + labels(("c", 30)), "valid.de": labels(("a", 9), ("c", 9))},
            ["train.de", "'c' (30 of 150, first line 121): 0 of 120 labels in the training files of other languages"],
        ),
        (
            {"train.en": BALANCED, "valid.en": BALANCED, "valid.de": labels(("a", 40))},
            ["valid.de", "'b' (0 of 40): 50 %"],
        ),
        ({"train.en": BALANCED + labels(("c", 12)), "valid.de": labels(("a", 80), ("b", 80))}, ["train.en", "'c' (12"]),
        ({"train.en": BALANCED + labels(("c", 2)), "valid.de": labels(("a", 80), ("b", 80))}, []),
        ({"train.en": BALANCED, "test.de": labels(("_", 5)), "test.fr": labels(("_", 5))}, ["test.de", "test.fr"]),
        ({"train.en": labels(("a", 9), ("b", 9)).replace("text", GERMAN)}, ["train.en.tsv, line 1", "looks like de"]),
        ({"train.en": labels(("a", 9), ("b", 9)).replace("text", ENGLISH)}, []),
    ],
)
def test_classes_languages_and_missing_labels(tmp_path, caplog, files, expected):
    checked(tmp_path, "classification", {f"{name}.tsv": text for name, text in files.items()})
    found = [record.message for record in caplog.records]
    assert expected == [] or all(part in found[0] for part in expected)
    assert len(found) == bool(expected), found


def test_tags_and_grades(tmp_path, caplog):
    tags = "the\tO\nhouse\tB-X\n\n" * 40
    checked(tmp_path, "tagging", {"train.en.tsv": f"{tags}a\tB-x\n", "valid.en.tsv": tags})
    assert "'B-x' (1 of 81, first line 121): differs from 'B-X'" in caplog.text
    caplog.clear()
    grades = "".join(f"{number % 3}\tquery {number // 3}\ttext\n" for number in range(90))
    checked(tmp_path, "ranking", {"train.en.tsv": f"{grades}9\tlast\ttext\n", "valid.en.tsv": f"{grades}0.5\tq\tt\n"})
    assert "'9' (1 of 91, first line 91): occurs once" in caplog.text and len(caplog.records) == 1


def test_a_file_that_is_doubled_is_named(tmp_path, caplog):
    text = "".join(f"{'ab'[number % 2]}\tnumber {number}\n" for number in range(20))
    checked(tmp_path, "classification", {"train.en.tsv": text, "test.en.tsv": text * 2})
    assert "test.en.tsv: lines 21 to 40 repeat the lines before" in caplog.text and len(caplog.records) == 1


@pytest.mark.parametrize(
    "kind, text, place",
    [
        ("classification", "a\tx\n_\ty\n", "line 2: no label"),
        ("ranking", "1\tq\tx\n_\tr\ty\n", "line 2: no label"),
        ("tagging", "the\tO\n\nriver\t_\n", ""),
        ("question_answering", SQUAD, ""),
    ],
)
def test_labels_in_a_part_of_a_file(tmp_path, kind, text, place):
    files = {f"test.en.{'json' if text is SQUAD else 'tsv'}": text}
    if not place:
        checked(tmp_path, kind, files)
        return
    with pytest.raises(UserError, match=f"test.en.tsv, {place}"):
        checked(tmp_path, kind, files)
