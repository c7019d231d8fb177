"""Errors of users are one sentence; defects keep their traceback."""

import os
import signal
import sys

import numpy
import pytest
import torch
from fairseq import options
from fairseq.data.encoders.fastbpe import fastBPEConfig
from omegaconf import OmegaConf
from omegaconf.errors import MissingMandatoryValue

import fairseq_xl
from fairseq_xl.errors import UserError, language_codes, language_pair
from fairseq_xl.io import error_reporting
from fairseq_xl.io.signals import ending_by_exception


def test_only_user_errors_lose_their_traceback(capsys):
    others = []
    show = error_reporting.showing_messages(lambda *error: others.append(error))
    show(UserError, UserError("--data x does not exist"), None)
    assert capsys.readouterr().err == "fairseq_xl: error: --data x does not exist\n"
    defect = ValueError("a defect")
    show(ValueError, defect, None)
    assert others == [(ValueError, defect, None)]


def test_a_missing_option_of_fairseqs_sub_words_is_named(capsys):
    with pytest.raises(MissingMandatoryValue) as found:
        OmegaConf.structured(fastBPEConfig).bpe_codes  # noqa: B018
    error_reporting.showing_messages(None)(found.type, found.value, None)
    assert capsys.readouterr().err == "fairseq_xl: error: --bpe-codes is missing\n"


def test_user_error_of_a_spawned_rank_is_one_sentence(capsys):
    others = []
    show = error_reporting.showing_messages(lambda *error: others.append(error))
    raised = torch.multiprocessing.ProcessRaisedException
    text = "-- Process 0 terminated\nTraceback (most recent call last):\n  File ...\n{}: wrong file\n"
    expected, defect = (raised(text.format(name), 0, 1) for name in ("fairseq_xl.errors.UserError", "ValueError"))
    show(raised, expected, None)
    show(raised, defect, None)
    assert capsys.readouterr().err == "fairseq_xl: error: wrong file\n"
    assert others == [(raised, defect, None)]


@pytest.mark.parametrize("is_command", [True, False])
def test_only_commands_of_fairseq_replace_the_excepthook(monkeypatch, is_command):
    """A notebook that calls fairseq passes arguments of its own; a command reads those of the process, here wrong."""
    fairseq_xl.register()
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    line = ["DATA", "--task", "xl_pretraining"]
    monkeypatch.setattr(sys, "argv", ["fairseq-generate", *line])
    parser = options.get_generation_parser()
    with pytest.raises(UserError, match="--path is missing"):
        options.parse_args_and_arch(parser, None if is_command else line)
    assert (sys.excepthook is not sys.__excepthook__) is is_command


def test_one_rule_for_language_codes():
    assert language_codes("--langs", "en,zh_CN,x1") == ["en", "zh_CN", "x1"]
    for wrong, said in (
        ("zh-CN", "'zh-CN' is not a language code"),
        ("dé", "'dé' is not a language code"),
        ("../x", "'../x' is not a language code"),
        ("en,en", "en is named twice"),
        ("False", "reads no, on and off in YAML as false or true: quote it"),
        ("en, de", "without spaces"),
        ("en,,de", "expected names joined by commas"),
        ("", "expected names joined by commas"),
    ):
        with pytest.raises(UserError, match=f"--langs.*{said}"):
            language_codes("--langs", wrong)
    assert language_pair("--pair", "en-zh_CN") == ("en", "zh_CN")
    for wrong in ("en", "en-en", "en-", "en-zh-CN", "en-de "):
        with pytest.raises(UserError, match=f"--pair: '{wrong}' is not a pair"):
            language_pair("--pair", wrong)


class Interrupting:
    """An attribute during whose definition a signal arrives, as during that of a dataclass while imports run."""

    def __init__(self, number):
        self.number = number

    def __set_name__(self, *_):
        os.kill(os.getpid(), self.number)


@pytest.mark.parametrize("number, kind", [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)])
def test_a_signal_while_a_class_is_defined_ends_a_command_as_any_other(number, kind):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a training of an earlier test handles it too
    with pytest.raises(kind), ending_by_exception():
        type("Class", (), {"field": Interrupting(number)})


def test_an_interrupted_definition_of_a_class_has_no_traceback(capsys):
    error = RuntimeError("Error calling __set_name__")
    error.__cause__ = KeyboardInterrupt()
    error_reporting.showing_messages(sys.__excepthook__)(RuntimeError, error, None)
    assert capsys.readouterr().err == "fairseq_xl: error: interrupted\n"


def test_a_negative_seed_is_named():
    with pytest.raises(ValueError, match="Seed") as raised:
        numpy.random.seed(-1)
    assert error_reporting.message(raised.value).startswith("--seed: ")
