"""python -m recipes.xtreme.small_release DOWNLOAD LABELS CORPUS: a small synthetic XTREME, and parallel text.

DOWNLOAD has the files of XTREME's folder `download`, whose test files have no labels; LABELS has theirs in the layout
of XTREME's submissions. The reader, fine-tuning, retrieval, predictions and scores can be run on all nine tasks in
minutes (`recipes.twelve_words`). With --translations DOWNLOAD also has the folder xtreme_translations.
"""

import argparse
import csv
import io
import itertools
import random
from collections.abc import Iterator
from pathlib import Path

from fairseq_xl.evaluation.xtreme import LANGUAGES as SCORED
from preprocess.readers.xtreme import (
    LANGUAGES,
    TRANSLATED,
    TRANSLATED_TESTS,
    TRANSLATED_TRAINING,
    TRANSLATED_VALIDATION,
    file_of,
)
from recipes.twelve_words import (
    NER,
    POS,
    WORDS,
    draw,
    inference,
    questions,
    sentence,
    squad,
    tagged,
    write,
    write_corpus,
)

COUNTS = {"train": 300, "dev": 20, "test": 40}
SENTENCES, PAIRS = 60, 40  # of a file of BUCC; Tatoeba has only pairs
PIECES = 1000
WITHOUT_DEV = ("kk", "th", "tl", "yo")  # Universal Dependencies has no dev file of these languages


def pairs(task: str, words: list[str], rng: random.Random, count: int) -> Iterator[tuple[str, str, str]]:
    """Yields examples of xnli and pawsx: two texts and a label."""
    for _ in range(count):
        first, second, yes = draw(rng), draw(rng), rng.random() < 0.5
        if task == "xnli":
            yield inference(words, first, second, rng)
        else:
            yield sentence(words, first), sentence(words, first[::-1] if yes else second), str(int(yes))


def table(rows: list[tuple[str, ...]]) -> str:
    """Formats rows with Python's csv, separated by tabs."""
    text = io.StringIO(newline="")
    csv.writer(text, delimiter="\t").writerows(rows)
    return text.getvalue()


def files(task: str, split: str, language: str) -> tuple[str, str]:
    """Returns the content of a release file, without labels in a test file, and that of its label file."""
    words, rng = WORDS[language].split(), seeded(task, split)
    if task in ("udpos", "panx"):
        tags = POS if task == "udpos" else NER
        text = "".join(tagged(tags, words, draw(rng)) for _ in range(COUNTS[split]))
        rows = [line.split("\t") for line in text.splitlines()]
        shown = "".join(f"{row[0]}\n" for row in rows) if split == "test" else text
        return shown, "".join(f"{row[-1]}\n" for row in rows)
    if task in ("xnli", "pawsx"):
        examples = list(pairs(task, words, rng, COUNTS[split]))
        shown = table([row[:2] for row in examples] if split == "test" else [*examples])
        return shown, "".join(f"{label}\n" for *_, label in examples)
    articles = questions(f"{task}-{split}", words, rng, COUNTS[split])
    labels = squad(articles)
    if split == "test":
        for article in articles:
            article["paragraphs"][0]["qas"][0]["answers"] = [{"text": "", "answer_start": 0}]
    return squad(articles), labels


def translated_files(task: str, language: str) -> Iterator[tuple[Path, str]]:
    """Yields path and content of the files of xtreme_translations of a task, with labels.

    Training and dev text is translated from English, test text into English.
    """
    for paths, split, source, target in (
        (TRANSLATED_TRAINING, "train", "en", language),
        *([(TRANSLATED_VALIDATION, "dev", "en", language)] if task in TRANSLATED_VALIDATION else []),
        (TRANSLATED_TESTS, "test", language, "en"),
    ):
        path = Path(paths[task].format(language))
        if path.suffix == ".json":
            _, labeled = files(task, split, target)
            yield path, labeled
            continue
        texts, translations = (
            list(pairs(task, WORDS[code].split(), seeded(task, split), COUNTS[split])) for code in (source, target)
        )
        lines = ("\t".join([*text[:2], *translated]) for text, translated in zip(texts, translations))
        yield path, "".join(f"{line}\n" for line in lines)


