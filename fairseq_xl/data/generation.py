"""Source and target texts in the same language: documents and their titles, questions or summaries."""

from fairseq_xl.errors import UserError
from fairseq_xl.io.compressed import read_text
from fairseq_xl.io.text import is_blank, lines_in


def read_texts(path):
    r"""Reads the lines of a file of raw text; only \n or \r\n ends a line.

    Raises `UserError` for a missing or empty file, and for a line that is not UTF-8.
    """
    try:
        content = read_text(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file of raw text") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    lines = lines_in(content, path)
    if all(map(is_blank, lines)):
        raise UserError(f"{path} is empty: expected raw text, one line per example")
    return lines


def read_pairs(prefix, every):
    """Reads the lines of PREFIX.src and PREFIX.tgt: two lists of the same length.

    Args:
        prefix: common part of both paths, ``FOLDER/SPLIT.LANGUAGE``.
        every: whether every line must have text; if not, an empty source gets an empty output.

    Raises `UserError` as `read_texts` does, if the numbers of lines differ, and for an empty line if `every` is set.
    """
    paths = [f"{prefix}.{side}" for side in ("src", "tgt")]
    sides = [read_texts(path) for path in paths]
    if len(sides[0]) != len(sides[1]):
        raise UserError(f"{paths[0]} has {len(sides[0])} lines but {paths[1]} has {len(sides[1])}")
    for path, side in zip(paths, sides):
        for number, line in enumerate(side, start=1):
            if every and is_blank(line):
                raise UserError(f"{path}, line {number}: an empty line")
    return sides
