"""Every problem of the input is found before any work, and all are reported at once."""

import logging
import sys
import tracemalloc

import pytest
from tiny_corpus import describe
from tqdm import tqdm

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import language_identification
from fairseq_xl.evaluation.language_identification import other_languages
from fairseq_xl.io import bounds
from preprocess import check, files, vocabulary
from preprocess.config import read_config
from preprocess.pipeline import prepare


def problem(corpus):
    with pytest.raises(UserError) as error:
        prepare(corpus, None, check_only=True)
    return str(error.value)


def examined(path, workers=1):
    with files.Workers(workers) as pool, tqdm(disable=True) as bar:
        return check.check_file(path.name, path, pool, bar)


def append(path, data):
    path.write_bytes(path.read_bytes() + data)


def test_lines_are_counted_and_decoded(corpus):
    """A last line without newline is a line."""
    append(corpus.parent / "valid.en-de.de", b"noch eine")
    english = (corpus.parent / "valid.en-de.en").read_bytes().count(b"\n")
    lines = (corpus.parent / "train.en").read_bytes().split(b"\n")
    lines[16] += b" caf\xe9"
    lines[20] += b"\xff"
    (corpus.parent / "train.en").write_bytes(b"\n".join(lines))
    message = problem(corpus)
    assert f"valid.en-de.de has {english + 1}" in message
    assert "train.en: invalid UTF-8 in line 17 (2 line(s) in all)" in message


def test_empty_corpus(corpus):
    for text in (b"", b"\n\n", b" \t\n", b"\xef\xbb\xbf\xe2\x80\x8b\n"):
        (corpus.parent / "valid.en").write_bytes(text)
        assert "valid.en: empty, there is no sentence in it" in problem(corpus)


def test_all_problems_in_one_list(corpus):
    text = corpus.read_text(encoding="utf-8")
    corpus.write_text(text.replace("- de", "- de\n- de"), encoding="utf-8")
    (corpus.parent / "train.en").unlink()
    append(corpus.parent / "valid.en", b"\xff\n")
    append(corpus.parent / "train.en-de.de", b"x\n")
    (corpus.parent / "more.en-de.de").write_bytes(b"")
    message = problem(corpus)
    for part in ("named twice", "no such file", "invalid UTF-8", "empty, there is no"):
        assert message.count(part) == 1, message
    assert message.count(" lines and ") == 1  # of train.en-de; more.en-de, empty on one side, is listed as empty
    assert message.startswith("5 problem(s)")
    assert message.count("\n  - ") == 5


def test_no_training_text(corpus, tmp_path):
    text = corpus.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if "train" not in line]
    corpus.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(UserError, match="no training text to learn a vocabulary from"):
        prepare(corpus, tmp_path / "data-bin")


@pytest.mark.parametrize("block, workers", [(8, 1), (64, 2), (1 << 20, 1)])
def test_counts_do_not_depend_on_blocks(tmp_path, monkeypatch, block, workers):
    monkeypatch.setattr(files, "BLOCK", block)
    path = tmp_path / "text"
    long_words, long_line = "w " * 1001, "x" * 4001
    not_long = "w " * 1000 + "\n" + "x" * 4000
    path.write_text(f"a\nb\n\n\na\n  \nb \n{long_words}\n{long_line}\n{not_long}\n\nc", encoding="utf-8")
    report = examined(path, workers)
    assert (report.lines, report.blank, report.documents) == (13, 4, 4)
    assert (report.over_long, report.duplicates, report.ends_blank) == (2, 2, False)


def test_shares_are_logged(corpus, caplog):
    path = corpus.parent / "valid.en"
    path.write_text("a b\na b\n\n" + "w " * 1001 + "\n", encoding="utf-8")
    with caplog.at_level(logging.INFO, logger="preprocess"):
        prepare(corpus, None, check_only=True)
    assert ("valid.en: 4 lines, 25.0 % empty, 2 documents, 33.33 % over-long, about 33.3 % duplicates") in caplog.text


def test_a_boundary_on_one_side_only_is_reported(corpus, caplog):
    path = corpus.parent / "valid.en-de.de"
    lines = path.read_text(encoding="utf-8").split("\n")
    lines[1] = ""
    path.write_text("\n".join(lines), encoding="utf-8")
    prepare(corpus, None, check_only=True)
    assert "lines that are empty on one side only, first line 2: training and validation leave out" in caplog.text
    assert caplog.text.count("one side only") == 1


def test_memory_does_not_grow_with_the_corpus(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 1 << 14)
    monkeypatch.setattr(check, "MAX_BITMAP", 1 << 16)

    def peak(lines):
        path = tmp_path / "text"
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"sentence number {number} of many\n" for number in range(lines))
        tracemalloc.start()
        try:
            examined(path)
            drawn = vocabulary.draw(vocabulary.sentences_of([path]), lines, 100, vocabulary.random.Random(1))
            assert sum(1 for _ in drawn) == 100
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1000)  # what is made once
    # 10 times as much text (600 kB more): the difference must stay far below
    assert peak(20000) - peak(2000) < 100000


