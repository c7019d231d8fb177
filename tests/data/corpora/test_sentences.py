"""Single sentences of monolingual text: values by hand, sampling, sentences that are too long."""

import numpy as np
import pytest
from tiny_data import write_items

from fairseq_xl.data.corpora.sentences import Sentences
from fairseq_xl.errors import UserError

EOS = 2
#: sentences of 3, 2 and 4 tokens, an empty line between the second and the third
ITEMS = [[5, 6, EOS], [7, EOS], [EOS], [8, 9, 10, EOS]]


@pytest.fixture
def corpus(tmp_path):
    return Sentences(write_items(tmp_path / "train", ITEMS), "en")


def texts(corpus, length):
    return [np.asarray(text).tolist() for (text,) in corpus.texts(corpus.all_examples(length)[0], length)]


@pytest.mark.parametrize(
    "length, expected", [(4, [ITEMS[0], ITEMS[1], ITEMS[3]]), (3, [ITEMS[0], ITEMS[1]]), (2, [ITEMS[1]])]
)
def test_each_sentence_that_fits_is_an_example(corpus, caplog, length, expected):
    """Empty lines are none; the log counts longer sentences."""
    assert texts(corpus, length) == expected
    assert corpus.all_examples(length)[1].tolist() == [len(sentence) for sentence in expected]
    assert corpus.languages(np.arange(2), length) == [("en",)] * 2 and corpus.sentences == 3
    left_out = 3 - len(expected)
    assert (f"{left_out} of 3 sentences have more than {length} tokens" in caplog.text) == bool(left_out)


def test_sentences_that_are_all_too_long(tmp_path):
    corpus = Sentences(write_items(tmp_path / "train", [[5, 6, EOS], [EOS]]), "en")
    with pytest.raises(UserError, match="every sentence has more than 2 tokens"):
        corpus.all_examples(2)
