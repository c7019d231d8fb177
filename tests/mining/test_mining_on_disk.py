"""`search bitext --index`: its files are those of the command in memory; its memory, mistakes and full disks.

Blocks and runs have a few records, and a search looks into all cells, which makes it exact.
"""

import contextlib
import errno
import gzip
import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from fairseq_xl.commands import search_bitext
from fairseq_xl.errors import UserError
from fairseq_xl.io import temporary_arrays
from fairseq_xl.io.files import replacing
from fairseq_xl.mining import bitext_mining, disk_index
from fairseq_xl.mining.bitext_mining import distinct, mine_distinct, read_sentences

ROOT = Path(__file__).parents[2]
LINES = 150


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(temporary_arrays, "BLOCK", 11)
    monkeypatch.setattr(temporary_arrays, "RUN_RECORDS", 30)
    monkeypatch.setattr(temporary_arrays, "MERGE_RECORDS", 20)
    monkeypatch.setattr(disk_index, "PROBES", 10**6)


@pytest.fixture
def sides(tmp_path):
    """Two files of sentences and their translations in another order: (texts, vectors) of the lines of each.

    Among them are empty and blank lines, and sentences that occur twice or three times.
    """
    rng = np.random.default_rng(5)
    source = rng.normal(size=(LINES, 16)).astype(np.float32)
    source[[140, 141, 20]] = source[[3, 3, 100]]
    order = rng.permutation(LINES)
    target = (source + 0.4 * rng.normal(size=source.shape).astype(np.float32))[order]
    texts = [f"Satz {number}" for number in range(LINES)]
    texts[140] = texts[141] = texts[3]
    texts[20] = texts[100]
    source_texts, target_texts = ([*texts], [f"sentence {number}" * (number > 9) for number in order.tolist()])
    for number in (0, 17, 149):
        source_texts[number] = "  "
    target_texts[5] = target_texts[60]
    target[5] = target[60]
    for name, vectors in (("one", source), ("two", target)):
        np.save(tmp_path / f"{name}.npy", vectors)
    return source_texts, target_texts


