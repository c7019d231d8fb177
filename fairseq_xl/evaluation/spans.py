"""Spans in sequences of tags, as conlleval and seqeval's default mode define them."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import bootstrap
from fairseq_xl.evaluation.classification_scores import UNLABELED, UnlabeledError
from fairseq_xl.io.lines import read_lines

Span = tuple[str, int, int]  # type, first and last word
OUTSIDE = ("O", "")
SCHEME = "scheme:seqeval-0.0.12"  # of signatures


def spans(tags: Sequence[str]) -> list[Span]:
    """Spans of a sentence's tags: B-, I-, E-, S- and a type, or O.

    A span also begins where an I- follows another type or O. A run of equal tags without these prefixes, such as parts
    of speech, is one span, with two exceptions of seqeval, and therefore of XTREME's and XGLUE's scores: tags that
    begin with B or S, such as SCONJ, begin a new span at each word; tags that begin with O are no spans. Parts of
    speech are those of seqeval 0.0.12, as in the scores that XTREME's evaluate_test.py states; later versions take
    CCONJ and SCONJ for one type. Tags without a type, and types with hyphens, are those of 1.2.2.
    """
    result, begin, (last, last_kind) = [], 0, OUTSIDE
    for index, tag in enumerate((*tags, "O")):
        prefix, kind = typed(tag)
        changed = kind != last_kind
        if last in "ES" or (last in "BI" and prefix in "BSO") or (last not in "O." and changed):
            result.append((last_kind, begin, index - 1))
        if prefix in "BS" or (last in "ESO" and prefix in "EI") or (prefix not in "O." and changed):
            begin = index
        last, last_kind = prefix, kind
    return result


def typed(tag: str) -> tuple[str, str]:
    """First letter and type of a tag: B-LOC -> B, LOC; NOUN -> N, NOUN; a single B, E, I or S -> B, _."""
    if tag == OUTSIDE[0]:
        return OUTSIDE
    if tag[1:2] == "-":
        return tag[0], tag[2:]
    return tag[0], "_" if tag in ("B", "E", "I", "S") else tag


def labeled_words(tags: Sequence[str], predicted: Sequence[str]) -> tuple[list[str], list[str]]:
    """Tags and predictions of the words of a sentence, without those tagged `_`."""
    pairs = [pair for pair in zip(tags, predicted, strict=True) if pair[0] != UNLABELED]
    return [tag for tag, _ in pairs], [prediction for _, prediction in pairs]


def f1(correct: float, predicted: float, gold: float) -> float:
    """F1 in percent from counts of correct, predicted and gold spans."""
    return 200 * correct / (predicted + gold) if predicted + gold else 0.0


def read_rows(path: Any) -> list[list[tuple[str, str, str]]]:
    """The rows ``word TAB tag TAB prediction`` of each sentence of a file; `UserError` for another form."""
    sentences: list[list[tuple[str, str, str]]] = [[]]
    for line_number, line in enumerate(read_lines(path), start=1):
        fields = line.split("\t")
        if len(fields) == 3 and all(fields):
            sentences[-1].append((fields[0], fields[1], fields[2]))
        elif not line:
            sentences.append([])
        else:
            raise UserError(f"{path}, line {line_number}: expected word TAB tag TAB prediction, found {line[:40]!r}")
    if sentences.pop():
        raise UserError(f"{path} is not complete: there is no empty line at its end")
    if not any(sentences):
        raise UserError(f"{path} holds no predictions")
    half = len(sentences) // 2
    if half > 1 and sentences[:half] == sentences[half:]:
        raise UserError(f"{path}: the second half repeats the first, {half} sentences")
    return sentences


def read_tags(path: Any) -> tuple[list[list[str]], list[list[str]]]:
    """Tags and predictions of sentences with tags in a prediction file; `UnlabeledError` if there are none."""
    columns = [tuple(zip(*sentence)) for sentence in read_rows(path) if sentence]
    labeled = [(tags, predicted) for _, *row in columns for tags, predicted in [labeled_words(*row)] if tags]
    if not labeled:
        raise UnlabeledError(f"{path} has predictions of words without tags ({UNLABELED}) only, which cannot be scored")
    return [tags for tags, _ in labeled], [predicted for _, predicted in labeled]


def score(gold: list[list[str]], predicted: list[list[str]]) -> dict[str, Any]:
    """F1, precision, recall of spans, accuracy of words of n sentences, in percent with intervals; `majority`."""
    rows = []
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        correct = sum(a == b for a, b in zip(predicted_tags, gold_tags, strict=True))
        predicted_spans, gold_spans = set(spans(predicted_tags)), set(spans(gold_tags))
        rows.append((len(predicted_spans & gold_spans), len(predicted_spans), len(gold_spans), correct, len(gold_tags)))

    def ratio(numerator: Any, denominator: Any) -> Any:
        return 100 * numerator / np.maximum(denominator, 1)

    metrics = {
        "f1": lambda sums: ratio(2 * sums[..., 0], sums[..., 1] + sums[..., 2]),
        "precision": lambda sums: ratio(sums[..., 0], sums[..., 1]),
        "recall": lambda sums: ratio(sums[..., 0], sums[..., 2]),
        "accuracy": lambda sums: ratio(sums[..., 3], sums[..., 4]),
    }
    tags = Counter(tag for sentence in gold for tag in sentence)
    scores = bootstrap.corpus_metrics(rows, metrics)
    majority = round(100 * max(tags.values()) / tags.total(), 2)
    return {"n": len(rows), "words": tags.total(), **scores, "majority": majority}
