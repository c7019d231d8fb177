"""QAM of XGLUE, from small files made here in the release's format."""

import gzip
import json

import pytest

from preprocess.readers.xglue_qam import main

FILES = {
    "xglue.qam.en.train": [
        'what is a "b plus tree\tA B+ tree is an "m-ary" tree with\u00a0a root .\t1',
        "how tall is k2\tK2 is in the Karakoram .\t0",
    ],
    "xglue.qam.en.dev": ["who was dürer\tDürer was a painter .\t1"],
    "xglue.qam.en.test": ["what is rain\tRain is water .\t1"],
    "xglue.qam.de.dev": ["was ist regen\tRegen ist Wasser .\t1", "was ist regen\t\t0"],
    "xglue.qam.de.test": ["wer war dürer\tEs regnet .\t0"],
}
EXPECTED = {
    "train.en.tsv": (
        '1\twhat is a "b plus tree\tA B+ tree is an "m-ary" tree with a root .\n'
        "0\thow tall is k2\tK2 is in the Karakoram .\n"
    ),
    "valid.en.tsv": "1\twho was dürer\tDürer was a painter .\n",
    "test.en.tsv": "1\twhat is rain\tRain is water .\n",
    "valid.de.tsv": "1\twas ist regen\tRegen ist Wasser .\n",
    "test.de.tsv": "0\twer war dürer\tEs regnet .\n",
}


@pytest.fixture
def source(tmp_path):
    """The unpacked release."""
    (tmp_path / "in/QAM").mkdir(parents=True)
    for name, lines in FILES.items():
        (tmp_path / "in/QAM" / name).write_bytes("".join(f"{line}\n" for line in lines).encode())
    return tmp_path / "in"


def written(folder):
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in folder.rglob("*.tsv")}


@pytest.mark.parametrize("place", [".", "QAM"])
def test_questions_come_before_passages(place, source, tmp_path):
    assert main([str(source / place), str(tmp_path / "out"), "--langs", "en,de"]) == 0
    assert written(tmp_path / "out") == EXPECTED
    counts = json.loads((tmp_path / "out/manifest.json").read_text(encoding="utf-8"))["counts"]
    assert counts["valid.de.tsv"] == {"lines": 1, "empty": 1, "labels": {"1": 1}}


def test_files_of_the_release_may_be_compressed(source, tmp_path):
    for path in list((source / "QAM").iterdir()):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert main([str(source), str(tmp_path / "out"), "--langs", "en,de"]) == 0
    assert written(tmp_path / "out") == EXPECTED


def test_a_test_file_without_labels_is_not_written(source, tmp_path, caplog):
    """The release as it was before its test labels were published."""
    (source / "QAM/xglue.qam.de.test").write_text("wer war dürer\tEs regnet .\n", encoding="utf-8")
    assert main([str(source), str(tmp_path / "out"), "--langs", "en,de"]) == 0
    assert written(tmp_path / "out") == {name: text for name, text in EXPECTED.items() if name != "test.de.tsv"}
    assert "xglue.qam.de.test: no labeled pairs for test.de.tsv, which is not written" in caplog.text


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("xglue.qam.de.dev", None, "{path}: there is no such file"),
        ("xglue.qam.de.dev", b"", "{path}, line 1: the file is empty"),
        ("xglue.qam.de.dev", b"was\tDas .\tGood\n", "{path}, line 1: label 'Good' is none of 0, 1"),
        ("xglue.qam.de.dev", b"was\tDas .\t1\nwas\tDas .\t-1\n", "{path}, line 2: label '-1' is none of 0, 1"),
        (
            "xglue.qam.de.dev",
            b"was\tDas .\n",
            "{path}, line 1: expected question TAB passage TAB label, found 2 fields",
        ),
        (
            "xglue.qam.en.train",
            b"7\twhat\tThat .\t1\n",
            "{path}, line 1: expected question TAB passage TAB label, found 4 fields",
        ),
        (
            "xglue.qam.de.test",
            b"was\tDas .\t1\nwas\tDas .\n",
            "{path}, line 2: expected 3 fields as in the first line, found 2",
        ),
        ("xglue.qam.de.test", b"was\tSch\xf6n .\t1\n", "{path}, line 1: not UTF-8"),
    ],
)
def test_problems_are_one_sentence(name, content, message, source, tmp_path, capsys):
    path = source / "QAM" / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert main([str(source), str(tmp_path / "out"), "--langs", "en,de"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "xglue_qam: " + message.format(path=path)
    assert not (tmp_path / "out/manifest.json").exists() and not list(tmp_path.rglob("*.tmp"))


def test_an_unknown_language_is_one_sentence(source, tmp_path, capsys):
    assert main([str(source), str(tmp_path / "out"), "--langs", "es"]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("xglue_qam: ") and "--langs" in error and "'es'" in error and error.endswith(" de, en, fr")
