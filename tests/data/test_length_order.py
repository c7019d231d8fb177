"""Bitext sorted by length in files: order, batches, random order of equal lengths, and memory."""

import gc
import logging
import re
import tracemalloc
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from fairseq.data import data_utils
from tiny_data import write_items

from fairseq_xl.data import mapped_translation
from fairseq_xl.data.balance import waiting_share
from fairseq_xl.data.length_order import LONGEST, LengthOrder, SortedBatches, batch_buckets
from fairseq_xl.data.mapped_translation import MappedTranslationDataset, ReorderedBatchNumbers
from fairseq_xl.data.parallel import SentencePairs
from fairseq_xl.data.translation import Direction, TranslationDataset
from fairseq_xl.errors import UserError
from recipes.benchmark.opening import write_sparse

PAD, TAG, START = 1, 9, 8
NO_LIMIT = LONGEST, LONGEST


def write_pairs(folder, count, seed=0):
    """Bitext with sides of 1 (empty) to 9 tokens."""
    rng = np.random.default_rng(seed)
    for code in ("en", "de"):
        write_items(folder / f"train.en-de.{code}", [[5] * size + [2] for size in rng.integers(0, 9, count)])
    return SentencePairs(folder / "train.en-de", "en", "de")


def mapped(pairs, swapped=False, tag=None, upsampling=1):
    sides = pairs.sides[::-1] if swapped else pairs.sides
    order = LengthOrder(pairs, swapped)
    return Direction(*sides, None, range(pairs.lines), 0, START, tag, upsampling, order)


def in_memory(pairs, swapped=False, tag=None, upsampling=1):
    step = -1 if swapped else 1
    return Direction(*pairs.sides[::step], pairs.sizes[:, ::step], pairs.filled, 0, START, tag, upsampling)


def sizes_by_batch(dataset, batches):
    """Lengths of source and target of the examples of each batch, in order."""
    return [[tuple(map(int, dataset.size(index))) for index in batch] for batch in batches]


@pytest.fixture
def pairs(tmp_path):
    return write_pairs(tmp_path, 700)


def test_the_order_by_lengths(tmp_path):
    for code, sizes in (("en", [3, 1, 2, 2, 3]), ("de", [2, 2, 4, 3, 2])):
        write_items(tmp_path / f"train.en-de.{code}", [[5] * (size - 1) + [2] for size in sizes])
    pairs = SentencePairs(tmp_path / "train.en-de", "en", "de")
    order = LengthOrder(pairs, False)
    assert order.lines(np.arange(4)).tolist() == [0, 4, 3, 2]
    assert order.buckets.tolist() == [[2, 3, 0], [3, 2, 2], [4, 2, 3]]
    swapped = LengthOrder(pairs, True)
    assert swapped.lines(np.arange(4)).tolist() == [3, 2, 0, 4]
    assert swapped.buckets.tolist() == [[2, 3, 0], [2, 4, 1], [3, 2, 2]]
    assert {path.name for path in tmp_path.glob("*.table")} == {
        f"train.en-de.{name}.{kind}.table" for name in ("en-de", "de-en") for kind in ("order", "buckets")
    }


@pytest.mark.parametrize("limits", [(40, None), (None, 7), (60, 3), (25, 100), (12, 1)])
def test_batches_of_buckets_are_those_of_fairseq(limits):
    rng = np.random.default_rng(sum(filter(None, limits)))
    for _ in range(50):
        lengths, counts = rng.integers(1, 13, 20), rng.integers(1, 30, 20)
        every = np.repeat(lengths, counts)
        expected = data_utils.batch_by_size(np.arange(len(every)), None, every, *limits, 1)
        found = batch_buckets(lengths.tolist(), counts.tolist(), *limits)
        batches = [begin + size * number for begin, size, count in found.tolist() for number in range(count)]
        assert batches == [int(batch[0]) for batch in expected]
        assert found[:, 1].repeat(found[:, 2]).tolist() == [len(batch) for batch in expected]


