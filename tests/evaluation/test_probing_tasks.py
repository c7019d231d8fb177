"""Files of the probing tasks in their official formats, and scores equal to scipy's and scikit-learn's."""

import os
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.bootstrap import correlation, macro_accuracy, pearson, spearman
from fairseq_xl.evaluation.paper_figures import tables
from fairseq_xl.evaluation.probing_tasks import (
    GROUPS,
    MinimalPair,
    logistic_regression_accuracy,
    majority,
    minimal_pair_scores,
    read_minimal_pairs,
    read_scws,
    read_wic,
)
from tests.tasks.tiny_text import write

RATINGS = "8.5\t9.0\t8.0"


def test_wic_as_it_is_distributed(tmp_path):
    data = [
        "bank\tN\t1-3\tThe bank closed .\tBy the river bank .",
        "defeat\tN\t4-4\tIt was a narrow defeat .\ta b c d e",
    ]
    write(tmp_path / "dev.data.txt", data)
    write(tmp_path / "dev.gold.txt", ["F", "T"])
    first, second = read_wic(str(tmp_path / "dev"))
    assert [word.text[word.begin : word.end] for word in first.words] == ["bank", "bank"]
    assert [word.text[word.begin : word.end] for word in second.words] == ["defeat", "e"]
    assert (first.label, second.label) == (False, True)


@pytest.mark.parametrize(
    "data, gold, message",
    [
        (["a\tN\t0-0\ta\ta"], ["T", "F"], "dev: 1 lines of data.txt but 2 of gold.txt"),
        (["a\tN\t0\ta\ta"], ["T"], "dev.data.txt, line 1: expected word TAB part of speech TAB index-index"),
        (["a\tN\t0-0\ta"], ["T"], "dev.data.txt, line 1: expected word TAB"),
        (["a\tN\t0-2\ta\tb a"], ["T"], "dev.data.txt, line 1: there is no token 2 in 'b a'"),
        (["a\tN\t0-1\ta\tb a"], ["1"], "dev.gold.txt, line 1: expected T or F, found '1'"),
    ],
)
def test_mistakes_in_wic(tmp_path, data, gold, message):
    write(tmp_path / "dev.data.txt", data)
    write(tmp_path / "dev.gold.txt", gold)
    with pytest.raises(UserError, match=message):
        read_wic(str(tmp_path / "dev"))


def test_scws_as_it_is_distributed(tmp_path):
    contexts = "the <b> bank </b> of the river\ta <b>money</b>"
    write(tmp_path / "ratings.txt", [f"1\tbank\tn\tmoney\tn\t{contexts}\t{RATINGS}"] * 2)
    pair = read_scws(str(tmp_path / "ratings.txt"))[1]
    assert [word.text for word in pair.words] == ["the bank of the river", "a money"]
    assert [word.text[word.begin : word.end] for word in pair.words] == ["bank", "money"] and pair.label == 8.5


@pytest.mark.parametrize(
    "line, message",
    [
        ("1\ta\tn\tb\tn\t<b>a</b>\t<b>b</b>", "line 1: expected 8 fields or more, found 7"),
        ("1\ta\tn\tb\tn\t<b>a</b>\tb\t1.0", "line 1: expected one word between <b> and </b>, found 'b'"),
        ("1\ta\tn\tb\tn\t<b>a</b> <b>a</b>\t<b>b</b>\t1.0", "line 1: expected one word between <b> and </b>"),
        ("1\ta\tn\tb\tn\t<b>a</b>\t<b>b</b>\tx", "line 1: expected a mean rating, found 'x'"),
        (f"1\ta\tn\tb\tn\t<b>a</b>\t<b>b</b>\t{RATINGS}", "expected at least two pairs of words, found 1"),
    ],
)
def test_mistakes_in_scws(tmp_path, line, message):
    write(tmp_path / "ratings.txt", [line])
    with pytest.raises(UserError, match=message):
        read_scws(str(tmp_path / "ratings.txt"))


