"""Files and scores of the probing tasks (Artetxe et al. 2020): WiC, SCWS and minimal pairs."""

import itertools
import logging
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.evaluation import bootstrap
from fairseq_xl.io.lines import read_lines
from fairseq_xl.io.text import is_blank

logger = logging.getLogger(__name__)

WIC_LABELS = {"T": True, "F": False}
SCWS_FIELDS = 8  # id, word, part of speech, word, part of speech, context, context, mean rating; ratings follow
MARKED = re.compile(r"<b>(.*?)</b>")
#: {group: {construction of Marvin & Linzen (2018): its name in Artetxe et al. (2020), table 11}}; animate and inanimate
#: ones are merged, as in Goldberg's (2019) code
GROUPS = {
    "agreement": {
        "simple_agrmt": "simple",
        "sent_comp": "sentential complement",
        "vp_coord": "short VP coordination",
        "long_vp_coord": "long VP coordination",
        "prep_anim": "across a prepositional phrase",
        "subj_rel": "across a subject relative clause",
        "obj_rel_across_anim": "across an object relative clause",
        "obj_rel_no_comp_across_anim": "across an object relative clause (no that)",
        "obj_rel_within_anim": "in an object relative clause",
        "obj_rel_no_comp_within_anim": "in an object relative clause (no that)",
    },
    "reflexives": {
        "simple_reflexives": "simple",
        "reflexive_sent_comp": "sentential complement",
        "reflexives_across": "across a relative clause",
    },
}


class WordInText(NamedTuple):
    """A text and the characters [begin, end) of a word in it."""

    text: str
    begin: int
    end: int
    location: str  # file and line, for messages


class WordPair(NamedTuple):
    """Two words in their texts, and whether they have the same sense (WiC) or how similar they are (SCWS)."""

    words: tuple[WordInText, WordInText]
    label: float


class MinimalPair(NamedTuple):
    """A grammatical and an ungrammatical sentence."""

    category: str
    grammatical: str
    ungrammatical: str


def read_wic(prefix: str) -> list[WordPair]:
    """WiC's files PREFIX.data.txt and PREFIX.gold.txt (Pilehvar & Camacho-Collados 2019).

    A line of the first one is ``word TAB part of speech TAB index-index TAB sentence TAB sentence``. The indices count
    the space-separated tokens of each sentence from 0. A line of the second one is T (the same sense) or F.
    """
    path, lines = f"{prefix}.data.txt", read_lines(f"{prefix}.data.txt")
    labels = read_lines(f"{prefix}.gold.txt")
    if len(lines) != len(labels) or not lines:
        raise UserError(f"{prefix}: {len(lines)} lines of data.txt but {len(labels)} of gold.txt")
    pairs = []
    for line_number, (line, label) in enumerate(zip(lines, labels), start=1):
        location = f"{path}, line {line_number}"
        fields = line.split("\t")
        indices = re.fullmatch(r"(\d+)-(\d+)", fields[2]) if len(fields) == 5 else None
        if indices is None:
            raise UserError(f"{location}: expected word TAB part of speech TAB index-index TAB sentence TAB sentence")
        if label not in WIC_LABELS:
            raise UserError(f"{prefix}.gold.txt, line {line_number}: expected T or F, found {quoted(label)}")
        words = []
        for text, index in zip(fields[3:], map(int, indices.groups())):
            tokens = list(re.finditer(r"\S+", text))
            if index >= len(tokens):
                raise UserError(f"{location}: there is no token {index} in {quoted(text)}")
            words.append(WordInText(text, *tokens[index].span(), location))
        pairs.append(WordPair((words[0], words[1]), WIC_LABELS[label]))
    return pairs


def read_scws(path: str) -> list[WordPair]:
    """SCWS's ratings.txt (Huang et al. 2012).

    A line is ``id TAB word TAB part of speech TAB word TAB part of speech TAB context TAB context TAB mean rating``,
    followed by the single ratings. The word of a context is between <b> and </b>.
    """
    pairs = []
    for line_number, line in enumerate(read_lines(path), start=1):
        fields, location = line.split("\t"), f"{path}, line {line_number}"
        if len(fields) < SCWS_FIELDS:
            raise UserError(f"{location}: expected {SCWS_FIELDS} fields or more, found {len(fields)}")
        try:
            rating = float(fields[7])
        except ValueError:
            raise UserError(f"{location}: expected a mean rating, found {quoted(fields[7])}") from None
        pairs.append(WordPair((_marked(fields[5], location), _marked(fields[6], location)), rating))
    if len(pairs) < 2:
        raise UserError(f"{path}: expected at least two pairs of words, found {len(pairs)}")
    return pairs


def _marked(context: str, location: str) -> WordInText:
    marks = list(MARKED.finditer(context))
    word = marks[0][1].strip() if len(marks) == 1 else ""
    if is_blank(word):
        raise UserError(f"{location}: expected one word between <b> and </b>, found {quoted(context)}")
    before, after = context[: marks[0].start()].strip(), context[marks[0].end() :].strip()
    begin = len(before) + bool(before)
    return WordInText(f"{before} {word} {after}".strip(), begin, begin + len(word), location)


