"""Validation and test lines that occur in training text: counts and memory."""

import logging
import tracemalloc

import pytest
from tiny_corpus import change, describe, write

from preprocess import files, overlap
from preprocess.config import read_config
from preprocess.pipeline import prepare


@pytest.fixture
def leaking(tmp_path):
    """Test text with lines of monolingual text, of bitext, of neither, and of another language's text."""
    root = tmp_path / "leaking"
    root.mkdir()
    write(root / "mono.en", ["alone", "", "twice  over", "a", "twice over", "c"])
    write(root / "more.en", ["in the second file", "d"])
    for language, lines in {"en": ["one", "two", "three"], "de": ["eins", "zwei", "drei"]}.items():
        write(root / f"train.en-de.{language}", lines)
    tests = {
        "en": ["drei", "", "two", "new", "twice over", "in\tthe second file", "alone", "two"],
        "de": ["neu", "", "zwei", "one", "new", "c", "d", "e"],
    }
    for language, lines in tests.items():
        write(root / f"test.en-de.{language}", lines)
    write(root / "valid.en", ["nothing of it", ""])
    return describe(
        root,
        {
            "languages": ["en", "de"],
            "vocabulary": {"size": 30},
            "monolingual": {"en": {"train": ["mono.en", "more.en"], "valid": "valid.en"}},
            "bitext": {"en-de": {"train": "train.en-de", "test": "test.en-de"}},
        },
    )


EXPECTED = [
    "lines of validation and test text of en that also occur in its training text: 5; in test.en-de.en 5 of 7 (71.4 %)"
    ", line 3 (train.en-de.en, line 2), line 5 (mono.en, line 3), line 6 (more.en, line 1), …",
    "lines of validation and test text of de that also occur in its training text: 1; in test.en-de.de 1 of 7 (14.3 %)"
    ", line 3 (train.en-de.de, line 2)",
]


def reported(caplog):
    found = [record.getMessage() for record in caplog.records if "occur in its training text" in record.getMessage()]
    assert all(record.levelno == logging.WARNING for record in caplog.records if record.getMessage() in found)
    caplog.clear()
    return found


@pytest.mark.parametrize("workers, block", [(1, 1 << 20), (2, 8)])
def test_lines_are_counted_and_the_first_are_named(leaking, caplog, monkeypatch, workers, block):
    monkeypatch.setattr(files, "BLOCK", block)
    prepare(leaking, None, workers, check_only=True)
    assert reported(caplog) == EXPECTED


def test_one_warning_for_each_language(leaking, caplog):
    """The number of all lines, and the first files."""
    for number in range(5):
        write(leaking.parent / f"valid{number}.en", ["a", "new"])
    change(leaking, monolingual={"en": {"train": ["mono.en", "more.en"], "valid": [f"valid{n}.en" for n in range(5)]}})
    prepare(leaking, None, check_only=True)
    english, german = reported(caplog)
    each = "1 of 2 (50.0 %), line 1 (mono.en, line 4)"
    assert english == (
        "lines of validation and test text of en that also occur in its training text: 10; in valid0.en "
        f"{each}; in valid1.en {each}; in valid2.en {each}; and in 3 more files"
    )
    assert german == EXPECTED[1]


def test_repeated_lines_are_reported_each_time_and_searched_once(
    leaking, tmp_path, caplog, monkeypatch, fairseq_in_process
):
    for _ in range(2):
        prepare(leaking, tmp_path / "data-bin")
        assert reported(caplog) == EXPECTED
        monkeypatch.setattr(overlap, "hashes", lambda block: 1 / 0)
    (leaking.parent / "test.en-de.de").write_text("neu\n" * 8, encoding="utf-8")
    with pytest.raises(ZeroDivisionError):
        prepare(leaking, tmp_path / "data-bin")


def test_a_language_without_training_text_is_not_looked_at(leaking):
    describe(
        leaking.parent,
        {
            "languages": ["en", "de"],
            "monolingual": {"en": {"train": "mono.en"}},
            "bitext": {"en-de": {"test": "test.en-de"}},
        },
    )
    assert overlap.evaluation_files(read_config(leaking)[0]) == {"en": ["test.en-de.en"]}


def test_memory_does_not_grow_with_training_text(leaking, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 1 << 14)

    def peak(lines):
        with open(leaking.parent / "mono.en", "w", encoding="utf-8") as file:
            file.writelines(f"sentence number {number} of many\n" for number in range(lines))
        tracemalloc.start()
        try:
            with files.Workers(1) as workers:
                overlap.find(read_config(leaking)[0], workers, int)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1000)  # what is made once
    assert peak(20000) - peak(2000) < 70000  # 18,000 hashes of 8 bytes would be 144,000
