"""Pre-training objectives, one file each; importing the package imports and registers all of them."""

import importlib
import pkgutil

from fairseq_xl.objectives.base import OBJECTIVES, Objective, Term, build_objectives, settings_as_text

__all__ = ["OBJECTIVES", "Objective", "Term", "build_objectives", "settings_as_text"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
