"""PAWS-X, from small files made here in the release's format."""

import json
import shutil

import pytest

from preprocess.readers.pawsx import main

HEADER = "id\tsentence1\tsentence2\tlabel"
FILES = {
    "en/train.tsv": [
        '1\tIn Paris , in " October 1560 " , he met him .\tIn " October 1560 , he met him in Paris .\t0',
        "2\tThe NBA season was the 30th .\tIt was the 30th season of the NBA .\t1",
    ],
    "en/dev_2k.tsv": ["1\tThe road goes west .\tWest goes the road .\t1"],
    "en/test_2k.tsv": ["1\tShe was born in Bonn .\tBonn was born in her .\t0"],
    "de/translated_train.tsv": [
        "1\tIn Paris traf er ihn.\tEr traf ihn in Paris.\t0",
        "2\t\t\t1",
        "3\tNS-Zeit\tDie NS -Zeit\t1",
    ],
    "de/dev_2k.tsv": [
        "1\tDie Straße führt nach Westen.\tNS\t0",
        "2\tNS\tNS\t0",
        "3\tDer Weg ist lang.\tLang ist der Weg.\t1",
        "4\t \tLang.\t1",
    ],
    "de/test_2k.tsv": ["1\tSie kam aus Bonn.\tAus ihr kam Bonn.\t0"],
}
EXPECTED = {
    "train.en.tsv": (
        '0\tIn Paris , in " October 1560 " , he met him .\tIn " October 1560 , he met him in Paris .\n'
        "1\tThe NBA season was the 30th .\tIt was the 30th season of the NBA .\n"
    ),
    "valid.en.tsv": "1\tThe road goes west .\tWest goes the road .\n",
    "test.en.tsv": "0\tShe was born in Bonn .\tBonn was born in her .\n",
    "translate_train/train.de.tsv": ("0\tIn Paris traf er ihn.\tEr traf ihn in Paris.\n1\tNS-Zeit\tDie NS -Zeit\n"),
    "valid.de.tsv": "1\tDer Weg ist lang.\tLang ist der Weg.\n",
    "test.de.tsv": "0\tSie kam aus Bonn.\tAus ihr kam Bonn.\n",
}


@pytest.fixture
def source(tmp_path):
    """The unpacked release."""
    for name, lines in FILES.items():
        path = tmp_path / "in/x-final" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes("".join(f"{line}\n" for line in [HEADER, *lines]).encode())
    return tmp_path / "in"


def written(folder):
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in folder.rglob("*.tsv")}


@pytest.mark.parametrize("place", [".", "x-final"])
def test_pairs_without_a_translation_are_left_out_and_counted(place, source, tmp_path):
    assert main([str(source / place), str(tmp_path / "out"), "--langs", "en,de"]) == 0
    assert written(tmp_path / "out") == EXPECTED
    manifest = json.loads((tmp_path / "out/manifest.json").read_text(encoding="utf-8"))
    assert manifest["corpus"] == ["PAWS-X"] and manifest["languages"] == ["en", "de"]
    assert manifest["counts"] == {
        "train.en.tsv": {"lines": 2, "empty": 0, "NS": 0, "labels": {"0": 1, "1": 1}},
        "valid.en.tsv": {"lines": 1, "empty": 0, "NS": 0, "labels": {"1": 1}},
        "test.en.tsv": {"lines": 1, "empty": 0, "NS": 0, "labels": {"0": 1}},
        "translate_train/train.de.tsv": {"lines": 2, "empty": 1, "NS": 0, "labels": {"0": 1, "1": 1}},
        "valid.de.tsv": {"lines": 1, "empty": 1, "NS": 2, "labels": {"1": 1}},
        "test.de.tsv": {"lines": 1, "empty": 0, "NS": 0, "labels": {"0": 1}},
    }


@pytest.fixture
def archive(source, tmp_path):
    """The release as it is distributed."""
    return shutil.make_archive(str(tmp_path / "x-final"), "gztar", source, "x-final")


