"""The folder of binarized text of the tests of tasks."""

from tests.tasks.conftest import corpus, data_bin  # noqa: F401
