"""Every corpus has the interface of `Corpus`, and its numbers agree with its texts."""

import pickle

import numpy as np
import pytest
from tiny_data import write_items

from fairseq_xl.data.corpora.base import Corpus
from fairseq_xl.data.corpora.documents import AdjacentSegments
from fairseq_xl.data.corpora.parallel_documents import ParallelDocuments
from fairseq_xl.data.corpora.sentence_blocks import SentenceBlocks
from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.corpora.sentences import Sentences
from fairseq_xl.data.corpora.token_stream import TokenStream

LINES = {
    "en": [[4, 5, 6, 2], [7, 2], [2], [8, 9, 2], [10, 2]],
    "de": [[14, 2], [15, 16, 2], [2], [17, 2], [18, 19, 19, 2]],
}
#: class -> a length at which it has several examples, or 20, and the positions of its examples
KINDS = {
    TokenStream: (3, range(4)),
    SentenceBlocks: (4, range(4)),
    Sentences: (20, (0, 1, 3, 4)),  # line 2 is left out
    AdjacentSegments: (20, range(2)),
    SentencePairs: (20, (0, 1, 3, 4)),
    ParallelDocuments: (20, range(4)),
}


@pytest.fixture(params=KINDS)
def corpus(tmp_path, request):
    for code, items in LINES.items():
        write_items(tmp_path / code / "train", items)
        write_items(tmp_path / "en-de" / f"train.en-de.{code}", items)
    if request.param.num_languages == 2:
        return request.param(tmp_path / "en-de" / "train.en-de", "en", "de")
    return request.param(tmp_path / "en" / "train", "en")


def test_sizes_and_languages_are_those_of_the_texts(corpus):
    length, _ = KINDS[type(corpus)]
    assert isinstance(corpus, Corpus)
    examples, sizes = corpus.all_examples(length)
    texts, languages = corpus.texts(examples, length), corpus.languages(examples, length)
    assert [sum(map(len, sides)) for sides in texts] == sizes.tolist()
    assert [len(codes) for codes in languages] == [len(sides) for sides in texts]
    assert {code for codes in languages for code in codes} <= set(LINES)
    assert corpus.mean_size(length) == pytest.approx(sizes.mean())
    assert corpus.sentences == 4


def test_a_sample_of_all_examples_has_each_at_most_once_and_in_order(corpus):
    length, positions = KINDS[type(corpus)]
    examples, sizes = corpus.all_examples(length)
    assert corpus.number_of_examples(length) == len(examples)
    assert corpus.positions(examples, length).tolist() == list(positions)
    every, seen = dict(zip(examples.tolist(), sizes.tolist(), strict=True)), set()
    for count in range(1, len(examples) + 1):
        for seed in range(20):
            drawn, their_sizes = corpus.sample_of_all(np.random.default_rng(seed), count, length)
            assert drawn.tolist() == sorted(set(drawn.tolist())) and len(drawn) == count
            assert [every[example] for example in drawn.tolist()] == their_sizes.tolist()
            seen |= set(drawn.tolist()) if count == 1 else set()
    assert drawn.tolist() == examples.tolist() and (len(seen) > 1 or len(examples) == 1)


def test_a_pass_draws_each_example_once(corpus):
    """Of a stream, whose blocks begin elsewhere in each pass, each token at most once."""
    length, _ = KINDS[type(corpus)]
    examples, sizes = corpus.all_examples(length)
    drawn, drawn_sizes = corpus.sample(np.random.default_rng(1), 2 * len(examples), length)
    assert len(drawn) == len(drawn_sizes) == 2 * len(examples)
    if not isinstance(corpus, TokenStream):
        size_of = dict(zip(examples.tolist(), sizes.tolist(), strict=True))
        passes = np.split(drawn, 2)
        assert [sorted(each.tolist()) for each in passes] == [sorted(examples.tolist())] * 2
        assert [size_of[example] for example in drawn.tolist()] == drawn_sizes.tolist()


def test_workers_open_the_files_anew(corpus):
    length, _ = KINDS[type(corpus)]
    again, examples = pickle.loads(pickle.dumps(corpus)), corpus.all_examples(length)[0]
    assert (again.sentences, again.codes) == (corpus.sentences, corpus.codes)
    both = ([[side.tolist() for side in sides] for sides in each.texts(examples, length)] for each in (corpus, again))
    assert next(both) == next(both)
