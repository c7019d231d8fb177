"""Sums of statistics of translations: equal to scores of the whole text; guesses of languages by hand."""

import numpy as np
import pytest
import sacrebleu

from fairseq_xl.evaluation.translations import SCORES, LanguageGuess, Statistics, bleu_counts

HYPOTHESES = ["the house is small and green .", "a book", "", "the light on the water is green now ."]
REFERENCES = ["the house is small and grey .", "the book", "a stone", "the light on the water was green ."]


def scores(sums):
    return {name: score(sums) for name, score in SCORES.items()}


def test_summed_parts_have_the_score_of_the_whole():
    parts = [
        bleu_counts(HYPOTHESES[i : i + 2], REFERENCES[i : i + 2], "en")._replace(
            sentences=2, wrong_language=i // 2, pieces=10 + i, source_pieces=8
        )
        for i in (0, 2)
    ]
    found = scores(Statistics(*map(sum, zip(*parts))))
    expected = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES])
    assert found["bleu"] == pytest.approx(expected.score, abs=0.005)
    assert found == {"bleu": found["bleu"], "wrong_language": 25.0, "length_ratio": round(22 / 16, 2)}


def test_counts_of_a_translation():
    """Two of five words are right, and one of four bigrams: "the house"."""
    found = bleu_counts(["the house was big today"], ["the house is small"], "en")
    assert found == Statistics(2, 1, 0, 0, 5, 4, 3, 2, 5, 4, 0, 0, 0, 0)
    assert (found.matches_2, found.ngrams_2, found.hypothesis_length, found.reference_length) == (1, 4, 5, 4)


def test_the_languages_tokenizer_is_used():
    (hypothesis, reference) = "他喜歡喝茶和咖啡", "他喜歡喝茶和牛奶"
    found = scores(bleu_counts([hypothesis], [reference], "zh"))["bleu"]
    assert found == pytest.approx(sacrebleu.corpus_bleu([hypothesis], [[reference]], tokenize="zh").score, abs=0.005)
    assert found > 30


def test_empty_translations_have_scores():
    assert scores(bleu_counts([""], ["a stone"], "en")) == {"bleu": 0.0, "wrong_language": 0.0, "length_ratio": 0}


def test_a_language_is_guessed_by_its_pieces():
    """Shares with one added: en 4/8 2/8 1/8 1/8, de 1/8 3/8 1/8 3/8."""
    guess = LanguageGuess({"en": np.array([3, 1, 0, 0]), "de": np.array([0, 2, 0, 2])})
    np.testing.assert_allclose(np.exp(guess.log_shares) * 8, [[4, 2, 1, 1], [1, 3, 1, 3]])
    assert guess.is_wrong([0, 0, 1], "de") and not guess.is_wrong([0, 0, 1], "en")
    assert guess.is_wrong([1, 3], "en") and not guess.is_wrong([1, 3], "de")
    assert not guess.is_wrong([2], "en") and not guess.is_wrong([2], "de")  # equally probable
    assert not guess.is_wrong([], "en")
