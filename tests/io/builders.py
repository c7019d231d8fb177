"""Checkpoints to damage, and processes that end early."""

import multiprocessing

import torch

IDENTITY = {"format": 1, "task": "XLTranslationTask", "dictionary": "a", "languages": ["en"], "framing": "xl"}
IDENTITY |= {"heads": 2, "encoding": {}}


def checkpoint(**more):
    return {
        "args": None,
        "cfg": {"task": {"_name": "xl_translation"}},
        "model": {"weight": torch.arange(4.0)},
        "optimizer_history": [{"num_updates": 3, "lr_scheduler_state": {}}],
        "extra_state": {"train_iterator": {"epoch": 1}},
        "task_state": {"fairseq_xl": IDENTITY},
        **more,
    }


def one_sentence(error, *names):
    message = str(error.value)
    words = message
    for name in names:
        words = words.replace(str(name), "")  # a folder's path may have any length
    assert "\n" not in message and len(words) < 400
    for name in names:
        assert str(name) in message
    return message


def in_a_fork(work):
    """Runs `work` in a process of its own; returns its exit status, or minus the signal that ended it."""
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    return process.exitcode
