"""Pre-training objectives, one file each; importing the package registers all of them.

Other packages add objectives with entry points of the group `fairseq_xl.objectives`, each of which names a module.
"""

import importlib
import logging
import pkgutil
from importlib.metadata import entry_points

from fairseq_xl.objectives.base import OBJECTIVES, Objective, ObjectiveConfig, Term, build_objectives, settings_as_text

__all__ = [
    "OBJECTIVES",
    "Objective",
    "ObjectiveConfig",
    "Term",
    "build_objectives",
    "load_all",
    "settings_as_text",
]

logger = logging.getLogger(__name__)

#: group of the entry points
GROUP = "fairseq_xl.objectives"


def load_all() -> None:
    """Imports the objectives of this package and of installed ones; logs a warning for an installed one that fails."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except (ImportError, AttributeError, ValueError) as error:
            logger.warning(
                "the objective %r of the installed package %s cannot be used: %s; correct or uninstall the package",
                entry.name,
                entry.dist and entry.dist.name,
                error,
            )


load_all()
