"""Labeled text: reading, framing, batches, sampling."""

import numpy as np
import pytest

from fairseq_xl.data.framing import Framing, InputLength
from fairseq_xl.data.labelled.labelled_examples import Input, LabelledExamples, frame, segments
from fairseq_xl.data.plan.epoch_plan import ObjectiveSampler
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.task_files import LabeledExample, read_examples
from fairseq_xl.objectives import OBJECTIVES

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


@pytest.fixture
def objective(dictionary, framing):
    made = OBJECTIVES["classification"](OBJECTIVES["classification"].Config(), dictionary, framing, named=False)
    made.learn([LabeledExample(label, ("text",), "en", "file", 1) for label in "ab"])
    return made


def corpus_of(sizes):
    """Examples of one input each, in English and French by turns."""
    examples = [LabeledExample("ab"[n % 2], ("text",), ["en", "fr"][n % 2], "file", n + 1) for n in range(len(sizes))]
    inputs = [
        [Input(np.array([S, *[7] * (size - 2), END]), {"class": number % 2})] for number, size in enumerate(sizes)
    ]
    return LabelledExamples(examples, inputs)


def test_a_batch(objective):
    batch = objective.batch(corpus_of([4, 3, 4]), np.array([0, 1]))
    assert batch["tokens"].tolist() == [[S, 7, 7, END], [S, 7, END, PAD]]
    assert batch["padding_mask"].tolist() == [[False] * 4, [False, False, False, True]]
    assert batch["languages"].tolist() == [[1], [2]]  # de en fr
    assert batch["target"]["class"].tolist() == [0, 1] and batch["inputs_per_example"] == [1, 1]
    assert objective.num_tokens(batch) == 7
    assert objective.batch(corpus_of([4, 3, 4]), np.array([0, 2]))["padding_mask"] is None


def test_batches_count_all_inputs_with_their_padding(objective):
    """Two examples of one long input and two of ten short ones: at most 2,100 tokens in a batch with padding."""
    examples = [LabeledExample("a", ("text",), "en", "file", 1)] * 4
    sizes = [[52] * 10, [520], [52] * 10, [520]]
    corpus = LabelledExamples(
        examples, [[Input(np.full(size, 7), {"class": 0}) for size in of_one] for of_one in sizes]
    )

    def batches(tokens=None, sentences=None):
        limits = InputLength(600, 0, 600), tokens, sentences
        sampler = ObjectiveSampler("classification", {"en": corpus}, *limits, 1, objective.lengths)
        return [(part.tolist(), *counts) for part, *counts in sampler.divide(*corpus.all_examples(600), corpus)]

    found = batches(2100)  # by the longest input
    assert found == [([0, 2], 1040, 1040), ([1, 3], 1040, 1040)]
    assert all(objective.batch(corpus, np.array(part))["tokens"].numel() <= 2100 for part, *_ in found)
    for limits in ((2100, 1), (600, None)):
        assert [part for part, *_ in batches(*limits)] == [[0], [2], [1], [3]]
    assert batches() == [([0, 2, 1, 3], 2080, 22 * 520)]


def test_segments_of_a_pair_are_its_sides(objective):
    """In either framing segment 1 begins with the </s> before the second text; padding and sentences are segment 0."""
    rows = np.array([[S, 4, 5, END, END, 6, END, PAD], [S, 4, END, PAD, PAD, PAD, PAD, PAD]])
    assert segments(rows, END, PAD).tolist() == [[0, 0, 0, 0, 1, 1, 1, 0], [0] * 8]
    assert segments(np.array([[END, 4, END, END, 6, END]]), END, PAD).tolist() == [[0, 0, 0, 1, 1, 1]]
    corpus = corpus_of([4, 3])
    corpus.inputs[0] = [Input(rows[0, :-1], {"class": 0})]
    assert objective.batch(corpus, np.arange(2))["segments"].tolist() == [[0, 0, 0, 0, 1, 1, 1], [0] * 7]


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
