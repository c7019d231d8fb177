"""Pre-training objectives, one file each; every module of this package is found and registered by itself."""

import importlib
import pkgutil

from fairseq_xl.objectives.base import OBJECTIVES, Objective, Term, build_objectives, settings_as_text

__all__ = ["OBJECTIVES", "Objective", "Term", "build_objectives", "settings_as_text"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
