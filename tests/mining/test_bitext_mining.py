"""Parallel sentences found by vectors: margins by hand and those of retrieval, BUCC's and Tatoeba's files."""

import json
import sys

import numpy as np
import pytest

from fairseq_xl.commands import search_bitext
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.retrieval_scores import cosine, margin
from fairseq_xl.io.arrays import open_matrix
from fairseq_xl.mining import nearest_neighbors
from fairseq_xl.mining.bitext_mining import Pair, best_threshold, distinct, mine, mine_distinct, read_sentences, rounded
from fairseq_xl.mining.nearest_neighbors import nearest
from tests.commands import pretraining, trained
from tests.tasks.tiny_text import WORDS, sentences


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 15])
def test_blocks_of_both_sides_give_the_neighbors_of_all_pairs(tmp_path, monkeypatch, block):
    """Also from memory maps, and with zeros, whose cosine is 0; of equal cosines the lower number is first."""
    monkeypatch.setattr(nearest_neighbors, "BLOCK_VECTORS", block)
    rng = np.random.default_rng(3)
    sides = [rng.normal(size=(size, 8)).astype(np.float32) for size in (50, 61)]
    sides[0][4] = sides[1][9] = 0
    sides[1][60] = sides[1][2]
    for name, side in zip("ab", sides):
        np.save(tmp_path / f"{name}.npy", side)
    values, numbers = nearest(*(open_matrix(str(tmp_path / f"{name}.npy")) for name in "ab"), 5)
    similarity = cosine(*sides)
    order = np.argsort(-similarity.round(6), axis=1, kind="stable")[:, :5]
    assert np.allclose(values, np.take_along_axis(similarity, order, 1), atol=1e-6)
    kept = np.arange(50) != 4
    assert np.array_equal(numbers[kept], order[kept]) and not values[4].any()


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_vectors_that_have_no_cosine(value):
    """The square of 1e30 has no float32 number."""
    vectors = np.eye(3, dtype=np.float32)
    broken = vectors.copy()
    broken[1, 2] = value
    for sides in ((vectors, broken), (broken, vectors)):
        with pytest.raises(UserError, match="expected finite embeddings in the range of float32, found NaN, infinite"):
            nearest(*sides, 1)


def test_the_package_faiss_may_be_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UserError, match="mining needs the package faiss: pip install faiss-cpu"):
        nearest(np.eye(3), np.eye(3), 1)


@pytest.mark.parametrize("block", [3, 1 << 15])
def test_mined_pairs_are_those_of_all_margins(monkeypatch, block):
    """The best candidates of both directions among the neighbors, taken greedily: from the whole matrix, by numpy."""
    monkeypatch.setattr(nearest_neighbors, "BLOCK_VECTORS", block)
    rng = np.random.default_rng(4)
    source = rng.normal(size=(40, 12)).astype(np.float32)
    target = np.concatenate((source[10:35] + rng.normal(scale=0.4, size=(25, 12)), rng.normal(size=(8, 12))))
    similarity = cosine(source, target)
    margins = margin(similarity)
    candidates = set()
    for axis in (1, 0):
        near = np.argsort(-similarity, axis)
        for number in range(similarity.shape[1 - axis]):
            of_it = near[number, :4] if axis else near[:4, number]
            pairs = [(number, other) if axis else (other, number) for other in of_it.tolist()]
            candidates.add(max(pairs, key=lambda pair: margins[pair]))
    expected, used = [], (set(), set())
    for pair in sorted(candidates, key=lambda pair: -margins[pair]):
        if pair[0] not in used[0] and pair[1] not in used[1] and np.isfinite(margins[pair]):
            expected.append(pair)
            used[0].add(pair[0])
            used[1].add(pair[1])
    found = list(mine(source, target.astype(np.float32)))
    assert [(each.source, each.target) for each in found] == expected and len(found) > 25
    assert [each.margin for each in found] == pytest.approx([margins[pair] for pair in expected], abs=1e-5)


