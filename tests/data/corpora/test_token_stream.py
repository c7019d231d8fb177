"""A text as one stream: blocks against the file's content, sampling, files that are refused."""

import pickle

import numpy as np
import pytest
from tiny_data import write_items

from fairseq_xl.data.corpora.token_stream import TokenStream
from fairseq_xl.errors import UserError

ITEMS = [[5, 6, 2], [7, 2], [2], [8, 65_000, 10, 2]]  # the third is an empty line


@pytest.fixture(params=[np.uint16, np.int32])
def stream(request, tmp_path):
    return TokenStream(write_items(tmp_path / "train", ITEMS, request.param), "en")


@pytest.fixture
def long(tmp_path):
    """1000 sentences, each a token of its own and </s>."""
    return TokenStream(write_items(tmp_path / "long", [[4 + number, 2] for number in range(1000)]), "en")


def as_lists(blocks):
    return [np.asarray(block).tolist() for block in blocks]


def test_the_stream_is_the_sentences_one_after_the_other(stream):
    assert as_lists([stream.tokens]) == [[5, 6, 2, 7, 2, 2, 8, 65_000, 10, 2]]
    assert (stream.size, stream.sentences, stream.language) == (10, 3, "en")
    assert as_lists(block for (block,) in stream.texts(np.array([3, 0, 8]), 4)) == [[7, 2, 2, 8], [5, 6, 2, 7], [10, 2]]


def test_every_block_in_order_the_last_one_short(stream):
    starts, sizes = stream.all_examples(4)
    assert (starts.tolist(), sizes.tolist()) == ([0, 4, 8], [4, 4, 2])
    assert [token for (block,) in stream.texts(starts, 4) for token in block] == stream.tokens.tolist()
    assert stream.mean_size(4) == pytest.approx(10 / 3)


def test_a_text_shorter_than_a_block(stream):
    starts, sizes = stream.sample(np.random.default_rng(0), 3, 50)
    assert (starts.tolist(), sizes.tolist()) == ([0, 0, 0], [10, 10, 10])
    assert stream.all_examples(50)[1].tolist() == [10]
    assert stream.mean_size(50) == 10


def test_a_pass_draws_no_token_twice_and_leaves_out_at_most_a_block(long):
    """2000 tokens less a shift of 0 … 6: 285 or 286 blocks. Passes differ in the shift."""
    shifts = set()
    for seed in range(100):
        starts, sizes = long.sample(np.random.default_rng(seed), 285, 7)
        covered = np.concatenate([np.arange(start, start + size) for start, size in zip(starts, sizes)])
        assert len(set(covered.tolist())) == len(covered) >= 2000 - 6 - 7
        assert sizes.max() == 7 and (starts + sizes).max() <= 2000
        (shift,) = set((starts % 7).tolist())
        shifts.add(shift)
    assert shifts == set(range(7))


def test_more_draws_than_a_pass_has_are_several_passes(long):
    starts, _ = long.sample(np.random.default_rng(4), 1000, 7)
    times = np.bincount(np.concatenate([np.arange(start, min(start + 7, 2000)) for start in starts]), minlength=2000)
    assert len(starts) == 1000
    assert times[7:-7].min() >= 3 and times.max() <= 4  # 3 passes and a half


def test_draws_are_a_function_of_the_generator(long):
    one, two = (long.sample(np.random.default_rng(8), 50, 7)[0] for _ in range(2))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, long.sample(np.random.default_rng(9), 50, 7)[0])


def test_only_the_name_travels_to_workers(long):
    long.tokens[:1]
    pickled = pickle.dumps(long)
    assert len(pickled) < 500
    assert np.array_equal(pickle.loads(pickled).tokens, long.tokens)


def test_a_text_without_sentences_is_reported(tmp_path):
    for items, problem in (([], "is empty"), ([[2], [2]], "has no sentence")):
        with pytest.raises(UserError, match=f"train: the text of language 'en' {problem}"):
            TokenStream(write_items(tmp_path / "train", items), "en")
    (tmp_path / "train.idx").unlink()
    with pytest.raises(UserError, match="train.idx: no binarized text of language 'en'"):
        TokenStream(tmp_path / "train", "en")
