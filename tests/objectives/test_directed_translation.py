"""Translation in chosen directions: how often a pass reads each corpus, by hand."""

from types import SimpleNamespace

import pytest

from fairseq_xl.data.framing import Framing
from fairseq_xl.objectives.directed_translation import DirectedTranslation, DirectedTranslationConfig


@pytest.mark.parametrize(
    "options, expected",
    [
        ({}, {"en-de": 1, "back en-de": 1, "en-fr": 1}),
        ({"upsample_primary": 3}, {"en-de": 3, "back en-de": 1, "en-fr": 1}),  # without generated pairs: once
        # 80 + 10 and 10 of 100 pairs: shares of 3 to 1, so that 75 and 25 are read
        ({"sampling_temperature": 2}, {"en-de": 75 / 90, "back en-de": 75 / 90, "en-fr": 2.5}),
    ],
)
def test_how_often_a_pass_reads_the_pairs(dictionary, options, expected):
    sizes = {"en-de": 80, "back en-de": 10, "en-fr": 10}
    parts = {name: SimpleNamespace(sentences=count) for name, count in sizes.items()}
    config = DirectedTranslationConfig(directions="en-de,en-fr", back_translated=True, **options)
    objective = DirectedTranslation(config, dictionary, Framing.of("xl", dictionary))
    assert objective.repeats({"mixed": SimpleNamespace(parts=parts)}) == pytest.approx(expected)
    assert objective.repeats(parts) == pytest.approx(expected)


def test_the_directions_of_a_split():
    config = DirectedTranslationConfig(directions="en-de,de-en", test_direction="en-fr")
    objective = DirectedTranslation(config, None, None)
    assert objective.corpora(None, "train") == objective.corpora(None, "valid1") == ["en-de", "de-en"]
    assert objective.corpora(None, "test") == ["en-fr"] and objective.corpora(None) == ["en-de", "de-en", "en-fr"]