def write(tmp_path, sides, ids=True, end="\n", compressed=False):
    """Files of the lines, with ids or without, and pairs of ids of which two thirds are right."""
    for name, lines in zip(("one", "two"), sides):
        tab = "\twith a tab"  # of some sentences
        rows = (
            [f"{name}-{number}\t{line}{tab * line.endswith('7')}" * bool(line) for number, line in enumerate(lines)]
            if ids
            else lines
        )
        text = "\ufeff" * (end != "\n") + end.join([*rows, ""])
        (tmp_path / name).write_bytes((gzip.compress if compressed else bytes)(text.encode()))
    places = {line.split(" ")[-1]: number for number, line in enumerate(sides[1])}
    numbers = [(number, places.get(str(number + number % 3 // 2))) for number in range(18, 148)]
    (tmp_path / "gold").write_text("".join(f"one-{one}\ttwo-{two}\n" for one, two in numbers if two is not None))


def line_of(tmp_path, *more):
    rows = ["--embeddings", *(str(tmp_path / f"{name}.npy") for name in ("one", "two"))]
    return [*rows, *(f"xx={tmp_path / name}" for name in ("one", "two")), *map(str, more)]


def mined(tmp_path, capfd, *more):
    """What the command prints and writes."""
    capfd.readouterr()
    search_bitext.main([*line_of(tmp_path, *more), "--output", str(tmp_path / "out")])
    return json.loads(capfd.readouterr().out), (tmp_path / "out").read_text(encoding="utf-8").splitlines()


def both(tmp_path, capfd, *more):
    found = [mined(tmp_path, capfd, *more, *index) for index in ([], ["--index", tmp_path / "indices"])]
    assert list((tmp_path / "indices").iterdir()) == []
    return found


@pytest.mark.parametrize(
    "kind, more",
    [
        ({}, ["--threshold", "1.2"]),
        ({"end": "\r\n"}, ["--gold", "gold"]),
        ({"compressed": True}, ["--gold", "gold"]),
        ({}, ["--threshold", "99"]),
    ],
)
def test_pairs_are_those_of_memory(sides, tmp_path, capfd, monkeypatch, kind, more):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, sides, **kind)
    (printed, lines), (printed_with, lines_with) = both(tmp_path, capfd, *more)
    assert printed_with.pop("sentences") == printed.pop("sentences")
    assert printed_with == pytest.approx(printed, abs=1e-5) and lines_with == lines
    assert printed["pairs"] == len(lines) and (len(lines) > 40) == (more[1] != "99")
    assert more[0] != "--gold" or (30 < printed["precision"] < 100 and printed["recall"] > 50)


@pytest.mark.parametrize("ids", [True, False])
def test_margins_are_those_of_memory(sides, tmp_path, capfd, ids):
    """Sentences that occur several times, blank lines and ids without a sentence are in no pair."""
    write(tmp_path, sides, ids)
    (printed, lines), (printed_with, lines_with) = both(tmp_path, capfd)
    rows, rows_with = ([line.split("\t") for line in found] for found in (lines, lines_with))
    assert printed_with == printed and [row[1:] for row in rows_with] == [row[1:] for row in rows]
    margins, margins_with = ([float(row[0]) for row in found] for found in (rows, rows_with))
    assert margins_with == pytest.approx(margins, abs=1.1e-4) and len(rows) > 100
    assert not {int(row[1].removeprefix("one-")) for row in rows} & {0, 17, 149, 3, 140, 141, 20, 100}
    assert not {int(row[2].removeprefix("two-")) for row in rows} & {5, 60}


def test_nearest_sentences_are_those_of_memory(sides, tmp_path, capfd):
    write(tmp_path, ([text.strip() or "x" for text in sides[0]], sides[1]), ids=False)
    (printed, lines), (printed_with, lines_with) = both(tmp_path, capfd, "--nearest")
    assert (printed_with, lines_with) == (printed, lines) and len(lines) == LINES
    write(tmp_path, sides, ids=False)
    with pytest.raises(UserError, match="one: --nearest needs a sentence, without id, on each line"):
        mined(tmp_path, capfd, "--nearest", "--index", tmp_path / "indices")


def test_sentences_are_those_of_memory(sides, tmp_path):
    for ids in (True, False):
        write(tmp_path, sides, ids)
        for name in ("one", "two"):
            memory, disk = (read_sentences(str(tmp_path / name), folder) for folder in (None, tmp_path))
            assert (list(disk.ids), list(disk.texts), disk.total) == (memory.ids, memory.texts, LINES)
            np.testing.assert_array_equal(disk.lines, memory.lines)
            assert len(memory.texts) < LINES


def test_a_file_is_read_once(tmp_path):
    """It may be a pipe, such as <(zcat text.gz)."""
    reading, writing = os.pipe()
    os.write(writing, b"a\tx\n\nb\ty\n")
    os.close(writing)
    with os.fdopen(reading):
        found = read_sentences(f"/dev/fd/{reading}", tmp_path)
    assert (list(found.ids), list(found.texts), found.lines.tolist()) == (["a", "b"], ["x", "y"], [0, 2])


def test_pairs_are_read_from_the_disk(tmp_path):
    """From both ends and in parts; the first copies of a sentence are its embedding."""
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(40, 8)).astype(np.float32)
    texts = [f"{number % 38}" for number in range(40)]
    found = mine_distinct((distinct(texts, tmp_path),) * 2, (vectors, vectors), folder=tmp_path)
    expected = mine_distinct((distinct(texts),) * 2, (vectors, vectors))
    assert isinstance(found, temporary_arrays.LazySequence) and isinstance(expected, list)
    assert {pair[1:] for pair in found} == {(number, number) for number in range(2, 38)}
    assert [pair[1:] for pair in expected] == [pair[1:] for pair in found] and found[-1] == list(found)[-1]


@pytest.mark.parametrize(
    "content, message",
    [
        (b"a\tx\n" + b"".join(b"%d\ty\n" % number for number in range(90)) + b"45\tz\n7\tz\n", "one: the id 45 occurs"),
        (b"a\tx\nb\ty\nc\n", "one, line 3: expected id TAB sentence, found 'c'"),
        (b"eins\nzw\xffei\n", "one, line 2: not UTF-8, it has the byte 0xff"),
        (b"\n \n", "one holds no sentences"),
        (b"a\t\nb\t \n", "one holds no sentences"),
        (gzip.compress(b"eins\n" * 1000)[:-9], "one is truncated: its gzip data has no end"),
        (b"a\n", "one.npy has 150 rows, but .*one has 1 lines"),
        (None, "one: no such file"),
    ],
)
@pytest.mark.parametrize("more", [[], ["--index", "indices"]])
def test_what_is_refused(sides, tmp_path, monkeypatch, content, message, more):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, sides)
    (tmp_path / "one").unlink()
    if content is not None:
        (tmp_path / "one").write_bytes(content)
    with pytest.raises(UserError, match=message):
        search_bitext.main(line_of(tmp_path, *more))
    assert not more or list((tmp_path / "indices").iterdir()) == []


def test_unknown_ids_of_pairs(sides, tmp_path, capfd):
    write(tmp_path, sides)
    for text, number in (("one-30\ttwo-30\none-30\ttwo-x\n", 2), ("one-30\n", 1), ("two-30\tone-30\n", 1)):
        (tmp_path / "gold").write_text(text)
        with pytest.raises(UserError, match=f"gold, line {number}: expected two ids of the files, found '"):
            mined(tmp_path, capfd, "--gold", tmp_path / "gold", "--index", tmp_path / "indices")


def test_distinct_texts(tmp_path):
    texts = ["b", "a", "b", "", "c", "a", "b", "d"]
    for folder in (None, tmp_path):
        found = distinct(texts, folder)
        assert (found.indices.tolist(), found.is_unique.tolist()) == ([0, 1, 3, 4, 7], [False, False, True, True, True])
        assert [len(each) for each in distinct([], folder)] == [0, 0]


# Temporary files


def test_one_index_at_a_time_is_on_the_disk(sides, tmp_path, capfd, monkeypatch):
    found = []

    def search(*args):
        found.append(list((tmp_path / "indices").rglob("index-*/*")))
        return disk_index.nearest_approximately(*args)

    monkeypatch.setattr(bitext_mining, "nearest_approximately", search)
    write(tmp_path, sides)
    mined(tmp_path, capfd, "--index", tmp_path / "indices")
    assert found == [[], []]


def test_sigterm_removes_the_files(sides, tmp_path, monkeypatch):
    """In the middle of the second search; afterwards SIGTERM does again what it did before."""

    def search(*args):
        found = disk_index.nearest_approximately(*args)
        calls.append(len(list((tmp_path / "indices").rglob("vectors"))))
        if len(calls) == 2:
            signal.raise_signal(signal.SIGTERM)
        return found

    def own(*_):
        raise AssertionError("the command has no handler")

    calls = []
    monkeypatch.setattr(bitext_mining, "nearest_approximately", search)
    write(tmp_path, sides)
    previous = signal.signal(signal.SIGTERM, own)
    try:
        with pytest.raises(SystemExit) as ended:
            search_bitext.main(line_of(tmp_path, "--index", tmp_path / "indices", "--output", tmp_path / "out"))
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert ended.value.code == 128 + signal.SIGTERM and calls == [1, 1]
    assert list((tmp_path / "indices").iterdir()) == [] and not (tmp_path / "out").exists()


def test_a_thread_mines(sides, tmp_path):
    """Only the main thread may have a handler of SIGTERM."""
    write(tmp_path, sides)
    line = line_of(tmp_path, "--index", tmp_path / "indices", "--output", tmp_path / "out")
    thread = threading.Thread(target=search_bitext.main, args=[line])
    thread.start()
    thread.join()
    assert (tmp_path / "out").exists()


def test_folders_that_cannot_be_removed(sides, tmp_path, capfd, monkeypatch):
    """As on NFS, where a mapped file stays in its folder until it is unmapped."""
    write(tmp_path, sides)
    expected = mined(tmp_path, capfd, "--threshold", "1.2", "--index", tmp_path / "indices")

    def refused(path, *args, **options):
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)

    monkeypatch.setattr(os, "rmdir", refused)
    assert mined(tmp_path, capfd, "--threshold", "1.2", "--index", tmp_path / "indices") == expected
    left = list((tmp_path / "indices").rglob("*"))
    assert left and all(path.is_dir() for path in left)


