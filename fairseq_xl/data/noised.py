"""A corrupted test set: lines of raw text, and what an objective's noise makes of them."""

import numpy as np

from fairseq_xl.data.plan import VALIDATION_SEED, Draws

TOGETHER = 64  # lines that are corrupted at a time


class Lines:
    """Encoded lines of one language as what an objective draws from: an example is the number of a line.

    Args:
        rows: token arrays that end in ``</s>``.
        language: their language's code.
    """

    def __init__(self, rows, language):
        self.rows, self.language = rows, language

    def texts(self, lines, longest):
        """The lines as tuples of one array, whatever their length."""
        return [(self.rows[line],) for line in lines]

    def languages(self, lines, longest):
        """The language of each line as tuples of one."""
        return [(self.language,)] * len(lines)


def noised(objective, lines, numbers):
    """Corrupts lines; the noise of each depends on its number, the language and the objective alone.

    Args:
        objective: an `Objective` whose `collate` gives ``tokens`` (B, S), what an encoder reads.
        lines: a `Lines`.
        numbers: which of them, (n,).

    Returns: of each line the corrupted tokens without the symbol in front, and the places (k,) in them where the
    decoder's tokens belong, None where the decoder writes the whole line.
    """
    seed = (VALIDATION_SEED, *f"{objective.name} {lines.language}".encode())
    keys = np.random.default_rng(seed).integers(2**64, size=len(lines.rows), dtype=np.uint64)
    numbers, sources, places = np.asarray(numbers), [], []
    for first in range(0, len(numbers), TOGETHER):
        examples = numbers[first : first + TOGETHER]
        draws = Draws(objective.name, lines.language, examples, keys[examples])
        tokens, gaps = objective.collate(draws, lines)["tokens"].numpy(), objective.gaps(draws, lines)
        sources += [row[row != objective.dictionary.pad()][1:] for row in tokens]
        places += [None] * len(tokens) if gaps is None else [np.flatnonzero(row[1:]) for row in gaps]
    return sources, places


def filled(source, places, written):
    """A corrupted line (S,) with the tokens written (n,) at its places (k,), each in its turn.

    Surplus tokens are left out, and so are places for which there is no token.
    """
    line, count = np.array(source), min(len(places), len(written))
    line[places[:count]] = written[:count]
    return np.delete(line, places[count:])
