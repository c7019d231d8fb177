"""Modules of the package and of installed ones that register themselves on import."""

import importlib
import logging
import pkgutil
from collections.abc import Iterable
from importlib.metadata import entry_points

logger = logging.getLogger(__name__)


def import_modules(package: str, path: Iterable[str], what: str) -> None:
    """Imports a package's modules and entry points of the group `package`; `what` names them in the warning."""
    for module in pkgutil.iter_modules(path):
        importlib.import_module(f"{package}.{module.name}")
    for entry in entry_points(group=package):
        try:
            entry.load()
        except (ImportError, AttributeError, ValueError) as error:
            logger.warning(
                "the %s %r of the installed package %s cannot be used: %s; correct or uninstall the package",
                *(what, entry.name, entry.dist and entry.dist.name, error),
            )
