"""Sources and targets of one or more languages: sampling of an epoch, batches."""

import numpy as np

from fairseq_xl.data.framing import Framing
from fairseq_xl.data.generation import GenerationDataset
from fairseq_xl.data.translation import Direction

BOS, PAD, EOS, DE, EN = 0, 1, 2, 21, 22


def dataset(dictionary, sizes, train=True, **more):
    """Examples with sources of these numbers of pieces, in the languages by turns, and targets of one piece."""
    directions = []
    for number, counts in enumerate(sizes):
        sources = [np.array([*[5 + number] * count, EOS]) for count in counts]
        targets = [np.array([9, EOS])] * len(counts)
        lengths = np.array([(count + 1, 2) for count in counts])
        directions.append(Direction(sources, targets, lengths, np.arange(len(counts)), number, DE + number))
    framing = Framing.of("xl", dictionary)
    return GenerationDataset(directions, ["de", "en"][: len(sizes)], framing, PAD, train, **more)


def test_draws_of_an_epoch(dictionary):
    """Fewer examples than exist: each at most once, others in another epoch. More: counts differ by at most one."""
    few = dataset(dictionary, [[3] * 10, [3] * 10], per_epoch=8)
    np.random.seed(1)
    epochs = [few.ordered_indices().tolist() for _ in range(2)]
    assert all(len(set(epoch)) == 8 for epoch in epochs) and set(epochs[0]) != set(epochs[1])
    many = dataset(dictionary, [[2, 3], [4]], per_epoch=7).ordered_indices()
    assert sorted(np.bincount(many).tolist()) == [2, 2, 3] and np.all(np.diff(many) >= 0)  # by length
    assert sorted(dataset(dictionary, [[3] * 5, [3] * 4]).ordered_indices().tolist()) == list(range(9))


def test_outside_of_training_a_batch_has_one_language_and_every_example_is_there_once(dictionary):
    sizes = [[4, 2, 3], [3, 9]]
    whole = dataset(dictionary, sizes, train=False, per_epoch=2)
    batches = whole.batch_by_size(whole.ordered_indices(), max_sentences=2)
    assert [list(batch) for batch in batches] == [[1, 2], [0], [3, 4]]
    samples = [whole.collater([whole[index] for index in batch]) for batch in batches]
    assert [sample["language"] for sample in samples] == ["de", "de", "en"]
    training = dataset(dictionary, sizes)
    batches = training.batch_by_size(training.ordered_indices(), max_sentences=9)
    assert [sorted(batch) for batch in batches] == [[0, 1, 2, 3, 4]]
    assert training.collater([training[index] for index in batches[0]])["language"] is None


def test_a_batch(dictionary):
    examples = dataset(dictionary, [[2], [1]])
    sample = examples.collater([examples[0], examples[1]])
    batch = sample["batch"]
    assert batch["tokens"].tolist() == [[BOS, 5, 5, EOS], [BOS, 6, EOS, PAD]]
    assert batch["padding_mask"].tolist() == [[False] * 4, [False, False, False, True]]
    assert batch["languages"].tolist() == [[0], [1]]
    assert batch["prev_output_tokens"].tolist() == [[DE, 9], [EN, 9]]
    assert batch["target"].tolist() == [[9, EOS], [9, EOS]]
    assert sample["ntokens"] == 4 and "positions" not in sample
    assert examples.collater([]) == {}
