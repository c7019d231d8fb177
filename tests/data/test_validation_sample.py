"""The fixed sample of validation examples: of each group by itself, the same in every run."""

import numpy as np

from fairseq_xl.data.validation_sample import sample_of_groups


def test_each_group_gives_at_most_the_limit():
    groups = np.array([0, 1, 0, 0, 1, 0, 2])
    sample = sample_of_groups(groups, ["en", "de", "fr"], 2)
    assert groups[sample].tolist().count(0) == 2 and {1, 4, 6} <= set(sample.tolist()) and len(sample) == 5
    assert sample.tolist() == sorted(sample.tolist())
    for limit in (0, 4, 99):
        assert sample_of_groups(groups, ["en", "de", "fr"], limit).tolist() == list(range(7))


def test_groups_without_an_example():
    groups = np.array([2, 0, 2, 2])
    sample = sample_of_groups(groups, ["en", "de", "fr", "es"], 2)
    assert len(sample) == 3 and 1 in sample.tolist()
    assert sample_of_groups(groups, ["en", "de", "fr", "es"], 3).tolist() == [0, 1, 2, 3]


def test_the_sample_of_a_group_does_not_depend_on_the_others():
    alone = sample_of_groups(np.zeros(50, dtype=int), ["de"], 9)
    among = sample_of_groups(np.repeat([0, 1], [30, 50]), ["en", "de"], 9)
    assert (among[among >= 30] - 30).tolist() == alone.tolist()
    assert sample_of_groups(np.zeros(50, dtype=int), ["en"], 9).tolist() != alone.tolist()
    assert alone.tolist() == [0, 7, 9, 11, 16, 28, 33, 35, 36]
