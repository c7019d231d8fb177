"""Task types of fine-tuning, one file each: what is read, predicted and measured; the package registers all of them.

Other packages add task types with entry points of the group `fairseq_xl.finetuning`, each of which names a module.
"""

import importlib
import logging
import pkgutil
from importlib.metadata import entry_points

from fairseq_xl.finetuning.base import TASK_TYPES, TaskType, TypeConfig

__all__ = ["TASK_TYPES", "TaskType", "TypeConfig", "load_all"]

logger = logging.getLogger(__name__)

#: group of the entry points
GROUP = "fairseq_xl.finetuning"


def load_all() -> None:
    """Imports the task types of this package and of installed ones; logs a warning for an installed one that fails."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except (ImportError, AttributeError, ValueError) as error:
            logger.warning(
                "the task type %r of the installed package %s cannot be used: %s; correct or uninstall the package",
                entry.name,
                entry.dist and entry.dist.name,
                error,
            )


load_all()
