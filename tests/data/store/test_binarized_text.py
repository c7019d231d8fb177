"""Binarized text that this package writes."""

import numpy as np
import pytest
import tiny_data

from fairseq_xl.data.store.binarized_text import write_items


@pytest.mark.parametrize("symbols, dtype", [(65499, np.uint16), (65500, np.uint32)])
def test_items_are_written_as_fairseq_writes_them(tmp_path, symbols, dtype):
    items = [[5, 2], [2], [symbols - 1, 7, 9, 2]]
    tiny_data.write_items(tmp_path / "fairseq", items, dtype)
    lengths = write_items(tmp_path / "new/text", map(np.array, items), symbols)
    assert lengths.tolist() == [2, 1, 4]
    for end in ("bin", "idx"):
        assert (tmp_path / f"new/text.{end}").read_bytes() == (tmp_path / f"fairseq.{end}").read_bytes()
