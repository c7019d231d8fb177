"""Prepares a corpus folder for an experiment, and writes its description for ``fairseq-xl data prepare``.

    python -m recipes.corpus FOLDER [DESCRIPTION.yaml --langs en,de --vocabulary N [--monolingual] [--normalization X]]
    python -m recipes.corpus FOLDER en=EN.yaml de=DE.yaml --langs en,de ...        # a description of each alone

With --sentences N the training text of each language is about N sentences of it, in whole pages: EN.train.en beside
EN.yaml. A file that exists with other content is not replaced: nothing is written.
Makes corpora/lohelp and corpora/sample if they are missing or incomplete. Other FOLDERs must have the layout in
recipes/lohelp/README.md. The description has sentence pairs of the first language with each other language.
With `--zero-shot de-fr` it also has a test set of German and French, DESCRIPTION.test.de-fr.de and .fr beside
DESCRIPTION.yaml: FOLDER/bitext/test.de-fr, or the lines that have the same id in FOLDER/bitext/test.en-de.ids and
test.en-fr.ids.
"""

import argparse
import contextlib
import filecmp
import sys
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from fairseq_xl.errors import UserError, in_range, language_codes, names_of, positive_integer
from fairseq_xl.io import bounds, error_reporting
from fairseq_xl.io.compressed import stored
from fairseq_xl.io.files import replacing
from fairseq_xl.io.folders import locked
from fairseq_xl.io.lines import read_lines
from fairseq_xl.io.text import is_blank
from preprocess.config import NORMALIZATIONS

CORPORA = Path(__file__).resolve().parent.parent / "corpora"
#: of the argument --vocabulary
VOCABULARY: dict[str, Any] = {
    "action": in_range(int, "1 or more", bounds.LARGEST_VOCABULARY),
    **{"default": 8000, "help": "number of pieces (default: 8000)"},
}
MADE = (CORPORA / "lohelp", CORPORA / "sample")


def make(folder: Path, languages: list[str], pairs: str = "") -> None:
    """Makes corpora/lohelp or corpora/sample; does nothing for other folders.

    Languages and pairs of corpora/lohelp stay in it. Waits for another process that makes a corpus.

    Args:
        pairs: pairs without English that corpora/lohelp needs, joined by commas.
    """
    if folder not in MADE:
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent / f".{folder.name}.lock", None):
        _make(folder, languages, pairs)


def _make(folder: Path, languages: list[str], pairs: str) -> None:
    lohelp, sample = MADE
    if folder == lohelp and (not folder.exists() or (folder / ".stages").is_dir()):
        from preprocess.readers.libreoffice_help.read_libreoffice_help import main as read_help

        codes = {path.name.split(".")[1] for path in folder.glob(".stages/pages.*.json")} | set(languages)
        names = [path.name.split(".")[1] for path in sorted(folder.glob("bitext/test.*-*.*"))] + pairs.split(",")
        orders: dict[frozenset[str], str] = {}  # the first order of the languages of a pair stays
        for pair in names:
            if pair and "en" not in pair.split("-"):
                orders.setdefault(frozenset(pair.split("-")), pair)
        # sorted, since the reader writes everything again for another order
        flags = ["--langs", ",".join(sorted(codes)), "--pairs", ",".join(sorted(orders.values()))]
        if status := read_help([str(folder), *flags]):
            sys.exit(status)
    elif folder == sample:
        from preprocess.commands.sample import main as write_sample
        from preprocess.stages import Stages

        Stages(folder, "corpus").run(
            "sample", {}, [folder / "tasks/form/train.en.tsv"], lambda: write_sample([str(folder)])
        )


def check_output(folder: Path, output: Path) -> None:
    """Raises `UserError` if a corpus would be written over the one that it is made from."""
    if output.resolve() == folder.resolve():
        raise UserError(f"{output}: the text of the corpus would be replaced: OUTPUT must be another folder")


def description(
    folder: Path, languages: list[str], vocabulary: int, monolingual: bool, normalization: str | None
) -> dict[str, Any]:
    """Returns the corpus description. Raises `UserError` if a language has no training text in the folder."""
    first, targets = languages[0], [] if monolingual else languages[1:]
    needed = [f"mono/train.{code}" for code in languages]
    needed += [f"bitext/train.{first}-{code}.{side}" for code in targets for side in (first, code)]
    for name in needed:
        if not stored(folder / name).is_file():
            raise UserError(f"{folder} is not a corpus of {','.join(languages)}: it has no {name}")
    sizes = {"model": "unigram", "size": vocabulary, "alpha": 0.5}
    splits = ("train", "valid")
    content: dict[str, Any] = {
        "languages": languages,
        "vocabulary": sizes | ({"normalization": normalization} if normalization else {}),
        "monolingual": {code: {split: f"{folder}/mono/{split}.{code}" for split in splits} for code in languages},
    }
    if targets:
        pairs = [f"{first}-{code}" for code in targets]
        content["bitext"] = {
            pair: {split: f"{folder}/bitext/{split}.{pair}" for split in (*splits, "test")} for pair in pairs
        }
    return content


