"""Mistakes of the user's, told apart from defects of the program."""

import reprlib

QUOTED = 100  # characters of a wrong value that a message shows
_REPR = reprlib.Repr()
_REPR.maxlevel, _REPR.maxlist, _REPR.maxtuple, _REPR.maxdict, _REPR.maxstring, _REPR.maxother = 2, 10, 10, 10, 80, 80


class UserError(ValueError):
    """A mistake the user can put right: a wrong path, option, file or corpus.

    The message is one sentence that names what is wrong and, where it helps, what to do.
    On the command line it is shown without a traceback and the exit status is 1
    (:func:`fairseq_xl.compat.install`).
    """


def quoted(value) -> str:
    """A value as a message shows it: its first `QUOTED` characters, however large it is."""
    text = " ".join(_REPR.repr(value).split())
    return text if len(text) <= QUOTED else f"{text[:QUOTED]} …"
