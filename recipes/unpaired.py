"""Makes monolingual text of two languages from parallel text.

    python -m recipes.unpaired FOLDER OUTPUT --langs en,de [--vocabulary N] [--parallel 0.1]

Odd pages of FOLDER/bitext/train.en-de become English text in OUTPUT, even pages German text. Empty lines separate
pages. Pages of FOLDER/mono/train.* without a line of the parallel text follow. With --parallel 0.1 every tenth parallel
page stays parallel and is left out of the monolingual text. Validation and test text stays parallel.
OUTPUT/corpus.yaml describes the text for `fairseq-xl data prepare`. Pages have lines in common: OUTPUT/manifest.json
has the number of lines of each monolingual text, and of those with a translation in the other text.
"""

import argparse
import sys
from pathlib import Path

import yaml

from fairseq_xl.errors import UserError, in_range, language_codes
from fairseq_xl.io import error_reporting
from fairseq_xl.io.compressed import stored
from fairseq_xl.io.files import replacing, write_json
from fairseq_xl.io.lines import read_lines
from fairseq_xl.io.text import is_blank
from recipes.corpus import VOCABULARY, check_output, make


def pages(path: Path) -> list[list[str]]:
    """Returns the pages of a text, lists of lines; an empty line ends a page."""
    result: list[list[str]] = [[]]
    for line in read_lines(path):
        if not is_blank(line):
            result[-1].append(line)
        elif result[-1]:
            result.append([])
    return [page for page in result if page]


def own_pages(path: Path, parallel: list[list[str]]) -> list[list[str]]:
    """Returns the pages of a monolingual text, if it exists, without a line of the parallel pages of its language."""
    if not stored(path).is_file():
        return []
    parallel_lines = {line for page in parallel for line in page}
    return [page for page in pages(path) if not parallel_lines & {*page}]


def translated(first: list[list[str]], second: list[list[str]], bitext: list[tuple[str, str]]) -> int:
    """Counts the lines of the pages `first` whose translation in `bitext` is a line of the pages `second`."""
    lines = {line for page in second for line in page}
    sources = {source for source, target in bitext if target in lines}
    return sum(line in sources for page in first for line in page)


def write(path: Path, text: list[list[str]]) -> None:
    """Writes pages, separated by empty lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(("\n\n".join("\n".join(page) for page in text) + "\n").encode())


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m recipes.unpaired", description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="the corpus folder, as recipes/lohelp/README.md describes it")
    parser.add_argument("output", type=Path, help="folder to write to")
    parser.add_argument("--langs", default="en,de", help="two languages, separated by a comma (default: en,de)")
    parser.add_argument("--vocabulary", **VOCABULARY)
    parser.add_argument(
        "--parallel",
        action=in_range(float, "0 or more"),
        default=0.0,
        help="share of the pages that stays parallel (default: 0)",
    )
    error_reporting.install()
    options = parser.parse_args(arguments)
    folder, output, codes = options.folder.resolve(), options.output.resolve(), language_codes("--langs", options.langs)
    if len(codes) != 2:
        raise UserError(f"--langs {options.langs}: name two languages")
    if not 0 <= options.parallel <= 1:
        raise UserError(f"--parallel {options.parallel}: expected a share from 0 to 1")
    check_output(folder, output)
    make(folder, codes)
    pair = "-".join(codes)
    prefix = folder / f"bitext/train.{pair}"
    for code in codes:
        if not stored(Path(f"{prefix}.{code}")).is_file():
            raise UserError(f"{folder} has no parallel text of {codes[0]} and {codes[1]}: {prefix}.{code} is missing")
    sides = [pages(Path(f"{prefix}.{code}")) for code in codes]
    if [len(page) for page in sides[0]] != [len(page) for page in sides[1]]:
        raise UserError(f"{prefix}: the pages of {codes[0]} and {codes[1]} differ in their numbers of lines")
    tests = {split: f"{folder}/bitext/{split}.{pair}" for split in ("valid", "test")}
    share = options.parallel
    parallel = [int((i + 1) * share) > int(i * share) for i in range(len(sides[0]))]  # at equal distances
    training = {"train": f"{output}/bitext/train.{pair}"} if any(parallel) else {}
    texts = []
    for i, (code, side) in enumerate(zip(codes, sides)):
        alone = [page for page, both in zip(side, parallel) if not both]
        texts.append(alone[i::2] + own_pages(folder / f"mono/train.{code}", side))
        if not texts[-1]:
            if len(side) < 2:
                raise UserError(f"{prefix} has {'one page' if side else 'no page'}: empty lines separate pages")
            raise UserError(f"--parallel {share}: none of the {len(side)} pages of {prefix} is left as text of {code}")
    for code, side, text in zip(codes, sides, texts):
        write(output / f"mono/train.{code}", text)
        if training:
            write(output / f"bitext/train.{pair}.{code}", [page for page, both in zip(side, parallel) if both])
    bitext = [lines for aligned in zip(*sides) for lines in zip(*aligned)]
    counts = [
        {"lines": sum(map(len, texts[i])), "translated": translated(texts[i], texts[1 - i], lines)}
        for i, lines in enumerate((bitext, [(second, first) for first, second in bitext]))
    ]
    for (code, target), count in zip((codes, codes[::-1]), counts):
        sys.stderr.write(
            f"{code}: {count['translated']} of {count['lines']} lines have a translation in the text of {target}\n"
        )
    write_json(output / "manifest.json", dict(zip(codes, counts)))
    content = {
        "languages": codes,
        "vocabulary": {"model": "unigram", "size": options.vocabulary, "alpha": 0.5},
        "monolingual": {
            code: {"train": f"{output}/mono/train.{code}", "valid": f"{tests['valid']}.{code}"} for code in codes
        },
        "bitext": {pair: training | tests},
    }
    with replacing(output / "corpus.yaml") as file:
        file.write(yaml.safe_dump(content, allow_unicode=True, sort_keys=False).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
