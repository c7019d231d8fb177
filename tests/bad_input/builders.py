"""Hostile pickles, and one line of an error."""

import os


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