class NewFiles(contextlib.ExitStack):
    """Files that are all written at the end of the context, whole; none if one exists with other content."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[Path, BinaryIO] = {}

    def open(self, path: Path) -> BinaryIO:
        """Opens a file for binary writing; raises `UserError` if it is open already."""
        if path in self.files:
            raise UserError(f"{path} would be written twice: name each DESCRIPTION once")
        self.files[path] = self.enter_context(replacing(path, make_folder=True))
        return self.files[path]

    def check(self) -> None:
        """Raises `UserError` for a file that exists with other content."""
        for path, file in self.files.items():
            file.flush()
            if path.exists() and not filecmp.cmp(path, file.name, shallow=False):
                raise UserError(f"{path} exists with other content: remove it, or name another DESCRIPTION")


def zero_shot_test(folder: Path, first: str, pair: str) -> dict[str, list[str]]:
    """Returns the test set of a pair, {language: lines}.

    It is FOLDER/bitext/test.PAIR, with the languages in either order, or the lines with the same id in the test sets
    with the language `first`. Raises `UserError` for a missing file, or if no line has the same id.
    """
    codes = pair.split("-")
    orders = [[folder / f"bitext/test.{name}.{code}" for code in codes] for name in (pair, "-".join(codes[::-1]))]
    whole = [paths for paths in orders if all(stored(path).is_file() for path in paths)]
    if whole:
        texts = [dict(enumerate(read_lines(path))) for path in whole[0]]
    else:
        texts = [_lines_by_id(folder / f"bitext/test.{first}-{code}", code) for code in codes]
    shared = [name for name in texts[0] if name in texts[1]]
    if not shared:
        raise UserError(f"--zero-shot {pair}: no line of these test sets in {folder} has the same id")
    return {code: [text[name] for name in shared] for code, text in zip(codes, texts)}


def _lines_by_id(prefix: Path, code: str) -> dict[Any, str]:
    paths = [Path(f"{prefix}.{end}") for end in ("ids", code)]
    for path in paths:
        if not stored(path).is_file():
            raise UserError(f"--zero-shot: there is no {path}")
    ids, lines = (read_lines(path) for path in paths)
    if len(ids) != len(lines):
        raise UserError(f"{paths[0]} has {len(ids)} lines, {paths[1]} has {len(lines)}")
    return {name: line for name, line in zip(ids, lines) if not is_blank(name)}


def write_sentences(path: Path, count: int, file: BinaryIO) -> str:
    """Writes evenly spaced pages of a text with about `count` lines and returns their number, N of M sentences.

    Raises `UserError` for a text with fewer lines.
    """
    from preprocess.files import texts_in

    total = sum(map(bool, texts_in(path)))
    if total < count:
        raise UserError(f"{path} has {total} sentences, --sentences needs {count}")
    passed, written, begins, selects = 0, 0, True, False
    for line in texts_in(path):
        if line and begins:
            selects = written * total <= passed * count
        begins, passed = not line, passed + bool(line)
        if selects:
            written += bool(line)
            file.write(f"{line}\n".encode())
    return f"{written} of {total} sentences"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m recipes.corpus", description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="the corpus folder")
    parser.add_argument(
        "descriptions",
        nargs="*",
        metavar="[LANGUAGES=]DESCRIPTION.yaml",
        help="file to write, of all languages or these; one that exists with other content is not replaced",
    )
    parser.add_argument("--langs", default="en", help="languages, separated by commas")
    parser.add_argument("--vocabulary", **VOCABULARY)
    parser.add_argument("--monolingual", action="store_true", help="without sentence pairs")
    parser.add_argument(
        "--zero-shot",
        metavar="PAIR,PAIR",
        help="pairs without the first language: writes their test sets DESCRIPTION.test.PAIR.LANGUAGE",
    )
    parser.add_argument(
        "--sentences",
        action=positive_integer,
        metavar="N",
        help="writes DESCRIPTION.train.LANGUAGE, for c.yaml c.train.en, about N sentences of each training text "
        "(default: all)",
    )
    parser.add_argument("--normalization", choices=NORMALIZATIONS, help="rules of SentencePiece")
    error_reporting.install()
    options = parser.parse_args(arguments)
    folder, languages = options.folder.resolve(), language_codes("--langs", options.langs)
    make(folder, languages, options.zero_shot or "")
    if not folder.is_dir():
        raise UserError(f"{options.folder}: there is no such corpus folder")
    if not any(folder.iterdir()):
        raise UserError(f"{options.folder} is empty: expected a corpus of {','.join(languages)}")
    lengths = {}
    with NewFiles() as files:
        for argument in options.descriptions:
            codes, _, path = argument.rpartition("=")
            selected = language_codes(argument, codes) if codes else languages
            content = description(folder, selected, options.vocabulary, options.monolingual, options.normalization)
            output = Path(path.removesuffix(".yaml")).resolve()
            for code in selected if options.sentences else ():
                text, pages = Path(f"{output}.train.{code}"), stored(folder / f"mono/train.{code}")
                lengths[text] = write_sentences(pages, options.sentences, files.open(text))
                content["monolingual"][code]["train"] = str(text)
            for pair in names_of("--zero-shot", options.zero_shot) if options.zero_shot else ():
                test = Path(f"{output}.test.{pair}")
                for code, lines in zero_shot_test(folder, languages[0], pair).items():
                    files.open(Path(f"{test}.{code}")).writelines(f"{line}\n".encode() for line in lines)
                    lengths[test] = f"{len(lines)} pairs"
                content["bitext"][pair] = {"test": str(test)}
            files.open(Path(path).resolve()).write(
                yaml.safe_dump(content, allow_unicode=True, sort_keys=False).encode()
            )
        files.check()
    sys.stderr.writelines(f"{path}: {length}\n" for path, length in lengths.items())


if __name__ == "__main__":
    main(sys.argv[1:])
