"""Which versions are installed, and what the installed ones can do."""

import contextlib
import importlib.metadata
import platform

import torch

#: torch's loss that never holds all logits; new in torch 2.13
HAS_LINEAR_CROSS_ENTROPY = hasattr(torch.nn.functional, "linear_cross_entropy")


def versions() -> dict:
    """Versions of Python and of the packages that results depend on, for manifests and results.

    Returns:
        name to version; None for a package that is not installed.
    """
    found = {"python": platform.python_version()}
    packages = "fairseq torch numpy sentencepiece sacrebleu sacremoses rouge-score py3langid"
    for name in packages.split():
        found[name] = None
        for distribution in (name, f"{name}-fixed"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                found[name] = importlib.metadata.version(distribution)
    return found
