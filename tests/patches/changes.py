"""Prints as JSON what importing and what registering fairseq_xl changes in a fresh interpreter.

{"import": [...], "register": [...]}: names such as "fairseq.trainer.Trainer.train_step" or "sys.excepthook".
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


def changed(action):
    """The names whose values an action changes; of a class that is replaced, its attributes are not named."""
    before = interpreter(), attributes()
    action()
    names = set()
    for old, new in zip(before, (interpreter(), attributes()), strict=True):
        names |= {name for name in old.keys() | new.keys() if old.get(name, old) is not new.get(name, old)}
    return sorted(name for name in names if name.rpartition(".")[0] not in names)


def main():
    changes = {"import": changed(lambda: importlib.import_module("fairseq_xl"))}
    for command in ("train", "interactive"):
        importlib.import_module(f"fairseq_cli.{command}")  # which configures logging, as each of fairseq's commands
    patches = importlib.import_module("fairseq_xl.patches")
    install, patches.install = patches.install, lambda: None
    importlib.import_module("fairseq_xl.tasks")  # imports and registers everything
    for _, _, replacement in patches.TABLE:
        pkgutil.resolve_name(replacement)
    changes["register"] = changed(install)
    sys.stdout.write(json.dumps(changes))


if __name__ == "__main__":
    main()