@pytest.mark.parametrize("swapped", [False, True])
def test_an_epoch_has_the_batches_of_the_dataset_in_memory(pairs, swapped):
    """The same lengths in each batch as `TranslationDataset` and fairseq's `batch_by_size`; each pair once."""
    directions = [mapped(pairs, swapped), mapped(pairs, not swapped, TAG)]
    found = SortedBatches(directions, NO_LIMIT, 50, None, 1, 1)
    reference = TranslationDataset([in_memory(pairs, swapped), in_memory(pairs, not swapped, TAG)], None, PAD, True)
    with data_utils.numpy_seed(1):
        expected = reference.batch_by_size(reference.ordered_indices(), 50)
    dataset = MappedTranslationDataset(directions, None, PAD)
    assert sizes_by_batch(dataset, found) == sizes_by_batch(reference, expected)
    lines = np.sort(np.concatenate(list(found)))
    assert lines.tolist() == [*pairs.filled, *(pairs.lines + pairs.filled)]


def test_pairs_of_equal_lengths_change_places(pairs):
    first, again, second = (SortedBatches([mapped(pairs)], NO_LIMIT, 50, None, 1, epoch) for epoch in (1, 1, 2))
    assert all(np.array_equal(*each) for each in zip(first, again, strict=True))
    same = sum(np.array_equal(np.sort(one), np.sort(other)) for one, other in zip(first, second, strict=True))
    assert same < len(first) / 4


def test_parts_and_several_passes_of_a_direction(tmp_path, pairs):
    """A line occurs 2 or 3 times at 2.4 passes, at most once at 0.3; every line equally often over many epochs."""
    directions, count = [mapped(pairs, upsampling=2.4), mapped(pairs, True, upsampling=0.3)], len(pairs.filled)
    whole = Counter()
    for epoch in range(1, 51):
        drawn = Counter(np.concatenate(list(SortedBatches(directions, NO_LIMIT, 500, None, 1, epoch))).tolist())
        first = {line: times for line, times in drawn.items() if line < pairs.lines}
        assert sum(first.values()) == round(2.4 * count) and set(first.values()) == {2, 3}
        assert sum(drawn.values()) - sum(first.values()) == round(0.3 * count)
        assert max(times for line, times in drawn.items() if line >= pairs.lines) == 1
        whole.update(line for line in drawn.elements() if line >= pairs.lines)
    times = np.array([whole[pairs.lines + line] for line in pairs.filled.tolist()])
    assert times.mean() == 50 * round(0.3 * count) / count
    assert abs(times - 15).max() < 5 * (50 * 0.3 * 0.7) ** 0.5  # binomial, or less


def test_long_pairs_are_skipped(pairs):
    found = SortedBatches([mapped(pairs)], (6, 4), 50, None, 1, 1)
    sizes = pairs.sizes[np.concatenate(list(found))]
    assert sizes.max(axis=0).tolist() == [5, 4]  # with <s> a source of 5 tokens has 6
    assert len(sizes) + found.skipped == len(pairs.filled)