# Full disks


def test_a_full_disk_behind_standard_output(sides, tmp_path, monkeypatch):
    """It is not the disk of --index."""

    class Full(io.StringIO):
        def write(self, text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write(tmp_path, sides)
    monkeypatch.setattr(sys, "stdout", Full())
    with pytest.raises(OSError, match="No space left on device"):
        search_bitext.main(line_of(tmp_path, "--index", tmp_path / "indices"))
    assert list((tmp_path / "indices").iterdir()) == []


def refused(sides, tmp_path):
    write(tmp_path, sides)
    with pytest.raises(UserError, match="/indices.*: no room is left on its disk$"):
        search_bitext.main(line_of(tmp_path, "--index", tmp_path / "indices", "--output", tmp_path / "out"))
    assert list((tmp_path / "indices").iterdir()) == [] and not (tmp_path / "out").exists()


@pytest.mark.parametrize("files", [0, 7, 20])
def test_a_disk_that_gets_full(sides, tmp_path, monkeypatch, files):
    made, room = temporary_arrays.tempfile.TemporaryFile, [files]

    def file(dir):
        room[0] -= 1
        return made(dir=dir) if room[0] >= 0 else open("/dev/full", "wb")

    monkeypatch.setattr(temporary_arrays.tempfile, "TemporaryFile", file)
    refused(sides, tmp_path)
    assert room[0] < 0


def test_a_disk_that_gets_full_while_faiss_writes(sides, tmp_path, monkeypatch):
    """Also if it is the last bytes that have no room."""

    @contextlib.contextmanager
    def full(path):
        with replacing(path), open("/dev/full", "wb") as file:
            yield file

    monkeypatch.setattr(disk_index, "replacing", full)
    refused(sides, tmp_path)


@pytest.mark.parametrize(
    "program",
    [
        f"import os; os.kill(os.getpid(), {int(signal.SIGBUS)})",
        "raise SystemExit('RuntimeError: ftruncate failed: No space left on device')",
    ],
)
def test_a_disk_that_gets_full_while_faiss_merges(sides, tmp_path, monkeypatch, program):
    monkeypatch.setattr(disk_index, "MERGE", program)
    refused(sides, tmp_path)


def test_other_errors_of_faiss_are_shown(sides, tmp_path, monkeypatch):
    write(tmp_path, sides)
    monkeypatch.setattr(disk_index, "MERGE", "raise SystemExit('a defect')")
    with pytest.raises(RuntimeError, match="FAISS cannot merge the index:\na defect"):
        search_bitext.main(line_of(tmp_path, "--index", tmp_path / "indices"))


# Memory

MEASURED = """
import json
import sys
from pathlib import Path
from fairseq_xl.mining import disk_index
from fairseq_xl.commands import search_bitext
from fairseq_xl.io import lines, temporary_arrays

def measured(function):  # records the process's anonymous memory (MiB) before each call
    def call(*args, **options):
        line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
        most.append(int(line.split()[1]) / 1024)
        return function(*args, **options)
    return call

most = []
disk_index.PART_BYTES, disk_index.MAX_SAMPLED, disk_index.VECTOR_BLOCK, disk_index.PROBES = 1 << 16, 2048, 512, 2
temporary_arrays.BLOCK, temporary_arrays.MERGE_RECORDS, lines.BUFFERED = 512, 512, 512
temporary_arrays.RUN_RECORDS = 1024
temporary_arrays.GrowingArray.append = measured(temporary_arrays.GrowingArray.append)
temporary_arrays.LazySequence.__iter__ = measured(temporary_arrays.LazySequence.__iter__)
disk_index.search = measured(disk_index.search)
write_lines = search_bitext.write_lines
search_bitext.write_lines = lambda *args: [write_lines(*args), measured(len)("")]
for words in json.loads(sys.argv[1]):
    most.clear()
    search_bitext.main(words)
    print(max(most))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process in /proc")
def test_memory_is_bounded(tmp_path):
    """Eight times the sentences, 30 MiB more text and neighbors, take less than 6 MiB more memory.

    Memory is that outside of mapped files. Both indices learn their cells from at most 2,048 vectors.
    """
    counts, commands, kept = (2_500, 20_000), [], []
    for count in counts:
        folder = tmp_path / str(count)
        folder.mkdir()
        rng = np.random.default_rng(1)
        vectors = rng.normal(size=(count, 8)).astype(np.float32)
        for name in ("one", "two"):
            np.save(folder / f"{name}.npy", vectors + 0.01 * rng.normal(size=vectors.shape))
            rows = (f"{name}-{number}\t{f'{number % (count - 9)} ' * 180}\n" for number in range(count))
            (folder / name).write_text("".join(rows))
        (folder / "gold").write_text("".join(f"one-{number}\ttwo-{number}\n" for number in range(100, 200)))
        more = ["--gold", folder / "gold", "--threshold", "0", "--output", folder / "out"]
        commands.append(line_of(folder, "--index", folder / "indices", *more))
        size = sum((folder / name).stat().st_size for name in ("one", "two"))
        kept.append((size + 2 * count * bitext_mining.NEIGHBORS * 12) / 2**20)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, json.dumps(commands)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},  # threads of small searches wait longer than they search
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    for result, count in zip(printed[::2], counts, strict=True):
        assert result["pairs"] > 0.9 * count and result["recall"] > 0
    (small, large), (of_small, of_large) = printed[1::2], kept
    assert of_large - of_small > 30 and large - small < 6, (printed, kept)
