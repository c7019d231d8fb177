"""Writes what readers make of published files, after all files have been checked."""

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_xl.io.files import read_json, write_json
from fairseq_xl.io.fingerprints import sha256_of
from fairseq_xl.io.format_numbers import FORMATS
from preprocess.readers.problems import Problems
from preprocess.stages import Stages, locked


class Output(NamedTuple):
    """What is made of some files of a release."""

    name: str  # of the stage
    files: Sequence[Path]  # files of the release
    settings: Any  # JSON value that the result depends on, too
    paths: Sequence[Path]  # files to write
    problems: Callable[[], Problems]  # checks the files of the release
    write: Callable[[], dict[str, dict]]  # writes; returns counts for the manifest
    same_problems: Hashable = None  # outputs with the same value have the same problems; None: no other one has


def build(folder: Path, release: Path, outputs: Sequence[Output], described: dict, remedy: str = "") -> None:
    """Checks every output, then writes each, and the manifest; skips outputs that are up to date.

    Args:
        folder: folder to write.
        release: the release; the manifest names its files relative to it.
        described: first entries of the manifest.
        remedy: what to do about missing files, for the error.

    Raises UserError for errors that the user can correct. It lists the problems of all files, and nothing is written.
    """
    problems = Problems()
    files = list(dict.fromkeys(path for output in outputs for path in output.files))
    for path in files:
        if not path.is_file():
            problems.add(f"{path}: there is no such file")
    problems.refuse(remedy)
    stages = Stages(folder, "corpus")
    with locked(stages):
        hashes = {path: sha256_of(path) for path in files}
        inputs = [[[hashes[path] for path in output.files], output.settings] for output in outputs]
        checked = set()
        for output, depends in zip(outputs, inputs):
            known = output.same_problems is not None and output.same_problems in checked
            if not known and not stages.record(output.name, depends, list(output.paths)):
                problems.merge(output.problems())
                checked.add(output.same_problems)
        problems.refuse()
        counts: dict[str, dict] = {}
        for output, depends in zip(outputs, inputs):
            counts |= stages.run(output.name, depends, list(output.paths), output.write)
        named = {name_in(release, path): digest for path, digest in hashes.items()}
        manifest = {"format": FORMATS["corpus"], **described, "counts": counts, "files": named}
        if read_json(folder / "manifest.json") != manifest:
            write_json(folder / "manifest.json", manifest)


def name_in(folder: Path, path: Path) -> str:
    """The path relative to the folder, or the path itself if it is elsewhere."""
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)
