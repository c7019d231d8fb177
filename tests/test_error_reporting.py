"""Errors of users are one sentence; defects keep their traceback."""

import torch

from fairseq_xl import error_reporting
from fairseq_xl.errors import UserError


def test_only_mistakes_lose_their_traceback(capsys):
    others = []
    show = error_reporting.showing_messages(lambda *error: others.append(error))
    show(UserError, UserError("--data x does not exist"), None)
    assert capsys.readouterr().err == "fairseq_xl: error: --data x does not exist\n"
    defect = ValueError("a defect")
    show(ValueError, defect, None)
    assert others == [(ValueError, defect, None)]


def test_a_mistake_in_a_spawned_rank_is_one_sentence_too(capsys):
    others = []
    show = error_reporting.showing_messages(lambda *error: others.append(error))
    raised = torch.multiprocessing.ProcessRaisedException
    text = "-- Process 0 terminated\nTraceback (most recent call last):\n  File ...\n{}: wrong file\n"
    told, defect = (raised(text.format(name), 0, 1) for name in ("fairseq_xl.errors.UserError", "ValueError"))
    show(raised, told, None)
    show(raised, defect, None)
    assert capsys.readouterr().err == "fairseq_xl: error: wrong file\n"
    assert others == [(raised, defect, None)]