def test_sentences_without_neighbors_are_in_no_pair():
    """The second source sentence is opposite to all target sentences: its margin, -1 / -1, means nothing."""
    source, target = np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([[1.0, 0.0], [1.0, 0.0]])
    assert np.array_equal(margin(cosine(source, target), 1)[1], [-np.inf, -np.inf])
    assert list(mine(source[1:], target, neighbors=1)) == []
    assert [pair.source for pair in mine(source, target, neighbors=1)] == [0]


def test_empty_lines_are_left_out(tmp_path):
    (tmp_path / "file").write_text("a\tb\n\nc\n", encoding="utf-8")
    assert read_sentences(tmp_path / "file")[:2] == (["0", "2"], ["a\tb", "c"])
    (tmp_path / "file").write_text("x-1\tb\nx-2\tc d\te\n", encoding="utf-8")
    assert read_sentences(tmp_path / "file")[:2] == (["x-1", "x-2"], ["b", "c d\te"])
    (tmp_path / "file").write_text("x-1\tb\nx-2\t \nx-3\tc\n", encoding="utf-8")
    assert read_sentences(tmp_path / "file")[:2] == (["x-1", "x-3"], ["b", "c"])


def test_repeated_sentences_are_one_neighbor_and_in_no_pair():
    texts = ["a", "a", "a", "b", "c"], ["c", "b", "a"]
    vectors = np.eye(3)[[0, 0, 0, 1, 2]], np.eye(3)[[2, 1, 0]]
    once = list(mine(np.eye(3), np.eye(3)[[2, 1, 0]], 2))
    assert {(pair.source, pair.target) for pair in once} == {(0, 2), (1, 1), (2, 0)}
    found = mine_distinct([distinct(side) for side in texts], vectors, 2)
    assert [(pair.source, pair.target) for pair in found] == [(3, 1), (4, 0)]
    assert found[0].margin == once[0].margin  # copies of a are not both neighbors of b


def test_the_threshold_of_the_highest_f1():
    pairs = [Pair(1.5, 0, 0), Pair(1.4, 1, 2), Pair(1.3, 2, 1), Pair(1.2, 3, 3), Pair(1.1, 4, 4)]
    # right: 1, 1, 2, 3, 3 of 1 to 5 pairs, of 4 right ones: F1 2/5, 2/6, 4/7, 6/8, 6/9
    gold = {(0, 0), (2, 1), (3, 3), (7, 7)}
    found = best_threshold(pairs, gold)
    assert found == {"threshold": pytest.approx(1.15), "f1": 75, "precision": 75, "recall": 75}
    # of equal scores all or none are above the threshold
    tied = best_threshold([Pair(1.5, 0, 0), Pair(1.5, 1, 2)], {(0, 0)})
    assert tied == {"threshold": 1.5, "f1": pytest.approx(200 / 3), "precision": 50, "recall": 100}
    nothing = rounded(best_threshold(pairs, {(9, 9)}))
    assert nothing == {"threshold": None, "f1": 0, "precision": 0, "recall": 0}


@pytest.fixture(scope="module")
def checkpoint(data_bin, tmp_path_factory):
    return trained(pretraining(data_bin, tmp_path_factory.mktemp("encoder"), "--max-update", 1, "--disable-validation"))


@pytest.fixture
def files(tmp_path):
    """The same 12 sentences twice, in BUCC's format and in another order, and their pairs."""
    lines = list(dict.fromkeys(sentences(WORDS, 20, "mining")["en"]))[:12]
    for name, order in (("one", range(12)), ("two", range(11, -1, -1))):
        rows = [f"{name}-{number}\t{lines[number]}\n" for number in order]
        (tmp_path / name).write_text("".join(rows), encoding="utf-8")
        (tmp_path / f"{name}.plain").write_text("".join(f"{lines[number]}\n" for number in order), encoding="utf-8")
    (tmp_path / "gold").write_text("".join(f"one-{number}\ttwo-{number}\n" for number in range(9)), encoding="utf-8")
    return tmp_path


