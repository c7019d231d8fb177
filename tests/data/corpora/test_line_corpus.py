"""Corpora of lines: counts, means and warnings, exact for few lines and estimated for many; rare lines are found."""

import logging

import numpy as np
import pytest
from tiny_data import write_items

from fairseq_xl.data.corpora import sampling
from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.corpora.sentences import Sentences
from fairseq_xl.data.corpora.token_stream import TokenStream
from fairseq_xl.data.store import binarized_text
from fairseq_xl.errors import UserError
from fairseq_xl.io.indexed_text import SIZE


@pytest.fixture
def few_looks(monkeypatch):
    """Counts and means come from 8 runs of 25 lines."""
    monkeypatch.setattr(binarized_text, "SAMPLED_STRETCHES", 8)
    monkeypatch.setattr(binarized_text, "STRETCH", 25)


@pytest.fixture
def items():
    """4,000 lines of 1 to 9 tokens, each as often as any other, a ninth of them empty."""
    return [[5] * size + [2] for size in np.random.default_rng(1).integers(9, size=4000).tolist()]


def test_estimates(tmp_path, few_looks, items, caplog):
    """From 200 lines: 3,556 sentences, deviation 89; those of 2 to 6 tokens have 4 on average, deviation 0.13."""
    corpus = Sentences(write_items(tmp_path / "train", items), "en")
    assert corpus.sentences == pytest.approx(3556, abs=4 * 89) and corpus.sentences % 20 == 0
    assert TokenStream(tmp_path / "train", "en").sentences == corpus.sentences
    assert corpus.mean_size(6) == pytest.approx(4, abs=4 * 0.13)
    message = caplog.messages[-1]
    assert message.startswith(f"{tmp_path}/train: about ") and f" of {corpus.sentences} sentences have more" in message
    lines, sizes = corpus.all_examples(6)
    expected = [line for line, item in enumerate(items) if 2 <= len(item) <= 6]
    assert lines.tolist() == expected and sizes.tolist() == [len(items[line]) for line in expected]


def test_a_sample_of_an_estimated_number_has_no_line_twice(tmp_path, few_looks, items):
    """Of 2,222 lines of 2 to 6 tokens; the deviation of the estimate from 200 lines is 140."""
    corpus = Sentences(write_items(tmp_path / "train", items), "en")
    every = corpus.all_examples(6)[0].tolist()
    assert corpus.number_of_examples(6) == pytest.approx(len(every), abs=4 * 140)
    lines, sizes = corpus.sample_of_all(np.random.default_rng(1), len(every) + 100, 6)
    assert lines.tolist() == every and sizes.tolist() == [len(items[line]) for line in every]
    lines, _ = corpus.sample_of_all(np.random.default_rng(1), 300, 6)
    assert len(lines) == 300 and set(lines.tolist()) < set(every) and sorted(lines.tolist()) == lines.tolist()


@pytest.mark.parametrize("few", [0, 1 << 16])
def test_every_line_that_fits_is_drawn_once_in_a_pass(tmp_path, few_looks, items, monkeypatch, few):
    monkeypatch.setattr(sampling, "SMALL_PERMUTATION", few)
    corpus = Sentences(write_items(tmp_path / "train", items), "en")
    every, _ = corpus.all_examples(6)
    drawn, sizes = corpus.sample(np.random.default_rng(2), len(every) + 9, 6)
    assert sorted(drawn[: len(every)].tolist()) == every.tolist() != drawn[: len(every)].tolist()
    assert sizes.tolist() == [len(items[line]) for line in drawn]
    again, _ = corpus.sample(np.random.default_rng(2), 100, 6)
    assert again.tolist() == drawn[:100].tolist()


def test_a_rare_line_is_found(tmp_path, few_looks, caplog):
    """None of the lines that are looked at is a sentence, or none fits."""
    caplog.set_level(logging.WARNING)
    long = [6] * 20 + [2]
    for name, line, length in (("empty", [2], 9), ("long", long, 9)):
        items = [line] * 4000
        items[777] = [5, 2]
        corpus = Sentences(write_items(tmp_path / name, items), "en")
        assert corpus.sentences == (1 if name == "empty" else 4000) and corpus.mean_size(length) == 2
        assert corpus.sample(np.random.default_rng(1), 3, length)[0].tolist() == [777] * 3
        assert TokenStream(tmp_path / name, "en").sentences == corpus.sentences
    for code, items in (("en", [[2], [5, 2]] * 2000), ("de", [[5, 2], [2]] * 2000)):
        write_items(tmp_path / f"train.en-de.{code}", items)
    with pytest.raises(UserError, match="no pair of two sentences of 'en' and 'de'"):
        SentencePairs(tmp_path / "train.en-de", "en", "de")
    with pytest.raises(UserError, match="long: every sentence has more than 1 tokens"):
        Sentences(tmp_path / "long", "en").mean_size(1)


def test_a_text_that_changes_while_it_is_read(tmp_path):
    """The sizes of its lines are read again at every draw."""
    corpus = Sentences(write_items(tmp_path / "train", [[5, 5, 2]] * 9), "en")
    assert corpus.mean_size(4) == 3
    with open(tmp_path / "train.idx", "r+b") as file:
        file.seek(SIZE)
        file.write(np.full(9, 8, np.int32).tobytes())
    with pytest.raises(
        UserError, match="train: no line has 2 to 4 tokens any more: the text changed while it was read"
    ):
        corpus.sample(np.random.default_rng(1), 3, 4)
