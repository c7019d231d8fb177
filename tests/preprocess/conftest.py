"""Fixtures of the preparation's tests; fairseq-preprocess runs in this process (its imports take seconds)."""

import contextlib
import os
import threading

import pytest
from tiny_corpus import write_corpus

from preprocess import binarize, files
from preprocess.pipeline import prepare


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


@pytest.fixture
def prepared(corpus, tmp_path, fairseq_in_process):
    """The data-bin of the corpus, made before `fairseq_in_process` lists folders."""
    prepare(corpus, tmp_path / "data-bin")
    fairseq_in_process.clear()
    return tmp_path / "data-bin"


@pytest.fixture
def interrupted(monkeypatch):
    """A function that runs `prepare` and kills it again and again; it returns the number of interruptions.

    A run is killed just before, or `after`, a file gets its name: the first run after `first` files, others after
    `later`. As long as there is a manifest, all is there.
    """

    def run(description, data_bin, first, later, after, **options):
        replace, allowed, interruptions = os.replace, first, 0

        def interrupting(source, target):
            nonlocal allowed
            allowed -= 1
            if allowed < 0 and not after:
                raise KeyboardInterrupt
            replace(source, target)
            if allowed < 0:
                raise KeyboardInterrupt

        with monkeypatch.context() as context:
            context.setattr(files.os, "replace", interrupting)
            while True:
                try:
                    prepare(description, data_bin, **options)
                    return interruptions
                except KeyboardInterrupt:
                    interruptions += 1
                    assert interruptions < 100
                    assert not (data_bin / "manifest.json").exists() or after
                    allowed = later

    return run
