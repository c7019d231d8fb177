"""Objectives, one file each; importing the package registers all of them, and the corpora that they select by name.

Other packages add objectives and corpora with entry points of the groups `fairseq_xl.objectives` and
`fairseq_xl.data.corpora`, one for each module.
"""

from fairseq_xl.data import corpora
from fairseq_xl.io.plugins import import_modules
from fairseq_xl.objectives.base import OBJECTIVES, Objective, ObjectiveConfig, Term
from fairseq_xl.objectives.objective_options import build_objectives, settings_as_text

__all__ = ["OBJECTIVES", "Objective", "ObjectiveConfig", "Term", "build_objectives", "load_all", "settings_as_text"]


def load_all() -> None:
    """Imports corpora and objectives of this package and of installed ones; warns of an installed one that fails."""
    import_modules(corpora.__name__, corpora.__path__, "corpus")
    import_modules(__name__, __path__, "objective")


load_all()
