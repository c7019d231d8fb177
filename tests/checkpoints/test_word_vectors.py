"""Word vectors as token embeddings: rows by hand, headers, compression, malformed files."""

import gzip
import struct

import numpy as np
import pytest
import torch

from fairseq_xl.checkpoints.embedding_files import Vectors, write
from fairseq_xl.checkpoints.word_vectors import check_not_binary, is_word_vectors, read
from fairseq_xl.errors import UserError

SYMBOLS = ["<s>", "<pad>", "▁a", "▁b", "c"]
TABLE = torch.arange(10.0).view(5, 2)
LINES = "▁b 0.5 -1\nx 7 7\n▁a 1e-3 2 \n▁b 9 9\n"


@pytest.mark.parametrize("header, ending", [("", ".vec"), ("4 2\n", ".txt"), ("4 2\n", ".vec.gz")])
def test_rows_of_known_symbols_are_replaced(tmp_path, header, ending):
    """The first vector of a symbol counts; the table that is given stays.

    The replaced rows 4 5 and 6 7 have the mean square 126 / 4, the vectors 5.250001 / 4: the factor is the root of 24.
    """
    path = tmp_path / f"vectors{ending}"
    content = (header + LINES).encode()
    path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    rows, count = read(str(path), SYMBOLS, TABLE)
    assert is_word_vectors(str(path)) and count == 2
    torch.testing.assert_close(
        rows, torch.tensor([[0, 1], [2, 3], [0.004899, 9.797958], [2.449489, -4.898979], [8, 9]])
    )
    assert torch.equal(TABLE, torch.arange(10.0).view(5, 2))


def test_vectors_of_skipgram_are_read(tmp_path):
    """Two rows are 3 4 and 0 0, mean square 25 / 4, in place of 4 5 and 6 7: the factor is the root of 126 / 25."""
    path = str(tmp_path / "x.npz")
    write(Vectors(["y", "▁b", "▁a"], np.array([[1, 1], [3, 4], [0, 0]], dtype=np.float32)), path)
    rows, count = read(path, SYMBOLS, TABLE)
    assert is_word_vectors(path) and count == 2
    factor = (126 / 25) ** 0.5
    torch.testing.assert_close(rows, torch.tensor([[0, 1], [2, 3], [0, 0], [3 * factor, 4 * factor], [8, 9]]))
    with pytest.raises(UserError, match="x.npz: vectors of 2 numbers, --embed-dim is 3"):
        read(path, SYMBOLS, torch.zeros(5, 3))


def test_checkpoints_are_no_word_vectors():
    assert not is_word_vectors("runs/a/checkpoint_best.pt") and not is_word_vectors("x.vec/model.pth")


@pytest.mark.parametrize(
    "content, message",
    [
        ("▁a 1 2 3\n", "line 1: 3 numbers, --embed-dim is 2"),
        ("4 2\n▁a 1 two\n", "line 2: not 2 numbers"),
        ("▁a 1 nan\n", "line 1: the vector of '▁a' is not finite"),
        ("a 1 2\n", "has none of the dictionary's symbols"),
        ("", "has none of the dictionary's symbols"),
        ("▁a 0 0\n", "all vectors of the dictionary's symbols are zero"),
    ],
)
def test_malformed_files(tmp_path, content, message):
    path = tmp_path / "x.vec"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        read(str(path), SYMBOLS, TABLE)


def test_vectors_of_words_are_not_those_of_pieces(tmp_path):
    """c is a piece within words, so its vector as a word says nothing; a dictionary without ▁ has words of its own."""
    path = tmp_path / "x.vec"
    path.write_text("a 1 2\nc 3 4\n", encoding="utf-8")
    with pytest.raises(UserError, match="x.vec has vectors of words, not of the .* none of the 1 symbols that both ha"):
        read(str(path), SYMBOLS, TABLE)
    assert read(str(path), ["<s>", "<pad>", "a", "b@@", "c"], TABLE)[1] == 2
    path.write_text("▁a 1 2\nc 3 4\n", encoding="utf-8")
    assert read(str(path), SYMBOLS, TABLE)[1] == 2


@pytest.mark.parametrize("content", [struct.pack("<2i", 793712314, 12) + bytes(80), b"4 2\nthe \0\0\x80\x3f"])
def test_binary_files_are_recognized(tmp_path, content):
    """The first number is fastText's FASTTEXT_FILEFORMAT_MAGIC_INT32; word2vec begins with the size of its table."""
    path = tmp_path / "wiki.bin"
    path.write_bytes(content)
    with pytest.raises(UserError, match="wiki.bin is a binary file of fastText or word2vec: give the .vec"):
        check_not_binary(str(path))
    path.write_bytes(b"PK\3\4" + content)
    check_not_binary(str(path))  # such as pytorch_model.bin


def test_other_encodings_and_missing_files(tmp_path):
    path = tmp_path / "x.vec"
    with pytest.raises(UserError, match="No such file"):
        read(str(path), SYMBOLS, TABLE)
    path.write_bytes(b"\xff\xfe 1 2\n")
    with pytest.raises(UserError, match="line 1: not UTF-8"):
        read(str(path), SYMBOLS, TABLE)
