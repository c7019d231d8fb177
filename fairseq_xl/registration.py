"""Patches fairseq and imports every module that registers something with it, when this module is imported."""

import importlib
import pkgutil

from fairseq_xl import patches

patches.install()
for _name in ("models", "objectives", "criterions", "tasks", "optimizers"):
    _package = importlib.import_module(f"fairseq_xl.{_name}")
    for _module in pkgutil.iter_modules(_package.__path__):
        if not _module.name.startswith("_"):  # imported where it is needed: it takes a second
            importlib.import_module(f"{_package.__name__}.{_module.name}")
