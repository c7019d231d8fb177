"""Reads the output of wikiextractor: <doc> elements or lines of JSON."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from fairseq_xl.errors import UserError
from fairseq_xl.io.compressed import lines_of
from fairseq_xl.io.text import lines_in
from preprocess.readers.wikipedia.files import opened

HEAD = re.compile(r'<doc id="([^"]*)".* title="(.*)">')

Document = tuple[str, list[str]]  # id of the page, paragraphs


def tagged(path: Path) -> Iterator[Document]:
    """Yields the documents of a file of <doc> elements, without the title, which is repeated as the first line.

    Raises UserError if the file ends inside a document or has text outside of documents.
    """
    with opened(path) as file:
        head: re.Match | None = None
        lines: list[str] = []
        for line_number, raw in enumerate(lines_of(file, str(path)), start=1):
            line = "".join(lines_in(raw, path, line_number)).strip()
            if head is None and line:
                head, lines = HEAD.fullmatch(line), []
                if head is None:
                    raise UserError(f"{path}, line {line_number}: expected <doc id=... title=...>, found {line[:40]}")
            elif head is not None and line == "</doc>":
                yield head[1], lines[1:] if lines[:1] == [head[2]] else lines
                head = None
            elif line:
                lines.append(line)
    if head is not None:
        raise UserError(f"{path} is damaged (it ends in a document): get it again")


def json_lines(path: Path) -> Iterator[Document]:
    """Yields the documents of a file of --json; raises UserError for any other line."""
    with opened(path) as file:
        for line_number, raw in enumerate(lines_of(file, str(path)), start=1):
            try:
                page = json.loads(raw)
                yield str(page["id"]), page["text"].split("\n")
            except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
                raise UserError(
                    f"{path}, line {line_number}: expected JSON with id and text, as wikiextractor --json writes it"
                ) from error
