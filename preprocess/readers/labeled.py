"""Reads the labeled text of published corpora, and writes the files of fine-tuning."""

import argparse
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tqdm import tqdm

from fairseq_xl.commands import parser_of
from fairseq_xl.errors import UserError, names_of
from fairseq_xl.evaluation.classification_scores import UNLABELED
from fairseq_xl.io.compressed import stored
from fairseq_xl.io.files import replacing
from fairseq_xl.io.text import is_blank, text_of_line
from preprocess.commands import run
from preprocess.readers import checked
from preprocess.readers.archives import unpacked
from preprocess.readers.problems import Problems, decoded

SHOWN = 80  # maximum number of characters of a wrong header in an error

logger = logging.getLogger("preprocess")


SENTENCE = "sentences"  # label of the end of a sentence, which manifests count


class Example(NamedTuple):
    """A row of a published file: a labeled text, or a tagged word, or the end of a sentence, or a whole file."""

    language: str
    label: str
    texts: tuple[str, ...]


def labeled_line(example: Example) -> str:
    """``label TAB text TAB text``."""
    return "\t".join([example.label, *example.texts]) + "\n"


def tagged_line(example: Example) -> str:
    """``word TAB tag``, or an empty line at the end of a sentence."""
    return "\n" if example.label == SENTENCE else "\t".join([*example.texts, example.label]) + "\n"


def copied(example: Example) -> str:
    """The text without changes."""
    return example.texts[0]


@dataclass(frozen=True)
class Part:
    """The output of one published file."""

    name: str  # name of the stage
    path: Path
    files: dict[str, str]  # language -> path in the output folder
    read: Callable[[Path, Problems], Iterator[Example]]  # adds errors to the problems
    placeholder: str = ""  # text in place of a missing sentence
    optional: bool = False  # if true, a language without examples is left out; otherwise it is an error
    keeps_empty: bool = False  # if true, an empty text is written as `_`, so that no line is missing
    settings: tuple[str, ...] = ()  # other settings that the result depends on
    line: Callable[[Example], str] = labeled_line  # output of an example
    leave_out: bool = False  # if true, wrong lines and answers are left out; otherwise they are errors


# Reading


def read_rows(
    path: Path, problems: Problems, skip_empty: bool = True, same_columns: bool = True
) -> Iterator[tuple[int, list[str]]]:
    r"""Yields the number and the fields of each line, with one space for each run of white space in a field.

    Only b"\n" ends a line and only a tab ends a field: quote characters are text. Problems are those of `decoded` and,
    if `same_columns`, a line whose number of fields differs from the first line's. Empty lines are skipped; without
    `skip_empty` those before other lines are problems.
    """
    expected, empty = 0, []
    for line_number, text in decoded(path, problems):
        if is_blank(text) and "\t" not in text:
            if not skip_empty:
                empty.append(line_number)
            continue
        for line in empty:
            problems.wrong("empty lines", f"{path}, line {line}: the line is empty")
        empty.clear()
        fields = [text_of_line(field) for field in text.split("\t")]
        expected = expected or len(fields)
        if len(fields) == expected or not same_columns:
            yield line_number, fields
            continue
        problems.wrong(
            "wrong columns",
            f"{path}, line {line_number}: expected {expected} fields as in the first line, found {len(fields)}",
        )


