"""Errors in raw text, in every command that reads raw text."""

import contextlib
import io
import logging
import shutil

import pytest

from fairseq_xl.commands import plot_curves, score_bleu, score_classification
from fairseq_xl.evaluation.retrieval_scores import read_pairs
from fairseq_xl.io.lines import read_lines
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


@pytest.mark.parametrize("check_only", [True, False])
@pytest.mark.parametrize("mistake", CORPUS)
def test_corpus(tmp_path, mistake, check_only):
    more, sentence = CORPUS[mistake]
    corpus = write_corpus(tmp_path / "corpus")
    with open(corpus.parent / "train.en-de.de", "ab") as file:
        file.write(more)
    shown = sentence_of(lambda: prepare(corpus, tmp_path / "data-bin", check_only=check_only))
    assert shown.splitlines()[0].endswith("problem(s) in the description and its files:") and sentence in shown
    assert [path.name for path in (tmp_path / "data-bin").iterdir()] == [".stages"]


@pytest.mark.parametrize("separators", ["\x0b\x0c", "\x1c\x1d\x1e", "\x85", "\r", "\u2028\u2029"])
def test_other_line_separators_neither_add_nor_lose_a_line(tmp_path, caplog, separators):
    corpus = write_corpus(tmp_path / "corpus")
    path = corpus.parent / "train.en-de.de"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0].replace(b" ", separators.encode()), *lines[1:]]))
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


DESCRIPTION = {
    "missing": (lambda path: path.unlink(), "corpus.yaml: no such file"),
    "no YAML": (lambda path: path.write_text("a: [b\n c: {"), "corpus.yaml is not YAML in line 2"),
    "not UTF-8": (lambda path: path.write_bytes(b"\xff\xfe"), "corpus.yaml is not UTF-8"),
    "unknown language": (lambda path: change(path, monolingual={"xx": {"train": "train.en"}}), "monolingual xx: not "),
}


@pytest.mark.parametrize("check_only", [True, False])
@pytest.mark.parametrize("mistake", DESCRIPTION)
def test_description(tmp_path, mistake, check_only):
    spoil, sentence = DESCRIPTION[mistake]
    corpus = write_corpus(tmp_path / "corpus")
    spoil(corpus)
    shown = sentence_of(lambda: prepare(corpus, tmp_path / "data-bin", check_only=check_only))
    assert sentence in shown and shown.count("\n") <= 1  # a list has a heading


VOCABULARY = {
    "no such model": ({"sentencepiece.model": None}, "sentencepiece.model: no such SentencePiece model"),
    "no such dictionary": ({"dict.txt": None}, "dict.txt is not a dictionary: No such file"),
    "another file": ({"sentencepiece.model": b"no model"}, "is not a SentencePiece model, or it is damaged"),
    "of two corpora": ({"dict.txt": b"".join(b"zz%d 1\n" % number for number in range(50))}, "it has 0 of its"),
}


@pytest.mark.parametrize("check_only", [True, False])
@pytest.mark.parametrize("mistake", VOCABULARY)
def test_reused_vocabulary(place, tmp_path, mistake, check_only):
    files, sentence = VOCABULARY[mistake]
    for name in ("sentencepiece.model", "dict.txt", "manifest.json"):
        shutil.copy(place.data / name, tmp_path)
    for name, content in files.items():
        (tmp_path / name).unlink() if content is None else (tmp_path / name).write_bytes(content)
    corpus, output = write_corpus(tmp_path / "corpus"), tmp_path / "data-bin"
    fails(lambda: prepare(corpus, output, check_only=check_only, vocabulary_from=tmp_path), tmp_path, sentence)


# Scores

LINES = {
    "empty": (b"", "3 hypotheses but 0 references"),
    "fewer lines": (b"eins\nzwei\n", "3 hypotheses but 2 references"),
    "not UTF-8": (b"eins\nzw\xffei\ndrei\n", "line 2: not UTF-8, it has the byte 0xff"),
    "UTF-16": ("eins\nzwei\ndrei\n".encode("utf-16"), "line 1: a byte 0"),
}


@pytest.mark.parametrize("mistake", LINES)
def test_references(tmp_path, mistake):
    content, sentence = LINES[mistake]
    (tmp_path / "hypotheses").write_bytes(GOOD)
    (tmp_path / "reference").write_bytes(content)
    line = [
        str(tmp_path / "hypotheses"),
        str(tmp_path / "reference"),
        *cli(plain=True, lang="de", save_hypotheses=str(tmp_path / "saved")),
    ]
    fails(lambda: score_bleu.main(line), tmp_path / "reference", sentence)
    assert not (tmp_path / "saved").exists()
    for absent in (tmp_path / "absent", tmp_path):
        fails(lambda: score_bleu.main([line[0], str(absent), "--plain", "--lang", "de"]), absent)


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf" + GOOD, GOOD.replace(b"\n", b"\r\n"), GOOD[:-1]])
def test_marks_and_line_ends_are_no_text(tmp_path, content):
    (tmp_path / "lines").write_bytes(content)
    assert read_lines(tmp_path / "lines") == ["eins zwei", "drei", "vier"]


def test_a_line_separator_ends_no_line(tmp_path):
    (tmp_path / "lines").write_bytes("a\u2028b\x85c\rd\ne\n".encode())
    assert read_lines(tmp_path / "lines") == ["a\u2028b\x85c\rd", "e"]


