"""VecMap's self-learning (M8): by hand, from a poor dictionary, without a dictionary."""

import functools
import json
import zipfile

import numpy as np
import pytest

from fairseq_xl.checkpoints.embedding_files import Vectors, read, space_of, write
from fairseq_xl.commands import embeddings_map
from fairseq_xl.embeddings import mapping
from fairseq_xl.embeddings.mapping import SelfLearning
from fairseq_xl.errors import UserError

SETTINGS = SelfLearning(patience=5)


def rotation(channels, seed):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(channels, channels)))[0]


@pytest.fixture
def languages():
    """300 vectors of 12 channels of unequal variance; the same, rotated and permuted; the permutation."""
    rng = np.random.default_rng(7)
    source = mapping.normalize(rng.exponential(size=(300, 12)) * np.linspace(1, 3, 12))
    order = rng.permutation(300)
    turned = source @ rotation(12, seed=1)
    return source, turned[order], np.argsort(order)


def precision(learned, source, target, places):
    return (mapping.best_matches(source @ learned, target, 10)[0] == places).mean()


def test_normalized_by_hand():
    # of length 1: (1, 0), (0, 1), (0.6, 0.8); less their mean (1.6, 1.8) / 3; of length 1 again
    apart = np.array([[1.4, -1.8], [-1.6, 1.2], [0.2, 0.6]])
    expected = apart / np.array([5.2**0.5, 2.0, 0.4**0.5])[:, None]
    np.testing.assert_allclose(mapping.normalize(np.array([[3.0, 0], [0, 0.5], [3, 4]])), expected)
    assert not mapping.scale_to_unit(np.zeros((1, 2))).any()


def test_the_mapping_is_orthogonal_whatever_the_pairs():
    """A quarter turn is found."""
    source = np.array([[1.0, 0], [0, 1]])
    np.testing.assert_allclose(mapping.orthogonal(source, np.array([[0.0, 1], [-1, 0]])), [[0, 1], [-1, 0]], atol=1e-12)
    rng = np.random.default_rng(2)
    found = mapping.orthogonal(rng.normal(size=(9, 4)), rng.normal(size=(9, 4)))
    np.testing.assert_allclose(found @ found.T, np.eye(4), atol=1e-12)


def test_hubs_are_penalized_by_hand():
    # similarities [[.9, .8], [.7, .1]]: by cosine both rows choose the first column
    source, target = np.array([[0.9, 0.8], [0.7, 0.1]]), np.eye(2)
    np.testing.assert_allclose(mapping.nearest_mean(target, source, 2), [0.8, 0.45])
    # less half of the columns' means, 0.4 and 0.225: [[.5, .575], [.3, -.125]]
    matches, values = mapping.best_matches(source, target, neighbors=2)
    assert matches.tolist() == [1, 0] and values.tolist() == [0.8, 0.7]


def test_a_dictionary_both_ways():
    source, target = np.eye(3), np.eye(3)[[1, 0]]
    rows, columns, similarity = mapping.match_both_ways(source, target, neighbors=1)
    assert list(zip(rows, columns))[:2] == [(0, 1), (1, 0)] and list(zip(rows, columns))[3:] == [(1, 0), (0, 1)]
    assert similarity == pytest.approx((2 / 3 + 1) / 2)  # the third one has nothing like it


def test_blocks_change_nothing(monkeypatch):
    rng = np.random.default_rng(3)
    source, target = rng.normal(size=(50, 4)), rng.normal(size=(40, 4))
    before = mapping.best_matches(source, target, 5)
    monkeypatch.setattr(mapping, "BLOCK", 7)
    for one, other in zip(before, mapping.best_matches(source, target, 5)):
        np.testing.assert_allclose(one, other)


def test_dropped_pairs_are_not_chosen():
    rng = np.random.default_rng(4)
    source = mapping.normalize(rng.normal(size=(400, 8)))
    chosen = (mapping.best_matches(source, source, 1, 0.25, rng)[0] == np.arange(400)).mean()
    assert 0.25 - 0.09 < chosen < 0.25 + 0.09  # four standard deviations of 400 draws
    alone = mapping.best_matches(source, source[:1], 1, 0.01, rng)[0]
    assert not alone.any()  # where all were dropped, all are looked at


def test_identical_pieces_of_some_length_in_any_case():
    assert [part.tolist() for part in mapping.identical(["▁a", "b", "▁c"], ["▁c", "x", "▁a"])] == [[0, 2], [2, 0]]
    source, target = ["▁in", "▁hotel", "ße", "▁Hotel"], ["▁Hotel", "▁in", "sse", "▁HOTEL"]
    found = mapping.identical(source, target, ignore_case=True, min_length=3)
    assert list(zip(*(part.tolist() for part in found))) == [(1, 0), (1, 3), (2, 2), (3, 0), (3, 3)]
    assert [part.tolist() for part in mapping.identical(source, target, min_length=2)] == [[0, 3], [1, 0]]
    assert [len(part) for part in mapping.identical(source, target, ignore_case=True, min_length=6)] == [0, 0]