def test_minimal_pairs_with_and_without_names(tmp_path):
    write(tmp_path / "a.tsv", ["simple_agrmt\tsing_MS\tthe author laughs\tthe author laugh"])
    write(tmp_path / "b.tsv", ["he runs\the run"])
    found = read_minimal_pairs([str(tmp_path / "a.tsv"), str(tmp_path / "b.tsv")])
    assert [pair.category for pair in found] == ["simple_agrmt", "all"]
    assert found[0][1:] == ("the author laughs", "the author laugh") and found[1][1:] == ("he runs", "he run")
    for lines, message in (
        (["x\ty", "x"], "line 2: expected grammatical TAB ungrammatical"),
        (["a\tx\ty", "x\ty"], "line 2: expected 3 fields as in line 1, found 2"),
        ([], "no minimal pair"),
        (["True\tx", "True\ty"], "line 2: expected False TAB sentence"),
        (["True\tx", "False\ty", "True\tz"], "line 4: expected False TAB sentence"),
    ):
        write(tmp_path / "c.tsv", lines)
        with pytest.raises(UserError, match=message):
            read_minimal_pairs([str(tmp_path / "c.tsv")])
    write(tmp_path / "prep_anim.txt", ["True\the runs", "False\the run", "True\twe run", "False\twe runs"])
    pairs = read_minimal_pairs([str(tmp_path / "prep_anim.txt")])
    assert pairs == [("prep_anim", "he runs", "he run"), ("prep_anim", "we run", "we runs")]


def test_scores_of_minimal_pairs_by_hand(caplog):
    pairs = [MinimalPair("a", "", ""), MinimalPair("a", "", ""), MinimalPair("b", "", ""), MinimalPair("c", "", "")]
    found = minimal_pair_scores(pairs, {0: (-1.0, -2.0), 1: (-3.0, -2.0), 2: (-1.0, -1.5)})
    assert (found["n"], found["left_out"], found["accuracy"], found["chance"]) == (3, 1, 66.67, 50)
    assert caplog.messages[0].startswith("1 of 4 pairs differ in more than one piece")
    rows = found["categories"]
    assert rows["a"]["accuracy"] == 50 and rows["b"]["accuracy"] == 100 and rows["c"] == {"n": 0, "left_out": 1}
    assert minimal_pair_scores(pairs, {})["left_out"] == 4


def test_groups_of_marvin_and_linzen_are_means_of_constructions():
    """By hand: animate and inanimate pairs of a construction are one; NPI pairs count in neither group."""
    names = [name for constructions in GROUPS.values() for name in constructions]
    categories = [*names, "prep_inanim", "prep_inanim", "simple_npi_anim", "subj_rel"]
    scored = dict.fromkeys(range(len(names) + 1), (-1.0, -2.0)) | {len(names) + 1: (-2.0, -1.0)}
    scored |= {names.index("simple_reflexives"): (-2.0, -1.0), len(names) + 2: (-2.0, -1.0)}
    result = minimal_pair_scores([MinimalPair(name, "", "") for name in categories], scored)
    assert result["agreement"]["accuracy"] == round((9 + 2 / 3) / 10 * 100, 2)
    assert result["reflexives"]["accuracy"] == round(2 / 3 * 100, 2)
    constructions = result["agreement"]["constructions"]
    prepositional = constructions["across a prepositional phrase"]
    assert (prepositional["used"], prepositional["all"], prepositional["accuracy"]) == (3, 3, 66.67)
    relative = constructions["across a subject relative clause"]
    assert (relative["used"], relative["all"]) == (1, 2)
    del scored[0]
    result = minimal_pair_scores([MinimalPair(name, "", "") for name in categories], scored)
    assert result["agreement"]["missing"] == ["simple"] and "accuracy" not in result["agreement"]
    for table in ("M-T10", "M-T11"):
        rows = [f"{group}, {name}" for group, part in GROUPS.items() for name in part.values()]
        assert list(tables()[table][0].rows) == rows


def test_the_interval_of_a_macro_average_is_that_of_resampled_groups():
    rng = np.random.default_rng(2)
    groups = [rng.random(n) < share for n, share in ((40, 0.9), (200, 0.5), (15, 0.3))]
    result = macro_accuracy(groups)
    assert result["accuracy"] == round(100 * np.mean([group.mean() for group in groups]), 2)
    means = [100 * np.mean([rng.choice(group, len(group)).mean() for group in groups]) for _ in range(4000)]
    np.testing.assert_allclose(result["interval"], np.percentile(means, (2.5, 97.5)), atol=1)