def ordered(directions, rank=0, ranks=1, shuffle=True, **more):
    """The batches of a rank in the order of epoch 1."""
    dataset = MappedTranslationDataset(directions, None, PAD)
    epochs = dataset.iterator(NO_LIMIT, 50, shard_id=rank, num_shards=ranks, **more)
    assert len(epochs) == -(-len(epochs.frozen_batches) // ranks)
    return epochs.ordered_batches(1, False, shuffle)


@pytest.mark.parametrize("grouped", [False, True])
def test_ranks_share_the_batches_of_an_epoch(pairs, grouped):
    batches = [tuple(batch) for batch in SortedBatches([mapped(pairs)], NO_LIMIT, 50, None, 1, 1)]
    ranks = [list(ordered([mapped(pairs)], rank, 3, grouped_shuffling=grouped)) for rank in range(3)]
    dealt = [tuple(batch) for micro_step in zip(*ranks, strict=True) for batch in micro_step]
    missing = -len(batches) % 3
    assert missing and dealt[-missing:] == [()] * missing
    dealt = dealt[:-missing]
    assert dealt != batches and sorted(dealt) == sorted(batches)
    numbers = [batches.index(batch) for batch in dealt]
    together = all(numbers[i + 1] == numbers[i] + 1 for i in range(0, len(numbers) - 2, 3))
    assert together == grouped
    assert [tuple(batch) for batch in ordered([mapped(pairs)], 0, 3, shuffle=False)] == batches[::3]


def test_the_rest_of_an_epoch(pairs):
    """A resumed run skips batches: they are not computed."""
    batches = ordered([mapped(pairs)], 1, 2)
    rest = batches[5:]
    assert len(rest) == len(batches) - 5
    assert [list(batch) for batch in rest] == [list(batch) for batch in batches][5:]


@pytest.mark.parametrize("before, after", [(2, 1), (1, 2)])
def test_an_epoch_goes_on_with_another_number_of_ranks(pairs, before, after):
    """A quarter of an epoch, saved, and the rest: each pair once."""
    framing = SimpleNamespace(sentence=lambda source, language: source)

    def epoch_of(rank, ranks):
        dataset = MappedTranslationDataset([mapped(pairs)], framing, PAD)
        return dataset.iterator(NO_LIMIT, None, 12, shard_id=rank, num_shards=ranks)

    read, count = [], len(epoch_of(0, 1))
    assert count == 48
    for rank in range(before):
        epochs = epoch_of(rank, before)
        batches = epochs.next_epoch_itr()
        read += [next(batches)["id"].tolist() for _ in range(count // 4 // before)]
    state = epochs.state_dict()
    assert state["iterations_in_epoch"] == 12 // before
    state["iterations_in_epoch"] = 12 // after  # as `fairseq_xl.engine.resume` changes it
    for rank in range(after):
        rest = epoch_of(rank, after)
        rest.load_state_dict(state)
        read += [batch["id"].tolist() for batch in rest.next_epoch_itr()]
    assert len(read) == count and sorted(sum(read, [])) == pairs.filled.tolist()


def test_slices_and_negative_indices_are_those_of_a_list(pairs):
    whole = SortedBatches([mapped(pairs)], NO_LIMIT, 50, None, 1, 1)
    for batches in (whole, ordered([mapped(pairs)], 0, 2)):
        every = [list(batch) for batch in batches]
        assert len(every) == len(batches) > 9
        for index in (-1, -len(every)):
            assert list(batches[index]) == every[index]
        for index in (slice(2, 5), slice(-3, None), slice(None, None, -1)):
            assert [list(batch) for batch in batches[index]] == every[index]
        for index in (len(every), -len(every) - 1):
            with pytest.raises(IndexError):
                batches[index]


def test_only_long_pairs_are_refused(pairs):
    epochs = MappedTranslationDataset([mapped(pairs)], None, PAD).iterator((2, 2), 50)
    with pytest.raises(UserError, match="no training pair fits .2, 2. tokens .*the longest side has 10 tokens"):
        len(epochs)


def test_too_many_lines_are_refused(pairs):
    pairs.lines = (1 << 34) + 1
    with pytest.raises(UserError, match="train.en-de: 17179869185 lines, expected at most 17179869184"):
        LengthOrder(pairs, False)


def test_memory_of_many_combinations_of_lengths():
    """Bytes for each bucket of two directions, in which each length of a side occurs with each of the other."""
    found = []
    for sides in (128, 256):
        target, source = np.divmod(np.arange(sides**2), sides)
        buckets = np.stack((target + 2, source + 2, 3 * np.arange(sides**2)), axis=1)
        order = SparseOrder(buckets, 3 * sides**2)
        directions = [Direction([], [], None, range(len(order)), 0, START, tag, 1.3, order) for tag in (None, TAG)]
        tracemalloc.start()
        batches = SortedBatches(directions, NO_LIMIT, 4096, None, 1, 1)
        kept, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert batches.begins[-1] == 2 * round(1.3 * len(order)) and len(batches[len(batches) // 2])
        found.append((kept / (2 * len(buckets)), peak / (2 * len(buckets))))
    assert max(kept for kept, _ in found) < 50 and max(peak for _, peak in found) < 100


class SparseOrder:
    """Buckets of a `LengthOrder` without its rows."""

    def __init__(self, buckets, pairs):
        self.buckets, self.pairs = buckets, pairs

    def __len__(self):
        return self.pairs

    def lines(self, indices):
        return indices


def test_sparse_bitext_takes_the_same_memory_at_any_size(tmp_path):
    """Bytes that Python and numpy allocate to open bitext, plan an epoch and read 500 batches; 8 bytes a pair are 8 MB
    more for the longer text. Tables are written before, which takes the memory of a block."""
    found = []
    for lines in (1_100_000, 2_200_000):
        write_sparse("parallel", tmp_path / "train.en-de", lines, 1 << 30)
        peaks = []
        for _ in range(2):  # the first time tables are written
            gc.collect()
            tracemalloc.start()
            direction = mapped(SentencePairs(tmp_path / "train.en-de", "en", "de"))
            batches = ordered([direction])
            examples = np.concatenate([batches[number] for number in range(0, len(batches), len(batches) // 500)])
            assert len(np.unique(examples)) == len(examples) and examples.max() < lines
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert not {"rows", "buckets"} - vars(direction.order).keys() and direction.num_pairs == lines
        found.append(peaks)
        del direction, batches
    (written, mapped_again), (longer_written, longer_mapped) = found
    assert written < 16e6 and mapped_again < 8e6
    assert longer_written < 1.1 * written and longer_mapped < 1.1 * mapped_again


def test_token_counts_are_those_of_the_examples(pairs):
    directions = [mapped(pairs), mapped(pairs, True, TAG, 1.5)]
    found = SortedBatches(directions, NO_LIMIT, 50, None, 1, 1)
    sizes = sizes_by_batch(MappedTranslationDataset(directions, None, PAD), found)
    numbers = np.random.default_rng(1).permutation(len(found))
    tokens, padded = found.token_counts(numbers)
    assert tokens.tolist() == [int(np.sum(sizes[number])) for number in numbers]
    assert padded.tolist() == [len(sizes[number]) * int(np.max(sizes[number], axis=0).sum()) for number in numbers]


def dealt(directions, ranks, micro_steps, **more):
    """The numbers of batches of epoch 1 in the order in which they are dealt out."""
    batches = [tuple(batch) for batch in SortedBatches(directions, NO_LIMIT, 50, None, 1, 1)]
    of_ranks = [ordered(directions, rank, ranks, micro_steps=micro_steps, **more) for rank in range(ranks)]
    return [batches.index(tuple(batch)) for step in zip(*of_ranks, strict=True) for batch in step if len(batch)]


def test_one_batch_in_each_update_stays_as_drawn(pairs):
    found = dealt([mapped(pairs)], 1, [1])
    assert found == np.random.default_rng((1, 1)).permutation(len(found)).tolist()


@pytest.mark.parametrize("size, windows", [(4, 64), (4, 3)])
def test_updates_of_mapped_bitext_are_the_same_on_any_number_of_ranks(pairs, monkeypatch, size, windows):
    """In windows of 64 and of 3 updates; the rest after the last whole update stays as drawn."""
    monkeypatch.setattr(mapped_translation, "REORDERED_UPDATES", windows)
    directions = [mapped(pairs)]
    drawn, one = dealt(directions, 1, [1]), dealt(directions, 1, [size])
    assert dealt(directions, 2, [size // 2]) == dealt(directions, size, [1]) == one
    whole = len(one) // size * size
    assert whole < len(one) and one[whole:] == drawn[whole:] and sorted(one) == sorted(drawn) and one != drawn
    window = windows * size
    for begin in range(0, len(one), window):
        assert sorted(one[begin : begin + window]) == sorted(drawn[begin : begin + window])
    batches = SortedBatches(directions, NO_LIMIT, 50, None, 1, 1)
    waits = [waiting_share(batches.token_counts(np.array(order))[0], size) for order in (drawn, one)]
    assert waits[1] < 0.8 * waits[0]


def test_shares_of_mapped_bitext_are_logged(pairs, caplog, monkeypatch):
    """Exact for few updates; for many from evenly spaced windows."""
    caplog.set_level(logging.INFO)
    ordered([mapped(pairs)], 0, 2)
    ordered([mapped(pairs)], 0, 2, shuffle=False)
    monkeypatch.setattr(mapped_translation, "REORDERED_UPDATES", 2)
    monkeypatch.setattr(mapped_translation, "LOGGED_WINDOWS", 3)
    ordered([mapped(pairs)], 0, 2)
    count = len(SortedBatches([mapped(pairs)], NO_LIMIT, 50, None, 1, 1))
    whole, sample = (message for message in caplog.messages if message.startswith("batches of epoch 1: "))
    assert "the 2 ranks wait" in whole and whole.endswith("without reordering batches by size)")
    assert re.search(rf"\); shares of \d+ of {count} batches$", sample)


@pytest.mark.parametrize("windows", [3, 99])
def test_logged_shares_are_of_whole_micro_steps(pairs, caplog, monkeypatch, windows):
    """An epoch of updates of four batches goes on with three ranks, which do not divide windows of 8 batches."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(mapped_translation, "REORDERED_UPDATES", 2)
    monkeypatch.setattr(mapped_translation, "LOGGED_WINDOWS", windows)
    batches, ranks = SortedBatches([mapped(pairs)], NO_LIMIT, 50, None, 1, 1), 3
    drawn = np.random.default_rng(1).permutation(len(batches))
    numbers = ReorderedBatchNumbers(batches, drawn.__getitem__, 4, (1, 1, 1))
    numbers.log(1, ranks)
    last = (len(batches) - 1) // 8
    logged = range(last + 1) if windows == 99 else {0, last // 2, last}
    steps = sorted({place // ranks for window in logged for place in range(8 * window, 8 * window + 8)})
    places = [place for step in steps for place in range(ranks * step, ranks * step + ranks) if place < len(batches)]
    shares = []
    for order in (numbers(np.array(places)), drawn[places]):
        sizes = batches.token_counts(order)[0].tolist()
        largest = [max(sizes[first : first + ranks]) for first in range(0, len(sizes), ranks)]
        shares.append(f"{100 - 100 * sum(sizes) / (ranks * sum(largest)):.1f} %")
    message = caplog.messages[-1]
    assert shares[0] != shares[1]
    assert f"wait {shares[0]} of the time" in message and f"({shares[1]} without reordering" in message
    assert message.endswith(f"; shares of {len(places)} of {len(batches)} batches" if windows == 3 else "by size)")


def test_what_is_not_reordered_has_one_share_of_waiting(pairs, caplog):
    caplog.set_level(logging.INFO)
    ordered([mapped(pairs)], 0, 2, grouped_shuffling=True)
    (message,) = (each for each in caplog.messages if each.startswith("batches of epoch 1: "))
    assert message.endswith("of the time for the largest batch of a micro-step")


@pytest.mark.parametrize("grouped", [False, True])
def test_an_epoch_of_mapped_bitext_goes_on_with_another_number_of_ranks(pairs, grouped):
    """Three ranks have read 12 batches; two go on after them, in the order of three."""
    dataset = MappedTranslationDataset([mapped(pairs)], None, PAD)

    def epochs(rank, ranks):
        return dataset.iterator(NO_LIMIT, 50, shard_id=rank, num_shards=ranks, grouped_shuffling=grouped)

    whole = dealt([mapped(pairs)], 3, [1], grouped_shuffling=grouped)
    state = {"version": 2, "epoch": 1, "iterations_in_epoch": 6, "batches_per_update": 3, "ranks": 3}
    assert dealt([mapped(pairs)], 2, [1], grouped_shuffling=grouped) != whole
    found = []
    for rank in range(2):
        part = epochs(rank, 2)
        part.load_state_dict(state)
        found.append([tuple(batch) for batch in part.ordered_batches(1, False, True)])
    batches = [tuple(batch) for batch in SortedBatches([mapped(pairs)], NO_LIMIT, 50, None, 1, 1)]
    assert [batches.index(batch) for step in zip(*found, strict=True) for batch in step if batch] == whole
