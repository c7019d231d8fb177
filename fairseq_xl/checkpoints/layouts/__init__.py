"""Files of other programs. A family of models is a layout, in one file; importing the package registers all of them.

Other packages add layouts with entry points of the group `fairseq_xl.checkpoints.layouts`, each naming a module.
"""

from fairseq_xl.checkpoints.layouts.base import LAYOUTS, Layout
from fairseq_xl.io.plugins import import_modules

__all__ = ["LAYOUTS", "Layout", "load_all"]


def load_all() -> None:
    """Imports the layouts of this package and of installed ones; logs a warning for an installed one that fails."""
    import_modules(__name__, __path__, "layout")


load_all()
