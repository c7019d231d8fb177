"""Word vectors as token embeddings: rows by hand, headers, compression, malformed files."""

import gzip

import pytest
import torch

from fairseq_xl.checkpoints.word_vectors import is_word_vectors, read
from fairseq_xl.errors import UserError

SYMBOLS = ["<s>", "<pad>", "▁a", "▁b", "c"]
TABLE = torch.arange(10.0).view(5, 2)
LINES = "▁b 0.5 -1\nx 7 7\n▁a 1e-3 2 \n▁b 9 9\n"


@pytest.mark.parametrize("header", ["", "4 2\n"])
@pytest.mark.parametrize("ending", [".vec", ".txt", ".vec.gz"])
def test_rows_of_known_symbols_are_replaced(tmp_path, header, ending):
    """The first vector of a symbol counts; the table that is given stays."""
    path = tmp_path / f"vectors{ending}"
    content = (header + LINES).encode()
    path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    rows, count = read(str(path), SYMBOLS, TABLE)
    assert is_word_vectors(str(path)) and count == 2
    torch.testing.assert_close(rows, torch.tensor([[0, 1], [2, 3], [0.001, 2], [0.5, -1], [8, 9]]))
    assert torch.equal(TABLE, torch.arange(10.0).view(5, 2))


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
    ],
)
def test_malformed_files(tmp_path, content, message):
    path = tmp_path / "x.vec"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        read(str(path), SYMBOLS, TABLE)


def test_other_encodings_and_missing_files(tmp_path):
    path = tmp_path / "x.vec"
    with pytest.raises(UserError, match="No such file"):
        read(str(path), SYMBOLS, TABLE)
    path.write_bytes(b"\xff\xfe 1 2\n")
    with pytest.raises(UserError, match="line 1: not UTF-8"):
        read(str(path), SYMBOLS, TABLE)
