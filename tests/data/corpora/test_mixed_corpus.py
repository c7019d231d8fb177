"""Batches of several languages (U2, G1): shares, sizes, and each example with its own text and language."""

import numpy as np
import pytest
from tiny_data import write_items

from fairseq_xl.data.corpora.mixed_corpus import MixedCorpus
from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.corpora.token_stream import TokenStream


@pytest.fixture
def streams(tmp_path):
    """English: 400 sentences of tokens 100 to 499; German: 100 sentences of 1000 to 1099."""
    found = {}
    for language, start, count in (("en", 100, 400), ("de", 1000, 100)):
        items = [[start + number, start + number, 2] for number in range(count)]
        found[language] = TokenStream(write_items(tmp_path / language / "train", items), language)
    return found


@pytest.mark.parametrize("alpha, share", [(0, 0.5), (1, 0.2), (0.5, 1 / 3)])
def test_every_example_is_drawn_on_its_own(streams, alpha, share):
    corpus = MixedCorpus(streams, alpha)
    examples, _ = corpus.sample(np.random.default_rng(2), 4000, 3)
    languages = np.array([code for (code,) in corpus.languages(examples, 3)])
    assert (languages == "de").mean() == pytest.approx(share, abs=0.04)  # deviation at most 0.008
    half = languages[: len(languages) // 2] == "de"
    assert half.mean() == pytest.approx(share, abs=0.05)  # and not one language after the other


def test_an_example_has_the_text_of_its_language(streams):
    corpus = MixedCorpus(streams, 0)
    examples, sizes = corpus.sample(np.random.default_rng(3), 200, 6)
    texts, languages = corpus.texts(examples, 6), corpus.languages(examples, 6)
    assert {code for (code,) in languages} == {"en", "de"}
    for (tokens,), (code,), size in zip(texts, languages, sizes):
        pieces = [token for token in tokens.tolist() if token != 2]
        assert len(tokens) == size and all((token >= 1000) == (code == "de") for token in pieces)


def test_means_and_counts(streams):
    """Each corpus is used up before it repeats."""
    corpus = MixedCorpus(streams, 0)
    assert corpus.sentences == 500
    assert corpus.mean_size(7) == pytest.approx((streams["en"].mean_size(7) + streams["de"].mean_size(7)) / 2)
    examples, _ = MixedCorpus({"de": streams["de"]}, 0).sample(np.random.default_rng(4), 99, 3)
    assert len(set(examples.tolist())) == 99


def test_pairs_keep_their_order(tmp_path):
    pairs = {}
    for name, start in (("de-en", 10), ("en-fr", 50)):
        first, second = name.split("-")
        write_items(tmp_path / f"{name}.{first}", [[start, 2]] * 9)
        write_items(tmp_path / f"{name}.{second}", [[start + 1, start + 1, 2]] * 9)
        pairs[name] = SentencePairs(tmp_path / name, first, second)
    corpus = MixedCorpus(pairs, 0)
    examples, sizes = corpus.sample(np.random.default_rng(5), 40, 9)
    found = {
        (codes, tuple(map(tuple, (x.tolist(), y.tolist()))))
        for (x, y), codes in zip(corpus.texts(examples, 9), corpus.languages(examples, 9))
    }
    assert found == {(("de", "en"), ((10, 2), (11, 11, 2))), (("en", "fr"), ((50, 2), (51, 51, 2)))}
    assert set(sizes.tolist()) == {5}
