"""Patches of fairseq's data loading and beam search."""

import math
import sys

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils

from fairseq_xl import patches


@pytest.fixture(autouse=True, scope="module")
def installed():
    patches.install()


def test_installing_twice_changes_nothing():
    patched, hook = [distributed_utils.call_main, checkpoint_utils.load_checkpoint_to_cpu], sys.excepthook
    patches.install()
    assert patched == [distributed_utils.call_main, checkpoint_utils.load_checkpoint_to_cpu] and sys.excepthook is hook


def test_no_ngram_is_written_twice():
    """In fairseq's buffer, which is padded: after a b c b, c is forbidden, and after a a a, a."""
    from fairseq.ngram_repeat_block import NGramRepeatBlock

    tokens = torch.tensor([[2, 5, 6, 7, 6, 1, 1, 1], [2, 8, 5, 5, 5, 1, 1, 1], [2, 5, 6, 7, 8, 1, 1, 1]])
    scores = NGramRepeatBlock(2)(tokens, torch.zeros(3, 9), bsz=3, beam_size=1, step=4)
    assert [(row == -math.inf).nonzero().flatten().tolist() for row in scores] == [[7], [5], []]
