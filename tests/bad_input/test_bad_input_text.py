"""Errors in raw text, in every command that reads raw text."""

import logging
import shutil

import pytest

from fairseq_xl.commands import plot_curves, score_bleu
from preprocess.pipeline import prepare
from tests.bad_input.every_command import COMMANDS, fails, interactive, sentence_of
from tests.command_line import cli
from tests.preprocess.tiny_corpus import change, write_corpus

GOOD = b"eins zwei\ndrei\nvier\n"

# fairseq-xl data prepare and --check-only

#: name -> (content of train.en-de.de after its own, words of its error)
CORPUS = {
    "a line more": (b"noch eine\n", "train.en-de.en has 83 lines and train.en-de.de has 84"),
    "not UTF-8": (b"caf\xe9\n", "train.en-de.de: invalid UTF-8 in line 84 (1 line(s) in all)"),
    "NUL": (b"eins\0zwei\n", "train.en-de.de: a NUL character, which no text has, in line 84 (1 line(s) in all)"),
}


@pytest.mark.parametrize("mistake", CORPUS)
def test_corpus(tmp_path, mistake):
    """Told before anything is written, whether or not the text is only checked."""
    more, sentence = CORPUS[mistake]
    corpus = write_corpus(tmp_path / "corpus")
    with open(corpus.parent / "train.en-de.de", "ab") as file:
        file.write(more)
    shown = sentence_of(lambda: prepare(corpus, tmp_path / "data-bin", check_only=mistake == "NUL"))
    assert shown.splitlines()[0].endswith("problem(s) in the description and its files:") and sentence in shown
    assert [path.name for path in (tmp_path / "data-bin").iterdir()] == [".stages"]


def test_other_line_separators_neither_add_nor_lose_a_line(tmp_path, caplog):
    corpus = write_corpus(tmp_path / "corpus")
    path = corpus.parent / "train.en-de.de"
    lines = path.read_bytes().split(b"\n")
    for line, separators in enumerate(("\x0b\x0c", "\x1c\x1d\x1e", "\x85", "\r", "\u2028\u2029")):
        lines[line] = lines[line].replace(b" ", separators.encode())
    path.write_bytes(b"\n".join(lines))
    with caplog.at_level(logging.INFO, logger="preprocess"):
        prepare(corpus, None, check_only=True)
    assert "train.en-de.de: 83 lines" in caplog.text


