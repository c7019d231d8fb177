"""Adjacent segments of documents (V3): the cuts of windows, none of which crosses a document's end."""

import logging

import numpy as np
import pytest
from tiny_data import write_items

from fairseq_xl.data.corpora.documents import AdjacentSegments

#: a document of three sentences, one of a single short sentence, one that is one long sentence, two empty lines between
ITEMS = [[5, 6, 2], [7, 2], [8, 9, 10, 2], [2], [11, 2], [2], [2], [12, 13, 14, 15, 16, 17, 18, 2]]


def as_lists(pairs):
    """First segments, second segments."""
    return [[np.asarray(part).tolist() for part in side] for side in zip(*pairs)]


@pytest.mark.parametrize(
    "length, expected",
    [
        (6, [[[5, 6, 2, 7, 2]], [[8, 9, 10, 2]]]),  # of 9 tokens, 3 | 6 and 5 | 4 end sentences: nearer to the middle
        (4, [[[5, 6, 2]], [[7, 2]]]),  # 8 tokens hold two sentences of the first document; the third is left out
    ],
)
def test_pairs_are_whole_sentences(tmp_path, length, expected):
    text = AdjacentSegments(write_items(tmp_path / "train", ITEMS), "en")
    examples, sizes = text.all_examples(length)
    assert as_lists(text.texts(examples, length)) == expected
    assert sizes.tolist() == [sum(len(side[0]) for side in expected)]


@pytest.mark.parametrize(
    "items, expected",
    [
        ([[4, 2], [5, 6, 7, 8, 9, 2]], [[[4, 2]], [[5, 6, 7, 8]]]),
        ([[5, 6, 7, 8, 9, 2], [4, 2]], [[[7, 8, 9, 2]], [[4, 2]]]),
    ],
    ids=["end", "beginning"],
)
def test_long_segments_are_truncated_at_the_outer_end(tmp_path, items, expected):
    text = AdjacentSegments(write_items(tmp_path / "uneven", items), "en")
    assert as_lists(text.texts(np.array([0]), 4)) == expected
    assert text.all_examples(4)[1].tolist() == [6]


def test_two_sentences_are_a_pair_however_long_they_are(tmp_path):
    """Four sentences of 9 tokens, of which a window of 8 holds none."""
    sentences = [[*range(10 * n, 10 * n + 8), 2] for n in range(1, 5)]
    text = AdjacentSegments(write_items(tmp_path / "long", sentences), "en")
    first, second = as_lists(text.texts(text.all_examples(4)[0], 4))
    assert first == [[15, 16, 17, 2], [35, 36, 37, 2]] and second == [[20, 21, 22, 23], [40, 41, 42, 43]]


def test_text_without_an_empty_line_is_one_document_with_a_warning(tmp_path, caplog):
    text = AdjacentSegments(write_items(tmp_path / "lines", [[4, 2], [5, 2]]), "en")
    with caplog.at_level(logging.WARNING):
        assert len(text.all_examples(4)[0]) == 1
    assert "lines: no empty line, so the whole text is one document" in caplog.text
