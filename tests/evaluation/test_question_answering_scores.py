"""Exact match and F1 of answers, worked out by hand from the definitions of SQuAD and MLQA."""

import pytest

from fairseq_xl.evaluation.question_answering_scores import scores, words


@pytest.mark.parametrize(
    "answer, normalization, language, expected",
    [
        ("The  Cat's (big) hat!", "squad", "en", ["cats", "big", "hat"]),
        ("an answer, a day", "squad", "de", ["answer", "day"]),  # English articles in all languages
        ("der Hund – die Katze", "squad", "de", ["der", "hund", "–", "die", "katze"]),  # ASCII punctuation only
        ("Der Hund – die Katze.", "mlqa", "de", ["hund", "katze"]),
        ("El niño y la niña", "mlqa", "es", ["niño", "y", "niña"]),
        ("the end", "mlqa", "es", ["the", "end"]),
        ("«الكتاب» الكبير", "mlqa", "ar", ["كتاب", "كبير"]),
        ("中国,北京 2008", "mlqa", "zh", ["中", "国", "北", "京", "2008"]),
        ("中国,北京 2008", "squad", "zh", ["中国北京", "2008"]),
        ("テスト中", "mlqa", "zh", ["テスト", "中"]),  # MLQA's range has no kana
        ("東京タワー", "mlqa", "ja_JP", ["東", "京", "タ", "ワ", "ー"]),
        ("กข abc", "mlqa", "th", ["ก", "ข", "abc"]),
        ("the", "squad", "en", []),
    ],
)
def test_words(answer, normalization, language, expected):
    assert words(answer, normalization, language) == expected


def test_scores_are_the_best_over_the_references():
    # 2 common words of 3 and 2: F1 = 2 * 2 / 5
    assert scores("big red cat", ["the red cat"], "squad", "en") == (0, pytest.approx(0.8))
    assert scores("big red cat", ["the red cat", "A big, red cat."], "squad", "en") == (1, 1)
    assert scores("cat cat", ["cat"], "squad", "en") == (0, pytest.approx(2 / 3))  # counted once
    assert scores("dog", ["cat"], "squad", "en") == (0, 0)
    assert scores("", ["the"], "squad", "en") == (1, 0)  # as SQuAD 1.1's program: nothing in common
