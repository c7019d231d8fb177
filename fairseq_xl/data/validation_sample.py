"""The fixed sample of validation examples that a training reads. Legend: N examples, G groups."""

from collections.abc import Sequence

import numpy as np

from fairseq_xl.data.corpus import Numbers
from fairseq_xl.data.plan import VALIDATION_SEED


def sample_of_groups(groups: Numbers, names: Sequence[str], limit: int) -> Numbers:
    """Draws at most `limit` examples of each group; an example is drawn with all its inputs.

    The sample of a group is a function of its name, its number of examples and the limit, so that it is the same in
    every run, validation and process, whatever the other groups.

    Args:
        groups: (N,) the group of each example: a language, a direction, or a subtask in a language.
        names: of G groups.
        limit: maximum number of examples of a group; 0: all.

    Returns: the numbers of the examples drawn, ascending.
    """
    drawn = []
    for number, name in enumerate(names):
        own = np.flatnonzero(groups == number)
        if 0 < limit < len(own):
            rng = np.random.default_rng((VALIDATION_SEED, *name.encode(), limit))
            own = own[rng.choice(len(own), limit, replace=False)]
        drawn.append(own)
    return np.sort(np.concatenate(drawn))