def printed(capsys, data_bin, checkpoint, files, *more):
    names = [f"en={files / name}" for name in ("one", "two")]
    capsys.readouterr()
    search_bitext.main([str(word) for word in (checkpoint, data_bin, *names, "--layer", 1, *more)])
    return json.loads(capsys.readouterr().out)


def test_bucc(data_bin, checkpoint, files, capsys):
    """All sentences are found; nine pairs are gold, the other three lower the precision or are below the threshold."""
    result = printed(capsys, data_bin, checkpoint, files, "--gold", files / "gold", "--output", files / "out")
    assert result["sentences"] == [12, 12] and result["recall"] == 100 and 75 <= result["precision"] <= 100
    rows = [line.split("\t") for line in (files / "out").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == result["pairs"] and all(a.split("-")[1] == b.split("-")[1] for a, b in rows)
    more = ["--threshold", result["threshold"], "--output", files / "again"]
    assert printed(capsys, data_bin, checkpoint, files, *more)["pairs"] == result["pairs"]
    assert (files / "again").read_text() == (files / "out").read_text()
    assert printed(capsys, data_bin, checkpoint, files, "--output", files / "all")["pairs"] == 12
    assert len((files / "all").read_text().splitlines()[0].split("\t")) == 3


def test_tatoeba(data_bin, checkpoint, files, capsys):
    """The line of the second file for each line of the first."""
    names = [f"en={files / name}.plain" for name in ("one", "two")]
    more = ["--layer", "1", "--nearest", "--output", str(files / "out")]
    search_bitext.main([str(checkpoint), str(data_bin), *names, *more])
    assert (files / "out").read_text().splitlines() == [str(number) for number in range(11, -1, -1)]


@pytest.mark.parametrize("more", [[], ["--threshold", 1.02]])
def test_sentences_are_embedded_in_blocks_for_an_index(data_bin, checkpoint, files, capsys, monkeypatch, more):
    expected = printed(capsys, data_bin, checkpoint, files, "--output", files / "memory", *more)
    monkeypatch.setattr(search_bitext, "EMBEDDING_BLOCK", 5)
    index = ["--index", files / "indices", "--output", files / "disk"]
    assert printed(capsys, data_bin, checkpoint, files, *index, *more) == expected and expected["pairs"] > 5
    rows = [[line.split("\t") for line in (files / name).read_text().splitlines()] for name in ("memory", "disk")]
    assert {tuple(row[-2:]) for row in rows[0]} == {tuple(row[-2:]) for row in rows[1]}
    assert more or [float(row[0]) for row in rows[1]] == pytest.approx([float(row[0]) for row in rows[0]], abs=1e-3)
    assert list((files / "indices").iterdir()) == []


@pytest.mark.parametrize(
    "change, more, message",
    [
        (("one", "a\n\nb\n"), ["--nearest"], "one: --nearest needs a sentence, without id, on each line"),
        (("gold", "one-0\tthree-0\n"), ["--gold", "gold"], "gold, line 1: expected two ids of the files"),
        (("gold", ""), ["--gold", "gold"], "gold holds no pairs"),
        (None, ["--nearest", "--threshold", "1"], "--nearest finds a sentence for each source sentence"),
        (None, ["--threshold", "nan"], "--threshold nan: a number below"),
        (None, ["--threshold", "inf"], "--threshold inf: a number below"),
        (None, ["--layer", "9"], "--layer 9: the model has the layers 0 to"),
    ],
)
def test_what_is_refused(data_bin, checkpoint, files, capsys, monkeypatch, change, more, message):
    monkeypatch.chdir(files)
    if change:
        (files / change[0]).write_text(change[1], encoding="utf-8")
    with pytest.raises(UserError, match=message):
        printed(capsys, data_bin, checkpoint, files, *more)


def test_files_without_a_language(data_bin, checkpoint):
    with pytest.raises(UserError, match="one: expected LANGUAGE=FILE"):
        search_bitext.main([str(checkpoint), str(data_bin), "one", "two", "--layer", "1"])