@pytest.mark.parametrize(
    "content, sentence",
    [
        (b"", "has no D- lines"),
        (b"D-0\t-1\ta\nD-2\t-1\tb\n", "found 2 of 3"),
        (b"D-0\t-1\ta\nD-1\t-0.3", "line 2: expected D-NUMBER TAB score TAB text"),
        (b"D-x\n", "line 1: expected D-NUMBER"),
    ],
)
def test_output_of_generate_that_is_not_whole(tmp_path, content, sentence):
    (tmp_path / "generated").write_bytes(content)
    (tmp_path / "reference").write_bytes(GOOD)
    line = [str(tmp_path / "generated"), str(tmp_path / "reference"), "--lang", "de"]
    fails(lambda: score_bleu.main(line), "generated", sentence)


@pytest.mark.parametrize(
    "content, sentence",
    [
        (b"", "holds no predictions"),
        (b"1\ta\ta\t0.5\n2\tb", "line 2: expected 2 TAB label"),
        (b"\xff\n", "line 1: not UTF-8"),
    ],
)
def test_predictions(tmp_path, content, sentence):
    (tmp_path / "test.en.tsv").write_bytes(content)
    fails(lambda: score_classification.main([str(tmp_path), "--langs", "en"]), tmp_path / "test.en.tsv", sentence)


@pytest.mark.parametrize(
    "log, output, sentence",
    [
        (b"", "x.png", "has no JSON entries"),
        (bytes(range(256)), "x.png", "has no JSON entries"),
        (b'{"epoch": 1, "loss": null, "num_updates": "5"}\n', "x.png", "no entry of 'loss'"),
        (b'{"epoch": 1, "loss": "2", "num_updates": "5"}\n', "no/x.png", "x.png was not written: No such file"),
        (b'{"epoch": 1, "loss": "2", "num_updates": "5"}\n', "x.xyz", "'xyz' is not a picture format"),
    ],
)
def test_curves(tmp_path, log, output, sentence):
    (tmp_path / "log").write_bytes(log)
    fails(lambda: plot_curves.main([f"a={tmp_path / 'log'}", "--output", str(tmp_path / output)]), tmp_path, sentence)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


# Retrieval and classification


@pytest.mark.parametrize(
    "content, sentence",
    [
        (b"", "0 lines of 'en' but 3 of 'de'"),
        (b"eins\nzwei\n", "2 lines of 'en' but 3 of 'de'"),
        (b"eins\nzw\xffei\ndrei\n", "line 2: not UTF-8"),
        (b"eins\n\n\n", "at least two different pairs"),
    ],
)
def test_pairs(place, tmp_path, content, sentence):
    (tmp_path / "pairs.en").write_bytes(content)
    (tmp_path / "pairs.de").write_bytes(GOOD)
    wrong = place.but(pairs=tmp_path / "pairs", pretraining=tmp_path / "not-even-looked-at.pt")
    fails(lambda: COMMANDS["retrieval"](wrong, tmp_path), tmp_path / "pairs", sentence)


def test_a_mark_at_the_beginning_of_pairs(tmp_path):
    for language in ("en", "de"):
        (tmp_path / f"pairs.{language}").write_bytes(b"\xef\xbb\xbf" + GOOD)
    assert read_pairs(tmp_path / "pairs", "en", "de")[0][0] == "eins zwei"


@pytest.mark.parametrize(
    "mistake, sentence",
    [
        (lambda text: b"", "line 1: the file is empty"),
        (lambda text: b"river\ta\xff\n" + text, "line 1: not UTF-8"),
        (lambda text: text + b"\nriver\ta\n", "line 121: expected label TAB text, found 1 field"),
        (None, "no such file of labeled text in language 'de'"),
    ],
    ids=["empty", "not UTF-8", "blank line", "missing"],
)
def test_task_files(place, tmp_path, mistake, sentence):
    shutil.copytree(place.files, tmp_path / "files")
    path = tmp_path / "files" / "train.de.tsv"
    text = path.read_bytes()
    path.unlink()
    if mistake:
        path.write_bytes(mistake(text))
    wrong = place.but(files=tmp_path / "files")
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


@pytest.mark.parametrize(
    "content, sentence",
    [(b"the house\ncaf\xff\n", "line 2: not UTF-8, it has the byte 0xff"), (None, "absent: no such file")],
)
def test_input_of_interactive(place, tmp_path, content, sentence):
    path = tmp_path / ("absent" if content is None else "lines")
    if content:
        path.write_bytes(content)
    fails(lambda: interactive(place, tmp_path, [], "--input", path), sentence)


def test_bytes_that_python_let_pass(place, tmp_path):
    """In UTF-8 mode and in the C locale, Python reads invalid UTF-8 from standard input as surrogates."""
    fails(lambda: interactive(place, tmp_path, ["the house", "caf\udcff"]), "standard input, line 2: not UTF-8")


def test_the_right_ones_are_taken(tmp_path):
    (tmp_path / "lines").write_bytes(GOOD)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        line = [str(tmp_path / "lines"), str(tmp_path / "lines"), "--plain", "--bootstrap", "0", "--lang", "de"]
        score_bleu.main([*line, "--save-hypotheses", str(tmp_path / "saved")])
    assert '"lines": 3' in printed.getvalue() and (tmp_path / "saved").read_bytes() == GOOD
