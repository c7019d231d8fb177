"""The limit on the number of graphs, under the names that torch gives it."""

from types import SimpleNamespace

import pytest

from fairseq_xl.patches import compilation


@pytest.mark.parametrize("name", ["recompile_limit", "cache_size_limit"])
def test_the_limit_of_compiled_graphs_has_the_name_of_the_installed_torch(name, monkeypatch):
    patched = []
    config = SimpleNamespace(patch=lambda changes: patched.append(changes) or (lambda function: function), **{name: 8})
    compile = lambda function, backend, fullgraph: (function, backend)  # noqa: E731
    monkeypatch.setattr(compilation, "torch", SimpleNamespace(_dynamo=SimpleNamespace(config=config), compile=compile))
    assert compilation.compiled.__wrapped__(len, "eager") == (len, "eager")
    assert patched == [{name: compilation.GRAPHS}]