REAL = os.environ.get("XL_REAL_DATA")


@pytest.mark.slow
@pytest.mark.skipif(REAL is None, reason="XL_REAL_DATA: folder with minimal_pairs.tar.xz")
def test_marvin_and_linzens_data_against_counting(tmp_path):
    """CLAMS's English file: all pairs that differ in a word are used, and every third of them is right."""
    with tarfile.open(Path(REAL) / "minimal_pairs.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    path = tmp_path / "minimal_pairs/clams/en.tsv"
    pairs, used, right = read_minimal_pairs([str(path)]), Counter(), Counter()
    scored = {}
    for index, line in enumerate(path.read_text().splitlines()):
        category, grammatical, ungrammatical = line.split("\t")
        sides = grammatical.split(), ungrammatical.split()
        if len(sides[0]) == len(sides[1]) and sum(map(str.__ne__, *sides)) == 1:
            scored[index] = (float(index % 3 == 0), 0.5)
            used[category.replace("inanim", "anim")] += 1
            right[category.replace("inanim", "anim")] += index % 3 == 0
    result = minimal_pair_scores(pairs, scored)
    for group, constructions in GROUPS.items():
        shares = [right[name] / used[name] for name in constructions]
        assert result[group]["accuracy"] == round(100 * sum(shares) / len(shares), 2)
        counts = result[group]["constructions"].values()
        assert [row["used"] for row in counts] == [used[name] for name in constructions]
    printed = {row: cells["all"][0] for row, cells in tables()["M-T10"][0].rows.items()}
    counts = {
        f"{group}, {name}": row["all"] for group in GROUPS for name, row in result[group]["constructions"].items()
    }
    differing = {name: counts[name] for name in counts if counts[name] != printed[name]}  # CLAMS has fewer of five
    assert sorted(differing.values()) == [21280] * 4 + [21840] and {*differing} == {
        name for name in printed if "object relative" in name or "prepositional" in name
    }


def test_correlations_are_scipys():
    rng = np.random.default_rng(3)
    one = rng.integers(6, size=50) / 2  # with ties
    two = one + rng.normal(size=50)
    assert spearman(one, two) == pytest.approx(stats.spearmanr(one, two).statistic, abs=1e-12)
    assert pearson(one, two) == pytest.approx(stats.pearsonr(one, two).statistic, abs=1e-12)
    assert pearson(np.ones(3), np.arange(3)) == 0
    found = correlation(spearman, one, two)
    low, high = found["interval"]
    assert found["score"] == pytest.approx(100 * stats.spearmanr(one, two).statistic, abs=0.006)
    resampled = stats.bootstrap(
        (one, two),
        lambda *sides: stats.spearmanr(*sides).statistic,
        paired=True,
        method="percentile",
        rng=5,
        n_resamples=1000,
        vectorized=False,
    ).confidence_interval
    assert low == pytest.approx(100 * resampled.low, abs=6) and high == pytest.approx(100 * resampled.high, abs=6)


def test_the_classifier_standardizes_and_is_scikit_learns():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(120, 3)) * [1, 100, 0.01]
    labels = features[:, 2] + 0.003 * rng.normal(size=120) > 0
    train, test, gold = features[:80], features[80:], labels[80:]
    scaled = (features - train.mean(0)) / train.std(0)
    expected = LogisticRegression().fit(scaled[:80], labels[:80]).score(scaled[80:], gold)
    assert logistic_regression_accuracy(train, labels[:80], test, gold)["accuracy"] == round(100 * expected, 2) > 80


def test_labels_of_one_class_are_refused():
    with pytest.raises(UserError, match="all training examples have the same label"):
        logistic_regression_accuracy(np.zeros((3, 2)), [True] * 3, np.zeros((1, 2)), [True])


def test_majority_is_of_the_training_labels():
    assert majority([True, True, False], [True, False, False, False]) == 25
    assert majority([False, True, False], [True, False, False, False]) == 75
