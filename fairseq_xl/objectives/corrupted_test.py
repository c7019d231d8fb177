"""A corrupted test set: lines of text to which the noise of an objective has been applied."""

import numpy as np

from fairseq_xl.data.corpus import Texts
from fairseq_xl.data.plan import VALIDATION_SEED, BatchSpec

TOGETHER = 64  # lines that are corrupted at a time


class Lines(Texts):
    """Encoded lines of one language as the `Texts` of an objective: the number of an example is that of its line.

    Args:
        rows: token arrays that end in ``</s>``.
        language: code of their language.
    """

    def __init__(self, rows, language):
        self.rows, self.language, self.codes = rows, language, (language,)

    def texts(self, lines, length):
        """The lines, whatever their length: a list of 1-tuples of arrays."""
        return [(self.rows[line],) for line in lines]


def corrupted(objective, lines, numbers):
    """Corrupts lines; the noise depends only on the number of the line, the language and the objective.

    Args:
        objective: an `Objective` whose `collate` returns the encoder input ``tokens`` (B, S).
        lines: a `Lines`.
        numbers: numbers (n,) of the lines to corrupt.

    Returns: two lists of n: the corrupted tokens of each line without the first symbol, and the positions (k,) in them
    of the tokens that the decoder predicts, or None where it predicts the whole line.
    """
    seed = (VALIDATION_SEED, *f"{objective.name} {lines.language}".encode())
    keys = np.random.default_rng(seed).integers(2**64, size=len(lines.rows), dtype=np.uint64)
    numbers, sources, positions = np.asarray(numbers), [], []
    for first in range(0, len(numbers), TOGETHER):
        examples = numbers[first : first + TOGETHER]
        batch_spec = BatchSpec(objective.name, lines.language, examples, keys[examples])
        tokens = objective.collate(batch_spec, lines)["tokens"].numpy()
        masked = objective.masked_positions(batch_spec, lines)
        sources += [row[row != objective.dictionary.pad()][1:] for row in tokens]
        positions += [None] * len(tokens) if masked is None else [np.flatnonzero(row[1:]) for row in masked]
    return sources, positions


def filled(source, positions, predicted):
    """Puts predicted tokens (n,) in the masked positions (k,) of a corrupted line (S,), in order.

    Surplus tokens are dropped, and so are positions for which there is no token.
    """
    line, count = np.array(source), min(len(positions), len(predicted))
    line[positions[:count]] = predicted[:count]
    return np.delete(line, positions[count:])