def test_a_line_that_is_too_long_is_told_with_its_number(tmp_path, caplog):
    corpus = write_corpus(tmp_path / "corpus")
    with open(corpus.parent / "train.en", "ab") as file:
        file.write(b"short\n" + b"w " * 1001 + b"\nshort\n" + b"x" * 4001 + b"\n")
    lines = (corpus.parent / "train.en").read_bytes().count(b"\n")
    prepare(corpus, None, check_only=True)
    (told_of,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert told_of.startswith("train.en: 2 line(s) of more than 1000 words or 4000 characters, first line ")
    assert f"first line {lines - 2};" in told_of


@pytest.mark.parametrize("check_only", [True, False])
def test_description(tmp_path, check_only):
    corpus = write_corpus(tmp_path / "corpus")
    change(corpus, monolingual={"xx": {"train": "train.en"}})
    shown = sentence_of(lambda: prepare(corpus, tmp_path / "data-bin", check_only=check_only))
    assert "monolingual xx: not " in shown and shown.count("\n") <= 1  # a list has a heading
    corpus.unlink()
    fails(lambda: prepare(corpus, tmp_path / "data-bin", check_only=check_only), "corpus.yaml: no such file")


VOCABULARY = {
    "no such model": ({"sentencepiece.model": None}, "sentencepiece.model: no such SentencePiece model"),
    "no such dictionary": ({"dict.txt": None}, "dict.txt is not a dictionary: No such file"),
    "of two corpora": ({"dict.txt": b"".join(b"zz%d 1\n" % number for number in range(50))}, "it has 0 of its"),
}


@pytest.mark.parametrize("mistake", VOCABULARY)
def test_reused_vocabulary(place, tmp_path, mistake):
    files, sentence = VOCABULARY[mistake]
    for name in ("sentencepiece.model", "dict.txt", "manifest.json"):
        shutil.copy(place.data / name, tmp_path)
    for name, content in files.items():
        (tmp_path / name).unlink() if content is None else (tmp_path / name).write_bytes(content)
    corpus, output, check_only = write_corpus(tmp_path / "corpus"), tmp_path / "data-bin", "model" in mistake
    fails(lambda: prepare(corpus, output, check_only=check_only, vocabulary_from=tmp_path), tmp_path, sentence)


# Scores


def test_references(tmp_path):
    (tmp_path / "hypotheses").write_bytes(GOOD)
    (tmp_path / "reference").write_bytes(b"eins\nzw\xffei\ndrei\n")
    line = [str(tmp_path / "hypotheses"), *cli(plain=True, lang="de", save_hypotheses=str(tmp_path / "saved"))]
    for path, sentence in (("reference", ", line 2: not UTF-8"), ("absent", ""), (".", "")):
        reference = str(tmp_path / path)
        fails(lambda: score_bleu.main([line[0], reference, *line[1:]]), reference + sentence)
    assert not (tmp_path / "saved").exists()


@pytest.mark.parametrize(
    "output, sentence",
    [("no/x.png", "x.png was not written: No such file"), ("x.xyz", "'xyz' is not a picture format")],
)
def test_curves(tmp_path, output, sentence):
    (tmp_path / "log").write_bytes(b'{"epoch": 1, "loss": "2", "num_updates": "5"}\n')
    fails(lambda: plot_curves.main([f"a={tmp_path / 'log'}", "--output", str(tmp_path / output)]), tmp_path, sentence)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


# Retrieval and classification


def test_pairs_are_read_before_the_checkpoint(place, tmp_path):
    (tmp_path / "pairs.en").write_bytes(b"eins\nzw\xffei\ndrei\n")
    (tmp_path / "pairs.de").write_bytes(GOOD)
    wrong = place.but(pairs=tmp_path / "pairs", pretraining=tmp_path / "not-even-looked-at.pt")
    fails(lambda: COMMANDS["retrieval"](wrong, tmp_path), tmp_path / "pairs", "line 2: not UTF-8")


def test_task_files(place, tmp_path):
    shutil.copytree(place.files, tmp_path / "files")
    path, wrong = tmp_path / "files" / "train.de.tsv", place.but(files=tmp_path / "files")
    path.write_bytes(path.read_bytes() + b"\nriver\ta\n")
    sentence = "line 121: expected label TAB text, found 1 field"
    fails(lambda: COMMANDS["train classification"](wrong, tmp_path), path, sentence)
    path.unlink()
    sentence = "no such file of labeled text in language 'de'"
    fails(lambda: COMMANDS["train classification"](wrong, tmp_path), path, sentence)


def test_task_text_that_is_too_long_is_told(place, tmp_path):
    shutil.copytree(place.files, tmp_path / "files")
    with open(tmp_path / "files" / "valid.de.tsv", "ab") as file:
        file.write(b"river\t" + b"das Haus " * 100 + b"\n")
    output = COMMANDS["validate classification"](place.but(files=tmp_path / "files"), tmp_path)
    assert "valid: 1 of 63 examples are truncated to --length 40 tokens" in output.log


# fairseq-interactive


def test_every_line_of_interactive_gets_one_hypothesis(place, tmp_path):
    lines = ["the house", "", "the " * 200, "the\u2028house", "a\0b\x85c"]
    output = interactive(place, tmp_path, lines)
    assert {number: len(found) for number, found in output.lines("D").items()} == dict.fromkeys(range(5), 1)
    assert output.lines("D")[1][0].partition("\t")[2] == ""
    assert "1 lines have more than" in output.log


def test_sub_words_without_their_model(place, tmp_path):
    fails(lambda: interactive(place, tmp_path, ["the house"], "--sentencepiece-model", "???"), "--sentencepiece-model")


def test_input_of_interactive(place, tmp_path):
    """In UTF-8 mode and in the C locale, Python reads invalid UTF-8 from standard input as surrogates."""
    path = tmp_path / "lines"
    fails(lambda: interactive(place, tmp_path, [], "--input", path), "lines: no such file")
    path.write_bytes(b"the house\ncaf\xff\n")
    fails(lambda: interactive(place, tmp_path, [], "--input", path), "line 2: not UTF-8, it has the byte 0xff")
    fails(lambda: interactive(place, tmp_path, ["the house", "caf\udcff"]), "standard input, line 2: not UTF-8")
