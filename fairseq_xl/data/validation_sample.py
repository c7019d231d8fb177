"""Fixed sample of the examples for validation during training. Legend: N examples, G groups."""

from collections.abc import Sequence

import numpy as np

from fairseq_xl.data.corpus import Numbers
from fairseq_xl.data.plan import VALIDATION_SEED


def sample_of_groups(groups: Numbers, names: Sequence[str], limit: int) -> Numbers:
    """Draws at most `limit` examples of each group; an example is drawn with all its inputs.

    The sample of a group depends only on its name, its number of examples and the limit. It is therefore the same in
    every run, validation and process, and does not depend on other groups.

    Args:
        groups: (N,) the group of each example: a language, a direction, or a subtask in a language.
        names: names of the G groups.
        limit: maximum number of examples of a group; 0: all.

    Returns: the numbers of the examples drawn, ascending.
    """
    ends = np.cumsum(np.bincount(groups, minlength=len(names)))
    drawn = []
    for name, own in zip(names, np.split(np.argsort(groups, kind="stable"), ends[:-1]), strict=True):
        if 0 < limit < len(own):
            rng = np.random.default_rng((VALIDATION_SEED, *name.encode(), limit))
            own = own[rng.choice(len(own), limit, replace=False)]
        drawn.append(own)
    return np.sort(np.concatenate(drawn))
