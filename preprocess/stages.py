"""Runs stages, and skips those with unchanged inputs and outputs (`fairseq_xl.io.step_records`)."""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fairseq_xl.io import folders
from fairseq_xl.io.files import FORMATS, read_json, write_json
from fairseq_xl.io.step_records import read_record

logger = logging.getLogger("preprocess")


def key_of(inputs: Any) -> str:
    """Returns the SHA-256 of a JSON value, the inputs of a stage."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode("utf-8")).hexdigest()


class NotCurrent(Exception):
    """A stage that would have to run."""


class Stages:
    """Records of stages in DATA_BIN/.stages, each written after the outputs of its stage.

    Outputs are compared by size only: they are written atomically, so that an output that exists is complete. Every
    stage runs again if the format of `kind`, "data folder" or "corpus", has changed.
    """

    def __init__(self, data_bin: Path, kind: str = "data folder"):
        self.data_bin, self.format = data_bin, FORMATS[kind]
        self.folder = data_bin / ".stages"
        self.only_current = False  # raise `NotCurrent` in place of work
        self._manifest = data_bin / "manifest.json"

    def complete(self) -> bool:
        """Tells whether a run has finished, and no stage has run since: the manifest, written last, exists."""
        return self._manifest.exists()

    def run(self, name: str, inputs: dict[str, Any], outputs: list[Path], work: Callable[[], Any]) -> Any:
        """Returns the result of `work`, or that of its record if `inputs` and `outputs` have not changed.

        `inputs` are {name: JSON value}, hashes of files and settings.
        """
        record, change = self._read(name, inputs, outputs)
        if not change:
            logger.log(logging.DEBUG if self.only_current else logging.INFO, "%s: up to date", name)
            return record["result"]
        if self.only_current:
            raise NotCurrent(name)
        path = self._path(name)
        self._manifest.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        logger.info("%s%s", name, f" again ({change})" if record else "")
        result = work()
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"name": name, "made_with": self._made_with(inputs), "outputs": self._sizes(outputs)}
        write_json(path, content | {"result": result})
        return result

    def is_current(self, name: str, inputs: dict[str, Any], outputs: list[Path]) -> bool:
        """Tells whether a stage does not have to run."""
        return not self._read(name, inputs, outputs)[1]

    def finish(self, manifest: dict[str, Any], describe: Callable[[], None] | None = None) -> None:
        """Writes the manifest of a corpus, the last file, and before it corpus.yaml, unless they are there already."""
        manifest = {"format": self.format} | manifest
        has_description = describe is None or (self.data_bin / "corpus.yaml").exists()
        if not has_description or read_json(self._manifest) != manifest:
            if describe:
                describe()
            write_json(self._manifest, manifest)

    def names(self) -> list[str]:
        """Lists the stages that have a record."""
        records = [read_json(path) for path in sorted((self.folder / "records").glob("*.json"))]
        return [record["name"] for record in records if record]

    def forget(self, name: str) -> None:
        """Removes a record."""
        self._path(name).unlink(missing_ok=True)

    def _read(self, name: str, inputs: dict[str, Any], outputs: list[Path]) -> tuple[dict[str, Any], str]:
        return read_record(self._path(name), self._made_with(inputs), self._sizes(outputs))

    def _made_with(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return {"format": self.format} | inputs

    def _path(self, name: str) -> Path:
        return self.folder / "records" / f"{name.replace('/', '+').replace(' ', '_')}.json"

    def _sizes(self, outputs: list[Path]) -> dict[str, int | None]:
        sizes = [path.stat().st_size if path.exists() else None for path in outputs]
        return dict(zip((str(path.relative_to(self.data_bin)) for path in outputs), sizes))


@contextmanager
def locked(stages: Stages, wait: bool = False, name: str = "lock") -> Iterator[None]:
    """Locks the folder for this run, or a part of it by another `name`, until the block or the process ends.

    If another run has the lock, raises UserError, or waits.
    """
    stages.folder.mkdir(parents=True, exist_ok=True)
    refusal = None if wait else f"{stages.data_bin}: another run is writing there"
    with folders.locked(stages.folder / name, refusal):
        yield
