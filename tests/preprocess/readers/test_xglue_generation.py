"""NTG and QG of XGLUE, from small files made here in the release's format."""

import json
from pathlib import Path

import pytest

from preprocess.readers.xglue_generation import main

SIDES = ("src", "tgt")
FILES = {
    "xglue.ntg.en.src.train": ['The "river"\u00a0rose  again .\tIt rained .', "A book was\u2028read .", "No title ."],
    "xglue.ntg.en.tgt.train": ["River rises", "Book\u2028read\r", ""],
    "xglue.ntg.en.src.dev": ["It rained ."],
    "xglue.ntg.en.tgt.dev": ["Rain"],
    "xglue.ntg.en.src.test": ["It was dry ."],
    "xglue.ntg.en.tgt.test": ["Dry"],
    "xglue.ntg.de.src.dev": ["Es regnete ."],
    "xglue.ntg.de.tgt.dev": ["Regen"],
    "xglue.ntg.de.src.test": ["Es war trocken .", "Schön ."],
    "xglue.ntg.de.tgt.test": ["Trocken", "Schönes"],
}
EXPECTED = {
    "train.en.src": 'The "river" rose again . It rained .\nA book was read .\n',
    "train.en.tgt": "River rises\nBook read\n",
    "valid.en.src": "It rained .\n",
    "valid.en.tgt": "Rain\n",
    "test.en.src": "It was dry .\n",
    "test.en.tgt": "Dry\n",
    "valid.de.src": "Es regnete .\n",
    "valid.de.tgt": "Regen\n",
    "test.de.src": "Es war trocken .\nSchön .\n",
    "test.de.tgt": "Trocken\nSchönes\n",
}


@pytest.fixture
def source(tmp_path):
    """The unpacked release: NTG, and QG with the same text."""
    for folder, task in (("NTG", "ntg"), ("QG", "qg")):
        (tmp_path / "in" / folder).mkdir(parents=True)
        for name, lines in FILES.items():
            content = "".join(f"{line}\n" for line in lines).encode()
            (tmp_path / "in" / folder / name.replace("ntg", task)).write_bytes(content)
    return tmp_path / "in"


def read(source, folder, *more, task="ntg"):
    return main([task, str(source), str(folder), "--langs", "en,de", *more])


def test_the_files_that_are_stored_with_the_tests(tmp_path):
    stored = Path(__file__).parents[1] / "files/xglue"
    for task, pairs in (("ntg", 2), ("qg", 1)):
        assert read(stored, tmp_path / task, task=task) == 0
        counts = {name: content.count("\n") for name, content in written(tmp_path / task).items()}
        parts = ("train.en", "valid.en", "valid.de", "test.en", "test.de")
        names = [f"{part}.{side}" for part in parts for side in SIDES]
        assert counts == dict.fromkeys(names, pairs)


def written(folder):
    return {path.name: path.read_bytes().decode() for path in folder.glob("*.*.*")}


@pytest.mark.parametrize("task, place", [("ntg", "."), ("ntg", "NTG"), ("qg", ".")])
def test_sources_and_targets_line_by_line(task, place, source, tmp_path):
    assert read(source / place, tmp_path / "out", task=task) == 0
    assert written(tmp_path / "out") == EXPECTED
    manifest = json.loads((tmp_path / "out/manifest.json").read_text(encoding="utf-8"))
    assert manifest["counts"]["train.en"] == {"pairs": 2, "empty": 1} and len(manifest["files"]) == 10
    assert manifest["corpus"] == [f"XGLUE {task.upper()}"] and manifest["languages"] == ["en", "de"]


def test_a_test_set_keeps_every_line(source, tmp_path):
    """Outputs are scored against the release line by line; validation, which needs text, leaves empty sides out."""
    for side, lines in (("src", "a\n\nc\n"), ("tgt", "A\nB\n \n")):
        for split in ("dev", "test"):
            (source / f"NTG/xglue.ntg.de.{side}.{split}").write_text(lines)
    assert read(source, tmp_path / "out") == 0
    found = written(tmp_path / "out")
    assert [found[f"test.de.{side}"] for side in SIDES] == ["a\n\nc\n", "A\nB\n\n"]
    assert [found[f"valid.de.{side}"] for side in SIDES] == ["a\n", "A\n"]


def test_of_a_test_set_without_targets_the_sources_are_written(source, tmp_path, caplog):
    """The release as it was before they were published."""
    (source / "NTG/xglue.ntg.de.tgt.test").unlink()
    assert read(source, tmp_path / "out") == 0
    assert written(tmp_path / "out") == {name: text for name, text in EXPECTED.items() if name != "test.de.tgt"}
    assert "no targets of test.de, which can be generated, but not scored" in caplog.text
    (source / "NTG/xglue.ntg.de.src.test").write_text("\n")
    assert read(source, tmp_path / "out") == 1


def test_problems_are_one_sentence(source, tmp_path, capsys):
    path = source / "NTG/xglue.ntg.de.src.dev"
    for content, message in (
        (b"a\nb\n", "one side ends at line 1, the other one has more lines"),
        (b"\n", "there is no pair of two texts"),
    ):
        path.write_bytes(content)
        assert read(source, tmp_path / "out") == 1
        assert capsys.readouterr().err.splitlines()[-1] == f"xglue_generation: {path}: {message}"
        assert not (tmp_path / "out/manifest.json").exists() and not list(tmp_path.rglob("*.tmp"))
