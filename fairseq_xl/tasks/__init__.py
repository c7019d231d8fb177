"""fairseq tasks. ``--user-dir fairseq_xl`` imports this package, which patches fairseq and registers everything."""

import importlib
import logging
import pkgutil

from fairseq_xl import patches

patches.install()
logging.getLogger("hydra").setLevel(logging.INFO)  # fairseq shows all records, hydra writes some at each start
for _name in ("models", "objectives", "criterions", "tasks", "optimizers"):
    _package = importlib.import_module(f"fairseq_xl.{_name}")
    for _module in pkgutil.iter_modules(_package.__path__):
        if not _module.name.startswith("_"):  # imported where it is needed: it takes a second
            importlib.import_module(f"{_package.__name__}.{_module.name}")
