"""Random numbers of examples, which do not depend on the batch, the worker or the rank.

A counter-based generator (SplitMix64: Steele, Lea & Flood 2014): number t of an example is a hash of (key of the
example, purpose, t), computed for a whole batch at once. B examples, T numbers each.
"""

import numpy as np

#: purposes of random numbers. `masking`: how many tokens, which, what happens to each, the random piece
ROUNDING, POSITION, ACTION, WORD = range(4)
#: `text_noise`: how far a word moves and whether it is dropped; the number of tokens that spans cover,
#: the lengths and the order of spans, and where a row begins on the ring of its tokens
DISTANCE, DROP, BUDGET, LENGTH, PLACE, BEGINNING = range(4, 10)
#: a random negative: a sentence (`data.corpora.negatives`) or a segment, and windows (`data.corpora.documents`). No
#: objective uses both one of these and the text noise that has the same number
NEGATIVE_SENTENCE, NEGATIVE_SEGMENT, WINDOW = 7, 8, 9
#: `fairseq_xl.objectives.back_translation`: the language of the source that is generated
SOURCE_LANGUAGE = 10

_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def mix(z: np.ndarray) -> np.ndarray:
    """A hash of numbers: uint64 -> uint64, one to one."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniforms(keys: np.ndarray, count: int, purpose: int) -> np.ndarray:
    """Uniform numbers in [0, 1), (B, count) float64, by the keys of examples (B,) uint64.

    `purpose` is one of the constants above, or another small integer from 11 on; purposes give independent numbers.
    """
    with np.errstate(over="ignore"):
        base = mix(mix(keys + _GAMMA) + np.uint64(purpose + 1) * _GAMMA)
        counters = np.arange(1, count + 1, dtype=np.uint64) * _GAMMA
        bits = mix(base[:, None] + counters)
    return (bits >> np.uint64(11)) * 2.0**-53