def read_minimal_pairs(paths: Sequence[str]) -> list[MinimalPair]:
    """Minimal pairs (Marvin & Linzen 2018), a pair in each line of files separated by tabs.

    The last two fields are the grammatical and the ungrammatical sentence. The fields before them are names of the
    construction, of which the first is the category. The released templates are pickled; Goldberg's (2019)
    marvin_linzen_dataset.tsv has the pairs in this form. CLAMS's files have a sentence in each line, ``True TAB
    grammatical`` and ``False TAB ungrammatical`` in turn; the category is the file's name without .txt. Raises
    `UserError` that names file and line for a line with another number of fields than the first one, for labels that
    do not take turns, and for an empty sentence.
    """
    pairs = []
    for path in paths:
        fields = 0
        for i, line in enumerate(_joined_lines(path), start=1):
            *names, grammatical, ungrammatical = ["", *(field.strip() for field in line.split("\t"))]
            if not names or is_blank(grammatical) or is_blank(ungrammatical):
                raise UserError(f"{path}, line {i}: expected grammatical TAB ungrammatical sentence")
            fields = fields or len(names) + 1
            if len(names) + 1 != fields:
                raise UserError(f"{path}, line {i}: expected {fields} fields as in line 1, found {len(names) + 1}")
            pairs.append(MinimalPair(names[1] if len(names) > 1 else "all", grammatical, ungrammatical))
    if not pairs:
        raise UserError(f"{paths[0]}: no minimal pair")
    return pairs


def _joined_lines(path: str) -> list[str]:
    """The lines of a file; of CLAMS's form, lines ``category TAB grammatical TAB ungrammatical`` in place of two."""
    lines = read_lines(path)
    rows = [line.partition("\t") for line in lines]
    if not lines or not {label for label, *_ in rows} <= {"True", "False"}:
        return lines
    turns = ["True", "False"] * ((len(rows) + 1) // 2)
    for i, ((label, _, text), turn) in enumerate(itertools.zip_longest(rows, turns, fillvalue=("", "", "")), start=1):
        if label != turn or is_blank(text):
            raise UserError(f"{path}, line {i}: expected {turn} TAB sentence, since True and False take turns")
    return [f"{Path(path).stem}\t{right[2]}\t{wrong[2]}" for right, wrong in zip(rows[::2], rows[1::2])]


def logistic_regression_accuracy(
    train: np.ndarray, labels: ArrayLike, test: np.ndarray, gold: ArrayLike
) -> dict[str, Any]:
    """Accuracy, with interval, of logistic regression on features (n, C), tested on (m, C); `UserError` for 1 class."""
    if len(np.unique(labels)) < 2:
        raise UserError("all training examples have the same label: there is nothing to learn")
    from sklearn import linear_model, pipeline, preprocessing

    model = pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression(max_iter=2000))
    return bootstrap.accuracy(model.fit(train, labels).predict(test) == np.asarray(gold))


def majority(labels: ArrayLike, gold: ArrayLike) -> float:
    """Accuracy, in percent, of predicting the more frequent training class (True on a tie)."""
    frequent = np.asarray(labels).mean() >= 0.5
    return round(100 * float(np.mean(np.asarray(gold) == frequent)), 2)


def minimal_pair_scores(pairs: Sequence[MinimalPair], scored: dict[int, tuple[float, float]]) -> dict[str, Any]:
    """Accuracy over all scored pairs and by category; pairs that were left out are counted, with a warning.

    Files with constructions of `GROUPS` also have the mean accuracy of the constructions of each group, and of each
    construction the used pairs of all; without a mean if no pair of a construction is used (`missing`). `scored` is
    {index of a pair: log-probabilities of its sentences' pieces}, the grammatical one's first.
    """
    right: dict[str, list[bool]] = {pair.category: [] for pair in pairs}
    for index, (grammatical, ungrammatical) in scored.items():
        right[pairs[index].category].append(grammatical > ungrammatical)
    totals = Counter(pair.category for pair in pairs)

    def accuracy(outcomes: list[bool], total: int) -> dict[str, Any]:
        share = bootstrap.accuracy(outcomes) if outcomes else {}
        return {"n": len(outcomes), "left_out": total - len(outcomes)} | share

    categories = {name: accuracy(outcomes, totals[name]) for name, outcomes in right.items()}
    whole = accuracy([outcome for outcomes in right.values() for outcome in outcomes], len(pairs))
    if whole["left_out"]:
        logger.warning(
            "%d of %d pairs differ in more than one piece of the vocabulary and are left out, %d are scored",
            *(whole["left_out"], len(pairs), whole["n"]),
        )
    result = whole | {"chance": 50.0, "categories": categories}
    merged: dict[str, list[bool]] = {}
    counts: Counter[str] = Counter()
    for category, outcomes in right.items():
        name = category.replace("inanim", "anim")
        merged[name] = merged.get(name, []) + outcomes
        counts[name] += totals[category]
    for group, constructions in GROUPS.items():
        if not counts.keys() & constructions.keys():
            continue
        used = [merged.get(name, []) for name in constructions]
        missing = [name for name, outcomes in zip(constructions.values(), used) if not outcomes]
        result[group] = {"missing": missing} if missing else bootstrap.macro_accuracy(used)
        result[group]["constructions"] = {
            title: {"used": len(outcomes), "all": counts[name]} | (bootstrap.accuracy(outcomes) if outcomes else {})
            for (name, title), outcomes in zip(constructions.items(), used)
        }
    return result
