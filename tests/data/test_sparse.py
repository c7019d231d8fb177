"""Texts larger than memory: what it takes to open, sample and read them does not grow with their size.

The .bin files are holes of 200 GB; the .idx files place sentences of 2 to 40 tokens in them.
"""

import ctypes
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from fairseq_xl.data.index_header import Header
from fairseq_xl.data.indexed import open_text
from fairseq_xl.errors import UserError
from tests.warm_python import python

GB, MB = 10**9, 10**6
EXAMPLES = 2000  # of an epoch
CORPORA = {
    "monolingual": "fairseq_xl.data.monolingual.TokenStream",
    "sentences": "fairseq_xl.data.sentences.Sentences",
    "parallel": "fairseq_xl.data.parallel.SentencePairs",
}
#: opens a corpus, plans an epoch and reads its texts; prints what that took
PROGRAM = f"""
import importlib, json, sys, tracemalloc
import numpy as np
from fairseq_xl.data.framing import InputLength
from fairseq_xl.data.plan import ObjectiveSampler, training_plan

def memory(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name)) * 1024

module, _, name = sys.argv[1].rpartition(".")
opened = getattr(importlib.import_module(module), name)
before = memory("VmRSS")
tracemalloc.start()
corpus = opened(*sys.argv[2:], symbols=100)
sampler = ObjectiveSampler("mlm", {{"en": corpus}}, InputLength(64, 1, 65), None, 20, 1.0)
plan = training_plan([sampler], "alternate", 1, 1, {EXAMPLES} // 20, 1, 1)
tokens = sum(len(text) for batch in plan for texts in corpus.texts(batch.examples, 64) for text in texts)
examples = np.concatenate([batch.examples for batch in plan]).tolist()
allocated, resident = tracemalloc.get_traced_memory()[1], memory("VmHWM") - before
json.dump([examples, tokens, corpus.sentences, allocated, resident], sys.stdout)
"""


def write_sparse(prefix, lines, size):
    """A text of `size` bytes and `lines` lines; its .bin file takes no room on the disk. Returns both files."""
    sizes = (np.arange(lines) % 39 + 2).astype(np.int32)
    step = size // lines // 2 * 2
    with open(f"{prefix}.idx", "wb") as file:
        file.write(Header(8, lines).packed() + sizes.tobytes() + (np.arange(lines) * step).tobytes())
        os.fsync(file.fileno())
    with open(f"{prefix}.bin", "wb") as file:
        file.truncate((lines - 1) * step + 2 * int(sizes[-1]))
    return [Path(f"{prefix}.idx"), Path(f"{prefix}.bin")]


def forget(paths):
    """Drops the files from the system's cache."""
    for path in paths:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached(path):
    """Bytes of a file in the system's cache, which is what was read of it, by whatever means."""
    whole, found = (ctypes.c_uint64 * 2)(), (ctypes.c_uint64 * 5)()
    with open(path, "rb") as file:
        if ctypes.CDLL(None).syscall(451, file.fileno(), whole, found, 0):  # cachestat
            pytest.skip("Linux counts what is cached of a file from version 6.5 on")
    return found[0] * os.sysconf("SC_PAGESIZE")


def run(kind, prefix, processes):
    """What each of several processes, which run at once, says."""
    codes = ["en", "de"] if kind == "parallel" else ["en"]
    command = [python(), "-c", PROGRAM, CORPORA[kind], str(prefix), *codes]
    runs = [subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=-1, text=True) for _ in range(processes)]
    outputs = [each.communicate(timeout=120)[0] for each in runs]
    assert not any(each.returncode for each in runs)
    return [json.loads(output) for output in outputs]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="sees memory in /proc")
@pytest.mark.parametrize("kind", CORPORA)
def test_sparse_text_of_200_gb_takes_what_one_of_2_gb_takes(tmp_path, kind):
    """Bytes that two processes read, and memory of each; of an example up to three pages of 4 kB are read."""
    sides, found = [".en", ".de"] if kind == "parallel" else [""], []
    for lines, size in ((1_000_000, 2 * GB), (8_000_000, 200 * GB)):
        files = [file for side in sides for file in write_sparse(tmp_path / f"train{side}", lines, size // len(sides))]
        forget(files)
        if any(map(cached, files)):
            pytest.skip("this file system keeps files in memory")
        first, second = run(kind, tmp_path / "train", 2)
        examples, _, sentences, allocated, resident = first
        assert second[:3] == first[:3] and second[4] < 1.2 * resident
        assert len(set(examples)) == EXAMPLES and sentences == lines
        found.append((sum(map(cached, files)), allocated, resident))
    (read, allocated, resident), (large_read, large_allocated, large_resident) = found
    assert large_read < 26 * MB * len(sides) and large_read < 1.6 * read  # an index alone has 96 MB
    assert large_resident < 40 * MB * len(sides) and large_resident < 1.4 * resident
    assert large_allocated < 8 * MB and large_allocated == pytest.approx(allocated, rel=0.02)


def test_sparse_line_behind_the_end_of_the_text(tmp_path):
    """Opening looks at the last line only; a line says that it is damaged when it is read."""
    index, text = write_sparse(tmp_path / "train", 1000, 2 * MB)
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
