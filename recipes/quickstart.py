"""Runs quickstart.yaml on the bundled sample, on another corpus description, or on LibreOffice help."""

import argparse
from pathlib import Path

from fairseq_xl.io import error_reporting
from recipes import corpus, experiment
from recipes.experiment_file import ROOT
from recipes.test_set import first_test_set

NAMED = "libreoffice-help"
CONFIGS = "recipes/xlm/config"
#: real text needs other initial weights than the sample (recipes/learning/results, "Translation")
RANDOM = "--init-std 0.02 --position-init normal"
SAMPLE = ROOT / "recipes/sample.yaml"


def prepare(name: str) -> Path:
    """Makes the sample ("") or LibreOffice help, and returns the path of the corpus description."""
    if name and name != NAMED:
        return Path(name).resolve()
    if not name:
        corpus.make(corpus.CORPORA / "sample", [])
        return SAMPLE
    from preprocess.readers.libreoffice_help.read_libreoffice_help import main as read_help

    if status := read_help([str(corpus.CORPORA / NAMED), "--langs", "en,de,fr"]):
        raise SystemExit(status)
    return corpus.CORPORA / NAMED / "corpus.yaml"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("quickstart.sh", description=__doc__)
    parser.add_argument("--corpus", default="", help=f"CONFIG.yaml or {NAMED} (default: the bundled sample)")
    parser.add_argument("--output", help="folder of all results")
    parser.add_argument("--updates", type=experiment.positive, help="train every model for N updates only")
    options = parser.parse_args(arguments)
    error_reporting.install()
    name = f"quickstart-{Path(options.corpus).stem}" if options.corpus else "quickstart"
    output = Path(options.output or ROOT / "runs" / (NAMED if options.corpus == NAMED else name)).resolve()
    description = prepare(options.corpus)
    source, target = (side.language for side in first_test_set(description)[1])
    updates = ["--updates", str(options.updates)] if options.updates else []
    values = [f"corpus={description}", f"source={source}", f"target={target}"]
    if options.corpus:
        for name in ("pretrain", "translate"):
            values.append(f"{name}-configs=--config {CONFIGS}/{name}-toy.yaml --config {CONFIGS}/{name}-longer.yaml")
        values += ["pretrain-flags=", f"random={RANDOM}"]
    experiment.main([str(ROOT / "recipes/quickstart.yaml"), *values, "--output", str(output), *updates])


if __name__ == "__main__":
    main()
