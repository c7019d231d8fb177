"""Task types of fine-tuning, one file each; importing the package registers all of them.

Other packages add task types with entry points of the group `fairseq_xl.finetuning`, one for each module.
"""

from fairseq_xl.finetuning.base import TASK_TYPES, TaskType, TypeConfig
from fairseq_xl.io.plugins import import_modules

__all__ = ["TASK_TYPES", "TaskType", "TypeConfig", "load_all"]


def load_all() -> None:
    """Imports the task types of this package and of installed ones; logs a warning where an installed one fails."""
    import_modules(__name__, __path__, "task type")


load_all()
