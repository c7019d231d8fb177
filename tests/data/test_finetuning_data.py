"""Labeled text: reading, framing, batches, sampling."""

import numpy as np
import pytest
from fairseq.data.iterators import EpochBatchIterator

from fairseq_xl.data.balance import waiting_share
from fairseq_xl.data.epochs import BalancedEpochs
from fairseq_xl.data.finetuning import FineTuningDataset, Input, SubtaskDataset, frame, segments, shares_of
from fairseq_xl.data.framing import Framing
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.task_files import LabeledExample, TaggedSentence, read_examples
from fairseq_xl.finetuning.classification import Classification
from fairseq_xl.finetuning.subtasks import SubtaskExample
from fairseq_xl.finetuning.tagging import Tagging

S, PAD, END = 0, 1, 2


@pytest.fixture
def framing(dictionary):
    return Framing.of("xl", dictionary)


def ended(first, count):
    return np.array([*range(first, first + count), END])


def test_a_sentence_is_truncated(framing):
    assert frame([ended(5, 3)], framing, 5).tokens.tolist() == [S, 5, 6, 7, END]
    assert frame([ended(5, 3)], framing, 4).tokens.tolist() == [S, 5, 6, END]


@pytest.mark.parametrize(
    "sizes, longest, kept",
    [
        ((3, 2), 9, (3, 2)),  # <s> 3 </s> </s> 2 </s>: fits
        ((6, 2), 10, (4, 2)),  # only the longer side
        ((2, 6), 10, (2, 4)),
        ((7, 6), 10, (3, 3)),  # both, to the same length
        ((6, 7), 11, (3, 4)),
        ((20, 1), 8, (3, 1)),
    ],
)
def test_the_longer_side_of_a_pair_is_truncated_first(framing, sizes, longest, kept):
    made = frame([ended(5, sizes[0]), ended(30, sizes[1])], framing, longest)
    tokens = made.tokens.tolist()
    assert made.truncated == (kept != sizes)
    assert tokens == [S, *range(5, 5 + kept[0]), END, END, *range(30, 30 + kept[1]), END]
    assert len(tokens) <= longest


def test_a_triple_is_truncated_to_equal_lengths(framing):
    made = frame([ended(5, 9), ended(30, 1), ended(40, 7)], framing, 16)
    assert made.tokens.tolist() == [S, *range(5, 10), END, END, 30, END, END, *range(40, 44), END] and made.truncated


def dataset(dictionary, sizes, split="train", per_epoch=None):
    examples = [LabeledExample("ab"[n % 2], ("text",), ["en", "fr"][n % 2], "file", n + 1) for n in range(len(sizes))]
    task = Classification(None, None)
    task.learn([LabeledExample(label, ("text",), "en", "file", 1) for label in "ab"])
    inputs = [
        [Input(np.array([S, *[7] * (size - 2), END]), {"class": number % 2})] for number, size in enumerate(sizes)
    ]
    return FineTuningDataset(split, examples, inputs, task.collate, dictionary, per_epoch)


def test_a_batch(dictionary):
    sample = dataset(dictionary, [4, 3, 4]).collater([0, 1])
    assert sample["batch"]["tokens"].tolist() == [[S, 7, 7, END], [S, 7, END, PAD]]
    assert sample["batch"]["padding_mask"].tolist() == [[False] * 4, [False, False, False, True]]
    assert sample["batch"]["languages"].tolist() == [[1], [2]]  # de en fr
    assert sample["target"]["class"].tolist() == [0, 1] and sample["ntokens"] == 7 and sample["id"].tolist() == [0, 1]
    assert dataset(dictionary, [4, 3, 4]).collater([0, 2])["batch"]["padding_mask"] is None
    assert dataset(dictionary, [4]).collater([]) == {}


def test_batches_count_all_inputs_with_their_padding(dictionary):
    """Two examples of one long input and two of ten short ones: at most 2,100 tokens in a batch with padding."""
    examples = [LabeledExample("a", ("text",), "en", "file", 1)] * 4
    sizes = [[52] * 10, [520], [52] * 10, [520]]
    inputs = [[Input(np.full(size, 7), {"class": 0}) for size in of_one] for of_one in sizes]
    data = FineTuningDataset("valid", examples, inputs, Classification(None, None).collate, dictionary)
    order = data.ordered_indices()
    assert order.tolist() == [0, 2, 1, 3]  # by the longest input
    batches = data.batch_by_size(order, max_tokens=2100)
    assert batches == [[0, 2], [1, 3]]
    assert all(data.collater(batch)["batch"]["tokens"].numel() <= 2100 for batch in batches)
    assert data.batch_by_size(order, max_tokens=2100, max_sentences=1) == [[0], [2], [1], [3]]
    assert data.batch_by_size(order, max_tokens=600) == [[0], [2], [1], [3]]
    assert data.batch_by_size(order) == [[0, 2, 1, 3]] and data.batch_by_size([]) == []


