"""Negatives of sentence pairs (U5): never a translation, never the same sentence; mined ones and their file."""

import contextlib
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.lib import format as npy
from tiny_data import write_items, write_mined, write_note_of_mined

from fairseq_xl.data.corpora import negatives, sentence_pairs
from fairseq_xl.data.corpora.mixed_corpus import MixedCorpus
from fairseq_xl.data.corpora.negatives import LengthRange, negatives_file, read_negatives
from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.store import cached_tables, manifest
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
    """The negatives in 300 draws for a line, as tuples."""
    keys = np.random.default_rng(line).integers(2**64, size=300, dtype=np.uint64)
    return {tuple(tokens.tolist()) for tokens in pairs.negatives([line] * 300, longest, keys, mined)}


@pytest.mark.parametrize(
    "line, shares",
    [
        (0, {(17, 17, 2): 1}),
        (1, {(17, 17, 2): 1}),
        (2, {(16, 2): 1, (5, 2): 1, (17, 17, 2): 1}),
        (5, {(15, 2): 2, (16, 2): 1, (5, 2): 1}),  # lines are equally probable, and two have sentence 15
    ],
)
def test_random_negatives_are_all_sentences_that_are_no_translation(pairs, line, shares):
    count = 4000 if len(shares) > 1 else 300
    keys = np.random.default_rng(line).integers(2**64, size=count, dtype=np.uint64)
    drawn = [tuple(tokens.tolist()) for tokens in pairs.negatives([line] * count, 9, keys, False)]
    assert set(drawn) == set(shares)
    for sentence, share in shares.items():
        assert drawn.count(sentence) / count == pytest.approx(share / sum(shares.values()), abs=0.03)  # 3.8 deviations


def test_no_sentence_is_missed_where_nearly_all_are_translations(tmp_path):
    """Only one of 200 lines is a negative of the others, so that almost every draw misses it."""
    write_items(tmp_path / "train.en-de.en", [[5, 2]] * 199 + [[6, 2]])
    write_items(tmp_path / "train.en-de.de", [[10 + number % 90, 2] for number in range(199)] + [[7, 2]])
    assert drawn(SentencePairs(tmp_path / "train.en-de", "en", "de"), 3) == {(7, 2)}


def test_if_all_in_reach_are_translations_a_shorter_sentence_is_drawn(tmp_path, monkeypatch):
    """Two shorter sentences are equally frequent; the two longer ones would exceed a batch's limit."""
    monkeypatch.setattr(negatives, "REACH", 1)
    translations = [[10, 11, 2], *([10, 11, number, 2] for number in range(20, 40)), [10, 11, 12, 13, 2]]
    others = [[50, 2], [51, 2], [9, 9, 9, 9, 9, 2], [8, 8, 8, 8, 8, 2]]
    write_items(tmp_path / "train.en-de.en", [[5, 2]] * len(translations) + [[6, 2]] * len(others))
    write_items(tmp_path / "train.en-de.de", translations + others)
    pairs = SentencePairs(tmp_path / "train.en-de", "en", "de")
    keys = np.random.default_rng(3).integers(2**64, size=400, dtype=np.uint64)
    found = [tokens.tolist() for tokens in pairs.negatives([7] * 400, 9, keys, False)]
    assert {tuple(tokens) for tokens in found} == {(50, 2), (51, 2)}
    assert found.count([50, 2]) / 400 == pytest.approx(0.5, abs=0.1)  # 4 standard deviations


