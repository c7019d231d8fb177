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
import json
import sys
from pathlib import Path

from fairseq_xl.errors import names_of
from fairseq_xl.evaluation.baselines import CLASSIFIERS, classify, similarity, title_unit, titles
from fairseq_xl.evaluation.finetuning_baselines import METHODS, predict
from fairseq_xl.evaluation.prediction_folders import Origin, write_predictions
from fairseq_xl.evaluation.retrieval_scores import averages, evaluate_similarity, read_named_pairs, write_best_matches
from fairseq_xl.io.files import write_lines

#: baseline -> what it computes
BASELINES = {
    "classification": "tf-idf of character n-grams, logistic regression",
    "pairs": "n-gram overlap and lengths of two texts, logistic regression",
    "titles": "the first words of the source",
    "tagging": "word sequences that are spans in at least half of their occurrences in the training text",
    "question-answering": "the paragraph of the context that is most similar to the question",
    "ranking": "similarity of query and text",
}


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    options = _parser().parse_args(arguments)
    if options.name == "retrieval":
        scores = {}
        for pair, sides in read_named_pairs(options.pairs).items():
            similarities = similarity(*sides)
            scores[pair] = {"pairs": len(sides[0])} | evaluate_similarity(similarities)
            if options.found_to is not None:
                write_best_matches(similarities, options.found_to / f"{pair}.tsv")
        sys.stdout.write(json.dumps({"average": averages(scores), "test": scores}) + "\n")
        return
    languages = names_of("--langs", options.langs)
    if options.name == "titles":
        for code in languages:
            first_words, count = titles(options.files, code, options.split)
            lines = [f"D-{index}\t0\t{title}" for index, title in enumerate(first_words)]
            write_lines(options.output / code / f"generate-{options.split}.txt", lines)
            sys.stdout.write(f"{code}: the first {count} {title_unit(code)}\n")
        return
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "fairseq-xl score baselines", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    command = commands.add_parser("retrieval", help="tf-idf of character n-grams, ratio margin")
    command.add_argument("pairs", nargs="+", metavar="XX-YY=PREFIX", help="test pairs, one file per language")
    command.add_argument(
        "--found-to", type=Path, metavar="FOLDER", help="write the sentences found, as fairseq-xl retrieve does"
    )
    for name, help_text in BASELINES.items():
        command = commands.add_parser(name, help=help_text)
        command.add_argument("files", help="folder of the task's files; for labeled text several folders, joined by :")
        command.add_argument("output", type=Path, help="folder for the predictions or titles")
        command.add_argument("--langs", required=True, help="the languages to test, separated by commas")
        command.add_argument("--split", default="test", help="split (default: test)")
        if name in METHODS:
            help_text = "; ".join(f"{method}: {what}" for method, what in METHODS[name].items())
            default = next(iter(METHODS[name]))
            command.add_argument(
                "--method", choices=METHODS[name], default=default, help=f"{help_text} (default: {default})"
            )
        if name in (*CLASSIFIERS, "tagging"):
            help_text = "languages to train on together (default: each language on its own text)"
            command.add_argument("--train-langs", default="", help=help_text)
    return parser
