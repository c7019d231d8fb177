"""Files that fine-tuning tasks and their baselines read: labeled text, SPLIT.LANGUAGE.tsv, and sources with targets.

Files of questions are in SQuAD's format (`fairseq_xl.evaluation.squad`).
"""

import logging
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.evaluation.classification_scores import UNLABELED
from fairseq_xl.io.compressed import stored
from fairseq_xl.io.lines import read_lines
from fairseq_xl.io.text import is_blank

LABELED = {1: "label TAB text", 2: "label TAB text TAB text", 3: "label TAB text TAB text TAB text"}
ANY_LABELED = "label TAB text, with up to three texts"
RANKED = "relevance TAB query TAB text, with up to two texts"
WITHOUT = f"text without labels has {UNLABELED} in their place"  # for messages
NO_RELEVANCE = -1.0  # of an unlabeled text
MANY_LABELS = 10  # number of labels from which on it is compared with the number of texts
LEAST_REPEATED = 20  # different lines of a file that is called doubled

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LabeledExample:
    """A labeled sentence, pair or triple."""

    label: str
    texts: tuple[Any, ...]  # one to three texts
    language: str
    file: str
    line: int  # line of the file, from 1 on

    @property
    def location(self) -> str:
        """File and line, for messages."""
        return f"{self.file}, line {self.line}"


@dataclass(frozen=True, slots=True)
class Query:
    """A query with its texts."""

    query: str
    texts: tuple[Any, ...]  # of each candidate: one or two texts, such as title and snippet
    relevance: tuple[float, ...]  # of each candidate: 0 or more
    lines: tuple[int, ...]  # of each candidate: its line in the file, from 1 on
    language: str
    file: str

    @property
    def location(self) -> str:
        """File and line, for messages."""
        return f"{self.file}, line {self.lines[0]}"


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """A sentence, with a tag for each word."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    language: str
    file: str
    line: int  # line of the first word in the file, from 1 on

    @property
    def location(self) -> str:
        """File and line, for messages."""
        return f"{self.file}, line {self.line}"


def file_in(folders: Sequence[Any], name: str) -> Path:
    """Path of a file, compressed or not, in the first folder that has it; if none has it, in the first folder."""
    files = [stored(Path(folder) / name) for folder in folders]
    return next((file for file in files if file.is_file()), files[0])


def labeled_lines(path: Any, language: str) -> Iterator[tuple[int, str]]:
    """Yields (number, line) of a file, from 1 on; warns of a file that was appended to itself.

    Raises `UserError` for a missing or empty file, and for text that is not UTF-8.
    """
    path = stored(path)
    lines = read_lines(path, f"no such file of labeled text in language {language!r}")
    if all(map(is_blank, lines)):
        raise UserError(f"{path}, line 1: the file is empty")
    half = len(lines) // 2
    if lines[:half] == lines[half:] and len(set(lines)) >= LEAST_REPEATED:
        logger.warning("%s: lines %d to %d repeat the lines before: is the file doubled?", path, half + 1, 2 * half)
    yield from enumerate(lines, start=1)


def split_fields(line: str, expected: Sequence[str], file: str, line_number: int) -> list[str]:
    """The fields of a line, separated by tabs; raises `UserError` unless it has those `expected`, none empty."""
    fields = line.split("\t")
    if len(fields) != len(expected) or any(map(is_blank, fields)):
        raise UserError(f"{file}, line {line_number}: expected {' TAB '.join(expected)}, found {quoted(line)}")
    return fields


def check_columns(path: Any, labels: Collection[str], texts: Collection[str], expected: str) -> None:
    """Raises `UserError` if a task's file has many more different labels than different texts."""
    if len(labels) >= MANY_LABELS and len(labels) > 2 * len(texts):
        counts = f"{len(labels)} different labels and {len(texts)} different texts"
        raise UserError(f"{path}: expected {expected}, found {counts}: are the columns swapped?")


def read_examples(path: Any, language: str) -> list[LabeledExample]:
    """Reads lines ``label TAB text``, with up to three texts; raises `UserError` for other lines and empty fields."""
    examples: list[LabeledExample] = []
    for line_number, line in labeled_lines(path, language):
        label, *texts = line.split("\t")
        expected = LABELED[len(examples[0].texts)] if examples else ANY_LABELED
        if len(texts) not in ([len(examples[0].texts)] if examples else LABELED):
            actual = f"{len(texts) + 1} fields" if texts else f"1 field ({WITHOUT})"
            raise UserError(f"{path}, line {line_number}: expected {expected}, found {actual}")
        if any(map(is_blank, (label, *texts))):
            raise UserError(f"{path}, line {line_number}: an empty label or text")
        examples.append(LabeledExample(label.strip(), tuple(texts), language, str(path), line_number))
    return examples


