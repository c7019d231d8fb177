"""Baselines without a pre-trained model, which recipes/README.md describes.

    fairseq-xl score baselines tagging corpora/my/tasks/ner runs/my/dictionary --langs en,de --train-langs en

``retrieval`` prints the same scores as `fairseq-xl search pairs`. The others write to OUTPUT what fairseq-validate and
fairseq-generate write for a model: `fairseq-xl score classification` (for ``pairs`` too), `score generation` (for
``titles``), `score tagging`, `score question-answering` and `score ranking` read it. tf-idf and logistic regression
need scikit-learn.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from fairseq_xl.commands import RESULT, Options, argument, command
from fairseq_xl.errors import names_of
from fairseq_xl.evaluation.baselines import CLASSIFIERS, METHODS, classify, predict, similarity, title_unit, titles
from fairseq_xl.evaluation.prediction_folders import Origin, write_predictions
from fairseq_xl.evaluation.retrieval_scores import averages, evaluate_similarity, read_named_pairs, write_best_matches
from fairseq_xl.io.files import write_lines

#: baselines of files of tasks
BASELINES = ("classification", "pairs", "titles", "tagging", "question-answering", "ranking")


def _subcommands(parser: argparse.ArgumentParser) -> None:
    subcommands = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    retrieval = subcommands.add_parser("retrieval")
    pairs = argument("pairs", "test pairs, one file per language", nargs="+", metavar="XX-YY=PREFIX")
    best = argument("--found-to", "as of fairseq-xl search pairs", type=Path, metavar="FOLDER")
    for add in (pairs, best, *RESULT):
        add(retrieval)
    for name in BASELINES:
        subcommand = subcommands.add_parser(name)
        argument("files", "folder of the task's files; for labeled text several folders, joined by :")(subcommand)
        argument("output", "folder for the predictions or titles", type=Path)(subcommand)
        argument("--langs", "the languages to test, separated by commas", required=True)(subcommand)
        argument("--split", "split", default="test")(subcommand)
        if methods := METHODS.get(name):
            listed = "; ".join(f"{method}: {what}" for method, what in methods.items())
            argument("--method", listed, default=next(iter(methods)), choices=methods)(subcommand)
        if name in (*CLASSIFIERS, "tagging"):
            together = "languages to train on together (default: each language on its own text)"
            argument("--train-langs", together, default="")(subcommand)


@command(_subcommands, result=())
def main(options: Options) -> dict[str, Any] | None:
    if options.name == "retrieval":
        scores = {}
        for pair, sides in read_named_pairs(options.pairs).items():
            similarities = similarity(*sides)
            scores[pair] = {"pairs": len(sides[0])} | evaluate_similarity(similarities)
            if options.found_to is not None:
                write_best_matches(similarities, options.found_to / f"{pair}.tsv")
        return {"average": averages(scores), "test": scores}
    languages = names_of("--langs", options.langs)
    if options.name == "titles":
        for code in languages:
            first_words, count = titles(options.files, code, options.split)
            lines = [f"D-{index}\t0\t{title}" for index, title in enumerate(first_words)]
            write_lines(options.output / code / f"generate-{options.split}.txt", lines)
            sys.stdout.write(f"{code}: the first {count} {title_unit(code)}\n")
        return None
    train_languages = names_of("--train-langs", options.train_langs) if getattr(options, "train_langs", "") else []
    texts: dict[str, str] = {}
    if options.name in METHODS:
        method = options.method
        texts |= predict(options.name, method, options.files.split(":"), languages, train_languages, options.split)
    else:
        method = "trained"
        predicted = classify(options.name, options.files.split(":"), languages, train_languages, options.split)
        for code, columns in predicted.items():
            rows = enumerate(zip(*columns), start=1)
            lines = [f"{line}\t{label}\t{guess}\t{share:.4f}\n" for line, (label, guess, share) in rows]
            texts[f"{options.split}.{code}.tsv"] = "".join(lines)
    model = f"the baseline {options.name}, {method} on {','.join(train_languages) or 'each language'}"
    task = "classification" if options.name in CLASSIFIERS else options.name.replace("-", "_")
    write_predictions(options.output, Origin(model, None, task), texts)
    return None
