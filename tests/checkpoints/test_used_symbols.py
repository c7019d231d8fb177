"""The symbols that occur in a data folder, and text with other token ids."""

import numpy as np
import pytest

from fairseq_xl.checkpoints.renumbered_text import renumber
from fairseq_xl.checkpoints.vocabulary_surgery import texts_of, used_symbols
from fairseq_xl.data.store import binarized_text
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.errors import UserError
from tests.tiny_data import write_items


@pytest.fixture
def folder(tmp_path):
    """Text of `dictionary` in de and de-en, with back-translated pairs and the folder of the stages."""
    for name, items in (
        ("de/train", [[4, 5, 2], [2], [5, 5, 2]]),
        ("de/valid", [[7, 3, 2]]),
        ("de-en/train.de-en.de", [[9, 2]]),
        ("de-en/train.de-en.en", [[10, 2]]),
        ("de-en/back-en.de-en.de", [[11, 2]]),
        (".stages/train", [[12, 2]]),
    ):
        write_items(tmp_path / "data" / name, items)
    return tmp_path / "data"


def test_all_texts_but_back_translated_ones(folder, caplog):
    names = [str(path.relative_to(folder)) for path in texts_of(folder)]
    assert names == ["de/train", "de/valid", "de-en/train.de-en.de", "de-en/train.de-en.en"]
    assert "back-en.de-en.de is left out" in caplog.text


@pytest.mark.parametrize("block", [1, 2, 1 << 20])
def test_used_symbols(folder, dictionary, monkeypatch, block):
    monkeypatch.setattr(binarized_text, "BLOCK_TOKENS", block)
    assert np.flatnonzero(used_symbols(texts_of(folder), dictionary)).tolist() == [2, 3, 4, 5, 7, 9, 10]


def test_a_token_that_the_dictionary_lacks(folder, dictionary):
    write_items(folder / "de-en" / "train.de-en.en", [[24, 2]])
    with pytest.raises(UserError, match="language 'en' has the token id 24, the dictionary 24 symbols"):
        used_symbols(texts_of(folder), dictionary)


@pytest.mark.parametrize("dtype, symbols", [(np.uint16, 100), (np.int32, 65499), (np.uint32, 65500)])
def test_renumbered_text(folder, tmp_path, dtype, symbols):
    """fairseq reads it; ids have as many bytes as fairseq-preprocess gives them."""
    items = [[4, 5, 2], [2], [9, 2]]
    source = write_items(tmp_path / "text", items, dtype)
    table = np.full(10, -1)
    table[[2, 4, 5, 9]] = [2, 70, 4, 71]
    written = renumber(source, tmp_path / "new" / "en" / "text", table, symbols)
    text = open_text(str(tmp_path / "new" / "en" / "text"), "en")
    assert [item.tolist() for item in text] == [[70, 4, 2], [2], [71, 2]]
    assert written["text.idx"]["lines"] == 3 and written["text.idx"]["tokens"] == 6
    assert written["text.bin"]["bytes"] == 6 * (2 if symbols < 65500 else 4)
    expected = write_items(
        tmp_path / "fairseq", [[70, 4, 2], [2], [71, 2]], np.uint16 if symbols < 65500 else np.uint32
    )
    for end in (".bin", ".idx"):
        assert (tmp_path / "new" / "en" / f"text{end}").read_bytes() == expected.with_suffix(end).read_bytes()


def test_text_that_cannot_be_renumbered(tmp_path):
    source, target = write_items(tmp_path / "text", [[4, 2]]), tmp_path / "new"
    with pytest.raises(UserError, match="text.bin has numbers that its dictionary of 4 symbols lacks"):
        renumber(source, target, np.arange(4), 4)
    index = source.with_suffix(".idx")
    index.write_bytes(index.read_bytes()[:-1])
    with pytest.raises(UserError, match="text.idx is damaged: the index is incomplete"):
        renumber(source, target, np.arange(9), 9)
    write_items(source, [[4, 2]], np.int64)
    with pytest.raises(UserError, match="text.idx: found token type 5, expected int32, uint16 or uint32"):
        renumber(source, target, np.arange(9), 9)
    assert not list(tmp_path.glob("new*"))
