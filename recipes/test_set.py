"""Writes the first test set of a corpus description as plain text.

python -m recipes.test_set CORPUS.yaml FOLDER     # FOLDER/source.XX and FOLDER/reference.YY
"""

import shutil
from pathlib import Path

from fairseq_xl.errors import UserError
from fairseq_xl.io.compressed import text_of
from preprocess.config import Config, Side, read_config
from recipes.entry_point import call


def first_test_set(description: Path) -> tuple[Config, list[Side]]:
    """Returns the description and the two sides of its first test set. Raises `UserError` if there is none."""
    config, problems = read_config(description)
    if problems:
        raise UserError("\n".join(problems))
    tests = [split.sides for folder in config.folders for split in folder.splits if split.name == "test"]
    sides = next((sides for sides in tests if len(sides) == 2), None)
    if not sides:
        raise UserError(f"{description}: no bitext pair has a test set, which the quickstart translates")
    return config, list(sides)


def main(description: str, folder: str) -> None:
    """Writes both files."""
    config, sides = first_test_set(Path(description))
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, side in zip(("source", "reference"), sides):
        written = Path(folder) / f"{name}.{side.language}"
        with open(config.root / side.files[0], "rb") as file, open(written, "wb") as plain:
            shutil.copyfileobj(text_of(file), plain)


if __name__ == "__main__":
    call(main, __doc__)
