"""Notes what a script makes a folder with, and refuses a folder that was made with anything else.

    python -m recipes.settings FOLDER ARGUMENT ...

An argument that is a file or a folder counts by its content. A folder that has nothing but logs does not count.
"""

import itertools
import sys
from pathlib import Path

from fairseq_xl import error_reporting
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import read_json, write_json
from recipes.experiment import SETTINGS, digest, has_results


def check(folder: Path, arguments: list[str]) -> None:
    """Writes the arguments to the folder. Raises `UserError` if it was made with others."""
    file = folder / SETTINGS
    settings = [digest(Path(argument)) if Path(argument).exists() else argument for argument in arguments]
    if file.is_file() and has_results(folder):
        before = read_json(file) or []
        for argument, old, new in itertools.zip_longest(arguments, before, settings, fillvalue=""):
            if old != new:
                raise UserError(
                    f"{folder} was made with other settings or weights ({argument or f'without {old}'}): remove it or "
                    "choose another folder"
                )
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, settings)


if __name__ == "__main__":
    error_reporting.install()
    check(Path(sys.argv[1]), sys.argv[2:])