def test_of_a_short_text_fewer_lines_are_in_reach(tmp_path):
    """400 sentences of 1 to 40 words, ten of each length: 20 lines on either side are two lengths."""
    items = [[*range(4, 5 + number // 10), 2] for number in range(400)]
    write_items(tmp_path / "train.en-de.en", [[4 + number, 2] for number in range(400)])
    write_items(tmp_path / "train.en-de.de", items)
    reach = LengthRange(SentencePairs(tmp_path / "train.en-de", "en", "de"), 50)
    assert reach.least[[2, 21, 41]].tolist() == [2, 19, 39] and reach.most[[2, 21, 41]].tolist() == [4, 23, 41]


@pytest.fixture
def lengths(tmp_path):
    """2,000 pairs of different sentences, the second of 1 to 40 words."""
    rng = np.random.default_rng(6)
    for code in ("en", "de"):
        items = [[*rng.integers(4, 60_000, size).tolist(), 2] for size in rng.integers(1, 41, size=2000)]
        write_items(tmp_path / f"train.en-de.{code}", items)
    return SentencePairs(tmp_path / "train.en-de", "en", "de")


def test_the_length_of_a_random_negative_tells_nothing(lengths, monkeypatch):
    monkeypatch.setattr(negatives, "REACH", 100)
    lines, sizes = lengths.filled, lengths.sizes[:, 1]
    keys = np.random.default_rng(1).integers(2**64, size=2000, dtype=np.uint64)
    drawn = np.array([len(tokens) for tokens in lengths.negatives(lines, 50, keys, False)])
    assert np.abs(drawn - sizes).max() <= 5 and drawn.mean() == pytest.approx(sizes.mean(), abs=0.5)
    assert (drawn > sizes).mean() == pytest.approx((drawn < sizes).mean(), abs=0.05)
    assert len({tuple(tokens.tolist()) for tokens in lengths.negatives([7] * 2000, 50, keys, False)}) > 180


@pytest.mark.parametrize("mined", [False, True])
def test_a_pair_counts_with_its_longest_negative(lengths, monkeypatch, mined):
    monkeypatch.setattr(negatives, "REACH", 100)
    rng = np.random.default_rng(7)
    write_mined(lengths, rng.integers(2000, size=(2000, 3)))
    lines = lengths.all_examples(30)[0]
    sizes = lengths.sizes_with_negatives(lines, 30, mined)
    most = np.zeros(len(lines), dtype=np.int64)
    for _ in range(20):
        keys = rng.integers(2**64, size=len(lines), dtype=np.uint64)
        found = [len(tokens) for tokens in lengths.negatives(lines, 30, keys, mined)]
        most = np.maximum(most, found)
    source, target = lengths.sizes[lines].T
    assert (source + np.maximum(most, target) <= sizes).all() and most.max() <= 30
    assert (source + np.maximum(most, target) == sizes).mean() > (0.9 if mined else 0.5)  # a bound that is reached


def test_negatives_are_those_of_a_comparison_of_all_pairs(tmp_path):
    """Sentences of two pieces, so that many have several translations, or are on both sides."""
    rng = np.random.default_rng(5)
    items = {code: [[*rng.integers(4, 7, 2).tolist(), 2] for _ in range(60)] for code in ("en", "de")}
    for code, sentences in items.items():
        write_items(tmp_path / f"train.en-de.{code}", sentences)
    pairs = SentencePairs(tmp_path / "train.en-de", "en", "de")
    translations = {(tuple(x), tuple(y)) for x, y in zip(items["en"], items["de"])}
    expected = [[y != x and (tuple(x), tuple(y)) not in translations for y in items["de"]] for x in items["en"]]
    every = np.tile(np.arange(60), (60, 1))
    assert pairs.candidates.are_negatives(np.arange(60), every).tolist() == expected
    assert 0.1 < np.mean(expected) < 0.9
    assert not pairs.candidates.are_negatives(np.arange(60), np.full((60, 2), -1)).any()


def test_long_lines_are_hashed_as_short_ones(lengths, monkeypatch):
    side = lengths.sides[1]
    expected = negatives.hashes_of_block(side, 0, 2000)
    for tokens in (1, 7, 300):
        monkeypatch.setattr(negatives, "BLOCK_TOKENS", tokens)
        assert negatives.hashes_of_block(side, 0, 300).tolist() == expected[:300].tolist()
    assert negatives.hashes_at(side, np.array([[3, 7], [-1, 3]])).tolist() == expected[[[3, 7], [-1, 3]]].tolist()


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


def test_mined_negatives_are_drawn_uniformly(pairs):
    write_mined(pairs, [[4, 5], [5, -1], [1, 4], [-1, -1], [1, 2], [0, 1]])
    assert drawn(pairs, 0, mined=True) == {(5, 2), (17, 17, 2)}
    assert drawn(pairs, 1, mined=True) == {(17, 17, 2)}
    keys = np.random.default_rng(1).integers(2**64, size=2000, dtype=np.uint64)
    first = np.mean([tokens[0] == 5 for tokens in pairs.negatives([0] * 2000, 9, keys, True)])
    assert first == pytest.approx(0.5, abs=0.045)  # 4 standard deviations


def test_a_mined_negative_that_does_not_fit_gives_way_to_another_or_to_a_random_one(pairs):
    """Negatives are never truncated, since translations are not."""
    write_mined(pairs, [[5, 4], [5, -1], [5, -1], [-1, -1], [1, 2], [0, 1]])
    assert drawn(pairs, 0, longest=2, mined=True) == {(5, 2)}
    assert drawn(pairs, 2, longest=2, mined=True) == drawn(pairs, 2, longest=2) == {(16, 2), (5, 2)}
    assert pairs.sizes_with_negatives([0, 2], 2, True).tolist() == [4, 4]
    assert pairs.sizes_with_negatives([0, 2], 3, True).tolist() == [5, 5]


def test_mixed_languages_have_their_own_negatives(pairs, tmp_path):
    write_items(tmp_path / "train.en-fr.en", [[5, 2], [6, 2]])
    write_items(tmp_path / "train.en-fr.fr", [[25, 2], [26, 2]])
    mixed = MixedCorpus({"en-de": pairs, "en-fr": SentencePairs(tmp_path / "train.en-fr", "en", "fr")}, 0)
    examples, _ = mixed.sample(np.random.default_rng(1), 200, 9)
    keys = np.random.default_rng(2).integers(2**64, size=200, dtype=np.uint64)
    found = mixed.negatives(examples, 9, keys, False)
    sizes = mixed.sizes_with_negatives(examples, 9, False)
    for (_, code), text, negative, size in zip(
        mixed.languages(examples, 9), mixed.texts(examples, 9), found, sizes.tolist()
    ):
        assert (negative[0] >= 25) == (code == "fr") and negative.tolist() != text[1].tolist()
        assert size == len(text[0]) + (2 if code == "fr" else 3)  # the longest German sentence has three tokens


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda path: path.unlink(), "no mined negatives"),
        (lambda path: path.write_bytes(path.read_bytes()[:100]), "damaged or cut short; `fairseq-xl search negatives"),
        (lambda path: path.write_bytes(b""), "negatives.npy is not an .npy file of numbers"),
        (lambda path: np.save(path, np.array([{}])), "negatives.npy is not an .npy file of numbers"),
        (lambda path: np.save(path, np.zeros(6, dtype=np.int32)), "expected a matrix of whole numbers, .*found int32"),
        (lambda path: np.save(path, np.zeros((6, 1))), "expected a matrix of whole numbers, .*found float64"),
        (lambda path: np.savez(path.open("wb"), np.zeros((6, 1), dtype=np.int32)), "found an archive"),
        (lambda path: asking_for(path, (2**41, 3)), "not an .npy file of numbers"),
        (lambda path: asking_for(path, (7, 1)), "not an .npy file of numbers"),
        (lambda path: np.save(path, np.zeros((7, 1), dtype=np.int32)), "another text"),
    ],
    ids=["missing", "cut", "empty", "pickled", "one row", "no lines", "archive", "terabytes", "one row more", "other"],
)
@pytest.mark.parametrize("mapped", [False, True])
def test_a_file_that_is_not_of_this_text(pairs, monkeypatch, damage, message, mapped):
    monkeypatch.setattr(negatives, "IN_MEMORY_LINES", 0 if mapped else 100)
    write_mined(pairs, [[4], [5], [1], [-1], [1], [0]])
    assert read_negatives(pairs).shape == (6, 1)
    damage(negatives_file(pairs.prefix))
    if negatives_file(pairs.prefix).exists():
        write_note_of_mined(pairs)
    with pytest.raises(UserError, match=message):
        read_negatives(pairs)


