"""Cross-lingual pre-training, fine-tuning and generation as a fairseq plugin: ``--user-dir fairseq_xl``.

``import fairseq_xl`` imports neither torch nor fairseq. ``--user-dir``, `register`, `load` and `train` register the
package's tasks, models, criterions, objectives and optimizers with fairseq.
"""

import importlib
import logging
import sys
from typing import Any

__version__ = "0.1.0"

if __name__ != "fairseq_xl":  # its modules would be imported twice
    sys.exit(f"--user-dir: the folder {__path__[0]} must be called fairseq_xl, found {__name__}")


def register() -> None:
    """Registers all tasks, models, criterions, objectives and optimizers with fairseq, and patches it.

    ``--user-dir fairseq_xl`` does the same. A second call changes nothing.
    """
    from fairseq_xl import tasks  # noqa: F401


def __getattr__(name: str) -> Any:
    """`load` and `train`, whose modules import torch and fairseq."""
    modules = {"load": "fairseq_xl.inference.hub", "train": "fairseq_xl.engine.in_process"}
    if name not in modules:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    function = getattr(importlib.import_module(modules[name]), name)
    root.setLevel(level)
    root.handlers[:] = handlers  # modules of fairseq's tasks configure logging for the whole process
    return function
