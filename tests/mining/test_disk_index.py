"""The index on the disk: against exact search, built in parts, stopped and continued, and its memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import faiss
import numpy as np
import pytest

from fairseq_xl.commands import search_bitext
from fairseq_xl.errors import UserError
from fairseq_xl.mining import disk_index
from fairseq_xl.mining.bitext_mining import mine
from fairseq_xl.mining.disk_index import cell_count, nearest_approximately
from fairseq_xl.mining.nearest_neighbors import nearest

ROOT = Path(__file__).parents[2]


def clusters(count, channels=32, seed=1):
    """Sentences in 100 groups of similar ones, and their translations: the same vectors with noise."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(100, channels))
    source = centers[rng.integers(100, size=count)] + 0.5 * rng.normal(size=(count, channels))
    return [side.astype(np.float32) for side in (source, source + 0.2 * rng.normal(size=(count, channels)))]


def test_the_recall_against_exact_search(tmp_path):
    """Of 5,000 nearest neighbors at least 99 % are found, and 95 % of 4; those found have their exact cosines."""
    source, target = clusters(5000)
    exact, found = nearest(source, target, 4), nearest_approximately(source, target, 4, tmp_path)
    assert (exact[1][:, 0] == found[1][:, 0]).mean() >= 0.99
    assert np.mean([len({*one} & {*other}) / 4 for one, other in zip(exact[1], found[1])]) >= 0.95
    same = exact[1] == found[1]
    np.testing.assert_allclose(exact[0][same], found[0][same], atol=1e-5)
    assert (found[0][:, :-1] >= found[0][:, 1:]).all()


def test_vectors_without_structure_are_found_less_often(tmp_path, monkeypatch):
    """Random vectors are the worst case: few cells miss some of the neighbors, all cells none."""
    rng = np.random.default_rng(2)
    source, target = (rng.normal(size=(4000, 32)).astype(np.float32) for _ in range(2))
    exact = nearest(source, target, 1)[1]
    assert 0.5 < (nearest_approximately(source, target, 1, tmp_path)[1] == exact).mean() < 1
    monkeypatch.setattr(disk_index, "PROBES", 10**6)
    assert (nearest_approximately(source, target, 1, tmp_path)[1] == exact).mean() > 0.999


def test_the_vectors_are_in_a_file(tmp_path):
    _, target = clusters(1000)
    nearest_approximately(target, target, 1, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "vectors"]
    assert (tmp_path / "vectors").stat().st_size >= target.nbytes > 8 * (tmp_path / "index").stat().st_size
    index = faiss.read_index(str(tmp_path / "index"), faiss.IO_FLAG_ONDISK_SAME_DIR)
    assert isinstance(faiss.downcast_InvertedLists(index.invlists), faiss.OnDiskInvertedLists)
    assert index.ntotal == 1000


@pytest.mark.parametrize("part_bytes", [1, 32 * 4 * 300, 1 << 29])
def test_parts_make_the_index_of_one_call(tmp_path, monkeypatch, part_bytes):
    source, target = clusters(1000)
    cells = cell_count(len(target))
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(32), 32, cells, faiss.METRIC_INNER_PRODUCT)
    index.train(target[np.sort(np.random.default_rng(1000).permutation(1000)[: cells * 64])])
    index.add(target)
    monkeypatch.setattr(disk_index, "PART_BYTES", part_bytes)
    made = disk_index.disk_index(tmp_path, lambda numbers: target[numbers], 1000, 32, 100)
    for one, other in zip(index.search(source, 5), made.search(source, 5)):
        np.testing.assert_array_equal(one, other)
    made.make_direct_map()
    np.testing.assert_array_equal(made.reconstruct_batch(np.array([999, 0, 500])), target[[999, 0, 500]])