@pytest.fixture
def long(monkeypatch):
    """Every text is a long one."""
    for module in (negatives, sentence_pairs, cached_tables):
        monkeypatch.setattr(module, "IN_MEMORY_LINES", 0)


def test_mined_negatives_of_a_long_text_are_mapped(pairs, long):
    """They are drawn as from memory; random ones replace what does not fit; the hashes are computed once."""
    write_mined(pairs, [[4, 5], [5, -1], [1, 4], [-1, -1], [1, 2], [0, 1]])
    assert isinstance(read_negatives(pairs), np.memmap)
    assert drawn(pairs, 0, mined=True) == {(5, 2), (17, 17, 2)} and drawn(pairs, 0, longest=2, mined=True) == {(5, 2)}
    assert pairs.sizes_with_negatives([0, 1, 2], 3, True).tolist() == [5, 5, 4]
    again = SentencePairs(pairs.prefix, "en", "de")
    again.prepare_negatives(3, True)
    assert again.fingerprint == pairs.fingerprint
    tables_beside = sorted(path.name for path in Path(pairs.prefix).parent.glob("*.table"))
    assert tables_beside == ["train.en-de.hashes.table", "train.en-de.translations.table"]


@pytest.mark.parametrize("line", [6, 1000, -2, 3], ids=["behind the last", "far behind it", "below -1", "empty line"])
@pytest.mark.parametrize("mapped", [False, True])
def test_lines_that_are_no_sentences(pairs, request, line, mapped):
    """Those of a long text are found when they are drawn."""
    if mapped:
        request.getfixturevalue("long")
    write_mined(pairs, [[4, -1], [5, -1], [line, line], [-1, -1], [1, -1], [0, -1]])
    assert not mapped or len(drawn(pairs, 0, mined=True)) == 1
    with pytest.raises(UserError, match="negatives.npy is damaged; `fairseq-xl search negatives CHECKPOINT DATA`"):
        drawn(pairs, 2, mined=True) if mapped else read_negatives(pairs)


