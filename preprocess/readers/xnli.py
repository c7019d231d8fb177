"""Reads XNLI: natural language inference in 15 languages.

    fairseq-xl data read xnli downloads corpora/xnli --langs en,de

XNLI 1.0 has the validation and test sets; XNLI-MT 1.0 has MultiNLI's training set in every language, and the
validation and test sets translated into English. Its training text is tokenized; evaluation text is raw and tokenized.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fairseq_xl.io.compressed import stored
from preprocess.commands import run
from preprocess.readers.archives import unpacked_inside
from preprocess.readers.labeled import (
    Example,
    Part,
    argument_parser,
    build,
    inside,
    read_table,
    selected_languages,
    train_path,
)
from preprocess.readers.problems import Problems

LANGUAGES = ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh")
LABELS = {name: name for name in ("contradiction", "entailment", "neutral")} | {"contradictory": "contradiction"}
RELEASES = ("XNLI-1.0", "XNLI-MT-1.0")
SPLITS = {"valid": "dev", "test": "test"}  # ours -> the releases'
PLAIN, TOKENIZED = ("sentence1", "sentence2"), ("sentence1_tokenized", "sentence2_tokenized")


def parts(release: Path, languages: list[str], columns: tuple[str, str]) -> list[Part]:
    """Lists the parts of the two releases.

    Args:
        release: folder with the folders of both releases.
        languages: languages to write.
        columns: columns of evaluation text.
    """
    original, translated = (inside(release, name) for name in RELEASES)
    parts = [
        Part(
            f"train {language}",
            translated / f"multinli/multinli.train.{language}.tsv",
            {language: train_path(language)},
            partial(training, language=language),
        )
        for language in languages
    ]
    evaluated = partial(evaluation, languages=languages, columns=columns)
    for split, name in SPLITS.items():
        files = {language: f"{split}.{language}.tsv" for language in languages}
        parts.append(Part(split, original / f"xnli.{name}.tsv", files, evaluated, settings=columns))
    foreign = [language for language in languages if language != "en"]
    evaluated = partial(evaluation, languages=foreign, columns=columns)
    for split, name in SPLITS.items():
        into_english = translated / f"xnli/xnli.{name}.en.tsv"
        if foreign and stored(into_english).is_file():
            files = {language: f"translate_test/{language}/{split}.en.tsv" for language in foreign}
            title = f"translate_test {split}"
            parts.append(Part(title, into_english, files, evaluated, optional=True, settings=columns))
    return parts


def training(path: Path, problems: Problems, language: str) -> Iterator[Example]:
    """Yields the examples of a training file."""
    for line_number, (premise, hypothesis, label) in read_table(path, problems, ("premise", "hypo", "label")):
        if known_label := problems.label(path, line_number, "label", label, LABELS):
            yield Example(language, known_label, (premise, hypothesis))


def evaluation(path: Path, problems: Problems, languages: list[str], columns: tuple[str, str]) -> Iterator[Example]:
    """Yields the examples in `languages` of a file that has all languages."""
    valid = {language: language for language in LANGUAGES}
    for line_number, (language, label, *texts) in read_table(path, problems, ("language", "gold_label", *columns)):
        known_language = problems.label(path, line_number, "language", language, valid)
        known_label = problems.label(path, line_number, "label", label, LABELS)
        if known_language in languages and known_label:
            yield Example(language, known_label, tuple(texts))


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    release = "folder with XNLI-1.0.zip and XNLI-MT-1.0.zip, or with the folders that they contain"
    parser = argument_parser("xnli", release, LANGUAGES)
    parser.add_argument(
        "--tokenized", action="store_true", help="evaluation text tokenized by the release, as training text always is"
    )
    options = parser.parse_args(arguments)

    def work() -> None:
        languages, columns = selected_languages(options.langs, LANGUAGES), TOKENIZED if options.tokenized else PLAIN
        header = {"corpus": ["XNLI 1.0", "XNLI-MT 1.0"], "languages": languages, "columns": list(columns)}
        files = {part.path.name for part in parts(options.release, languages, columns)}
        files |= {f"xnli.{name}.en.tsv" for name in SPLITS.values()}
        with unpacked_inside(options.release, RELEASES, options.destination, files) as release:
            build(options.destination, release, parts(release, languages, columns), header)

    return run(work, options.destination, "xnli: ")
