"""Prints as JSON what importing fairseq_xl and each module of fairseq_xl.patches changes in a fresh interpreter.

{"import": [...], "loading": [...], …}: names such as "fairseq.trainer.Trainer.train_step" or "sys.excepthook".
"""

import atexit
import importlib
import json
import logging
import os
import pkgutil
import signal
import sys
import types
import warnings

LIBRARIES = ("fairseq", "fairseq_cli", "hydra", "numpy", "omegaconf", "torch")


def attributes():
    """{dotted name: value} of the attributes of all modules of `LIBRARIES` and of the classes that they define."""
    found = {}
    for module in [module for module in sys.modules.values() if isinstance(module, types.ModuleType)]:
        name = module.__name__
        if name.split(".")[0] in LIBRARIES and "._" not in name:
            for key, value in list(vars(module).items()):
                found[f"{name}.{key}"] = value
                if isinstance(value, type) and value.__module__ == name:
                    found.update({f"{name}.{value.__qualname__}.{inner}": each for inner, each in vars(value).items()})
    return {name: value for name, value in found.items() if not name.endswith("__warningregistry__")}


def interpreter():
    """{name: text} of the state that all modules of the process share."""
    loggers = {
        name: each for name, each in logging.Logger.manager.loggerDict.items() if isinstance(each, logging.Logger)
    }
    torch = sys.modules.get("torch")
    state = {
        "atexit": atexit._ncallbacks(),
        "logging": [
            (name, logger.level, [(each, each.filters, vars(each.formatter or each)) for each in logger.handlers])
            for name, logger in sorted({"": logging.getLogger(), **loggers}.items())
        ],
        "os.environ": dict(os.environ),
        "signal": [signal.getsignal(number) for number in sorted(signal.valid_signals())],
        "sys.displayhook": sys.displayhook,
        "sys.excepthook": sys.excepthook,
        "torch.serialization.add_safe_globals": torch and sorted(map(repr, torch.serialization.get_safe_globals())),
        "warnings.filterwarnings": warnings.filters,
    }
    return {name: sys.intern(repr(value)) for name, value in state.items()}  # equal texts are the same object


class Changes:
    """The names that each of several actions changes."""

    def __init__(self):
        self.found, self.before = {}, (interpreter(), attributes())

    def record(self, name, action=None):
        """Runs `action`, a function or None, and keeps the names that differ from before under `name`, if it is given.

        Of a class that is replaced, its attributes are not named.
        """
        if action:
            action()
        after, names = (interpreter(), attributes()), set()
        for old, new in zip(self.before, after, strict=True):
            names |= {each for each in old.keys() | new.keys() if old.get(each, old) is not new.get(each, old)}
        self.before = after
        names = {each for each in names if each.rpartition(".")[0] not in names}
        if name:
            self.found[name] = sorted(names | set(self.found.get(name, [])))


def main():
    changes = Changes()
    changes.record("import", lambda: importlib.import_module("fairseq_xl"))
    for command in ("train", "interactive"):
        importlib.import_module(f"fairseq_cli.{command}")  # which configures logging, as each of fairseq's commands
    patches = importlib.import_module("fairseq_xl.patches")
    names = [part.name for part in pkgutil.iter_modules(patches.__path__)]
    parts = {name: importlib.import_module(f"{patches.__name__}.{name}") for name in names}
    changes.record(None)
    for name, part in parts.items():
        if hasattr(part, "install"):
            changes.record(name, part.install)
    changes.record("generation", parts["generation"].patch_interactive)
    sys.stdout.write(json.dumps(changes.found))


if __name__ == "__main__":
    main()