def test_a_moved_index_is_built_again(tmp_path):
    """FAISS stores the path of its vectors; nothing is printed."""
    source, target = clusters(1000)
    expected = nearest_approximately(source, target, 3, tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    for one, other in zip(nearest_approximately(source, target, 3, tmp_path / "there"), expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_building_prints_nothing_and_leaves_standard_output(tmp_path, capfd):
    """Another thread may print meanwhile: the process's standard output is not redirected."""
    _, target = clusters(1000)

    def rows(numbers):
        print(len(numbers))
        return target[numbers]

    before = os.fstat(1).st_ino
    merged = disk_index.subprocess.run

    def run(*args, **options):
        assert os.fstat(1).st_ino == before
        print("merge")
        return merged(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk_index.subprocess, "run", run)
        disk_index.disk_index(tmp_path, rows, 1000, 32, 1000)
    assert capfd.readouterr().out == "960\n1000\nmerge\n"


def test_a_stopped_build_continues(tmp_path, monkeypatch):
    """Stopped after each call of the embedding network; nothing that is complete is embedded again."""
    monkeypatch.setattr(disk_index, "PART_BYTES", 32 * 4 * 200)
    source, target = clusters(1000)
    calls, stop = [], 0

    def rows(numbers):
        if len(calls) == stop:
            raise KeyboardInterrupt
        calls.append(len(numbers))
        return target[numbers]

    whole = disk_index.disk_index(tmp_path / "whole", lambda numbers: target[numbers], 1000, 32, 100).search(source, 3)
    interruptions = 0
    while True:
        stop = len(calls) + (3 if calls else 12)  # the first one after all vectors that the cells are learned from
        try:
            found = disk_index.disk_index(tmp_path / "parts", rows, 1000, 32, 100).search(source, 3)
            break
        except KeyboardInterrupt:
            interruptions += 1
    assert interruptions >= 3
    # of a part of 200, 100 may be embedded again
    assert sum(calls) <= cell_count(1000) * 64 + 1000 + 100 * interruptions
    for one, other in zip(whole, found):
        np.testing.assert_array_equal(one, other)
    made = stop = len(calls)
    disk_index.disk_index(tmp_path / "parts", rows, 1000, 32, 100)
    assert len(calls) == made


MEASURED = """
import sys
from pathlib import Path
import numpy as np
from fairseq_xl.mining import disk_index

def anonymous():  # MiB that are no file's
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    most.append(int(line.split()[1]) / 1024)

disk_index.PART_BYTES, disk_index.MAX_SAMPLED = 1 << 20, 2048
count, folder, most = int(sys.argv[1]), Path(sys.argv[2]), []

def rows(numbers):
    anonymous()
    return np.sin(np.outer(numbers + 1.0, np.arange(1, 65) ** 2)).astype(np.float32)

index = disk_index.disk_index(folder, rows, count, 64, 1024)
before = len(most)
for start in range(0, count, count // 8):
    disk_index.search(index, rows(np.arange(start, start + 64)), 4)
anonymous()
print(max(most), (folder / "vectors").stat().st_size / 2**20)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process in /proc")
def test_memory_does_not_grow_with_the_vectors(tmp_path):
    """Eight times the vectors, 35 MiB more, take less than 6 MiB more memory that is not a file's."""
    found = []
    for count in (20_000, 160_000):
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, str(count), str(tmp_path / str(count))],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        found.append([float(word) for word in done.stdout.split()])
    (small, of_small), (large, of_large) = found
    assert of_large - of_small > 35 and large - small < 6, found


def test_pairs_are_those_of_exact_search(tmp_path):
    source, target = clusters(600)
    exact, found = list(mine(source, target)), list(mine(source, target, folder=tmp_path))
    assert len({pair[1:] for pair in exact} ^ {pair[1:] for pair in found}) <= 12
    few = source[:3], target[:2], 4
    assert list(mine(*few, folder=tmp_path)) == list(mine(*few))
    assert list(tmp_path.iterdir()) == []  # the second search has an index of its own


def test_the_command_with_an_index(tmp_path, capfd):
    source, target = clusters(300)
    for code, side in (("en", source), ("de", target)):
        np.save(tmp_path / f"{code}.npy", side)
        (tmp_path / code).write_text("".join(f"{code} {number}\n" for number in range(300)), encoding="utf-8")
    line = ["--embeddings", *(str(tmp_path / f"{code}.npy") for code in ("en", "de"))]
    line += [f"{code}={tmp_path / code}" for code in ("en", "de")]
    index = ["--index", str(tmp_path / "indices")]
    for more in (["--nearest"], ["--threshold", "1.0"]):
        outputs = []
        for number, options in enumerate(([], index)):
            capfd.readouterr()
            search_bitext.main([*line, *more, *options, "--output", str(tmp_path / f"out{number}")])
            assert json.loads(capfd.readouterr().out)["sentences"] == [300, 300]  # and nothing else, as from FAISS
            outputs.append((tmp_path / f"out{number}").read_text().splitlines())
        assert len(outputs[0]) > 100 and len({*outputs[0]} ^ {*outputs[1]}) <= 6
    assert list((tmp_path / "indices").iterdir()) == []
    # before it reads embeddings
    with pytest.raises(UserError, match="--index .*/en: cannot make .* folder: File exists"):
        search_bitext.main(["CHECKPOINT", "DATA", *line[3:], "--layer", "1", "--index", str(tmp_path / "en")])
