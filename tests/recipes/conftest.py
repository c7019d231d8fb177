"""What the tests of recipes share."""

import pytest

from tests.warm_python import warm_environment


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """Scripts start Python often: here they find a warm one (tests/warm_python.py)."""
    with warm_environment(tmp_path_factory.mktemp("environment")):
        yield