def seeded(task: str, split: str) -> random.Random:
    """Returns the random numbers of a split, so that all languages have the same examples."""
    return random.Random(f"{task} {split}")


def mixed(language: str, split: str) -> tuple[str, str, str]:
    """Returns BUCC: sentences with ids of a language and of English in random order, and the ids of the pairs."""
    rng = random.Random(f"bucc2018 {split} {language}")
    sentences = distinct(rng, 2 * SENTENCES - PAIRS)
    sides = {language: sentences[:SENTENCES], "en": sentences[:PAIRS] + sentences[SENTENCES:]}
    texts, order = {}, {}
    for side, concepts in sides.items():
        order[side] = rng.sample(range(SENTENCES), SENTENCES)
        lines = [f"{side}-{n:09}\t{sentence(WORDS[side].split(), concepts[k])}\n" for n, k in enumerate(order[side])]
        texts[side] = "".join(lines)
    positions = [(order[language].index(i), order["en"].index(i)) for i in range(PAIRS)]
    gold = "".join(f"{language}-{first:09}\ten-{second:09}\n" for first, second in sorted(positions))
    return texts[language], texts["en"], gold


def sorted_english(language: str) -> tuple[str, str, str]:
    """Returns Tatoeba: sentences, sorted English translations, and the index of each translation's sentence."""
    sentences = distinct(random.Random(f"tatoeba {language}"), PAIRS)
    english = [sentence(WORDS["en"].split(), concepts) for concepts in sentences]
    text = "".join(f"{sentence(WORDS[language].split(), concepts)}\n" for concepts in sentences)
    positions = [english.index(line) for line in sorted(english)]
    return text, "".join(f"{line}\n" for line in sorted(english)), "".join(f"{position}\n" for position in positions)


def distinct(rng: random.Random, count: int) -> list[list[int]]:
    """Draws different sentences."""
    unique: dict[tuple[int, ...], None] = {}
    while len(unique) < count:
        unique[tuple(draw(rng))] = None
    return [list(concepts) for concepts in unique]


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser("python -m recipes.xtreme.small_release", description=__doc__)
    parser.add_argument("download", type=Path, metavar="DOWNLOAD", help="folder to write the release to")
    parser.add_argument("labels", type=Path, metavar="LABELS", help="folder to write the labels of test files to")
    parser.add_argument("corpus", type=Path, metavar="CORPUS", help="folder to write text and its description to")
    parser.add_argument("--translations", action="store_true", help="also write the folder xtreme_translations")
    options = parser.parse_args(arguments)
    for task, language in itertools.product(TRANSLATED_TESTS if options.translations else (), WORDS):
        if language in LANGUAGES[task] and language != "en":
            for translated, text in translated_files(task, language):
                write(options.download / TRANSLATED / translated, text)
    for task, languages in LANGUAGES.items():
        for language, split in itertools.product(languages, COUNTS):
            path = file_of(task, split, language)
            if (task, split) == ("udpos", "dev") and language in WITHOUT_DEV:
                continue
            if path and (split != "train" or language == "en"):
                shown, labels = files(task, split, language)
                write(options.download / path, shown)
                if split == "test":
                    write(options.labels / task / f"test-{language}{Path(path).suffix}", labels)
    for language in SCORED["bucc2018"].split():
        for split in ("dev", "test"):
            *sides, gold = mixed(language, split)
            for side, text in zip((language, "en"), sides):
                write(options.download / "bucc2018" / f"{language}-en.{split}.{side}", text)
            dev = options.download / "bucc2018" / f"{language}-en.dev.gold"
            write(dev if split == "dev" else options.labels / "bucc2018" / f"test-{language}.tsv", gold)
    for language in SCORED["tatoeba"].split():
        *sides, labels = sorted_english(language)
        for side, text in zip((language, "en"), sides):
            write(options.download / "tatoeba" / f"{language}-en.{side}", text)
        write(options.labels / "tatoeba" / f"test-{language}.tsv", labels)
    write_corpus(options.corpus, sorted({code for codes in SCORED.values() for code in codes.split()}), PIECES)


if __name__ == "__main__":
    main()
