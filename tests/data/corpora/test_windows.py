"""Tables of windows equal those of simple loops over sentences, in memory and in files, for blocks of any size."""

import logging
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tiny_data import write_items

from fairseq_xl.data.corpora import documents, sentence_blocks
from fairseq_xl.data.corpora.documents import AdjacentSegments
from fairseq_xl.data.corpora.parallel_documents import ParallelDocuments
from fairseq_xl.data.corpora.sentence_blocks import SentenceBlocks
from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.store import binarized_text, cached_tables
from fairseq_xl.errors import UserError
from tests.warm_python import python


def random_items(seed, lines=400, longest=12, empty=0.1):
    """Sentences of up to `longest` words, and empty lines."""
    rng = np.random.default_rng(seed)
    sizes = np.where(rng.random(lines) < empty, 0, rng.integers(1, longest + 1, lines))
    return [[*rng.integers(4, 60_000, size).tolist(), 2] for size in sizes.tolist()]


@pytest.fixture(
    params=[(1, 0), (7, 1 << 20), (1 << 16, 0)], ids="blocks of {0[0]} lines, {0[1]} lines in memory".format
)
def tables(request, monkeypatch):
    """Tables are made of blocks of any size, in memory or in a file."""
    for module in (documents, binarized_text, sentence_blocks):
        monkeypatch.setattr(module, "BLOCK_LINES", request.param[0])
    monkeypatch.setattr(cached_tables, "IN_MEMORY_LINES", request.param[1])


def adjacent_segments(items, length):
    """Begin, cut and end of every window in tokens, by a loop."""
    sizes, windows = [len(item) for item in items], []
    starts = np.concatenate(([0], np.cumsum(sizes))).tolist()
    line = 0
    while line < len(items):
        if sizes[line] == 1:
            line += 1
            continue
        end = line
        while end < len(items) and sizes[end] > 1 and (end - line < 2 or starts[end + 1] - starts[line] <= 2 * length):
            end += 1
        if end - line > 1:
            middle = (starts[line] + starts[end]) / 2
            cut = min(range(line + 1, end), key=lambda place: (abs(starts[place] - middle), place))
            windows.append([starts[line], starts[cut], starts[end]])
        line = end
    return windows


@pytest.mark.parametrize("length, empty", [(3, 0.1), (8, 0.6), (8, 0.01), (40, 0.1), (40, 0.01)])
def test_adjacent_segments(tmp_path, tables, length, empty):
    items = random_items(length, empty=empty)
    text = AdjacentSegments(write_items(tmp_path / "train", items), "en")
    assert text.windows(length).tolist() == adjacent_segments(items, length)


