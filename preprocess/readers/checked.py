"""Writes the outputs of readers, after all published files have been checked."""

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_xl.io.fingerprints import sha256_of
from preprocess.readers.problems import Problems
from preprocess.stages import Stages, locked


class Output(NamedTuple):
    """The output of some files of a release."""

    name: str  # name of the stage
    files: Sequence[Path]  # files of the release
    settings: Any  # other inputs, a JSON value
    paths: Sequence[Path]  # files to write
    problems: Callable[[], Problems]  # checks the files of the release
    write: Callable[[], dict[str, dict]]  # writes; returns counts for the manifest
    same_problems: Hashable = None  # outputs of one value have the same problems; None: no other output has them


def build(folder: Path, release: Path, outputs: Sequence[Output], header: dict, remedy: str = "") -> None:
    """Checks every output, then writes each, and the manifest; skips outputs that are up to date.

    Args:
        folder: folder to write.
        release: the release; the manifest names its files relative to it.
        header: first entries of the manifest.
        remedy: advice on missing files, for the error.

    Raises UserError with the problems of all files, before anything is written.
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
        inputs = [{"files": [hashes[path] for path in output.files], "settings": output.settings} for output in outputs]
        checked = set()
        for output, depends in zip(outputs, inputs):
            is_checked = output.same_problems is not None and output.same_problems in checked
            if not is_checked and not stages.is_current(output.name, depends, list(output.paths)):
                problems.merge(output.problems())
                checked.add(output.same_problems)
        problems.refuse()
        counts: dict[str, dict] = {}
        for output, depends in zip(outputs, inputs):
            counts |= stages.run(output.name, depends, list(output.paths), output.write)
        file_hashes = {name_in(release, path): digest for path, digest in hashes.items()}
        stages.finish({**header, "counts": counts, "files": file_hashes})


def name_in(folder: Path, path: Path) -> str:
    """Returns the path relative to the folder, or the path itself if it is elsewhere."""
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)
