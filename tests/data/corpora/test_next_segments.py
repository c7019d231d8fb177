"""Segments for next-sentence prediction (M2, M14): equal to a loop over sentences; a pass has every token once."""

import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from tiny_data import write_items

from fairseq_xl.data.corpora import documents
from fairseq_xl.data.corpora.documents import DIVISIONS, SHORTER, NextSegments
from fairseq_xl.data.framing import InputLength
from fairseq_xl.data.noise.randomness import WINDOW, uniforms
from fairseq_xl.data.plan.epoch_plan import ObjectiveSampler
from fairseq_xl.data.plan.passes import ObjectivePass
from fairseq_xl.data.store import cached_tables
from preprocess.readers.wikipedia.read_wikipedia import main as read_wikipedia


def numbered(sizes):
    """Sentences of these numbers of tokens, all different; 0: an empty line, which ends a document."""
    ends = 4 + np.cumsum(sizes)
    return [[*range(end - size, end), 2] for size, end in zip(sizes, ends.tolist())]


def random_sizes(seed, lines=150, longest=12, empty=0.2):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(lines) < empty, 0, rng.integers(1, longest + 1, lines)).tolist()


def expected_examples(items, length, division):
    """[number, first segment, what follows] of every example, by a loop."""
    starts, examples, line = np.cumsum([0, *map(len, items)]).tolist(), [], 0
    sizes = [len(item) - 1 for item in items]
    while line < len(items):
        if not sizes[line]:
            line += 1
            continue
        number = 2 * (starts[line] * DIVISIONS + division)
        short, place, coin = uniforms(np.array([number], dtype=np.uint64), 3, WINDOW)[0]
        target = 2 * length * (short / SHORTER if short < SHORTER else 1)
        end = line + 1
        while end < len(items) and sizes[end] and sum(sizes[line : end + 1]) <= target:
            end += 1
        cut = line + 1 + int(place * (end - line - 1))
        first, second = (sum((item[:-1] for item in items[slice(*part)]), []) for part in ((line, cut), (cut, end)))
        follows = bool(second) and coin < 0.5
        for begin in range(0, len(first), len(first) if second else length):
            part = first if second else first[begin : begin + length]
            examples.append([number + 2 * DIVISIONS * begin + follows, part, second])
        line = end if follows else cut
    return examples


@pytest.mark.parametrize(
    "block, lines_in_memory, length",
    [(1, 1 << 20, 2), (1, 0, 5), (7, 0, 2), (7, 1 << 20, 30), (1 << 16, 0, 5), (1 << 16, 0, 30)],
)
def test_examples_are_those_of_a_loop(tmp_path, monkeypatch, block, lines_in_memory, length):
    monkeypatch.setattr(documents, "BLOCK_LINES", block)
    monkeypatch.setattr(cached_tables, "IN_MEMORY_LINES", lines_in_memory)
    longest = 2 if length == 2 else 3 * length  # many short sentences in a window, or sentences longer than one
    items = numbered(random_sizes(length, longest=longest))
    text = NextSegments(write_items(tmp_path / "train", items), "en")
    for seed in range(2):
        corpus = text.for_pass(np.random.default_rng(seed))
        examples, sizes = corpus.all_examples(length)
        expected = expected_examples(items, length, corpus.division)
        assert examples.tolist() == [example for example, _, _ in expected]
        assert [[part.tolist() for part in pair] for pair in text.texts(examples, length)] == [e[1:] for e in expected]
        bounds = [len(first) + len(second) if second else 2 * length for _, first, second in expected]
        assert sizes.tolist() == bounds and max(bounds) <= 2 * length
    assert text.windows(length)[:, 0].tolist() == [example for example, _, _ in expected_examples(items, length, 0)]


def tokens_read(text, examples, length):
    """The tokens that examples read of their own documents, sorted: second segments only where they follow."""
    pairs = text.texts(examples, length)
    read = [np.concatenate(pair if example % 2 else pair[:1]) for example, pair in zip(examples.tolist(), pairs)]
    return np.sort(np.concatenate(read)).tolist()


def batches_of(text, length, epoch):
    """The batches of a pass over a text."""
    framed = InputLength(text=length, symbols=4, positions=2 * length + 4)
    return ObjectivePass(ObjectiveSampler("nsp", {"en": text}, framed, 20 * length, None, 0.7), 1, epoch, 2)


def test_every_token_is_read_once_in_a_pass(tmp_path):
    """Documents of one sentence, sentences longer than an input, and the ends of documents too."""
    sizes = [30, 0, 3, 0, 0, 4, 5, 100, 2, 0, *random_sizes(3), 0, 1]
    text = NextSegments(write_items(tmp_path / "train", numbered(sizes)), "en")
    passes = [np.concatenate([batch.examples for batch in batches_of(text, 8, epoch)]) for epoch in range(1, 11)]
    for examples in passes:
        assert tokens_read(text, examples, 8) == list(range(4, 4 + sum(sizes)))
    assert len({tuple(np.sort(examples // (2 * DIVISIONS))) for examples in passes}) > 8  # windows differ
    again = np.concatenate([batch.examples for batch in batches_of(text, 8, 3)])
    assert again.tolist() == passes[2].tolist()


REAL = os.environ.get("XL_REAL_DATA")


@pytest.mark.slow
@pytest.mark.skipif(REAL is None, reason="XL_REAL_DATA: folder with wikipedia_dumps.tar.xz")
def test_every_token_of_a_wikipedia_dump_is_read_once(tmp_path):
    """95 English articles in sentences, with words as tokens."""
    with tarfile.open(Path(REAL) / "wikipedia_dumps.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    (dump,) = tmp_path.glob("wikipedia_dumps/enwiki-latest*")
    assert read_wikipedia([str(tmp_path / "corpus"), f"en={dump}", "--sentences"]) == 0
    lines = (tmp_path / "corpus/mono/train.en").read_text().splitlines()
    items = numbered([len(line.split()) for line in lines])
    text = NextSegments(write_items(tmp_path / "train", items, np.int32), "en")
    examples = np.concatenate([batch.examples for batch in batches_of(text, 254, 1)])
    assert tokens_read(text, examples, 254) == list(range(4, 4 + 375703))


def test_samples_are_of_passes_that_differ(tmp_path):
    """Within a pass no token is read twice."""
    text = NextSegments(write_items(tmp_path / "train", numbered(random_sizes(5))), "en")
    examples, sizes = text.sample(np.random.default_rng(1), 400, 8)
    assert len(examples) == len(sizes) == 400
    drawn = {}
    for example, (first, second) in zip(examples.tolist(), text.texts(examples, 8), strict=True):
        own = [*first.tolist(), *(second.tolist() if example % 2 else [])]
        drawn.setdefault(example // 2 % DIVISIONS, []).extend(own)
    assert len(drawn) > 1 and all(len(set(tokens)) == len(tokens) for tokens in drawn.values())


def test_a_tenth_of_the_windows_are_shorter(tmp_path):
    """The others have 16 tokens, in a long document of sentences of one token; half of the second segments follow."""
    text = NextSegments(write_items(tmp_path / "train", numbered([1] * 20000 + [0, 1])), "en")
    windows = text.windows(8)
    assert np.mean(windows[:, 1] + windows[:, 2] < 16) == pytest.approx(SHORTER, abs=0.01)
    assert np.mean(windows[:, 0] % 2) == pytest.approx(0.5, abs=0.03)