def blocks_of_sentences(items, length):
    """Begin and end of every block in tokens, by a loop."""
    parts = []  # sizes
    for item in items:
        parts += [length] * ((len(item) - 1) // length) + [(len(item) - 1) % length + 1]
    windows, begin, size = [], 0, 0
    for part in [*parts, length + 1]:
        if size + part > length:
            windows += [[begin, begin + size]] * (size > 1)
            begin, size = begin + size, 0
        size += part
    return windows


@pytest.mark.parametrize("length, longest", [(2, 1), (2, 12), (5, 12), (9, 60), (40, 12), (40, 60)])
def test_blocks_of_sentences(tmp_path, tables, length, longest):
    items = random_items(length, 150, longest)
    text = SentenceBlocks(write_items(tmp_path / "train", items), "en")
    assert text.windows(length).tolist() == blocks_of_sentences(items, length)


def alternating(items, length):
    """First line, end, base, size and sentences of every window of both sides' items, by a loop."""
    windows, document = [], []
    for line, pair in enumerate([*zip(*items), ([2], [2])]):
        if max(map(len, pair)) > 1:
            document += [line] * (min(map(len, pair)) > 1)
            continue
        for base in (0, 1):
            begin = 0
            while begin < len(document):
                end = size = 0
                while begin + end < len(document) and size < length:
                    size += len(items[base if end % 2 else 1 - base][document[begin + end]])
                    end += 1
                if end > 1:
                    lines = document[begin : begin + end]
                    windows.append([lines[0], lines[-1] + 1, base, min(size, length), end])
                begin += end
        document = []
    return windows


@pytest.mark.parametrize("length, empty", [(3, 0.1), (8, 0.5), (40, 0.1)])
def test_alternating_documents(tmp_path, tables, length, empty):
    items = [random_items(seed, empty=empty) for seed in (1, 2)]
    for code, side in zip(("en", "de"), items):
        for line in range(0, 400, 23):
            side[line] = [2]  # on both sides
        write_items(tmp_path / f"train.en-de.{code}", side)
    text = ParallelDocuments(tmp_path / "train.en-de", "en", "de")
    assert text.windows(length).tolist() == alternating(items, length)


def files_of(folder):
    return sorted(path.name for path in folder.iterdir() if path.suffix not in (".bin", ".idx"))


def test_a_long_text_has_its_tables_in_files(tmp_path, monkeypatch, caplog):
    """Written once; mapped by the next process; written again for another text."""
    for code in ("en", "de"):
        write_items(tmp_path / f"train.en-de.{code}", random_items(ord(code[0]), 50))
    pairs = SentencePairs(tmp_path / "train.en-de", "en", "de")
    expected = pairs.sorted_by_length(9), pairs.candidates.translations
    assert files_of(tmp_path) == []
    monkeypatch.setattr(cached_tables, "IN_MEMORY_LINES", 0)
    caplog.set_level(logging.INFO)
    for _ in range(2):
        pairs = SentencePairs(tmp_path / "train.en-de", "en", "de")
        columns = pairs.sorted_by_length(9), pairs.candidates.translations
        assert all(np.array_equal(*each) and not each[0].flags.writeable for each in zip(columns, expected))
        names = [".tables.lock", "train.en-de.by-length-9.table", "train.en-de.translations.table"]
        assert files_of(tmp_path) == names
        assert caplog.text.count("from the text (once)") == 2
    write_items(tmp_path / "train.en-de.de", random_items(9, 50))
    pairs = SentencePairs(tmp_path / "train.en-de", "en", "de")
    assert not np.array_equal(pairs.sorted_by_length(9), expected[0])
    assert caplog.text.count("from the text (once)") == 3


@pytest.mark.parametrize("damage", [b"", b"fairseq", b"x" * 100, None])
def test_another_file_in_place_of_a_table_is_replaced(tmp_path, monkeypatch, damage):
    """Also one that is cut short."""
    monkeypatch.setattr(cached_tables, "IN_MEMORY_LINES", 0)
    items = random_items(1)
    write_items(tmp_path / "train", items)
    path = tmp_path / "train.AdjacentSegments-8.table"
    if damage is None:
        AdjacentSegments(tmp_path / "train", "en").windows(8)
        damage = path.read_bytes()[:-24]
    path.write_bytes(damage)
    text = AdjacentSegments(tmp_path / "train", "en")
    assert text.windows(8).tolist() == adjacent_segments(items, 8)
    assert path.stat().st_size == 64 + 24 * len(text.windows(8))


@pytest.mark.parametrize("closed", ["without permission", "that takes no file"])
def test_a_folder(tmp_path, monkeypatch, closed):
    """The table is in a temporary file, which is gone when nothing maps it."""
    monkeypatch.setattr(cached_tables, "IN_MEMORY_LINES", 0)
    items = random_items(1)
    text = AdjacentSegments(write_items(tmp_path / "train", items), "en")
    if closed == "that takes no file":
        (tmp_path / ".tables.lock").mkdir()
    elif not hasattr(os, "geteuid") or os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    else:
        tmp_path.chmod(0o500)
    assert text.windows(8).tolist() == adjacent_segments(items, 8)
    assert not list(tmp_path.glob("train*.table"))


def test_a_table_without_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(cached_tables, "IN_MEMORY_LINES", 0)
    text = AdjacentSegments(write_items(tmp_path / "train", [[4, 2], [2], [5, 2]]), "en")
    for _ in range(2):
        with pytest.raises(UserError, match="no document of language 'en' has two sentences"):
            text.windows(8)


def test_processes_that_start_together_write_one_table(tmp_path):
    items = random_items(1)
    write_items(tmp_path / "train", items)
    program = (
        "import logging, sys; from fairseq_xl.data.corpora import documents; "
        "from fairseq_xl.data.store import cached_tables; cached_tables.IN_MEMORY_LINES = 0; "
        "logging.basicConfig(level=logging.INFO); "
        f"text = documents.AdjacentSegments({str(tmp_path / 'train')!r}, 'en'); print(text.windows(8).sum())"
    )
    root = Path(documents.__file__).parents[3]
    runs = [subprocess.Popen([python(), "-c", program], cwd=root, stdout=-1, stderr=-1, text=True) for _ in range(3)]
    outputs = [run.communicate(timeout=120) for run in runs]
    assert {output.strip() for output, _ in outputs} == {str(np.sum(adjacent_segments(items, 8)))}
    assert sum("from the text (once)" in log for _, log in outputs) == 1


def test_a_line_without_tokens_is_damage(tmp_path):
    prefix = write_items(tmp_path / "train", [[4, 2], [], [5, 2]])
    text = AdjacentSegments(prefix, "en")
    with pytest.raises(UserError, match="train.idx is damaged: line 2 has 0 tokens"):
        text.windows(8)
    with pytest.raises(UserError, match="train.idx is damaged: line 2 begins at byte 4 of the text and has 0 tokens"):
        text.text[1]
