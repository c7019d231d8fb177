"""Fixtures of the preparation's tests; fairseq-preprocess runs in this process (its imports take seconds)."""

import os
import shutil

import pytest
from tiny_corpus import write_corpus

from preprocess import binarize, files
from preprocess.pipeline import prepare


@pytest.fixture
def corpus(tmp_path):
    """Writes the corpus; the path of its description."""
    return write_corpus(tmp_path / "corpus")


def in_process(folders):
    """`binarize.run_fairseq` without a new process; it appends the names of its folders."""
    from tests.tasks.conftest import preprocess_here

    def run(options, cwd, log):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        preprocess_here(options, cwd, log)
        folders.append(os.path.basename(options[1]))

    return run


@pytest.fixture
def fairseq_in_process(monkeypatch):
    """Run fairseq-preprocess without a new process; the list of the folders that it was run for."""
    folders = []
    monkeypatch.setattr(binarize, "run_fairseq", in_process(folders))
    return folders


@pytest.fixture(scope="session")
def prepared_once(written_once):
    """prepared_once(name, write): the folder `name`, in which `write` makes a corpus and prepares data. Read only."""

    def prepared_once(name, write):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(binarize, "run_fairseq", in_process([]))
            return written_once(name, write)

    return prepared_once


@pytest.fixture(scope="session")
def whole(prepared_once):
    """The data-bin of the corpus, made by an uninterrupted run. Read only."""

    def write(folder):
        prepare(write_corpus(folder / "corpus"), folder / "data-bin")

    return prepared_once("prepared", write) / "data-bin"


@pytest.fixture
def prepared(corpus, whole, tmp_path, fairseq_in_process):
    """A copy of the data-bin of the corpus."""
    return shutil.copytree(whole, tmp_path / "data-bin")


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
