"""From which old rows the rows of new symbols are made."""

import pytest

from fairseq_xl.checkpoints.vocabulary_surgery import initial_rows
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from tests.tiny_data import write_dictionary

OLD = ["▁a", "▁b", "c", "▁"]  # ids 4 to 7, then <mask> 8, [de] 9, [en] 10


def load(path, pieces, languages):
    return XLDictionary.load(write_dictionary(path, dict.fromkeys(pieces, 1), languages))


@pytest.fixture
def old(tmp_path):
    return load(tmp_path / "old.txt", OLD, ["de", "en"])


def segment(piece):
    """Characters, the first one with the mark of a word; those that the old dictionary lacks are unknown."""
    parts = [piece[:2], *piece[2:]] if piece[:2] in OLD else list(piece)
    return [part for part in parts if part in OLD]


def rows_of(tmp_path, old, pieces, languages, **more):
    return initial_rows(old, load(tmp_path / "new.txt", pieces, languages), segment, **more)


def test_rows(tmp_path, old, caplog):
    caplog.set_level("INFO")
    pieces = ["c", "▁acc", "▁ax", "▁x", "x", "▁b"]
    found = rows_of(tmp_path, old, pieces, ["fr", "en"])
    special = [[0], [1], [2], [3]]
    expected = [[6], [4, 6, 6], [4], [4, 5, 6, 7], [4, 5, 6, 7], [5]]
    assert found.symbols == [*special, *expected, [8], [9, 10], [10]] and found.languages == [[0, 1], [1]]
    assert found.random == [7, 8]  # ▁x and x
    assert caplog.messages == ["new pieces: 4 (2 with random embeddings); new languages: fr; removed symbols: 3"]


def test_a_language_begins_like_another(tmp_path, old):
    found = rows_of(tmp_path, old, OLD, ["de", "en", "fr"], like="en")
    assert found.symbols[-3:] == [[9], [10], [10]] and found.languages == [[0], [1], [1]]
    with pytest.raises(UserError, match="language 'it' has no symbol in the dictionary"):
        rows_of(tmp_path, old, OLD, ["de", "en", "fr"], like="it")


def test_the_first_languages_of_a_dictionary(tmp_path):
    old = load(tmp_path / "old.txt", OLD, [])
    assert rows_of(tmp_path, old, OLD, ["de"]).symbols[-1] == [4, 5, 6, 7]


def test_pieces_that_are_special_symbols_elsewhere_are_new(tmp_path, old):
    """[it] was text before, and a language now."""
    found = rows_of(tmp_path, load(tmp_path / "text.txt", [*OLD, "[it]"], ["de"]), OLD, ["de", "it"])
    assert found.symbols[-2:] == [[10], [10]]


def test_nothing_new_is_refused(tmp_path, old):
    with pytest.raises(UserError, match="has the symbols of the old one: there is nothing to add"):
        rows_of(tmp_path, old, OLD, ["de", "en"])
