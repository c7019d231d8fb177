"""One text of a line: the same words, lines and places for every character that divides or shows nothing."""

import io
import re
import sys
import unicodedata

import pytest

from fairseq_xl.errors import UserError
from fairseq_xl.io import text
from tests.hostile_text import HIDDEN, LINES, SPACES

#: marks of category Cf that are seen: they enclose numbers
SEEN = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}


def test_format_and_control_characters_are_invisible():
    for code in (*range(0xD800), *range(0xE000, 0x110000)):
        space, category = chr(code).isspace(), unicodedata.category(chr(code))
        if category in ("Cf", "Cc") or space:
            assert text.is_blank(chr(code)) == (code not in SEEN), hex(code)
            assert chr(code) == "\n" or text.texts_of(f"a {chr(code)}".encode()) == [
                text.text_of_line(f"a {chr(code)}")
            ]
        elif text.is_blank(chr(code)):  # of other categories few characters
            assert category in ("Mn", "Lo", "Cn"), hex(code)


@pytest.mark.parametrize("line", LINES, ids=ascii)
def test_words_and_their_places(line):
    words = [word for word in re.split(f"[\\s{SPACES}]+", line.lstrip("\ufeff")) if word.strip(HIDDEN)]
    found, places = text.placed_text(line)
    assert found == text.text_of_line(line) == " ".join(words)
    assert text.texts_of(line.encode()) == [found]
    assert text.is_blank(line) == (not words)
    assert [line[place] for place, letter in zip(places, found, strict=True) if letter != " "] == [*"".join(words)]
    assert places == sorted(places)
    assert text.text_of_line(found) == found


def test_lines_of_blocks_files_and_streams():
    """As many as there are line feeds, and one for what is behind the last one."""
    for ends in ("", "\n"):
        block = ("\n".join(LINES) + ends).encode()
        assert text.texts_of(block) == [text.text_of_line(line) for line in LINES]
        raw = [line.lstrip("\ufeff").removesuffix("\r") for line in LINES]
        assert text.lines_in(block, "file") == raw
        assert [each for line in io.BytesIO(block) for each in text.lines_in(line, "file", 9)] == raw
    assert text.texts_of("a\n\ufeff".encode()) == text.lines_in("a\n\ufeff".encode(), "file") == ["a", ""]
    assert text.lines_in(b"", "file") == [] and text.texts_of(b"\n") == text.lines_in(b"\xef\xbb\xbf", "file") == [""]


def test_only_the_first_mark_of_other_files_is_left_out():
    """A vocabulary has it as a piece."""
    assert text.decoded("\ufeffa\n\ufeff\n".encode(), "file") == "a\n\ufeff\n"
    with pytest.raises(UserError, match="file, line 8: not UTF-8, it has the byte 0xff"):
        text.decoded(b"a\nb\xff", "file", 7)


def test_streams_are_utf8(monkeypatch):
    streams = {name: io.TextIOWrapper(io.BytesIO(b"\xc3\xa9"), "latin-1") for name in ("stdin", "stdout")}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    text.use_utf8()
    assert streams["stdin"].read() == "é"
    streams["stdout"].write("ű")
    streams["stdout"].flush()
    assert streams["stdout"].buffer.getvalue() == "ű".encode()
