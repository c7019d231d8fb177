"""Pre-training objectives, one file each; importing the package registers all of them.

Other packages add objectives with entry points of the group `fairseq_xl.objectives`, each of which names a module.
"""

import importlib
import pkgutil
from importlib.metadata import entry_points

from fairseq_xl.errors import UserError
from fairseq_xl.objectives.base import OBJECTIVES, Objective, ObjectiveConfig, Term, build_objectives, settings_as_text

__all__ = [
    "OBJECTIVES",
    "Objective",
    "ObjectiveConfig",
    "Term",
    "build_objectives",
    "load_installed",
    "settings_as_text",
]

#: group of the entry points
GROUP = "fairseq_xl.objectives"


def load_installed() -> None:
    """Imports the objectives of installed packages; raises `UserError` for an entry point that does not exist."""
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except (ImportError, AttributeError) as error:
            raise UserError(
                f"the objective {entry.name!r} of the installed package {entry.dist and entry.dist.name} cannot be "
                f"imported: {error}; correct or uninstall that package"
            ) from error


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
load_installed()
