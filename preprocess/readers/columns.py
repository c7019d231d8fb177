"""Reads columns of Parquet, JSON lines, Arrow, and datasets of Hugging Face saved to disk.

    fairseq-xl data read columns corpora/my mono/train.en=wiki.parquet:text \\
        bitext/train.en-de.en=news.jsonl.gz:translation.en bitext/train.en-de.de=news.jsonl.gz:translation.de \\
        tasks/nli/train.en.tsv=nli/train:label,premise,hypothesis

Each FILE=SOURCE:COLUMNS makes a file below DEST of a column, or of several with tabs between; a dot leads into an
object. A row becomes a line, in the order of the source, with one space for each run of white space. Where the columns
are lists, such as words and their tags, a row becomes a line for each element, and an empty line. Numbers of labels
become their names.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from tqdm import tqdm

from fairseq_xl.commands import parser_of
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.compressed import BUFFER, lines_of, text_of
from fairseq_xl.io.files import replacing
from fairseq_xl.io.fingerprints import sha256_of
from fairseq_xl.io.text import is_blank, text_of_line
from preprocess.commands import run
from preprocess.config import SPLITS
from preprocess.readers.folder import describe
from preprocess.stages import Stages, locked

ROWS = 1000  # rows in memory at a time
SURROGATE = re.compile("[\ud800-\udfff]")  # JSON can have halves of characters, which UTF-8 has not
PARQUET, ARROW = ".parquet", ".arrow"


class Source(NamedTuple):
    """Columns of a file or folder, and the file that they make."""

    name: str  # below the folder of the corpus
    path: Path
    columns: tuple[str, ...]

    @classmethod
    def parse(cls, argument: str) -> "Source":
        """Reads ``FILE=SOURCE:COLUMNS``; raises UserError for another form."""
        name, _, source = argument.partition("=")
        path, _, columns = source.rpartition(":")
        names = tuple(columns.split(","))
        if not all((name, path, *names)) or Path(name).is_absolute() or ".." in Path(name).parts:
            raise UserError(f"{argument}: expected FILE=SOURCE:COLUMNS, such as mono/train.en=wiki.parquet:text")
        return cls(name, Path(path), names)

    def files(self) -> list[Path]:
        """The files of a dataset that is a folder, in order, or the file; raises UserError if there is none."""
        if not self.path.is_dir():
            if not self.path.is_file():
                raise UserError(f"{self.path}: there is no such file or folder")
            return [self.path]
        listed = self.path / "state.json"  # of a dataset that was saved to disk
        if listed.is_file():
            try:
                return [self.path / file["filename"] for file in json.loads(listed.read_bytes())["_data_files"]]
            except (ValueError, KeyError, TypeError) as error:
                raise UserError(f"{listed} is damaged: it does not list the files of the dataset") from error
        files = sorted(file for file in self.path.iterdir() if file.suffix in (PARQUET, ARROW))
        if not files:
            splits = [path.name for path in sorted(self.path.iterdir()) if (path / "state.json").is_file()]
            hint = f", choose one of its splits {', '.join(splits)}" if splits else ""
            raise UserError(f"{self.path} has no {PARQUET} or {ARROW} files{hint}")
        return files


def rows_of(path: Path, columns: Sequence[str]) -> Iterator[list[Any]]:
    """Yields the values of the columns of each row; raises UserError for a damaged file and a missing column."""
    if path.suffix not in (PARQUET, ARROW):
        with open(path, "rb") as file:
            yield from _json_rows(path, text_of(file), columns)
        return
    import pyarrow

    try:
        schema, batches = _batches(path, columns)
        names = [_labels(schema, name) for name in columns]
        for row in (row for batch in batches for row in batch.to_pylist()):
            yield [_named(_value(row, name, path), classes) for name, classes in zip(columns, names)]
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path} is damaged or has another format: {str(error).splitlines()[0]}") from error


def _batches(path: Path, columns: Sequence[str]) -> tuple[Any, Iterator[Any]]:
    """The schema of a file, and its rows of some columns in pieces; raises UserError for a missing column."""
    import pyarrow
    import pyarrow.parquet

    if path.suffix == PARQUET:
        file = pyarrow.parquet.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER)
        names = file.schema_arrow.names
        roots = {name: name if name in names else name.partition(".")[0] for name in columns}
        for name, root in roots.items():
            if root not in names:
                raise _no_column(path, name, names)
        return file.schema_arrow, file.iter_batches(ROWS, columns=list(dict.fromkeys(roots.values())))
    reader = pyarrow.ipc.open_stream(pyarrow.memory_map(str(path)))
    return reader.schema, (batch.slice(first, ROWS) for batch in reader for first in range(0, batch.num_rows, ROWS))


def _json_rows(path: Path, text: BinaryIO, columns: Sequence[str]) -> Iterator[list[Any]]:
    for number, line in enumerate(lines_of(text, str(path)), start=1):
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}: expected a JSON object on each line: {error}") from error
        if not isinstance(row, dict):
            raise UserError(f"{where}: expected a JSON object, found {quoted(row)}")
        yield [_value(row, name, where) for name in columns]


def _value(row: dict[str, Any], name: str, where: object) -> Any:
    """The value of a column; dots lead into objects."""
    value: Any = row
    for part in [name] if name in row else name.split("."):
        if not isinstance(value, dict) or part not in value:
            raise _no_column(where, name, row)
        value = value[part]
    return value


def _no_column(where: object, name: str, names: Iterable[str]) -> UserError:
    return UserError(f"{where}: there is no column {name}, expected one of {', '.join(map(str, names))}")


def _labels(schema: Any, column: str) -> dict[int, str]:
    """{number: name} of the labels of a column that the metadata of a dataset name."""
    try:
        entry = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        for part in [column] if column in entry else column.split("."):
            entry = entry[part]
            entry = entry.get("feature", entry) if isinstance(entry, dict) else entry
        return dict(enumerate(entry["names"]))
    except (KeyError, ValueError, TypeError):
        return {}


def _named(value: Any, names: dict[int, str]) -> Any:
    """The names of labels; None for the number of a label that is missing, such as -1."""
    if isinstance(value, list):
        return [_named(element, names) for element in value]
    return names.get(value) if names and isinstance(value, int) else value


def lines_of_row(values: Sequence[Any], documents: bool, where: str) -> list[str]:
    """The lines of a row: one, or a line for each element of its lists, or the lines of its text for `documents`.

    An empty line ends the lines of lists and of a document.

    White space, tabs and ends of lines included, becomes one space. Raises UserError for lists of different lengths and
    for a missing value.
    """
    lists = [value for value in values if isinstance(value, list)]
    if lists and (len(lists) < len(values) or {*map(len, lists)} != {len(lists[0])}):
        raise UserError(f"{where}: expected lists of equal length in all columns")
    rows = list(zip(*values)) if lists else [tuple(values)]
    if documents and not lists:
        rows = [(line,) for line in _text(values[0], where).split("\n") if not is_blank(line)]
    cells = [[text_of_line(_text(value, where)) for value in row] for row in rows]
    if lists and not all(map(all, cells)):
        raise UserError(f"{where}: an element of a list is empty")
    return ["\t".join(row) for row in cells] + [""] * bool(lists or (documents and cells))


def _text(value: Any, where: str) -> str:
    text = json.dumps(value) if isinstance(value, bool) else str(value)
    if value is None or isinstance(value, (dict, list, bytes)) or SURROGATE.search(text):
        raise UserError(f"{where}: expected text or a number, found {quoted(value)}")
    return text


def _write(output: Path, source: Source, files: list[Path], documents: bool) -> dict[str, int]:
    """Writes a file; returns the numbers of rows and lines."""
    counts = {"rows": 0, "lines": 0}
    with replacing(output, make_folder=True) as file:
        for path in files:
            for row in tqdm(rows_of(path, source.columns), desc=f"write {source.name}", unit=" rows", disable=None):
                counts["rows"] += 1
                lines = lines_of_row(row, documents, f"{path}, row {counts['rows']}")
                counts["lines"] += len(lines)
                file.write("".join(f"{line}\n" for line in lines).encode())
        if not counts["rows"]:
            raise UserError(f"{source.path} has no rows")
    return counts


def build(folder: Path, sources: Sequence[Source], documents: bool) -> None:
    """Writes a file for each source, and a description of those in mono/ and bitext/; raises UserError."""
    stages, hashes, counts = Stages(folder, "corpus"), {}, {}
    with locked(stages):
        for source in sources:
            files, output = source.files(), folder / source.name
            hashes |= {str(file): sha256_of(file) for file in files if str(file) not in hashes}
            inputs = {"files": [hashes[str(file)] for file in files], "columns": source.columns, "documents": documents}
            counts[source.name] = stages.run(
                source.name, inputs, [output], lambda: _write(output, source, files, documents)
            )
        texts = [Path(source.name) for source in sources if Path(source.name).stem.split(".")[0] in SPLITS]
        pairs = list(dict.fromkeys(path.name.split(".")[1] for path in texts if path.parts[0] == "bitext"))
        languages = list(dict.fromkeys(path.suffix[1:] for path in texts if path.parts[0] in ("mono", "bitext")))
        stages.finish(
            {"counts": counts, "files": hashes}, (lambda: describe(folder, languages, pairs)) if languages else None
        )


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = parser_of(__name__)
    parser.add_argument("destination", metavar="DEST", type=Path, help="folder to write")
    parser.add_argument(
        "sources",
        metavar="FILE=SOURCE:COLUMNS",
        nargs="+",
        help="file to write, source (.parquet, .arrow, a folder of such files, otherwise JSON lines, compressed or "
        "not), and its columns, separated by commas",
    )
    text = "a row is a document: each of its lines is a line, and an empty line follows; of files with one column"
    parser.add_argument("--documents", action="store_true", help=text)
    options = parser.parse_args(arguments)

    def work() -> None:
        sources = [Source.parse(argument) for argument in options.sources]
        if options.documents and any(len(source.columns) > 1 for source in sources):
            raise UserError("--documents is for files of one column")
        if len({source.name for source in sources}) < len(sources):
            raise UserError("a FILE is named twice")
        build(options.destination, sources, options.documents)

    return run(work, options.destination, "columns: ")