def test_segments_of_a_pair_are_its_sides(dictionary):
    """In either framing segment 1 begins with the </s> before the second text; padding and sentences are segment 0."""
    rows = np.array([[S, 4, 5, END, END, 6, END, PAD], [S, 4, END, PAD, PAD, PAD, PAD, PAD]])
    assert segments(rows, END, PAD).tolist() == [[0, 0, 0, 0, 1, 1, 1, 0], [0] * 8]
    assert segments(np.array([[END, 4, END, END, 6, END]]), END, PAD).tolist() == [[0, 0, 0, 1, 1, 1]]
    data = dataset(dictionary, [4, 3])
    data.inputs[0] = [Input(rows[0, :-1], {"class": 0})]
    assert data.collater([0, 1])["batch"]["segments"].tolist() == [[0, 0, 0, 0, 1, 1, 1], [0] * 7]


def test_draws_of_an_epoch(dictionary):
    """Fewer examples than exist: each at most once, others in another epoch. More: counts differ by at most one."""
    few = dataset(dictionary, [5] * 20, per_epoch=8)
    np.random.seed(1)
    epochs = [few.ordered_indices().tolist() for _ in range(2)]
    assert all(len(set(epoch)) == 8 for epoch in epochs) and set(epochs[0]) != set(epochs[1])
    many = dataset(dictionary, [5, 4, 3], per_epoch=7).ordered_indices()
    assert sorted(np.bincount(many).tolist()) == [2, 2, 3] and np.all(np.diff(many) <= 0)  # by length
    assert sorted(dataset(dictionary, [5] * 9).ordered_indices().tolist()) == list(range(9))
    assert dataset(dictionary, [5] * 9, "valid", per_epoch=4).ordered_indices().tolist() == list(range(9))


def test_reading(tmp_path):
    path = tmp_path / "train.en.tsv"
    path.write_bytes("\ufeffyes\tone\u2028line\tüber\r\nno\tx\ty\r\n".encode())
    first, second = read_examples(path, "en")
    assert (first.label, first.texts, first.line) == ("yes", ("one\u2028line", "über"), 1)
    assert (second.label, second.texts, second.line) == ("no", ("x", "y"), 2)


@pytest.mark.parametrize(
    "content, sentence",
    [
        (b"a\tx\na\tx\ty\n", "line 2: expected label TAB text, found 3 fields"),
        (b"a\tx\ty\na\tx\n", "line 2: expected label TAB text TAB text, found 2 fields"),
        (b"a\n", "line 1: expected label TAB text, with up to three texts, found 1 field"),
        (b"a\tx\ty\tz\tz\n", "line 1: expected .* found 5 fields"),
        (b"a\tx\n\na\tx\n", "line 2: expected label TAB text, found 1 field"),
        (b"a\tx\na\t\xff\n", "line 2: not UTF-8"),
        (b"a\t \n", "line 1: an empty label or text"),
        (b"", "line 1: the file is empty"),
    ],
)
def test_files_that_are_wrong(tmp_path, content, sentence):
    path = tmp_path / "train.en.tsv"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"{path}, {sentence}"):
        read_examples(path, "en")


def test_columns_that_are_swapped():
    rows = [(f"text {number}", "ab"[number % 2]) for number in range(20)]
    examples = [LabeledExample(text, (label,), "en", "train.en.tsv", 1) for text, label in rows]
    tags = [(f"w{number}", f"x{number}") for number in range(9)]
    sentences = [TaggedSentence(("O", "B"), words, "en", "train.en.tsv", 1) for words in tags]
    for task, data in ((Classification(None, None), examples), (Tagging(None, None), sentences)):
        with pytest.raises(UserError, match="train.en.tsv: .*are the columns swapped?"):
            task.learn(data)
    task = Classification(None, None)
    task.learn([LabeledExample(label, (text,), "en", "train.en.tsv", 1) for text, label in rows])
    with pytest.raises(UserError, match="valid.en.tsv, line 1: label 'text 0' .*are the columns swapped?"):
        task.check([LabeledExample("text 0", ("a",), "en", "valid.en.tsv", 1)])


def test_a_label_that_was_not_trained():
    task = Classification(None, None)
    task.learn([LabeledExample(label, ("x",), "en", "train.en.tsv", 1) for label in "ab"])
    with pytest.raises(UserError, match="valid.en.tsv, line 4: label 'c' is not one of the classes a, b"):
        task.check([LabeledExample("c", ("x",), "en", "valid.en.tsv", 4)])


