"""Makes a corpus with little text of the first language.

    python -m recipes.low_resource FOLDER OUTPUT --langs es,fr,en --share 0.1 --vocabulary N

Writes every tenth page of FOLDER/mono/train.es to OUTPUT/mono/train.es; empty lines separate pages. Without
FOLDER/mono/test.es every second page of the validation text is for the test. OUTPUT/corpus.yaml describes this text and
all text of the other languages for `fairseq-xl data prepare`. --codes N: N merges of XLM's kind, of text with case and
accents, in place of N pieces of SentencePiece.
"""

import argparse
import sys
from pathlib import Path

import yaml

from fairseq_xl.errors import UserError, in_range, language_codes
from fairseq_xl.io import error_reporting
from fairseq_xl.io.compressed import stored
from fairseq_xl.io.files import replacing
from recipes.corpus import VOCABULARY, check_output, description, make
from recipes.unpaired import pages, write


def evaluation_text(folder: Path, language: str) -> dict[str, list[list[str]]]:
    """The pages of "valid" and "test": those of the corpus, or its validation pages in turn if it has no test text."""
    valid, test = (stored(folder / f"mono/{split}.{language}") for split in ("valid", "test"))
    every = pages(valid)
    return {"valid": every, "test": pages(test)} if test.is_file() else {"valid": every[::2], "test": every[1::2]}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m recipes.low_resource", description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="the corpus folder")
    parser.add_argument("output", type=Path, help="folder to write to")
    parser.add_argument("--langs", required=True, help="languages, separated by commas; the first one has little text")
    parser.add_argument(
        "--share", action=in_range(float, "more than 0"), default=0.1, help="share of its pages (default: 0.1)"
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--vocabulary", **VOCABULARY)
    size.add_argument("--codes", action=VOCABULARY["action"], help="number of merges")
    error_reporting.install()
    options = parser.parse_args(arguments)
    folder, output, codes = options.folder.resolve(), options.output.resolve(), language_codes("--langs", options.langs)
    if not 0 < options.share <= 1:
        raise UserError(f"--share {options.share}: expected a share above 0, up to 1")
    check_output(folder, output)
    make(folder, codes)
    content = description(folder, codes, options.vocabulary, monolingual=True, normalization=None)
    text = folder / f"mono/train.{codes[0]}"
    all_pages = pages(stored(text))
    selected = [page for i, page in enumerate(all_pages) if int((i + 1) * options.share) > int(i * options.share)]
    if not selected:
        raise UserError(f"--share {options.share}: none of the {len(all_pages)} pages of {text} is left")
    texts = {"train": selected, **evaluation_text(folder, codes[0])}
    for split, text_pages in texts.items():
        write(output / f"mono/{split}.{codes[0]}", text_pages)
    content["monolingual"][codes[0]] = {split: f"{output}/mono/{split}.{codes[0]}" for split in texts}
    if options.codes:  # the vocabulary is not cut
        kind = {"model": "fastbpe", "lowercase_and_remove_accent": False}
        content["vocabulary"] |= {**kind, "codes": options.codes, "size": 2 * options.codes}
    with replacing(output / "corpus.yaml") as file:
        file.write(yaml.safe_dump(content, allow_unicode=True, sort_keys=False).encode())
    sys.stderr.write(f"{codes[0]}: {len(selected)} of {len(all_pages)} pages, {sum(map(len, selected))} lines\n")


if __name__ == "__main__":
    main(sys.argv[1:])
