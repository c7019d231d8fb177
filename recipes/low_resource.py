"""Makes a corpus with little text of the first language.

    python -m recipes.low_resource FOLDER OUTPUT --langs es,fr,en --share 0.1 --vocabulary N

Writes every tenth page of FOLDER/mono/train.es to OUTPUT/mono/train.es; empty lines separate pages. OUTPUT/corpus.yaml
describes this text, all text of the other languages, and the validation text, for `fairseq-xl data prepare`.
"""

import argparse
import sys
from pathlib import Path

import yaml

from fairseq_xl.errors import UserError, in_range, language_codes
from fairseq_xl.io import error_reporting
from fairseq_xl.io.compressed import stored
from fairseq_xl.io.files import replacing
from recipes.corpus import VOCABULARY, description, make
from recipes.unpaired import pages, write


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m recipes.low_resource", description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="the corpus folder")
    parser.add_argument("output", type=Path, help="folder to write to")
    parser.add_argument("--langs", required=True, help="languages, separated by commas; the first one has little text")
    parser.add_argument(
        "--share", action=in_range(float, "more than 0"), default=0.1, help="share of its pages (default: 0.1)"
    )
    parser.add_argument("--vocabulary", **VOCABULARY)
    error_reporting.install()
    options = parser.parse_args(arguments)
    folder, output, codes = options.folder.resolve(), options.output.resolve(), language_codes("--langs", options.langs)
    if not 0 < options.share <= 1:
        raise UserError(f"--share {options.share}: expected a share above 0, up to 1")
    make(folder, codes)
    content = description(folder, codes, options.vocabulary, monolingual=True, normalization=None)
    text = folder / f"mono/train.{codes[0]}"
    all_pages = pages(stored(text))
    selected = [page for i, page in enumerate(all_pages) if int((i + 1) * options.share) > int(i * options.share)]
    if not selected:
        raise UserError(f"--share {options.share}: none of the {len(all_pages)} pages of {text} is left")
    write(output / f"mono/train.{codes[0]}", selected)
    content["monolingual"][codes[0]]["train"] = f"{output}/mono/train.{codes[0]}"
    with replacing(output / "corpus.yaml") as file:
        file.write(yaml.safe_dump(content, allow_unicode=True, sort_keys=False).encode())
    sys.stderr.write(f"{codes[0]}: {len(selected)} of {len(all_pages)} pages, {sum(map(len, selected))} lines\n")


if __name__ == "__main__":
    main(sys.argv[1:])
