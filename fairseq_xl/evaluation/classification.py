"""Scores of classification from prediction files: ``python -m fairseq_xl.evaluation.classification FOLDER``.

FOLDER holds what fairseq-validate wrote with ``--predictions-to``. Prints one JSON line; averages only over a complete
set of languages. With ``--against OTHER`` it compares with the predictions of another classifier, line by line.
"""

import argparse
import json
import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from fairseq_xl import error_reporting
from fairseq_xl.errors import UserError, names_of
from fairseq_xl.evaluation.bleu import read_lines
from fairseq_xl.evaluation.bootstrap import accuracy


def read_predictions(path):
    """A prediction file -> labels and predictions, two lists in the order of the lines.

    Raises `UserError` unless there is one prediction for each line.
    """
    rows = [line.split("\t") for line in read_lines(path)]
    for number, row in enumerate(rows, start=1):
        if len(row) != 4 or row[0] != str(number):
            raise UserError(f"{path}, line {number}: expected {number} TAB label TAB prediction TAB probability")
    if not rows:
        raise UserError(f"{path} holds no predictions")
    return [row[1] for row in rows], [row[2] for row in rows]


def macro_f1(labels, predictions):
    """The mean of the classes' F1, 2 right / (gold + predicted), over all classes that occur; in per cent."""
    gold, predicted = Counter(labels), Counter(predictions)
    right = Counter(label for label, prediction in zip(labels, predictions) if label == prediction)
    classes = gold.keys() | predicted.keys()
    return 100 * sum(2 * right[name] / (gold[name] + predicted[name]) for name in classes) / len(classes)


def score(labels, predictions):
    """Accuracy with its interval, macro-F1, and the shares of the most frequent label and the most predicted one.

    All in per cent. `majority` is what always answering the most frequent label would score; `most_predicted` near 100
    is a model that has collapsed.
    """
    right = np.array([label == predicted for label, predicted in zip(labels, predictions)])
    shares = [100 * Counter(names).most_common(1)[0][1] / len(names) for names in (labels, predictions)]
    figures = {"macro_f1": macro_f1(labels, predictions), "majority": shares[0], "most_predicted": shares[1]}
    return {"n": len(labels)} | accuracy(right) | {name: round(value, 2) for name, value in figures.items()}


def mcnemar(right, others):
    """McNemar's exact test of the accuracies of two classifiers; `right`, `others` (n,) bool: item answered correctly.

    Under equal accuracies, an item that only one of them has right is equally likely to be either's: `p` is two-sided,
    from the binomial distribution. The variation over training seeds is not tested.

    Returns: {"difference" in points, "only_here", "only_there": numbers of items, "p"}.
    """
    here, there = int(np.sum(right & ~others)), int(np.sum(others & ~right))
    tail = sum(math.comb(here + there, number) for number in range(min(here, there) + 1))
    p = min(1.0, tail / 2 ** (here + there - 1)) if here + there else 1.0
    difference = round(100 * (here - there) / len(right), 2)
    return {"difference": difference, "only_here": here, "only_there": there, "p": float(f"{p:.3g}")}


def compare(first, second):
    """`mcnemar` of two prediction files of the same items; raises `UserError` if their labels differ."""
    (labels, predictions), (other_labels, others) = read_predictions(first), read_predictions(second)
    if labels != other_labels:
        raise UserError(f"{first} and {second} are of different items: their labels differ")
    labels = np.array(labels)
    return mcnemar(labels == np.array(predictions), labels == np.array(others))


def main(arguments=None):
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m fairseq_xl.evaluation.classification", description=__doc__)
    parser.add_argument("folder", help="folder of SPLIT.LANGUAGE.tsv prediction files")
    parser.add_argument("--split", default="test", help="which split (default: test)")
    parser.add_argument("--langs", required=True, help="the languages of the average, separated by commas")
    parser.add_argument("--against", help="folder of another classifier's predictions, for McNemar's exact test")
    options = parser.parse_args(arguments)
    files = {
        language: Path(options.folder) / f"{options.split}.{language}.tsv"
        for language in names_of("--langs", options.langs)
    }
    scores = {language: score(*read_predictions(path)) for language, path in files.items() if path.is_file()}
    if not scores:
        raise UserError(f"{options.folder}: no prediction file {options.split}.LANGUAGE.tsv of {options.langs}")
    if options.against:
        for language, entry in scores.items():
            entry["paired"] = compare(files[language], Path(options.against) / files[language].name)
    result = {"languages": scores, "missing": [language for language in files if language not in scores]}
    if not result["missing"]:
        for name in ("accuracy", "macro_f1", "majority"):
            result[name] = round(sum(entry[name] for entry in scores.values()) / len(scores), 2)
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    error_reporting.install()
    main()