def read_queries(path: Any, language: str) -> list[Query]:
    """Reads lines ``relevance TAB query TAB text``, with up to two texts; equal queries are one `Query`.

    Raises `UserError` for lines of another form.
    """
    queries: dict[str, list[tuple[tuple[str, ...], float, int]]] = {}
    for line_number, line in labeled_lines(path, language):
        relevance, *texts = line.split("\t")
        if not 2 <= len(texts) <= 3 or any(map(is_blank, texts)):
            raise UserError(f"{path}, line {line_number}: expected {RANKED}, found {line[:40]!r} ({WITHOUT})")
        try:
            value = float(relevance)
        except ValueError:
            value = math.nan
        if relevance == UNLABELED:
            value = NO_RELEVANCE
        elif not 0 <= value < math.inf:
            raise UserError(f"{path}, line {line_number}: expected a relevance of 0 or more, found {relevance[:40]!r}")
        queries.setdefault(texts[0], []).append((tuple(texts[1:]), value, line_number))
    result = []
    for query, rows in queries.items():
        candidates, values, lines = zip(*rows)
        result.append(Query(query, candidates, values, lines, language, str(path)))
    return result


def read_sentences(path: Any, language: str) -> list[TaggedSentence]:
    """Reads lines ``word TAB tag``, sentences divided by empty lines; `UserError` for lines of another form."""
    sentences: list[TaggedSentence] = []
    rows: list[tuple[str, str, int]] = []

    def end() -> None:
        if rows:
            words, tags, lines = zip(*rows)
            sentences.append(TaggedSentence(words, tags, language, str(path), lines[0]))
            rows.clear()

    for line_number, line in labeled_lines(path, language):
        if is_blank(line):
            end()
            continue
        fields = line.split("\t")
        if len(fields) != 2 or any(map(is_blank, fields)):
            raise UserError(f"{path}, line {line_number}: expected word TAB tag, found {line[:40]!r} ({WITHOUT})")
        if any(map(str.isspace, fields[1].strip())):
            raise UserError(
                f"{path}, line {line_number}: expected word TAB tag, but {fields[1][:40]!r} has white space"
            )
        rows.append((fields[0], fields[1].strip(), line_number))
    end()
    return sentences


def format_ranking(query: Query, scores: Sequence[float]) -> str:
    """Line, query, relevance and score of each text: the lines of a file of predictions."""
    relevances = [UNLABELED if value == NO_RELEVANCE else f"{value:g}" for value in query.relevance]
    rows = zip(query.lines, relevances, scores, strict=True)
    return "".join(f"{line}\t{query.query}\t{relevance}\t{score:.6f}\n" for line, relevance, score in rows)


def format_tags(sentence: TaggedSentence, predicted: Sequence[str]) -> str:
    """Word, tag and prediction on a line; an empty line: the lines of a file of predictions."""
    rows = map("\t".join, zip(sentence.words, sentence.tags, predicted, strict=True))
    return "".join(f"{row}\n" for row in (*rows, ""))


def read_texts(path: Any) -> list[str]:
    """The lines of a file of raw text; raises `UserError` for a file that is missing, empty or not UTF-8."""
    lines = read_lines(path, "no such file of raw text")
    if all(map(is_blank, lines)):
        raise UserError(f"{path} is empty: expected raw text, one line per example")
    return lines


def read_pairs(prefix: str, require_text: bool) -> list[list[str]]:
    """Reads the lines of PREFIX.src and .tgt; `UserError` for other numbers and, if text is required, empty lines.

    Unless text is required, targets may be missing: the result has the sources only.
    """
    paths = [f"{prefix}.{side}" for side in ("src", "tgt")]
    sides = [read_texts(path) for path in paths if path == paths[0] or require_text or stored(path).is_file()]
    if len(sides[0]) != len(sides[-1]):
        raise UserError(f"{paths[0]} has {len(sides[0])} lines but {paths[1]} has {len(sides[1])}")
    for path, side in zip(paths, sides):
        for line_number, line in enumerate(side, start=1):
            if require_text and is_blank(line):
                raise UserError(f"{path}, line {line_number}: an empty line")
    return sides