def test_processes_do_not_read_ahead_of_the_consumer():
    read = []

    def endless():
        while True:
            read.append(1)
            yield len(read)

    with files.Workers(2) as workers:
        results = workers.map(str, endless())
        assert [next(results) for _ in range(20)] == [str(number) for number in range(1, 21)]
    assert len(read) <= 25


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 1 << 10)
    monkeypatch.setattr(bounds, "LONGEST_LINE", 1 << 13)
    path = tmp_path / "text"
    path.write_bytes(b"x" * (1 << 14))
    with pytest.raises(UserError, match="has a line of more than"):
        list(files.read_blocks(path))


def test_check_is_not_repeated(corpus, tmp_path, monkeypatch):
    config, problems = read_config(corpus)
    first = check.check(config, problems, 1, tmp_path / "records")
    read = []
    monkeypatch.setattr(check, "examine", lambda block: read.append(block))
    assert check.check(config, problems, 1, tmp_path / "records") == first
    assert read == []


LINES = {
    "en": "The committee has published its annual report on the state of the roads in the northern districts.",
    "de": "Der Ausschuss hat seinen jährlichen Bericht über den Zustand der Straßen im Norden veröffentlicht.",
    "fr": "Le comité a publié son rapport annuel sur l'état des routes dans les districts du nord du pays.",
}


def described_as(tmp_path, codes, texts):
    """The description of files train.LANGUAGE and train.PAIR.SIDE, {name: the language of their lines}."""
    for name, language in texts.items():
        lines = [f"{LINES[language]} {name} {number}" for number in range(30)]
        (tmp_path / f"train.{name}").write_text("\n".join(["", *lines]), encoding="utf-8")
    sides = {name.split(".")[0]: {"train": f"train.{name.split('.')[0]}"} for name in texts}
    described = {"monolingual": {name: files for name, files in sides.items() if "-" not in name}}
    described["bitext"] = {name: files for name, files in sides.items() if "-" in name}
    return describe(tmp_path, {"languages": codes, "vocabulary": {"size": 100}} | described)


@pytest.mark.parametrize(
    "codes, texts, expected",
    [
        (["en", "de"], {"en-de.en": "en", "en-de.de": "de", "en": "en"}, []),
        (["en", "de"], {"en-de.en": "de", "en-de.de": "en"}, ["the sides look exchanged", "train.en-de.en", "line 2"]),
        (
            ["en", "de"],
            {"en": "en", "de": "fr"},
            ["train.de looks like fr (30 of 30 sampled texts) instead of de, first line 2"],
        ),
        (["en_XX", "de_DE"], {"en_XX": "en", "de_DE": "fr"}, ["train.de_DE looks like fr"]),
        (["en", "hi_rom"], {"en": "en", "hi_rom": "fr"}, []),
        (["eng", "deu"], {"eng": "en", "deu": "de", "eng-deu.eng": "en", "eng-deu.deu": "de"}, []),
    ],
)
def test_files_of_another_language_are_warned_of(tmp_path, caplog, codes, texts, expected):
    prepare(described_as(tmp_path, codes, texts), None, check_only=True)
    (found,) = [record.message for record in caplog.records if record.levelname == "WARNING"] or [""]
    assert bool(found) == bool(expected) and all(each in found for each in expected)


def test_a_code_that_the_identifier_does_not_know_is_compared_with_its_other_files():
    files = {"a": ("eng", {"en": [90, 1]}), "b": ("eng", {"de": [30, 1], "en": [2, 9]}), "c": ("deu", {"de": [30, 1]})}
    assert other_languages(files) == {"b": ("de", "en")}
    assert other_languages({"a": ("hr", {"sr": [30, 1]}), "b": ("en", {"de": [9, 1]}), "c": ("x", {})}) == {}


def test_a_copy_of_another_languages_file_is_warned_of(tmp_path, caplog):
    description = described_as(tmp_path, ["en", "x"], {"en": "en", "x": "en"})
    (tmp_path / "train.x").write_bytes((tmp_path / "train.en").read_bytes())
    prepare(description, None, check_only=True)
    assert "train.x, text in x, is a copy of train.en, text in en" in caplog.text


def test_lines_of_all_of_a_long_file_are_identified(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 10_000)
    for name, texts in (("long", ["en", "de"]), ("short", ["en"])):
        (tmp_path / name).write_text("".join(f"{LINES[text]}\n" * 2000 for text in texts), encoding="utf-8")
    english, german = (examined(tmp_path / "long").languages[code] for code in ("en", "de"))
    assert english[1] == 1 and german[1] > 2000 and abs(english[0] - german[0]) < 10 and english[0] > 100
    assert examined(tmp_path / "short").languages.keys() == {"en"}


def test_without_the_identifier_there_is_one_word(tmp_path, caplog, monkeypatch):
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    language_identification._model.cache_clear()
    language_identification.language_model.cache_clear()
    with caplog.at_level(logging.INFO):
        prepare(described_as(tmp_path, ["en", "de"], {"en": "de", "de": "en"}), None, check_only=True)
    language_identification._model.cache_clear()
    assert caplog.text.count("pip install py3langid") == 1 and "looks like" not in caplog.text
