"""Exported graphs that compute something else than torch."""

import numpy as np
import pytest
import torch

from fairseq_xl.errors import UserError
from fairseq_xl.serving.export import build_graphs, input_ranges
from fairseq_xl.serving.export_checks import BOUND, differences
from tests.serving.builders import xlm
from tests.serving.conftest import randomized


@pytest.fixture(scope="module")
def graph(task):
    """The encoder as a graph of hidden states."""
    return build_graphs(randomized(xlm(task.dictionary)), task)[1]["model"]


def compared(graph, task, change):
    """`differences` from what `change` makes of the hidden states (B, T, C) and the padding (B, T) of torch."""

    def onnx(arrays):
        hidden = graph(*(torch.from_numpy(arrays[name]) for name in graph.inputs)).numpy()
        return {"hidden": change(hidden, arrays["padding_mask"])}

    return differences(graph, onnx, input_ranges(task))


def test_a_difference_below_the_bound(graph, task):
    """It is the largest of all tokens that are not padding."""
    seen = []

    def change(hidden, padding):
        seen.append(np.abs(hidden[~padding]).max())
        return np.where(padding[..., None], 99, hidden * (1 + 0.9 * BOUND))

    found = compared(graph, task, change)
    assert list(found.values()) == pytest.approx([0.9 * BOUND * each for each in seen], rel=1e-2)


@pytest.mark.parametrize("factor", [1 + 1.1 * BOUND, np.nan, np.inf])
def test_a_difference_above_the_bound(graph, task, factor):
    with pytest.raises(UserError, match="hidden of the ONNX file differs from torch by .*: expected at most 0.001 of"):
        compared(graph, task, lambda hidden, _: hidden * np.float32(factor))
    with pytest.raises(UserError, match="differs from torch by nan"):
        compared(graph, task, lambda hidden, _: np.full_like(hidden, np.nan))
