"""Negatives of sentence pairs (U5): never a translation, never the same sentence; mined ones and their file."""

import numpy as np
import pytest
from tiny_data import write_items

from fairseq_xl.data.mixed import MixedSource
from fairseq_xl.data.negatives import fingerprint, negatives_file, read_negatives
from fairseq_xl.data.parallel import SentencePairs
from fairseq_xl.errors import UserError

# Lines 0 and 1 have one source, 0 and 2 one target; line 4's target is line 0's source; line 3 is a boundary.
ENGLISH = [[5, 2], [5, 2], [7, 2], [2], [8, 2], [9, 9, 2]]
GERMAN = [[15, 2], [16, 2], [15, 2], [2], [5, 2], [17, 17, 2]]


@pytest.fixture
def pairs(tmp_path):
    write_items(tmp_path / "train.en-de.en", ENGLISH)
    write_items(tmp_path / "train.en-de.de", GERMAN)
    return SentencePairs(tmp_path / "train.en-de", "en", "de")


def drawn(pairs, line, longest=9, mined=False):
    """What is drawn for a line in 300 draws, as tuples."""
    keys = np.random.default_rng(line).integers(2**64, size=300, dtype=np.uint64)
    return {tuple(tokens.tolist()) for tokens in pairs.negatives([line] * 300, longest, keys, mined)}


@pytest.mark.parametrize(
    "line, possible",
    [(0, {(17, 17, 2)}), (1, {(15, 2), (17, 17, 2)}), (2, {(16, 2), (5, 2), (17, 17, 2)}),
     (5, {(15, 2), (16, 2), (5, 2)})],
)  # fmt: skip
def test_random_negatives_are_all_sentences_that_are_no_translation(pairs, line, possible):
    assert drawn(pairs, line) == possible


def test_random_negatives_fit(pairs):
    assert drawn(pairs, 2, longest=2) == {(16, 2), (5, 2)}


def test_they_are_drawn_with_their_key(pairs):
    keys = np.random.default_rng(8).integers(2**64, size=40, dtype=np.uint64)
    together = pairs.negatives([5] * 40, 9, keys, False)
    for key, tokens in zip(keys, together):
        assert pairs.negatives([5], 9, np.array([key]), False)[0].tolist() == tokens.tolist()


def test_text_without_another_sentence(tmp_path):
    for code, token in (("en", 5), ("de", 15)):
        write_items(tmp_path / f"train.en-de.{code}", [[token, 2]] * 3)
    pairs = SentencePairs(tmp_path / "train.en-de", "en", "de")
    with pytest.raises(UserError, match="there is no negative for line 2"):
        pairs.negatives([1], 9, np.zeros(1, dtype=np.uint64), False)


def write_mined(pairs, negatives, text=None):
    text = fingerprint(pairs.sizes) if text is None else text
    np.savez(negatives_file(pairs.prefix), negatives=np.array(negatives, dtype=np.int32), text=text)


def test_mined_negatives_are_drawn_uniformly_and_cut(pairs):
    write_mined(pairs, [[4, 5], [5, -1], [1, 4], [-1, -1], [1, 2], [0, 1]])
    assert drawn(pairs, 0, mined=True) == {(5, 2), (17, 17, 2)}
    assert drawn(pairs, 1, mined=True) == {(17, 17, 2)}
    assert drawn(pairs, 1, longest=2, mined=True) == {(17, 2)}
    keys = np.random.default_rng(1).integers(2**64, size=2000, dtype=np.uint64)
    first = np.mean([tokens[0] == 5 for tokens in pairs.negatives([0] * 2000, 9, keys, True)])
    assert first == pytest.approx(0.5, abs=0.045)  # 4 standard deviations


def test_mixed_languages_have_their_own_negatives(pairs, tmp_path):
    write_items(tmp_path / "train.en-fr.en", [[5, 2], [6, 2]])
    write_items(tmp_path / "train.en-fr.fr", [[25, 2], [26, 2]])
    mixed = MixedSource({"en-de": pairs, "en-fr": SentencePairs(tmp_path / "train.en-fr", "en", "fr")}, 0)
    examples, _ = mixed.draw(np.random.default_rng(1), 200, 9)
    keys = np.random.default_rng(2).integers(2**64, size=200, dtype=np.uint64)
    negatives = mixed.negatives(examples, 9, keys, False)
    for (_, code), text, negative in zip(mixed.languages(examples, 9), mixed.texts(examples, 9), negatives):
        assert (negative[0] >= 25) == (code == "fr") and negative.tolist() != text[1].tolist()


@pytest.mark.parametrize(
    "damage, message",
    [(lambda path: path.unlink(), "no mined negatives"),
     (lambda path: path.write_bytes(path.read_bytes()[:100]), "damaged"),
     (lambda path: path.write_bytes(b""), "damaged"),
     (lambda path: np.savez(path, other=np.zeros(3)), "damaged"),
     (lambda path: np.savez(path, negatives=np.array([{}]), text=3), "damaged"),
     (lambda path: np.savez(path, negatives=np.zeros((6, 1), dtype=np.int32), text=3), "another text")],
    ids=["missing", "cut", "empty", "foreign", "pickled", "other"],
)  # fmt: skip
def test_a_file_that_is_not_of_this_text(pairs, damage, message):
    write_mined(pairs, [[4], [5], [1], [-1], [1], [0]])
    assert read_negatives(pairs.prefix, pairs.sizes).shape == (6, 1)
    damage(negatives_file(pairs.prefix))
    with pytest.raises(UserError, match=message):
        read_negatives(pairs.prefix, pairs.sizes)
