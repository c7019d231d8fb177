"""Blocks of whole sentences: values by hand, fairseq's TokenBlockDataset, sampling, files that are refused."""

import numpy as np
import pytest
import torch
from fairseq.data import TokenBlockDataset
from tiny_data import write_items

from fairseq_xl.data.corpora.sentence_blocks import SentenceBlocks
from fairseq_xl.errors import UserError

EOS = 2
#: sentences of 3, 2 and 4 tokens, an empty line between the second and the third
ITEMS = [[5, 6, EOS], [7, EOS], [EOS], [8, 9, 10, EOS]]


def blocks(corpus, length):
    return [np.asarray(block).tolist() for (block,) in corpus.texts(corpus.all_examples(length)[0], length)]


@pytest.mark.parametrize(
    "length, expected",
    [
        (5, [[5, 6, EOS, 7, EOS], [EOS, 8, 9, 10, EOS]]),
        (4, [[5, 6, EOS], [7, EOS, EOS], [8, 9, 10, EOS]]),
        (100, [[5, 6, EOS, 7, EOS, EOS, 8, 9, 10, EOS]]),
        (3, [[5, 6, EOS], [7, EOS, EOS], [8, 9, 10]]),
        (2, [[5, 6], [7, EOS], [8, 9], [10, EOS]]),
    ],
)
def test_blocks_hold_the_sentences_that_fit_and_longer_ones_in_parts(tmp_path, length, expected):
    """A block of </s> alone is left out."""
    corpus = SentenceBlocks(write_items(tmp_path / "train", ITEMS), "en")
    assert blocks(corpus, length) == expected
    assert corpus.all_examples(length)[1].tolist() == [len(block) for block in expected]
    assert corpus.sentences == 3
    assert corpus.languages(np.arange(2), length) == [("en",)] * 2


def random_items(seed, longest):
    rng = np.random.default_rng(seed)
    return [[*rng.integers(4, 100, int(rng.integers(longest))).tolist(), EOS] for _ in range(400)]


@pytest.mark.parametrize("length", [12, 40, 300])
def test_the_blocks_are_fairseqs(tmp_path, length):
    """``--sample-break-mode complete`` for sentences of at most `length` tokens."""
    items = random_items(length, 12)
    theirs = TokenBlockDataset(
        [torch.tensor(item) for item in items], [len(item) for item in items], length, 1, EOS, break_mode="complete"
    )
    corpus = SentenceBlocks(write_items(tmp_path / "train", items), "en")
    assert blocks(corpus, length) == [block.tolist() for block in theirs if len(block) > 1]


def test_refused_text(tmp_path):
    with pytest.raises(UserError, match="has no sentence"):
        SentenceBlocks(write_items(tmp_path / "blank", [[EOS], [EOS]]), "en")
    corpus = SentenceBlocks(write_items(tmp_path / "train", ITEMS), "en", symbols=8)
    with pytest.raises(UserError, match="dictionary"):
        corpus.texts(np.array([1]), 5)