def read_table(path: Path, problems: Problems, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yields the number of each line below the header, and its fields in the order of `columns`.

    Problems are those of `read_rows`, and a header that lacks a column.
    """
    rows = read_rows(path, problems)
    line_number, header = next(rows, (0, []))
    if missing := [name for name in columns if name not in header]:
        if line_number:
            problems.add(
                f"{path}, line {line_number}: expected a header with {', '.join(columns)}; {', '.join(missing)} is not "
                f"in {' '.join(header)[:SHOWN]!r}"
            )
        return
    indices = [header.index(name) for name in columns]
    for line_number, fields in rows:
        yield line_number, [fields[i] for i in indices]


# Writing


def build(folder: Path, release: Path, parts: Sequence[Part], header: dict, remedy: str = "") -> None:
    """Checks every part, then writes the files of each, and the manifest (`preprocess.readers.checked.build`)."""

    def output(part: Part) -> checked.Output:
        settings = [part.files, *part.settings, *(["leave out"] if part.leave_out else [])]
        same = (part.path, *part.files, *part.settings, part.leave_out)  # tasks share training files
        paths = [folder / path for path in part.files.values()]
        return checked.Output(
            part.name, [part.path], settings, paths, lambda: check(part), lambda: _write(folder, part), same
        )

    outputs = [output(replace(part, path=stored(part.path))) for part in parts]
    checked.build(folder, release, outputs, header, remedy)


def build_unpacked(
    folder: Path,
    release: Path,
    parts: Callable[[Path], Sequence[Part]],
    header: dict,
    remedy: str = "",
    alternatives: Collection[str] = (),
) -> None:
    """Calls `build` for a release that is a folder or an archive (`preprocess.readers.archives.unpacked`).

    Args:
        parts: a function of the folder of the release.
        alternatives: names of other files that it may use.
    """
    with unpacked(release, folder, {part.path.name for part in parts(release)} | set(alternatives)) as source:
        build(folder, source, parts(source), header, remedy)


def check(part: Part) -> Problems:
    """Returns the problems of a part."""
    problems = Problems(part.leave_out)
    for _ in _examples(part, problems, _no_counts(part), f"check {part.name}"):
        pass
    return problems


def _reasons(part: Part) -> list[str]:
    """Reasons to leave out a pair."""
    return ["empty", *([part.placeholder] if part.placeholder else [])]


def _no_counts(part: Part) -> dict[str, dict[str, Any]]:
    """Returns the initial counts of each file, for the manifest."""
    return {name: {"lines": 0, **dict.fromkeys(_reasons(part), 0), "labels": {}} for name in part.files.values()}


def _examples(
    part: Part, problems: Problems, counts: dict[str, dict], description: str
) -> Iterator[tuple[str, Example]]:
    """Yields the output file and the example of each line to write, and counts them."""
    examples = part.read(part.path, problems)
    for language, label, texts in tqdm(examples, desc=description, unit=" examples", disable=None):
        name = part.files[language]
        if part.keeps_empty and not all(texts):
            counts[name]["empty"] += 1
            texts = tuple(text or UNLABELED for text in texts)
        if not all(texts) or part.placeholder in texts:
            counts[name][part.placeholder if all(texts) else "empty"] += 1
            continue
        counts[name]["lines"] += 1
        counts[name]["labels"][label] = counts[name]["labels"].get(label, 0) + 1
        yield name, Example(language, label, texts)
    for language, name in part.files.items():
        if not part.optional and not counts[name]["lines"] and not problems.count:
            problems.add(f"{part.path}: there is no example in language {language!r}")
    if problems.left_out:  # of parts with one file
        counts[next(iter(part.files.values()))]["left out"] = dict(sorted(problems.left_out.items()))


def _write(folder: Path, part: Part) -> dict[str, dict]:
    """Writes a part; returns the counts of each file: lines, lines by label, and left-out lines by reason."""
    problems, counts, files = Problems(part.leave_out), _no_counts(part), {}
    with ExitStack() as stack:
        for name, example in _examples(part, problems, counts, part.name):
            if name not in files:
                files[name] = stack.enter_context(replacing(folder / name, make_folder=True))
            files[name].write(part.line(example).encode())
        problems.refuse()  # of a file that has changed since it was checked
    languages = {name: language for language, name in part.files.items()}
    for name, count in counts.items():
        if not count["lines"]:
            logger.warning("%s: no examples in %s; %s is not written", part.path, languages[name], name)
        elif any(count[reason] for reason in _reasons(part)):
            action = "wrote as _" if part.keeps_empty else "left out"
            logger.info("%s: %s %s", name, action, ", ".join(f"{count[reason]} {reason}" for reason in _reasons(part)))
    if problems.left_out:
        left_out = sorted(problems.left_out.items())
        logger.warning("%s: left out %s", part.path, ", ".join(f"{count} {kind}" for kind, count in left_out))
    return counts


# Commands


def argument_parser(name: str, release: str, languages: Sequence[str]) -> argparse.ArgumentParser:
    """Returns a parser of the arguments of all readers of labeled pairs: RELEASE, DEST and --langs."""
    parser = parser_of(f"preprocess.readers.{name}")
    parser.add_argument("release", metavar="RELEASE", type=Path, help=release)
    parser.add_argument("destination", metavar="DEST", type=Path, help="folder to write")
    parser.add_argument(
        "--langs", default=",".join(languages), metavar="XX,YY", help=f"any of {', '.join(languages)} (default: all)"
    )
    return parser


def read_release(
    name: str,
    corpus: str,
    release: str,
    languages: Sequence[str],
    parts: Callable[[Path, list[str]], list[Part]],
    arguments: list[str] | None,
) -> int:
    """Writes the `parts` of RELEASE, a folder or an archive, in --langs; returns the exit status."""
    options = argument_parser(name, release, languages).parse_args(arguments)

    def work() -> None:
        codes = selected_languages(options.langs, languages)
        header = {"corpus": [corpus], "languages": codes}
        build_unpacked(options.destination, options.release, lambda release: parts(release, codes), header)

    return run(work, options.destination, f"{name}: ")


def read_benchmark(
    name: str,
    corpus: str,
    release: str,
    languages: Mapping[str, Sequence[str]],
    parts: Callable[..., Iterator[Part]],
    arguments: list[str] | None,
    archive: bool = False,
    alternatives: Collection[str] = (),
    flags: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Writes the `parts` of each task of --tasks of RELEASE in --langs; returns the exit status.

    Args:
        languages: the languages of each task.
        parts: a function of task, RELEASE, languages, whether --skip-invalid is given, and `flags` by name.
        archive: whether RELEASE may be an archive.
        alternatives: as in `build_unpacked`.
        flags: {name of a flag of the command: its help}.
    """
    all_codes = sorted({language for codes in languages.values() for language in codes})
    parser = argument_parser(name, release, all_codes)
    parser.add_argument(
        "--tasks", default=",".join(languages), help="tasks, separated by commas (default: %(default)s)"
    )
    skip_invalid_option(parser)
    for flag, text in flags.items():
        parser.add_argument(f"--{flag.replace('_', '-')}", action="store_true", help=text)
    options = parser.parse_args(arguments)

    def work() -> None:
        tasks, codes = names_of("--tasks", options.tasks), selected_languages(options.langs, all_codes)
        if unknown := [task for task in tasks if task not in languages]:
            raise UserError(f"--tasks {options.tasks}: {unknown[0]} is not one of {', '.join(languages)}")
        if set(codes) != set(all_codes):
            spoken = {code for task in tasks for code in languages[task]}
            if absent := [code for code in codes if code not in spoken]:
                raise UserError(
                    f"--langs {options.langs}: language {absent[0]!r} is in none of the tasks {', '.join(tasks)}"
                )
        task_languages = {task: [code for code in languages[task] if code in codes] for task in tasks}

        def release_parts(release: Path) -> list[Part]:
            flag_values = {flag: getattr(options, flag) for flag in flags}
            return [
                part
                for task in tasks
                for part in parts(task, release, task_languages[task], options.skip_invalid, **flag_values)
            ]

        header = {"corpus": [corpus], "tasks": tasks, "languages": codes}
        remedy = "--tasks and --langs choose a part of the release"
        if archive:
            build_unpacked(options.destination, options.release, release_parts, header, remedy, alternatives)
        else:
            build(options.destination, options.release, release_parts(options.release), header, remedy)

    return run(work, options.destination, f"{name}: ")


def skip_invalid_option(parser: argparse.ArgumentParser) -> None:
    """Adds --skip-invalid."""
    parser.add_argument(
        "--skip-invalid",
        action="store_true",
        help="skip answers that are not the text at their offset in every split, and in training text also questions "
        "and lines with an unknown label or a wrong number of fields; the manifest counts them. In tagging files every "
        "wrong line is an error",
    )


def selected_languages(option: str, languages: Sequence[str]) -> list[str]:
    """Parses --langs; raises UserError for a language that the release lacks."""
    codes = names_of("--langs", option)
    if unknown := [language for language in codes if language not in languages]:
        raise UserError(f"--langs: unknown {', '.join(map(repr, unknown))}; valid: {', '.join(languages)}")
    return codes


def inside(release: Path, name: str) -> Path:
    """Returns the folder `name` in `release`, or `release` itself if there is none."""
    return release / name if (release / name).is_dir() else release


def train_path(language: str) -> str:
    """Returns the path of training text; text translated from English is in a separate folder."""
    return f"train.{language}.tsv" if language == "en" else f"translate_train/train.{language}.tsv"
