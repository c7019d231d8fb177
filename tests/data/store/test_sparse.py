"""Texts larger than memory: what it takes to open, sample and read them does not grow with their size."""

from pathlib import Path

import numpy as np
import pytest

from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.errors import UserError
from recipes.benchmark.opening import BITEXT, CORPORA, cached, forget, run, write_sparse
from tests.warm_python import python

GB, MB = 10**9, 10**6
EXAMPLES = 2000  # of an epoch


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="sees memory in /proc")
@pytest.mark.parametrize("kind", CORPORA)
def test_sparse_text_of_200_gb_takes_what_one_of_2_gb_takes(tmp_path, kind):
    """Bytes that two processes read, and memory of each; of an example up to three pages of 4 kB are read.

    A pass over all pairs reads the sizes of all of them, 8 bytes a pair, and holds a chunk in memory.
    """
    found, files_read, growth = [], 2 if kind in BITEXT else 1, 1.4
    pairs = 8_000_000 if kind == "translation" else 0
    for lines, size in ((1_000_000, 2 * GB), (8_000_000, 200 * GB)):
        files = write_sparse(kind, tmp_path / "train", lines, size)
        forget(files)
        try:
            if any(map(cached, files)):
                pytest.skip("this file system keeps files in memory")
        except OSError:
            pytest.skip("Linux counts what is cached of a file from version 6.5 on")
        one, other = run(kind, tmp_path / "train", EXAMPLES, 2, python())
        assert all(one[name] == other[name] for name in ("examples", "tokens", "sentences"))
        assert other["peak"] < 1.2 * one["peak"]
        assert len(set(one["examples"])) == EXAMPLES and one["sentences"] == lines
        found.append((sum(map(cached, files)), one["allocated"], one["peak"]))
    (read, allocated, peak), (large_read, large_allocated, large_peak) = found
    sizes = 8 * pairs
    assert large_read - sizes < 26 * MB * files_read  # an index alone has 96 MB
    assert pairs or large_read < 1.6 * read
    assert large_peak - sizes < 60 * MB * files_read and large_peak - sizes < growth * peak
    assert large_allocated < (40 if pairs else 8) * MB and large_allocated == pytest.approx(allocated, rel=0.02)


def test_sparse_line_behind_the_end_of_the_text(tmp_path):
    """Opening looks at the last line only; a line says that it is damaged when it is read."""
    index, _ = write_sparse("monolingual", tmp_path / "train", 1000, 2 * MB)
    content = np.fromfile(index, np.uint8)
    places = content[-8 * 1000 :].view(np.int64)
    places[[3, 5, 7]] = 2 * MB, -2, 4001
    index.write_bytes(content.tobytes())
    opened = open_text(tmp_path / "train", "en")
    assert opened[2].tolist() == [0] * 4 and len(opened) == 1000
    for line in (3, 5, 7):
        with pytest.raises(UserError, match=f"train.idx is damaged: line {line + 1} begins at byte {places[line]} of "):
            opened[line]
    index.write_bytes(content[:-8].tobytes() + np.int64(2 * MB).tobytes())
    with pytest.raises(UserError, match="train.bin is damaged or cut short, or of another run than train.idx"):
        open_text(tmp_path / "train", "en")
