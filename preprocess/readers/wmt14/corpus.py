"""The stages: archives, their members, test sets, the corpus folder."""

import shutil
import tarfile
import zlib
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import IO, cast

from tqdm import tqdm

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import read_json, write_json
from preprocess.files import replacing
from preprocess.readers.aligned import Pairs
from preprocess.readers.download import download
from preprocess.readers.folder import bitext_path, describe
from preprocess.readers.wmt14.archives import ARCHIVES, TEST, VALIDATION, Archive
from preprocess.stages import Stages, locked

FORMAT = 1  # of outputs; if it changes, every stage runs again


def build(folder: Path, pairs: list[str]) -> None:
    """Writes the corpus folder, or resumes an interrupted run.

    Raises UserError for errors that the user can correct.
    """
    stages = Stages(folder)
    counts = {}
    with locked(stages):
        for archive in ARCHIVES:
            wanted = [member for pair in pairs for member in archive.members(pair).values()]
            outputs = [_extracted(folder, member) for member in dict.fromkeys(wanted)]
            stages.run(
                f"archive {archive.name}",
                [FORMAT, archive.sha256, wanted],
                outputs,
                lambda: _extract(archive, folder, dict.fromkeys(wanted)),
            )
        for pair in pairs:
            for split, work in (("train", _train), ("valid", _held_out), ("test", _held_out)):
                path = bitext_path(split, pair)
                outputs = [folder / f"{path}.{language}" for language in pair.split("-")]
                inputs = [FORMAT, [archive.sha256 for archive in ARCHIVES], VALIDATION[pair], TEST]
                counts[path] = stages.run(f"{split} {pair}", inputs, outputs, lambda: work(folder, split, pair))
        languages = list(dict.fromkeys(language for pair in pairs for language in pair.split("-")))
        manifest = {
            "format": FORMAT,
            "pairs": pairs,
            "counts": counts,
            "archives": {archive.url: archive.sha256 for archive in ARCHIVES},
            "test sets": {"valid": {pair: VALIDATION[pair] for pair in pairs}, "test": TEST},
        }
        if read_json(folder / "manifest.json") != manifest or not (folder / "corpus.yaml").exists():
            describe(folder, languages, pairs)
            write_json(folder / "manifest.json", manifest)


def _extracted(folder: Path, member: str) -> Path:
    return folder / ".stages" / "members" / member


def _extract(archive: Archive, folder: Path, wanted: dict[str, None]) -> dict:
    """Downloads an archive and unpacks the members that the reader uses."""
    path = folder / ".stages" / "archives" / archive.name
    download(archive.url, path, archive.size, archive.sha256)
    missing = dict(wanted)
    try:
        with tarfile.open(path, mode="r|gz") as opened, tqdm(desc=archive.name, unit=" members") as bar:
            for entry in opened:
                bar.update()
                name = entry.name.removeprefix("./")
                if name in missing:
                    with replacing(_extracted(folder, name)) as file:
                        shutil.copyfileobj(cast(IO[bytes], opened.extractfile(entry)), file)
                    del missing[name]
                if not missing:
                    break
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise UserError(f"{path} is damaged ({error}): remove it and run the same command") from error
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}")
    return {}


def _train(folder: Path, split: str, pair: str) -> dict:
    """Writes the pairs of all archives; returns the numbers of pairs left out, by archive."""
    languages = pair.split("-")
    counts = {}
    with ExitStack() as stack:
        outputs = [
            stack.enter_context(replacing(folder / f"{bitext_path(split, pair)}.{language}")) for language in languages
        ]
        for archive in ARCHIVES:
            sides = [
                stack.enter_context(open(_extracted(folder, archive.members(pair)[language]), "rb"))
                for language in languages
            ]
            pairs = Pairs(f"{archive.name} {pair}", *sides)
            with tqdm(pairs, desc=f"{archive.name} {pair}", unit=" pairs", unit_scale=True) as bar:
                for texts in bar:
                    for output, text in zip(outputs, texts):
                        output.write(f"{text}\n".encode())
            counts[archive.name] = pairs.counts
    return counts


def _held_out(folder: Path, split: str, pair: str) -> dict:
    """Writes all lines of the news test sets of a split."""
    sets = [test_set(name, pair) for name in (VALIDATION[pair] if split == "valid" else [TEST])]
    columns = [list(chain.from_iterable(sides)) for sides in zip(*sets)]
    for language, lines in zip(pair.split("-"), columns):
        with replacing(folder / f"{bitext_path(split, pair)}.{language}") as file:
            file.writelines(f"{' '.join(line.split())}\n".encode() for line in lines)
    return {"pairs": len(columns[0])}


def test_set(name: str, pair: str) -> tuple[list[str], list[str]]:
    """Source and reference of a test set of sacrebleu, which downloads it once.

    Raises UserError if sacrebleu is not installed or cannot get the test set.
    """
    try:
        import sacrebleu
    except ImportError as error:
        raise UserError(f"sacrebleu is not installed, which gives {name} {pair}: pip install sacrebleu") from error
    try:
        paths = [sacrebleu.get_source_file(name, pair), sacrebleu.get_reference_files(name, pair)[0]]
    except (Exception, SystemExit) as error:  # sacrebleu raises bare exceptions and SystemExit
        raise UserError(f"sacrebleu can't give {name} {pair} ({error}); run the same command to continue") from error
    source, reference = (Path(path).read_text(encoding="utf-8").split("\n")[:-1] for path in paths)
    if len(source) != len(reference):
        raise UserError(f"sacrebleu's {name} {pair} has {len(source)} sources and {len(reference)} references")
    return source, reference
