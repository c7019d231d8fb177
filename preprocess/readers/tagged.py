"""Reads files with a word per line and an empty line after each sentence, in columns."""

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from fairseq_xl.errors import quoted
from fairseq_xl.evaluation.classification_scores import UNLABELED
from fairseq_xl.io.text import text_of_line
from preprocess.readers.labeled import SENTENCE, Example
from preprocess.readers.problems import Problems, decoded

#: parts of speech of Universal Dependencies
UPOS = frozenset("ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X".split())
SHOWN = 60  # maximum number of characters of a wrong line in a message


def span_tags(types: str) -> frozenset[str]:
    """Returns the tags of spans: O, and B- and I- with each of the types, which spaces separate."""
    return frozenset({"O"} | {f"{prefix}-{kind}" for prefix in "BI" for kind in types.split()})


class Columns(NamedTuple):
    """Columns of a file."""

    width: int  # number of columns
    tag: int | None = 1  # column of the tag, from 0 on; None: words have no tag
    word: int = 0  # column of the word
    separator: str = "\t"  # regular expression of the separator of columns
    blanks: bool = False  # whether spaces, which separate the word from its tag, may also be in the word
    conllu: bool = False  # CoNLL-U: comments, multi-word tokens and empty words are skipped
    empty: bool = False  # whether a word with a tag may be empty: it is written as `_`
    prefix: str = ""  # prefix of every word, which is removed: `en:` in WikiANN's `en:Oslo`


def read_tagged(
    path: Path, problems: Problems, language: str, columns: Columns, tags: Collection[str], encoding: str = "utf-8"
) -> Iterator[Example]:
    """Yields the words and ends of sentences of a file; lines that begin with -DOCSTART- are skipped.

    Another number of columns, an empty word or an unknown tag is a problem. In a file without tags, a second empty
    line after a sentence is counted as left out: XTREME's program counts each empty line as a sentence.
    """
    inside, fewest, extra_blanks = False, 0, 0
    for line_number, line in decoded(path, problems, encoding):
        text = line.strip("\r\n")
        if not text.strip(" \t") or text.startswith("-DOCSTART-"):
            if inside:
                yield Example(language, SENTENCE, ())
            extra_blanks += not inside
            inside = False
            continue
        if columns.tag is None and extra_blanks:
            problems.left_out["empty lines"] += extra_blanks
        extra_blanks = 0
        if columns.conllu and text.startswith("#"):
            continue
        fields = fields_of(text, columns)
        if len(fields) != columns.width:
            problems.add(f"{path}, line {line_number}: expected {expected(columns)}, found {text[:SHOWN]!r}")
            continue
        if columns.conllu and not fields[0].isdigit():
            continue  # 3-4, a token of several words, or 5.1, an empty word
        fewest = min(fewest or len(text.split()), len(text.split()))
        word = text_of_line(fields[columns.word])
        if not word.startswith(columns.prefix):
            problems.add(f"{path}, line {line_number}: expected {columns.prefix}WORD, found {word[:SHOWN]!r}")
        word = word.removeprefix(columns.prefix).strip()
        tag = UNLABELED if columns.tag is None else fields[columns.tag].strip()
        if columns.tag is not None and not columns.empty and not fields[columns.word].strip(" \t"):
            problems.add(f"{path}, line {line_number}: expected {expected(columns)}, found {text[:SHOWN]!r}")
        elif columns.tag is not None and tag not in tags:
            problems.add(f"{path}, line {line_number}: tag {quoted(tag)} is not one of {', '.join(sorted(tags))}")
        yield Example(language, tag, (word or UNLABELED,))
        inside = True
    if inside:
        yield Example(language, SENTENCE, ())
    if columns.blanks and fewest > columns.width:
        problems.add(f"{path}: expected {expected(columns)}, found {fewest} columns or more in every line")


def fields_of(text: str, columns: Columns) -> list[str]:
    """Splits a line into fields."""
    if columns.blanks:
        return text.strip(" \t").rsplit(" ", columns.width - 1)
    if columns.separator == "\t":
        return text.split("\t")
    return re.split(columns.separator, text.strip(" \t"))


def expected(columns: Columns) -> str:
    """Describes the columns for messages."""
    if columns.tag is None:
        return "a word"
    if columns.width == 2:
        return "a word and a tag"
    return f"{columns.width} columns, the word in {columns.word + 1} and the tag in {columns.tag + 1}"
