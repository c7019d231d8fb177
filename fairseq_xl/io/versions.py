"""Versions of the installed packages, without importing them."""

import contextlib
import importlib.metadata
import platform

import fairseq_xl

PACKAGES = ("fairseq", "torch", "numpy", "sentencepiece", "sacrebleu", "sacremoses", "rouge-score", "py3langid")


def version(package: str) -> "str | None":
    """The version of a package, also as PACKAGE-fixed; None if it is not installed. fairseq_xl need not be."""
    if package == "fairseq_xl":
        return fairseq_xl.__version__
    for name in (package, f"{package}-fixed"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return None


def versions() -> dict:
    """{name: version} of Python and the packages that results depend on; None for one that is not installed."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}
