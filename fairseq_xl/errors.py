"""Mistakes of the user's, told apart from defects of the program."""


class UserError(ValueError):
    """A mistake the user can put right: a wrong path, option, file or corpus.

    The message is one sentence that names what is wrong and, where it helps, what to do.
    On the command line it is shown without a traceback and the exit status is 1
    (:func:`fairseq_xl.compat.install`).
    """
