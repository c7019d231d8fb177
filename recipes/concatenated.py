"""Writes a corpus description in which the text of several languages is one language.

    python -m recipes.concatenated FOLDER DESCRIPTION.yaml --langs en,de --vocabulary N

The language is called mul. `fairseq-xl embeddings skipgram DATA mul` trains embeddings of the concatenation, a
baseline of Lample & Conneau (2019, section 4.5).
"""

import argparse
import sys
from pathlib import Path

import yaml

from fairseq_xl.errors import language_codes
from fairseq_xl.io import error_reporting
from fairseq_xl.io.files import replacing
from recipes.corpus import VOCABULARY

CODE = "mul"  # several languages (ISO 639-2)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m recipes.concatenated", description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="the corpus folder")
    parser.add_argument("description", help="YAML file to write")
    parser.add_argument("--langs", required=True, help="languages, separated by commas")
    parser.add_argument("--vocabulary", **VOCABULARY)
    error_reporting.install()
    options = parser.parse_args(arguments)
    folder, languages = options.folder.resolve(), language_codes("--langs", options.langs)
    content = {
        "languages": [CODE],
        "vocabulary": {"model": "unigram", "size": options.vocabulary},
        "monolingual": {CODE: {"train": [f"{folder}/mono/train.{code}" for code in languages]}},
    }
    with replacing(options.description) as file:
        file.write(yaml.safe_dump(content, sort_keys=False).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
