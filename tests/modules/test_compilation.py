"""The limit on the number of graphs, under the names that torch gives it."""

import logging
from types import SimpleNamespace

import pytest
import torch

from fairseq_xl.modules import compilation


@pytest.mark.parametrize("name", ["recompile_limit", "cache_size_limit"])
def test_the_limit_of_compiled_graphs_has_the_name_of_the_installed_torch(name, monkeypatch):
    patched = []
    config = SimpleNamespace(patch=lambda changes: patched.append(changes) or (lambda function: function), **{name: 8})
    compile = lambda function, backend, fullgraph: (function, backend)  # noqa: E731
    monkeypatch.setattr(compilation, "torch", SimpleNamespace(_dynamo=SimpleNamespace(config=config), compile=compile))
    assert compilation.compiled.__wrapped__(len, "eager") == (len, "eager")
    assert patched == [{name: compilation.GRAPHS}]


def test_compile_is_logged_once(caplog):
    caplog.set_level(logging.INFO)
    double = lambda value: value + value  # noqa: E731
    assert [compilation.compiled(double, "eager")(torch.ones(())).item() for _ in range(2)] == [2, 2]
    (shown,) = caplog.messages
    assert shown == "compiling the layers for the first batches (eager): this can take minutes"
