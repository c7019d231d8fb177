"""python -m recipes.xglue.small_release RELEASE CORPUS: a small synthetic release of XGLUE, and parallel text.

Its files have the names and formats of the release, so that the reader, fine-tuning, predictions and scores can be run
on all nine understanding tasks in minutes (`recipes.twelve_words`).
"""

import argparse
import itertools
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from preprocess.readers.xglue import ALL, LANGUAGES, file_of
from recipes.twelve_words import (
    DOCTOR,
    FILM,
    NER,
    POS,
    WORDS,
    Draw,
    draw,
    inference,
    questions,
    sentence,
    squad,
    tagged,
    write,
    write_corpus,
)

COUNTS = {"train": 300, "dev": 40, "test": 40}
PIECES = 600


def line(task: str, words: list[str], concepts: Draw, rng: random.Random) -> Iterator[str]:
    """Yields the lines of an example of a task with one label per line."""
    first, second, yes = concepts(), concepts(), rng.random() < 0.5
    text, second_text = sentence(words, first), sentence(words, second)
    if task == "NC":
        category = "entertainment" if FILM in first else "health" if DOCTOR in first else "news"
        yield f"{text}\t{second_text}\t{category}"
    elif task == "XNLI":
        yield "\t".join(inference(words, first, second, rng))
    elif task == "PAWSX":
        yield f"{rng.randrange(1000)}\t{text}\t{sentence(words, first[::-1] if yes else second)}\t{int(yes)}"
    elif task == "QADSM":
        yield f"{text}\t{text if yes else second_text}\t{second_text}\t{'Good' if yes else 'Bad'}"
    elif task == "QAM":
        yield f"{text}\t{text if yes else second_text}\t{int(yes)}"
    else:  # WPR: pages repeat more or less of the query
        for rating in rng.sample(range(5), 3):
            yield f"{text}\t{sentence(words, [*first[:rating], *second[rating:]])}\t{second_text}\t{rating}"


def file(task: str, split: str, language: str) -> str:
    """Returns the text of a file of the release."""
    words, rng = WORDS[language].split(), random.Random(f"{task} {split}")
    count, concepts = COUNTS[split], partial(draw, rng)
    if task == "MLQA":
        return squad(questions(f"{language}-{split}", words, rng, count))
    if task in ("NER", "POS"):
        tags = POS if task == "POS" else NER
        return "".join(tagged(tags, words, concepts()).replace("\t", " ") for _ in range(count))
    lines = list(itertools.chain.from_iterable(line(task, words, concepts, rng) for _ in range(count)))
    if task == "PAWSX":
        lines = ["id\tsentence1\tsentence2\tlabel", *lines]
    if (task, split) == ("XNLI", "train"):
        lines = ["premise\thypo\tlabel", *(text.replace("contradiction", "contradictory") for text in lines)]
    return "".join(f"{text}\n" for text in lines)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser("python -m recipes.xglue.small_release", description=__doc__)
    parser.add_argument("release", type=Path, metavar="RELEASE", help="folder to write the release to")
    parser.add_argument("corpus", type=Path, metavar="CORPUS", help="folder to write text and its description to")
    options = parser.parse_args(arguments)
    for task, languages in LANGUAGES.items():
        for language, split in itertools.product(languages, COUNTS):
            if split != "train" or language == "en":
                write(options.release / task / file_of(task, split, language), file(task, split, language))
    write_corpus(options.corpus, ALL, PIECES)


if __name__ == "__main__":
    main()
