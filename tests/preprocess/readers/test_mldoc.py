"""MLDoc, from small files in the format of its generate_documents.py."""

import json
import shutil
from pathlib import Path

from fairseq_xl.evaluation.task_files import read_examples
from preprocess.readers.mldoc import LANGUAGES, main

FILES = Path(__file__).parents[1] / "files/mldoc"


def read(*arguments):
    return main([str(argument) for argument in arguments])


def test_what_is_written_is_what_classification_reads(tmp_path):
    """The German files are as Python 3 writes them, the representation of bytes."""
    assert read(FILES, tmp_path, "--langs", "en,de") == 0
    found = [(example.label, example.texts) for example in read_examples(tmp_path / "train.de.tsv", "de")]
    assert found == [
        ("GCAT", ("Der Bürgermeister eröffnete eine Bücherei.",)),
        ("MCAT", ("Die Getreidepreise fielen.",)),
    ]
    assert (tmp_path / "valid.en.tsv").read_text(encoding="utf-8") == "ECAT\tExports rose in May.\n"
    counts = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))["counts"]
    assert counts["test.de.tsv"] == {"lines": 2, "empty": 0, "labels": {"CCAT": 1, "GCAT": 1}}
    assert len(LANGUAGES) == 8


def test_files_in_one_folder_and_another_size(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for path in FILES.glob("english/*"):
        shutil.copy(path, folder / path.name.replace("1000", "5000"))
    assert read(folder, tmp_path / "out", "--langs", "en", "--size", "5000") == 0
    assert len(read_examples(tmp_path / "out/train.en.tsv", "en")) == 3


def test_problems_name_their_lines(tmp_path, capsys):
    folder = tmp_path / "in"
    shutil.copytree(FILES, folder)
    dev, test = folder / "english/english.dev", folder / "english/english.test"
    dev.write_text("GCAT\tRain.\nXCAT\tRain.\nGCAT\t \n", encoding="utf-8")
    test.write_bytes(b"a\tGCAT\tRain.\nGCAT\tRain.\na\tGCAT\tSch\xf6n.\n")
    assert read(folder, tmp_path / "out", "--langs", "en") == 1
    assert capsys.readouterr().err.split("mldoc: ", 1)[1].splitlines() == [
        "5 problems:",
        f"  - {dev}, line 2: label 'XCAT' is not one of CCAT, ECAT, GCAT, MCAT",
        f"  - {dev}, line 3: an empty text",
        f"  - {test}, line 1: expected a label and a text, found 3 fields",
        f"  - {test}, line 2: expected 3 fields as in the first line, found 2",
        f"  - {test}, line 3: not UTF-8",
    ]
    assert not (tmp_path / "out/train.en.tsv").exists()
