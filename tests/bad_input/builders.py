"""Hostile pickles, and one line of an error."""

import os

from tests.bad_input.every_command import fails
from tests.commands import run_train, translation


class MakesFolder:
    """Makes a folder when it is unpickled by a reader that runs code of a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def one_line(shown, *parts):
    """Asserts that the last line a command showed is its error; log lines may precede it."""
    assert "Traceback" not in shown, shown
    last = shown.splitlines()[-1]
    for part in parts:
        assert str(part) in last, shown


def one_direction(data, folder, *more):
    return translation(data, folder, "-s", "en", "-t", "de", *more)


def refused(line, *sentence):
    fails(lambda: run_train(line), *sentence)


def changed(line, option, value):
    """A command line with another value of one of its options."""
    line = [*line]
    line[line.index(option) + 1] = value
    return line
