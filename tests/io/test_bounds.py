"""What a small file may not ask for: long lines, many lines, text that grows, JSON of many values."""

import functools
import gzip
import io
import lzma

import pytest
import zstandard

from fairseq_xl.errors import UserError, check_number
from fairseq_xl.io import bounds
from fairseq_xl.io.compressed import lines_of, read_text, text_of
from fairseq_xl.io.files import json_object, parsed_json, read_whole

COMPRESS = {"gz": gzip.compress, "xz": lzma.compress, "zst": zstandard.compress}
COMPRESS["fast.gz"] = functools.partial(gzip.compress, compresslevel=1)  # 230 times smaller, for a repeated byte


@pytest.mark.parametrize(
    "suffix, content", [("gz", b"\n"), ("gz", b"x"), ("xz", b"x"), ("zst", b"\n"), ("fast.gz", b"x")]
)
def test_compressed_text_that_grows_is_refused_before_any_of_it_is_read(tmp_path, suffix, content):
    path, text = tmp_path / f"text.{suffix}", b"".join(b"%x\n" % number**9 for number in range(1000))
    path.write_bytes(COMPRESS[suffix](text) + COMPRESS[suffix](content * 40_000_000))
    with open(path, "rb") as file:
        lines = lines_of(text_of(file), path.name)
        with pytest.raises(UserError, match=f"text.{suffix} is refused"):
            sum(1 for _ in zip(range(1001), lines))


def test_a_repetitive_text_is_read(tmp_path):
    repeated = b"the same line\n" * 1_000_000  # gzip: 400 times as large
    (tmp_path / "text").write_bytes(gzip.compress(repeated))
    assert read_text(tmp_path / "text") == repeated


def test_a_line_of_ten_mib_is_no_sentence():
    with pytest.raises(UserError, match="text, line 1: a line of more than 8 MiB"):
        next(lines_of(io.BytesIO(b"a " * (5 << 20)), "text"))


def test_lines_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "LONGEST_LINE", 4)
    monkeypatch.setattr(bounds, "MOST_LINES", 3)
    path = tmp_path / "text"
    path.write_bytes(b"abcd\n\nefgh")
    assert read_text(path) == b"".join(lines_of(io.BytesIO(path.read_bytes()), "text")) == b"abcd\n\nefgh"
    path.write_bytes(b"a\nabcde\n")
    for read in (lambda: read_text(path), lambda: list(lines_of(io.BytesIO(b"a\nabcde\n"), "text"))):
        with pytest.raises(UserError, match="text, line 2: a line of more than"):
            read()
    path.write_bytes(b"\n" * 4)
    with pytest.raises(UserError, match="text has 4 lines"):
        read_text(path)


def test_values_of_json_are_bounded(monkeypatch):
    monkeypatch.setattr(bounds, "MOST_VALUES", 4)
    assert parsed_json('{"a": [1, 2]}', "file") == {"a": [1, 2]}
    with pytest.raises(UserError, match="file: more than 4 values"):
        parsed_json("[[],[],[]]", "file")


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_numbers_of_json_are_finite(number):
    with pytest.raises(UserError, match=f"file: {number} is not a finite number"):
        parsed_json(f"[{number}]", "file")


def test_text_of_settings_is_unicode(tmp_path):
    with pytest.raises(UserError, match="config.json cannot be read: No such file"):
        json_object(tmp_path / "config.json")
    (tmp_path / "config.json").write_text(r'{"a": ["\ud83d\ude00"]}')
    assert json_object(tmp_path / "config.json") == {"a": ["\U0001f600"]}
    (tmp_path / "config.json").write_text(r'{"a": ["\ud83d"]}')
    with pytest.raises(UserError, match=r"config.json: '\\ud83d' is half of a character"):
        json_object(tmp_path / "config.json")


def test_vocabularies_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "LARGEST_VOCABULARY", 3)
    monkeypatch.setattr(bounds, "LARGEST_FILE", 9)
    path = tmp_path / "dict.txt"
    for content, problem in ((b"a\n" * 4, "more than 3 lines"), (b"a" * 10, "more than 0 MiB")):
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"dict.txt: {problem}"):
            read_whole(path, vocabulary=True)


def test_numbers_have_a_bound_of_their_option():
    check_number("--beam", 9, below=10)
    with pytest.raises(UserError, match="--beam 10: a number below 10"):
        check_number("--beam", 10, below=10)
