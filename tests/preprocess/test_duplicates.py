"""Repeated keys in buckets on the disk, against a set of all keys."""

import random

import pytest

from preprocess import duplicates
from preprocess.duplicates import Duplicates


@pytest.mark.parametrize("per_bucket, buffer", [(1, 1), (7, 5), (100, 1 << 16), (1 << 21, 3)])
def test_keys_that_occurred_before(tmp_path, monkeypatch, per_bucket, buffer):
    monkeypatch.setattr(duplicates, "PER_BUCKET", per_bucket)
    monkeypatch.setattr(duplicates, "BUFFER", buffer)
    rng = random.Random(per_bucket)
    keys = [rng.choice([None, 0, 2**64 - 1, rng.randrange(60), rng.randrange(2**64)]) for _ in range(300)]
    found = Duplicates(tmp_path, 300)
    assert len(found.paths) == min(500, max(1, 300 // per_bucket))
    seen, expected = set(), bytearray(300)
    for line, key in enumerate(keys):
        if key is not None:
            found.add(key, line)
            expected[line] = 9 if key in seen else 0
            seen.add(key)
    (tmp_path / "flags").write_bytes(bytes(300))
    found.mark(tmp_path / "flags", 9)
    assert (tmp_path / "flags").read_bytes() == expected and 100 < expected.count(9) < 250
    assert [path.name for path in tmp_path.iterdir()] == ["flags"]


def test_no_keys(tmp_path):
    (tmp_path / "flags").write_bytes(b"")
    Duplicates(tmp_path, 0).mark(tmp_path / "flags", 1)
    assert (tmp_path / "flags").read_bytes() == b""