@pytest.mark.parametrize(
    "sizes, total, alpha, counts",
    [
        ([90, 10], 100, 1.0, [90, 10]),
        ([90, 10], 40, 0.5, [30, 10]),  # 3 to 1
        ([90, 10], 40, 0.0, [20, 20]),
        ([7, 7, 7], 10, 1.0, [3, 4, 3]),
        ([1000, 1], 10, 1.0, [10, 1]),  # at least one
    ],
)
def test_shares_of_subtasks_by_hand(sizes, total, alpha, counts):
    assert shares_of(sizes, total, alpha).tolist() == counts


def several(dictionary, sizes, **more):
    """A dataset of a subtask for each list of sizes."""
    examples, inputs = [], []
    for subtask, of_one in enumerate(sizes):
        for size in of_one:
            examples.append(SubtaskExample("abc"[subtask], LabeledExample("a", ("text",), "en", "file", 1)))
            inputs.append([Input(np.array([S, *[7] * (size - 2), END]), {"class": 0})])
    collate = Classification(None, None).collate
    return SubtaskDataset(more.pop("split", "train"), examples, inputs, collate, dictionary, **more)


def test_batches_of_subtasks(dictionary):
    """Each example once; no batch has examples of two subtasks; examples of one length are together."""
    data = several(dictionary, [[5, 4, 5, 4, 5], [4, 5], [4]])
    np.random.seed(1)
    order = data.ordered_indices()
    assert sorted(order.tolist()) == list(range(8))
    batches = data.batch_by_size(order, max_sentences=2)
    assert (
        sorted(map(len, batches)) == [1, 1, 2, 2, 2]
        and [index for batch in batches for index in batch] == order.tolist()
    )
    assert all(len(set(data.subtasks[batch])) == 1 for batch in batches)
    assert np.all(np.diff(data.sizes[order[:5]]) >= 0)
    assert data.batch_by_size(order, max_tokens=8) and max(map(len, data.batch_by_size(order, max_tokens=10))) == 2
    assert [data.subtasks[batch[0]] for batch in data.batch_by_size(order)] == [0, 1, 2]


@pytest.mark.parametrize("ranks, micro_steps", [(4, 1), (2, 2)])
def test_updates_keep_their_mix_of_subtasks(dictionary, ranks, micro_steps):
    """Two subtasks, one with longer texts: as many batches of each in an update as in fairseq's order."""
    rng = np.random.default_rng(1)
    data = several(dictionary, [rng.integers(4, 30, 400), rng.integers(20, 90, 203)])
    np.random.seed(1)
    batches = data.batch_by_size(data.ordered_indices(), max_sentences=2)
    assert data.batch_kinds(batches).tolist() == [0] * 200 + [1] * 102

    def dealt(make):
        iterators = [make(EpochBatchIterator(data, list, batches, 1, ranks, rank)) for rank in range(ranks)]
        of_ranks = [each.ordered_batches(1, False, True) for each in iterators]
        return [batch for step in zip(*of_ranks, strict=True) for batch in step if batch]

    ours, theirs = dealt(lambda iterator: BalancedEpochs(iterator, [micro_steps])), dealt(lambda iterator: iterator)
    assert sorted(ours) == sorted(theirs) and ours[300:] == theirs[300:]
    ours, theirs = ours[:300], theirs[:300]
    mixes = [data.batch_kinds(each).reshape(-1, 4).sum(axis=1) for each in (ours, theirs)]
    assert mixes[0].tolist() == mixes[1].tolist() and len(set(mixes[0].tolist())) > 3
    spreads = []
    for order in (ours, theirs):
        tokens, kinds = data.token_counts(order)[0], data.batch_kinds(order)
        several_of_one = [tokens[first : first + 4][kinds[first : first + 4] == 0] for first in range(0, 300, 4)]
        spreads.append(sum(np.ptp(each) for each in several_of_one if len(each) > 1))
    assert spreads[0] < spreads[1] / 4
    waits = [waiting_share(data.token_counts(order)[0], ranks) for order in (ours, theirs)]
    assert waits[0] < 0.85 * waits[1]


def test_draws_of_subtasks(dictionary):
    """Shares of sizes 16 and 4 to the power of 0.5 are 2 to 1: 8 of the 16, and 4 of 4; other ones in another epoch."""
    data = several(dictionary, [[5] * 16, [5] * 4], per_epoch=12, alpha=0.5)
    np.random.seed(1)
    epochs = [data.ordered_indices() for _ in range(2)]
    for order in epochs:
        assert np.bincount(data.subtasks[order]).tolist() == [8, 4] and len(set(order.tolist())) == 12
    assert set(epochs[0].tolist()) != set(epochs[1].tolist())
    assert len(several(dictionary, [[5] * 16, [5] * 4], split="valid", alpha=0.5).ordered_indices()) == 20
