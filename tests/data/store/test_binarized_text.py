"""Binarized text that this package writes, and samples of its lines."""

import numpy as np
import pytest
import tiny_data

from fairseq_xl.data.store import binarized_text
from fairseq_xl.data.store.binarized_text import evenly_spaced
from fairseq_xl.io.indexed_text import write_items


@pytest.mark.parametrize("symbols, dtype", [(65499, np.uint16), (65500, np.uint32)])
def test_items_are_written_as_fairseq_writes_them(tmp_path, symbols, dtype):
    items = [[5, 2], [2], [symbols - 1, 7, 9, 2]]
    tiny_data.write_items(tmp_path / "fairseq", items, dtype)
    lengths = write_items(tmp_path / "new/text", map(np.array, items), symbols)
    assert lengths.tolist() == [2, 1, 4]
    for end in ("bin", "idx"):
        assert (tmp_path / f"new/text.{end}").read_bytes() == (tmp_path / f"fairseq.{end}").read_bytes()


def test_what_stands_for_all(monkeypatch):
    assert evenly_spaced(262_144).tolist() == list(range(262_144))
    found = evenly_spaced(10**9)
    assert len(found) == len(set(found.tolist())) == 262_144 and found[0] == 0 and found[-1] == 10**9 - 1
    monkeypatch.setattr(binarized_text, "SAMPLED_STRETCHES", 3)
    monkeypatch.setattr(binarized_text, "STRETCH", 2)
    assert evenly_spaced(6).tolist() == [0, 1, 2, 3, 4, 5] and evenly_spaced(20).tolist() == [0, 1, 9, 10, 18, 19]
    assert evenly_spaced(7).tolist() == [0, 1, 2, 3, 5, 6]