def test_the_archive_is_read_like_its_folder(source, archive, tmp_path, caplog):
    caplog.set_level("INFO")
    assert main([str(source / "x-final"), str(tmp_path / "folder"), "--langs", "en,de"]) == 0
    assert main([archive, str(tmp_path / "out"), "--langs", "en,de"]) == 0
    assert written(tmp_path / "out") == EXPECTED
    manifest = (tmp_path / "out/manifest.json").read_bytes()
    assert manifest == (tmp_path / "folder/manifest.json").read_bytes() and b"de/dev_2k.tsv" in manifest
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.*")}
    caplog.clear()
    assert main([archive, str(tmp_path / "out"), "--langs", "en,de"]) == 0
    assert times == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.*")}
    assert caplog.messages[0] == f"unpack {archive}" and caplog.messages[1:] == [
        f"{split} {language}: up to date" for language in ("en", "de") for split in ("train", "valid", "test")
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "in", "out", "x-final.tar.gz"]


def test_problems_in_an_archive_name_it_and_the_file(source, tmp_path, capsys):
    (source / "x-final/de/dev_2k.tsv").write_text(f"{HEADER}\n1\tJa.\tNein.\t2\n", encoding="utf-8")
    (source / "x-final/de/test_2k.tsv").unlink()
    path = shutil.make_archive(str(tmp_path / "x-final"), "tar", source, "x-final")
    assert main([path, str(tmp_path / "out"), "--langs", "de"]) == 1
    missing = f"pawsx: {path}/x-final/de/test_2k.tsv: there is no such file"
    assert capsys.readouterr().err.splitlines()[-1] == missing
    shutil.copy(source / "x-final/en/test_2k.tsv", source / "x-final/de/test_2k.tsv")
    path = shutil.make_archive(str(tmp_path / "x-final"), "tar", source, "x-final")
    assert main([path, str(tmp_path / "out"), "--langs", "de"]) == 1
    wrong = f"pawsx: {path}/x-final/de/dev_2k.tsv, line 2: label '2' is not one of 0, 1"
    assert capsys.readouterr().err.splitlines()[-1] == wrong
    assert not written(tmp_path / "out") and not list(tmp_path.glob("*unpacked*"))


def test_a_damaged_archive_is_one_sentence_and_nothing_is_written(archive, tmp_path, capsys):
    with open(archive, "r+b") as file:
        file.truncate(300)
    assert main([archive, str(tmp_path / "out"), "--langs", "en,de"]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == f"pawsx: {archive} is truncated: its gzip data has no end"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "x-final.tar.gz"]


def test_a_missing_release_is_one_sentence(tmp_path, capsys):
    assert main([f"{tmp_path}/x-final.tar.gz", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err == f"pawsx: {tmp_path}/x-final.tar.gz: there is no such file or folder\n"


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("de/dev_2k.tsv", None, "{path}: there is no such file"),
        ("de/dev_2k.tsv", b"", "{path}, line 1: the file is empty"),
        ("de/dev_2k.tsv", f"{HEADER}\n1\tNS\tNS\t0\n".encode(), "{path}: there is no example in language 'de'"),
        ("de/dev_2k.tsv", f"{HEADER}\n1\tJa.\tNein.\t2\n".encode(), "{path}, line 2: label '2' is not one of 0, 1"),
        (
            "de/dev_2k.tsv",
            f"{HEADER}\n1\tJa.\tNein.\n".encode(),
            "{path}, line 2: expected 4 fields as in the first line, found 3",
        ),
        (
            "en/train.tsv",
            b"1\tYes .\tNo .\t0\n",
            "{path}, line 1: expected a header with sentence1, sentence2, label; sentence1, sentence2, label is not in "
            "'1 Yes . No . 0'",
        ),
        ("en/train.tsv", f"{HEADER}\n1\tNo .\tN\xe3o .\t0\n".encode("latin-1"), "{path}, line 2: not UTF-8"),
    ],
)
def test_problems_are_one_sentence(name, content, message, source, tmp_path, capsys):
    path = source / "x-final" / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert main([str(source), str(tmp_path / "out"), "--langs", "en,de"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "pawsx: " + message.format(path=path)
    assert not (tmp_path / "out/manifest.json").exists() and not list(tmp_path.rglob("*.tmp"))


def test_an_unknown_language_is_one_sentence(source, tmp_path, capsys):
    assert main([str(source), str(tmp_path / "out"), "--langs", "en,ru"]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("pawsx: ") and "--langs" in error and "'ru'" in error
    assert "de, en, es, fr, ja, ko, zh" in error
