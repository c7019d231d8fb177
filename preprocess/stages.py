"""What was done already: a stage whose inputs did not change and whose outputs are in place is skipped."""

import fcntl
import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import read_json, write_json

logger = logging.getLogger("preprocess")


def key_of(inputs: Any) -> str:
    """sha256 of a JSON value: what a stage's result depends on."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode("utf-8")).hexdigest()


class Stages:
    """Records in DATA_BIN/.stages, written after a stage's outputs.

    Outputs are compared by their sizes: they get their names only when complete, so what is there is whole.
    """

    def __init__(self, data_bin: Path):
        self.data_bin = data_bin
        self.folder = data_bin / ".stages"

    def run(self, name: str, inputs: Any, outputs: list[Path], work: Callable[[], dict]) -> dict:
        """The result of `work`, from the record if `inputs` (a JSON value) are those of the last time."""
        key = key_of(inputs)
        path = self._path(name)
        record = read_json(path)
        if record and record["key"] == key and record["sizes"] == self._sizes(outputs):
            logger.info("%s: up to date", name)
            return record["result"]
        # a manifest says that the data-bin is complete
        (self.data_bin / "manifest.json").unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        logger.info("%s", name)
        result = work()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"name": name, "key": key, "sizes": self._sizes(outputs), "result": result})
        return result

    def names(self) -> list[str]:
        """The stages that have a record."""
        records = [read_json(path) for path in sorted((self.folder / "records").glob("*.json"))]
        return [record["name"] for record in records if record]

    def forget(self, name: str) -> None:
        """Drop a record."""
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self.folder / "records" / f"{name.replace('/', '+').replace(' ', '_')}.json"

    def _sizes(self, outputs: list[Path]) -> list:
        return [
            [str(path.relative_to(self.data_bin)), path.stat().st_size if path.exists() else None] for path in outputs
        ]


@contextmanager
def locked(stages: Stages) -> Iterator[None]:
    """Keep a second run out of the folder. The lock goes with the process, however it ends.

    Raises UserError when another run has it.
    """
    stages.folder.mkdir(parents=True, exist_ok=True)
    with open(stages.folder / "lock", "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"{stages.data_bin}: another preparation is writing there") from error
        yield
