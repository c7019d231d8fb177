"""A data-bin of three languages for the tests of the tasks."""

import os
import threading

import pytest
import yaml
from fairseq import options
from fairseq_cli import preprocess

from preprocess import binarize
from preprocess.pipeline import prepare
from tests.tasks.tiny_text import write, write_corpus

_ONE_AT_A_TIME = threading.Lock()  # the working directory is the process's


def preprocess_here(arguments, cwd, log):
    """fairseq-preprocess in this process (its imports take seconds), in place of `preprocess.binarize.run_fairseq`."""
    with _ONE_AT_A_TIME:
        before = os.getcwd()
        os.chdir(cwd)
        try:
            preprocess.main(options.get_preprocessing_parser().parse_args(arguments))
        finally:
            os.chdir(before)
            for handler in list(preprocess.logger.handlers):
                preprocess.logger.removeHandler(handler)
                handler.close()


def prepare_here(description, root, name, **options):
    """The data folder ROOT/NAME of a description with file names relative to `root`."""
    path = root / f"{name}.yaml"
    path.write_text(yaml.safe_dump(description, sort_keys=False), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binarize, "run_fairseq", preprocess_here)
        prepare(path, root / name, 1, **options)
    return root / name


def write_encoded(root, size=90, test=None, **described):
    """Writes the text of `write_corpus` and its data-bin in the folder `root`; returns the latter.

    `test`, {language: lines}, replaces the test set of en-de. `described` is added to the description.
    """
    path = write_corpus(root, size)
    for code, lines in (test or {}).items():
        write(root / f"test.en-de.{code}", lines)
    return prepare_here(yaml.safe_load(path.read_text(encoding="utf-8")) | described, root, "data-bin")


@pytest.fixture(scope="session")
def data_bin(tmp_path_factory):
    """The data-bin of `write_corpus`. Read only."""
    return write_encoded(tmp_path_factory.mktemp("translations"))


@pytest.fixture(scope="session")
def corpus(data_bin):
    """The folder of the raw text of `data_bin`."""
    return data_bin.parent
