"""Pre-training objectives, one file each; importing the package registers all of them.

Other packages add objectives with entry points of the group `fairseq_xl.objectives`, one for each module.
"""

from fairseq_xl.io.plugins import import_modules
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


def load_all() -> None:
    """Imports the objectives of this package and of installed ones; logs a warning where an installed one fails."""
    import_modules(__name__, __path__, "objective")


load_all()
