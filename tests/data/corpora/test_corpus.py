"""Every corpus has the interface of `Corpus`, and its numbers agree with its texts."""

import numpy as np
import pytest
from tiny_data import write_items

from fairseq_xl.data.corpora.base import Corpus
from fairseq_xl.data.corpora.documents import AdjacentSegments
from fairseq_xl.data.corpora.parallel_documents import ParallelDocuments
from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.corpora.token_stream import TokenStream

LINES = {
    "en": [[4, 5, 6, 2], [7, 2], [2], [8, 9, 2], [10, 2]],
    "de": [[14, 2], [15, 16, 2], [2], [17, 2], [18, 19, 19, 2]],
}
LENGTH = 20


@pytest.fixture
def corpora(tmp_path):
    for code, items in LINES.items():
        write_items(tmp_path / code / "train", items)
        write_items(tmp_path / "en-de" / f"train.en-de.{code}", items)
    streams = {code: TokenStream(tmp_path / code / "train", code) for code in LINES}
    return {
        "monolingual": streams["en"],
        "documents": AdjacentSegments(tmp_path / "en" / "train", "en"),
        "parallel": SentencePairs(tmp_path / "en-de" / "train.en-de", "en", "de"),
        "parallel_documents": ParallelDocuments(tmp_path / "en-de" / "train.en-de", "en", "de"),
    }


@pytest.mark.parametrize("kind", ["monolingual", "documents", "parallel", "parallel_documents"])
def test_sizes_and_languages_are_those_of_the_texts(corpora, kind):
    corpus = corpora[kind]
    assert isinstance(corpus, Corpus)
    examples, sizes = corpus.all_examples(LENGTH)
    texts, languages = corpus.texts(examples, LENGTH), corpus.languages(examples, LENGTH)
    assert [sum(map(len, sides)) for sides in texts] == sizes.tolist()
    assert [len(codes) for codes in languages] == [len(sides) for sides in texts]
    assert {code for codes in languages for code in codes} <= set(LINES)
    assert corpus.mean_size(LENGTH) == pytest.approx(sizes.mean())
    sampled, their_sizes = corpus.sample(np.random.default_rng(1), len(examples), LENGTH)
    assert len(sampled) == len(their_sizes) == len(examples)
    assert corpus.sentences == 4


@pytest.mark.parametrize("kind", ["monolingual", "documents", "parallel", "parallel_documents"])
def test_a_sample_of_all_examples_has_each_at_most_once_and_in_order(corpora, kind):
    length = 3  # blocks of a stream; others have longer examples
    corpus, length = corpora[kind], length if kind == "monolingual" else LENGTH
    examples, sizes = corpus.all_examples(length)
    assert corpus.number_of_examples(length) == len(examples)
    positions = {"parallel": [0, 1, 3, 4]}.get(kind, list(range(len(examples))))  # line 2 is left out
    assert corpus.positions(examples, length).tolist() == positions
    every, seen = dict(zip(examples.tolist(), sizes.tolist(), strict=True)), set()
    for count in range(1, len(examples) + 1):
        for seed in range(20):
            drawn, their_sizes = corpus.sample_of_all(np.random.default_rng(seed), count, length)
            assert drawn.tolist() == sorted(set(drawn.tolist())) and len(drawn) == count
            assert [every[example] for example in drawn.tolist()] == their_sizes.tolist()
            seen |= set(drawn.tolist()) if count == 1 else set()
    assert drawn.tolist() == examples.tolist() and (len(seen) > 1 or len(examples) == 1)
