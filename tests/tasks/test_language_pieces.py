"""The pieces of a language by its training text."""

import numpy as np

from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.tasks.language_pieces import frequent_pieces


def test_pieces_of_a_language(data_bin):
    """A piece may be 19 times as frequent in another language, but not 25 times."""
    dictionary = XLDictionary.load(data_bin / "dict.txt")
    pieces = np.flatnonzero(dictionary.is_piece)[:5]
    counts = {code: np.zeros(len(dictionary), dtype=np.int64) for code in dictionary.languages}
    counts["de"][pieces] = [904, 50, 41, 5, 0]  # of 1,000 and 1,000
    counts["en"][pieces] = [0, 0, 800, 125, 75]
    assert np.flatnonzero(frequent_pieces(counts, "de")).tolist() == pieces[:3].tolist()
