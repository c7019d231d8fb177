"""Fixtures of the preparation's tests; fairseq-preprocess runs in this process (its imports take seconds)."""

import contextlib
import os
import threading

import pytest
from tiny_corpus import write_corpus

from preprocess import binarize


@pytest.fixture
def corpus(tmp_path):
    """Writes the corpus; the path of its description."""
    return write_corpus(tmp_path / "corpus")


@pytest.fixture
def fairseq_in_process(monkeypatch):
    """Run fairseq-preprocess without a new process; the list of the folders that it was run for."""
    from fairseq import options as fairseq_options
    from fairseq_cli import preprocess as command

    folders = []
    one_at_a_time = threading.Lock()  # the working directory is the process's

    def run(options, cwd, log):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        with one_at_a_time, changed_directory(cwd):
            command.main(fairseq_options.get_preprocessing_parser().parse_args(options))
            for handler in list(command.logger.handlers):
                command.logger.removeHandler(handler)
                handler.close()
        folders.append(os.path.basename(options[1]))

    monkeypatch.setattr(binarize, "run_fairseq", run)
    return folders


@contextlib.contextmanager
def changed_directory(path):
    """contextlib.chdir, which is new in Python 3.11."""
    before = os.getcwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)