def test_self_learning_is_better_than_its_first_dictionary(languages):
    source, target, places = languages
    rng = np.random.default_rng(5)
    noisy = mapping.normalize(target + 0.02 * rng.normal(size=target.shape))
    known = rng.choice(300, size=24, replace=False)
    pairs = known, np.where(np.arange(24) % 3 == 0, rng.integers(0, 300, size=24), places[known])  # a third is wrong
    at_first = precision(mapping.orthogonal(source[pairs[0]], noisy[pairs[1]]), source, noisy, places)
    learned, report = mapping.learn(source, noisy, pairs, SETTINGS)
    assert precision(learned, source, noisy, places) > max(0.97, at_first + 0.1)
    assert np.abs(learned - rotation(12, seed=1)).max() < 0.05
    assert report["dictionaries"] > SETTINGS.patience and 0.9 < report["similarity"] <= 1


def test_the_root_of_similarities(languages):
    """It is symmetric, has no negative eigenvalue, and its square is the similarities: only one matrix is."""
    vectors = languages[0]
    root = mapping.similarity_root(vectors)
    np.testing.assert_allclose(root, root.T, atol=1e-9)
    np.testing.assert_allclose(root @ root, vectors @ vectors.T, atol=1e-9)
    assert np.linalg.eigvalsh(root).min() > -1e-6


def test_nothing_but_the_vectors_is_needed(languages):
    source, target, places = languages
    pairs = mapping.unsupervised(source, target, SETTINGS)
    learned, _ = mapping.learn(source, target, pairs, SETTINGS)
    assert precision(learned, source, target, places) == 1
    np.testing.assert_allclose(learned, rotation(12, seed=1), atol=1e-6)


def test_pairs_at_random_are_no_start(languages):
    """Random pairs do not succeed, so that the two tests above show more than the vectors do."""
    source, target, places = languages
    rng = np.random.default_rng(6)
    learned, _ = mapping.learn(source, target, (rng.permutation(300)[:24], rng.permutation(300)[:24]), SETTINGS)
    assert precision(learned, source, target, places) < 0.9


def test_the_command_maps_one_file_into_the_other(languages, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(embeddings_map, "SelfLearning", functools.partial(SelfLearning, patience=5))
    source, target, places = languages
    names = [f"▁{number}" for number in range(300)]
    written = [f"{names[place]}" if place < 20 else f"▁x{place}" for place in np.argsort(places)]
    write(Vectors(names, source.astype(np.float32)), tmp_path / "source.npz")
    write(Vectors(written, target.astype(np.float32)), tmp_path / "target.npz")
    for start, pairs, options in (
        ("identical", 20, []),
        ("identical", 10, ["--ignore-case", "--min-length", "2"]),  # 10 to 19
        ("unsupervised", 600, []),
    ):
        files = [str(tmp_path / f"{name}.npz") for name in ("source", "target", "out")]
        embeddings_map.main([*files, "--start", start, *options])
        report = json.loads(capsys.readouterr().out)
        assert (report["start"], report["pairs"]) == (start, pairs)
        mapped = read(tmp_path / "out.npz")
        assert mapped.symbols == names and mapped.space == space_of(target.astype(np.float32))
        np.testing.assert_allclose(mapped.rows, target[places], atol=1e-4)


@pytest.mark.parametrize("shared, warned", [(5, False), (6, True)])
def test_languages_with_most_pieces_in_common_are_reported(shared, warned, caplog):
    rows = np.random.default_rng(4).normal(size=(10, 3))
    names = [f"▁a{number}" for number in range(10)]
    other = names[:shared] + [name.upper() for name in names[shared:]]
    mapping.first_pairs("identical", Vectors(names, rows), Vectors(other, rows), SETTINGS, ignore_case=True)
    assert bool(caplog.records) is warned and ("60 % of the pieces are in both files" in caplog.text) is warned


def test_mistakes_are_reported(tmp_path):
    write(Vectors(["a", "b"], np.eye(2, dtype=np.float32)), tmp_path / "two.npz")
    write(Vectors(["c"], np.ones((1, 3), np.float32)), tmp_path / "three.npz")
    (tmp_path / "none.npz").write_text("no zip file")
    np.savez(tmp_path / "numbers.npz", symbols=np.arange(2), rows=np.eye(2, dtype=np.float32))
    with zipfile.ZipFile(tmp_path / "two.npz") as parts:
        content = {name: parts.read(name) for name in parts.namelist()}
    with zipfile.ZipFile(tmp_path / "terabytes.npz", "w") as parts:
        for name, array in content.items():  # with a header that asks for 7 TiB, as long as it was
            parts.writestr(name, array.replace(b"(2, 2), }" + b" " * 11, b"(2, 999999999999), }"))
    write(Vectors(["x", "y"], np.eye(2, dtype=np.float32)), tmp_path / "others.npz")
    two, output = str(tmp_path / "two.npz"), str(tmp_path / "out.npz")
    for other, message in (
        ("three", "has 2 channels"),
        ("none", "is not a file of embeddings"),
        ("numbers", "is not a file of embeddings"),
        ("terabytes", "is not a file of embeddings"),
        ("missing", "no such file"),
        ("others", "have 0 pieces in common, two are needed"),
    ):
        with pytest.raises(UserError, match=message):
            embeddings_map.main([two, str(tmp_path / f"{other}.npz"), output])
    for options, message in (
        (["--min-length", "2"], "have 0 pieces of at least 2 characters in common"),
        (["--min-length", "0"], "--min-length 0: 1 or more is needed"),
        (["--start", "unsupervised", "--ignore-case"], "are for --start identical"),
    ):
        with pytest.raises(UserError, match=message):
            embeddings_map.main([two, two, output, *options])
