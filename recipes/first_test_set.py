"""Writes the first test set of a corpus description as plain text, and prints its two languages.

python -m recipes.first_test_set CORPUS.yaml OUTPUT     OUTPUT/source.XX and OUTPUT/reference.YY
"""

import shutil
import sys
from pathlib import Path

from fairseq_xl.errors import UserError
from fairseq_xl.io.compressed import text_of
from preprocess.config import read_config


def write(description: str, output: str) -> list[str]:
    """Writes both files and returns the source and target language. Raises `UserError` if there is no test set."""
    config, problems = read_config(description)
    if problems:
        raise UserError("\n".join(problems))
    tests = [split.sides for folder in config.folders for split in folder.splits if split.name == "test"]
    sides = next((sides for sides in tests if len(sides) == 2), None)
    if not sides:
        raise UserError(f"{description}: no bitext pair has a test set, which the quickstart translates")
    for name, side in zip(("source", "reference"), sides):
        written = Path(output) / f"{name}.{side.language}"
        with open(config.root / side.files[0], "rb") as file, open(written, "wb") as plain:
            shutil.copyfileobj(text_of(file), plain)
    return [side.language for side in sides]


if __name__ == "__main__":
    try:
        sys.stdout.write("\t".join(write(*sys.argv[1:])) + "\n")
    except UserError as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
