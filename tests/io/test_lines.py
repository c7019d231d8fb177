"""Streams of raw text in buffers."""

import gzip
import io
import sys

import pytest

from fairseq_xl.errors import UserError
from fairseq_xl.io.lines import read_buffers


def test_lines_end_in_lf_or_cr_lf_and_nothing_else(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("\ufeffa\r\n\n b\u2028c \rd\ne".encode())
    assert list(read_buffers(str(path), 2)) == [["a", ""], [" b\u2028c \rd", "e"]]
    path.write_bytes(gzip.compress(b"a\nb\n"))
    assert list(read_buffers(str(path), 5)) == [["a", "b"]]
    path.write_bytes(b"")
    assert list(read_buffers(str(path))) == []


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb\nc")))
    assert list(read_buffers(None, 2)) == [["a", "b"], ["c"]]


def test_a_terminal_is_answered_line_by_line(monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"a\nb\n"))
    stdin.isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", stdin)
    assert list(read_buffers(None)) == [["a"], ["b"]]


@pytest.mark.parametrize(
    "content, size, message",
    [
        (b"a\nb\xff\n", 1, "text, line 2: not UTF-8, it has the byte 0xff"),
        (b"a\n", 0, "--buffer-size 0: 1 or more is needed"),
        (gzip.compress(b"a\nb\n" * 99, mtime=0)[:-9], None, "text is truncated"),
        (None, None, "text: no such file"),
        ("folder", None, "text: Is a directory"),
    ],
)
def test_what_is_refused(tmp_path, content, size, message):
    path = tmp_path / "text"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        list(read_buffers(str(path), size))
