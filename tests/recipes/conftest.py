"""What the tests of recipes share."""

import pytest
from fairseq.dataclass import utils as dataclass_utils

from tests.commands import compose
from tests.warm_python import warm_environment


@pytest.fixture(autouse=True)
def fast_composition(monkeypatch):
    """Configurations are composed with the parts that earlier ones have in common (`tests.commands.compose`)."""
    monkeypatch.setattr(dataclass_utils, "compose", compose)


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """Scripts start Python often: here they find a warm one (tests/warm_python.py)."""
    with warm_environment(tmp_path_factory.mktemp("environment")):
        yield
