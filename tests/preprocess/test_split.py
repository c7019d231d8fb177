"""Lines that are held out of training files."""

import hashlib

import pytest

from preprocess.commands.split import main

LINES = [f"{number % 2}\tquestion {number // 2}\tpassage {number}" for number in range(40)]


def written(path):
    return path.read_text(encoding="utf-8").splitlines()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    for name, lines in (("train.en.tsv", LINES), ("train.fr.tsv", [f"{line} fr" for line in LINES])):
        (tmp_path / "in" / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path


def test_the_smallest_hashes_are_held_out(folder):
    """Both lines of a question, in order, and the same lines of the translation; computed line by line here."""
    files = [str(folder / f"in/train.{code}.tsv") for code in ("en", "fr")]
    assert main([*files, str(folder / "out"), "--count", "9"]) == 0
    digests = {text: hashlib.sha256(text.encode()).hexdigest() for _, text, _ in (line.split("\t") for line in LINES)}
    chosen = sorted(digests, key=digests.get)[:5]  # ten lines, the first even number from nine on
    expected = [line for line in LINES if line.split("\t")[1] in chosen]
    assert written(folder / "out/valid.en.tsv") == expected and len(expected) == 10
    assert written(folder / "out/train.en.tsv") == [line for line in LINES if line not in expected]
    for name in ("train", "valid"):
        translated = written(folder / f"out/{name}.fr.tsv")
        assert translated == [f"{line} fr" for line in written(folder / f"out/{name}.en.tsv")]


def test_files_that_cannot_be_split(folder, capsys):
    english, french = folder / "in/train.en.tsv", folder / "in/train.fr.tsv"
    french.write_text("0\ta\tb\n", encoding="utf-8")
    (folder / "in/train.de.tsv").write_text("a\tB-X\n\nb\tO\n", encoding="utf-8")
    for words, message in (
        ([english, french, folder / "out", "--count", 9], f"{french} has 1 lines but {english} has 40"),
        ([english, folder / "in", "--count", 9], f"{english} would be replaced: DEST must be another folder"),
        ([english, folder / "out", "--count", 40], f"--count 40: {english} has no line left to train on"),
        ([folder / "in/train.de.tsv", folder / "out", "--count", 1], "line 2: an empty line; expected an example"),
        ([folder / "train.fr.tsv", folder / "out", "--count", 1], "train.fr.tsv: no such file"),
        ([english, folder / "test.en.tsv", folder / "out", "--count", 1], f"{english} too would become train.en.tsv"),
        ([folder / "train.en.json", folder / "out", "--count", 1], "train.en.json: expected a file SPLIT.LANGUAGE.tsv"),
    ):
        assert main(list(map(str, words))) == 1
        assert message in capsys.readouterr().err
    assert not (folder / "out").exists()
