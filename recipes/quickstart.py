"""Runs quickstart.yaml on the bundled sample, on another corpus description, or on LibreOffice's help."""

import argparse
import shutil
from pathlib import Path

from fairseq_xl import error_reporting
from fairseq_xl.errors import UserError
from fairseq_xl.io.compressed import text_of
from preprocess.config import read_config
from recipes import corpus, experiment

NAMED = "libreoffice-help"
SAMPLE = experiment.ROOT / "recipes/sample.yaml"


def prepare(name: str) -> Path:
    """Makes the sample ("") or LibreOffice's help, and returns the path of the corpus description."""
    if name and name != NAMED:
        return Path(name).resolve()
    if not name:
        corpus.make(corpus.CORPORA / "sample", [])
        return SAMPLE
    from preprocess.readers.libreoffice_help.__main__ import main as read_help

    if status := read_help([str(corpus.CORPORA / NAMED), "--langs", "en,de,fr"]):
        raise SystemExit(status)
    return corpus.CORPORA / NAMED / "corpus.yaml"


def write_test_set(description: Path, folder: Path) -> list[str]:
    """Writes the first test set of a corpus description as plain text: source.XX and reference.YY in the folder.

    Returns the source and target language. Raises `UserError` if there is no test set.
    """
    config, problems = read_config(str(description))
    if problems:
        raise UserError("\n".join(problems))
    tests = [split.sides for bitext in config.folders for split in bitext.splits if split.name == "test"]
    sides = next((sides for sides in tests if len(sides) == 2), None)
    if not sides:
        raise UserError(f"{description}: no bitext pair has a test set, which the quickstart translates")
    folder.mkdir(parents=True, exist_ok=True)
    for name, side in zip(("source", "reference"), sides):
        with open(config.root / side.files[0], "rb") as file, open(folder / f"{name}.{side.language}", "wb") as plain:
            shutil.copyfileobj(text_of(file), plain)
    return [side.language for side in sides]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("quickstart.sh", description=__doc__)
    parser.add_argument("--corpus", default="", help=f"CONFIG.yaml or {NAMED} (default: the bundled sample)")
    parser.add_argument("--output", help="folder of all results")
    parser.add_argument("--updates", type=experiment.positive, help="train every model for N updates only")
    options = parser.parse_args(arguments)
    error_reporting.install()
    name = f"quickstart-{Path(options.corpus).stem}" if options.corpus else "quickstart"
    output = Path(options.output or experiment.ROOT / "runs" / (NAMED if options.corpus == NAMED else name)).resolve()
    description = prepare(options.corpus)
    source, target = write_test_set(description, output / "test-set")
    updates = ["--updates", str(options.updates)] if options.updates else []
    values = [f"corpus={description}", f"source={source}", f"target={target}"]
    experiment.main(["recipes/quickstart.yaml", *values, "--output", str(output), *updates])


if __name__ == "__main__":
    main()
