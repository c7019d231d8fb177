"""Baselines without a pre-trained model.

- ``retrieval XX-YY=PREFIX …`` compares sentences by tf-idf of their character n-grams, with the ratio margin of
  `fairseq-xl retrieve`, and prints scores as that does;
- ``classification TASK_FILES OUTPUT`` is logistic regression on tf-idf of character n-grams;
- ``pairs TASK_FILES OUTPUT`` is logistic regression on the n-gram overlap and the lengths of two texts: a task that it
  solves as well as a model does not show any understanding by the model;
- ``titles TASK_FILES OUTPUT`` writes the first words of the source, in Chinese characters; their number is the one
  with the best ROUGE-L on the validation text;
- ``tagging TASK_FILES OUTPUT`` tags word sequences that are spans in at least half of their occurrences in the training
  text, or with --method capitals runs of capitalized words, or with --method outside no word;
- ``question-answering TASK_FILES OUTPUT`` answers with the paragraph of the context that is most similar to the
  question, or with --method first with the first one;
- ``ranking TASK_FILES OUTPUT`` ranks texts by their similarity with the query.

OUTPUT gets the files that fairseq-validate and fairseq-generate write for a model, which `fairseq-xl score
classification` (for pairs too), `score generation`, `score tagging`, `score question-answering` and `score ranking`
read. tf-idf and logistic regression need scikit-learn.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from fairseq_xl.commands import Options, argument, command
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
    argument("pairs", "test pairs, one file per language", nargs="+", metavar="XX-YY=PREFIX")(retrieval)
    argument("--found-to", "as of fairseq-xl retrieve", type=Path, metavar="FOLDER")(retrieval)
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


@command(_subcommands, formatter_class=argparse.RawTextHelpFormatter)
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
