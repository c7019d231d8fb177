"""Word lists of XLM and WordPiece that are cut to a text; SentencePiece models have tests of their own."""

import numpy as np
import pytest

from fairseq_xl.checkpoints.vocabulary_surgery import cut_subwords
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.subwords import FILES, in_folder, vocabulary_kind
from fairseq_xl.data.vocabulary.text_encoder import TextEncoder
from fairseq_xl.errors import UserError
from tests.data.vocabulary.builders import LINES, OPTIONS, folder  # noqa: F401

KEPT = [LINES[0], "the Q house", "ous"]  # with an unknown character, and parts of words


@pytest.fixture
def used(folder):
    """The dictionary, and the symbols that the first line has."""
    dictionary = XLDictionary.load(folder / "dict.txt")
    encode, used = TextEncoder(folder, dictionary), np.zeros(len(dictionary), dtype=bool)
    for line in KEPT:
        used[encode(line, "en")] = True
    return dictionary, used


def test_the_text_has_the_same_pieces(folder, used, tmp_path):
    dictionary, of_text = used
    kind, cut = vocabulary_kind(folder), tmp_path / "cut"
    cut.mkdir()
    assert np.array_equal(cut_subwords(folder, cut, dictionary, of_text), of_text)
    old, new = (in_folder(each, kind, OPTIONS[kind]).open() for each in (folder, cut))
    one, other = ([[each.symbols[number] for number in row] for row in each.encode(KEPT)] for each in (old, new))
    assert one == other and any("<unk>" in row for row in one)
    pieces = {dictionary.symbols[number] for number in np.flatnonzero(of_text & dictionary.is_piece)}
    assert {symbol for symbol in new.symbols if symbol != "<unk>"} == pieces
    assert len(new.symbols) < len(old.symbols)
    assert old.encode([LINES[1]]) != new.encode([LINES[1]])
    for name in FILES[kind][:-1]:
        assert (cut / name).read_bytes() == (folder / name).read_bytes()


def test_sub_words_of_other_text(folder, used, tmp_path):
    dictionary, of_text = used
    dictionary.symbols[dictionary.index("the")] = "other"
    with pytest.raises(UserError, match="has the piece 'other', which .* lacks"):
        cut_subwords(folder, tmp_path, dictionary, of_text)