def asking_for(path, shape):
    """A file whose header names a shape that its array does not have."""
    with open(path, "wb") as file:
        npy.write_array_header_1_0(file, {"descr": "<i4", "fortran_order": False, "shape": shape})
        file.write(bytes(24))


def test_every_flipped_byte_is_refused(pairs):
    """Those of the header also where the note was written after it."""
    write_mined(pairs, [[4], [5], [1], [-1], [1], [0]])
    path, expected = negatives_file(pairs.prefix), read_negatives(pairs).tolist()
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        with pytest.raises(UserError, match="is not the file that"):
            read_negatives(pairs)
        if place < len(whole) - 6 * 4:
            write_note_of_mined(pairs)
            with contextlib.suppress(UserError):
                assert read_negatives(pairs).tolist() == expected
            path.write_bytes(whole)
            write_note_of_mined(pairs)


def test_a_change_between_the_samples_is_found_in_a_text_in_memory(pairs, monkeypatch):
    write_mined(pairs, [[4], [5], [1], [-1], [1], [0]])
    path = negatives_file(pairs.prefix)
    monkeypatch.setattr(manifest, "sampled", lambda path: json.loads(note)["fingerprints"][path.name]["sampled"])
    note = path.with_suffix(".json").read_text()
    path.write_bytes(path.read_bytes()[:-4] + bytes([1, 0, 0, 0]))
    with pytest.raises(UserError, match="negatives.npy is damaged"):
        read_negatives(pairs)


def test_a_file_without_a_note(pairs):
    write_mined(pairs, [[4], [5], [1], [-1], [1], [0]])
    negatives_file(pairs.prefix).with_suffix(".json").unlink()
    with pytest.raises(UserError, match="negatives.json is missing or damaged; `fairseq-xl search negatives"):
        read_negatives(pairs)


def test_a_file_that_may_not_be_read(pairs, monkeypatch):
    write_mined(pairs, [[4], [5], [1], [-1], [1], [0]])

    def refusing(path, **named):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(np, "load", refusing)
    with pytest.raises(UserError, match="negatives.npy: Permission denied"):
        read_negatives(pairs)


@pytest.mark.parametrize("code", ["en", "de"])
def test_another_text_of_the_same_lengths_is_another_text(pairs, tmp_path, code):
    write_mined(pairs, [[4], [5], [1], [-1], [1], [0]])
    items = [list(item) for item in (ENGLISH if code == "en" else GERMAN)]
    items[5][0] += 1
    write_items(tmp_path / f"train.en-de.{code}", items)
    changed = SentencePairs(tmp_path / "train.en-de", "en", "de")
    with pytest.raises(UserError, match="mined from another text"):
        changed.prepare_negatives(9, True)


def test_the_text_is_read_once_and_before_there_are_batches(pairs, monkeypatch):
    write_mined(pairs, [[4], [5], [1], [-1], [1], [0]])
    pairs.prepare_negatives(9, True)
    monkeypatch.setattr(sentence_pairs, "sha256_of", None)
    pairs.prepare_negatives(9, True)
    assert pairs.negatives([0], 9, np.zeros(1, dtype=np.uint64), True)[0].tolist() == GERMAN[4]


def test_pairs_that_all_have_a_negative_are_not_compared(pairs):
    """The slow comparison is needed only if a pair lacks a negative that fits."""
    write_mined(pairs, [[4], [4], [1], [-1], [1], [-1]])
    pairs.prepare_negatives(2, True)
    assert "candidates" not in vars(pairs)
    pairs.prepare_negatives(3, True)
    assert "candidates" in vars(pairs)
