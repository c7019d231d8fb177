"""Fixtures that every test may ask for, and --slow, with which tests marked slow run too."""

import fcntl
import gc
import importlib
import os
import signal

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported
importlib.import_module("fairseq_cli.interactive")  # registering replaces a function of it if it runs, as it does here
os.fsync = os.fstat  # a tenth of a training; only a power failure would lose what is not on the disk yet


# Shells start commands in the background with SIGINT ignored, and children inherit that: tests that send it would fail.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="run tests marked slow too")


def pytest_make_parametrize_id(val, argname):
    """Bytes are not part of a test's name: gzip's hold the time, and all test processes must collect the same names."""
    return argname if isinstance(val, bytes) else None


#: Folders of tests that start processes and train. Their files begin first, so that none is left for the end, when the
#: other test process has nothing to do any more.
FIRST = ["distributed", "recipes", "tasks", "bad_input"]


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: FIRST.index(item.path.parent.name) if item.path.parent.name in FIRST else len(FIRST))
    if not config.getoption("--slow"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))


def pytest_collection_finish():
    """From here on what was imported is no garbage: looking for it is a fifth of the tests' time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def pytest_unconfigure():
    gc.unfreeze()  # frozen objects would never be freed, which triton's bindings report as leaks


@pytest.fixture(scope="session")
def data_bin(tmp_path_factory):
    """The folder of binarized text that `tiny_data.write_data_bin` describes. Tests read it and leave it as it is."""
    from tiny_data import write_data_bin

    return write_data_bin(tmp_path_factory.mktemp("tiny") / "data-bin")


@pytest.fixture
def dictionary(tmp_path):
    """16 pieces p0 … p15 with ids 4 … 19 and counts 1, 4, 9, … 256, <mask> 20, [de] 21, [en] 22, [fr] 23."""
    from tiny_data import write_dictionary

    from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary

    pieces = {f"p{number}": (number + 1) ** 2 for number in range(16)}
    return XLDictionary.load(write_dictionary(tmp_path / "dict.txt", pieces, ["de", "en", "fr"]))


@pytest.fixture(scope="session")
def written_once(tmp_path_factory):
    """written_once(name, write): the folder `name`, which `write` fills in one of the test processes. Read only."""
    base = tmp_path_factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def written_once(name, write):
        folder = root / name
        with open(root / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                part = root / f"{name}.part"
                part.mkdir()
                write(part)
                part.rename(folder)
        return folder

    return written_once
