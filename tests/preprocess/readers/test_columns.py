"""Columns of Parquet, JSON lines and saved datasets become text and task files."""

import gzip
import json

import pytest
import yaml

from preprocess.readers.columns import main
from tests.preprocess.readers.written_files import lines

pyarrow = pytest.importorskip("pyarrow")

ROWS = [{"id": i, "translation": {"en": f"line {i} \u2028of text", "de": f"Zeile {i}"}} for i in range(2500)]


def write_dataset(folder, rows, features, pieces=2):
    """A dataset as `save_to_disk` writes it."""
    folder.mkdir(parents=True)
    table = pyarrow.Table.from_pylist(rows)
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    names = [f"data-{i:05}-of-{pieces:05}.arrow" for i in range(pieces)]
    size = -(-len(rows) // pieces)
    for i, name in enumerate(names):
        with pyarrow.ipc.new_stream(str(folder / name), table.schema) as writer:
            writer.write_table(table.slice(i * size, size))
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    return folder


@pytest.mark.parametrize("kind", ["rows.parquet", "rows.jsonl.gz", "folder of parquet"])
def test_pairs_of_text(tmp_path, kind):
    path = tmp_path / kind
    if kind == "rows.jsonl.gz":
        path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in ROWS).encode()))
    else:
        import pyarrow.parquet

        half = len(ROWS) // 2
        path = path if path.suffix else path / "a.parquet"
        path.parent.mkdir(exist_ok=True)
        pieces = [ROWS] if path.parent == tmp_path else [ROWS[:half], ROWS[half:]]
        for piece, file in zip(pieces, (path, path.with_name("b.parquet"))):
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(piece), file, row_group_size=700)
        path = path if len(pieces) == 1 else path.parent
    outputs = [f"bitext/train.en-de.{side}={path}:translation.{side}" for side in ("en", "de")]
    arguments = [str(tmp_path / "out"), *outputs, f"mono/valid.en={path}:id"]
    assert main(arguments) == 0
    assert lines(tmp_path / "out/bitext/train.en-de.en") == [f"line {i} of text" for i in range(len(ROWS))]
    assert lines(tmp_path / "out/bitext/train.en-de.de") == [row["translation"]["de"] for row in ROWS]
    description = yaml.safe_load((tmp_path / "out/corpus.yaml").read_text())
    assert description["bitext"] == {"en-de": {"train": "bitext/train.en-de"}}
    assert description["monolingual"]["en"]["valid"] == "mono/valid.en" and set(description["languages"]) == {
        "en",
        "de",
    }
    before = (tmp_path / "out/bitext/train.en-de.en").stat().st_mtime_ns
    assert main(arguments) == 0 and (tmp_path / "out/bitext/train.en-de.en").stat().st_mtime_ns == before


def test_labels_and_tags_of_a_saved_dataset(tmp_path):
    rows = [{"label": i % 2, "premise": f"a\t{i}", "words": ["x", "y"], "tags": [0, 1]} for i in range(5)]
    label = {"names": ["no", "yes"], "_type": "ClassLabel"}
    features = {"label": label, "premise": {"dtype": "string"}, "tags": {"feature": label, "_type": "Sequence"}}
    source = write_dataset(tmp_path / "nli" / "train", rows, features)
    outputs = [f"nli/train.en.tsv={source}:label,premise", f"ner/train.en.tsv={source}:words,tags"]
    assert main([str(tmp_path / "out"), *outputs]) == 0
    assert lines(tmp_path / "out/nli/train.en.tsv") == ["no\ta 0", "yes\ta 1", "no\ta 2", "yes\ta 3", "no\ta 4"]
    assert lines(tmp_path / "out/ner/train.en.tsv") == ["x\tno", "y\tyes", ""] * 5
    assert not (tmp_path / "out/corpus.yaml").exists()


def test_documents(tmp_path):
    path = tmp_path / "pages.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in ("a b\n\nc\r\n", " ", "d")))
    assert main([str(tmp_path / "out"), f"mono/train.en={path}:text", "--documents"]) == 0
    assert lines(tmp_path / "out/mono/train.en") == ["a b", "c", "", "d", ""]


@pytest.mark.parametrize(
    "content, argument, expected",
    [
        ('{"text": "a"}\n', "mono/train.en={}:body", "line 1: there is no column body, expected one of text"),
        ('{"text": "a"}\n["b"]\n', "mono/train.en={}:text", "line 2: expected a JSON object, found"),
        ('{"text": "a"}\n{"te', "mono/train.en={}:text", "line 2: expected a JSON object on each line: "),
        ('{"text": null}\n', "mono/train.en={}:text", "row 1: expected text or a number, found None"),
        ('{"a": ["x"], "b": ["y", "z"]}\n', "t.tsv={}:a,b", "row 1: expected lists of equal length in all columns"),
        ('{"text": "a\\ud800"}\n', "mono/train.en={}:text", "row 1: expected text or a number, found 'a"),
        ('{"a": ["x", " "]}\n', "t.tsv={}:a", "row 1: an element of a list is empty"),
        ("", "mono/train.en={}:text", "has no rows"),
        (None, "mono/train.en={}:text", "there is no such file or folder"),
        ("", "mono/train.en={}", "expected FILE=SOURCE:COLUMNS, such as"),
        ("", "../train.en={}:text", "expected FILE=SOURCE:COLUMNS, such as"),
    ],
)
def test_mistakes(tmp_path, capsys, content, argument, expected):
    path = tmp_path / "rows.jsonl"
    if content is not None:
        path.write_text(content)
    assert main([str(tmp_path / "out"), argument.format(path)]) == 1
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith("columns: ") and expected in error
    assert not list(tmp_path.glob("out/**/*.en"))


def test_labels_that_are_missing_and_nested(tmp_path, capsys):
    label = {"names": ["no", "yes"], "_type": "ClassLabel"}
    rows = [{"gold": {"label": 1}, "label": -1, "sure": True}]
    source = write_dataset(tmp_path / "test", rows, {"gold": {"label": label}, "label": label}, 1)
    assert main([str(tmp_path / "out"), f"a.tsv={source}:gold.label,sure"]) == 0
    assert lines(tmp_path / "out/a.tsv") == ["yes\ttrue"]
    assert main([str(tmp_path / "other"), f"a.tsv={source}:label"]) == 1
    assert "row 1: expected text or a number, found None" in capsys.readouterr().err


def test_a_damaged_file_and_a_folder_of_splits(tmp_path, capsys):
    import pyarrow.parquet

    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    assert main([str(tmp_path / "out"), f"mono/train.en={path}:text"]) == 1
    assert "there is no column text, expected one of id, translation" in capsys.readouterr().err
    path.write_bytes(path.read_bytes()[:-100])
    assert main([str(tmp_path / "out"), f"mono/train.en={path}:id"]) == 1
    assert "rows.parquet is damaged or has another format" in capsys.readouterr().err
    write_dataset(tmp_path / "nli" / "train", ROWS, {})
    assert main([str(tmp_path / "out"), f"mono/train.en={tmp_path / 'nli'}:id"]) == 1
    assert "choose one of its splits train" in capsys.readouterr().err
