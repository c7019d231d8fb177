"""Data folders in sixteen languages, made once for all tests here."""

import functools

import pytest

from tests.checkpoints.layouts.many_languages import trained, training_lines, write_data


@pytest.fixture(scope="session")
def lines_to_learn():
    return training_lines()


@pytest.fixture(scope="session")
def data_folder(lines_to_learn, tmp_path_factory):
    """A function: kind of model, rule of normalization, other options of `trained` -> data folder."""

    @functools.cache
    def make(kind="unigram", rule="nmt_nfkc", **options):
        return write_data(tmp_path_factory.mktemp("data"), trained(lines_to_learn, kind, rule, **options))

    return make
