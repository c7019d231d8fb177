"""Answers questions of environment.sh about the running Python.

    python recipes/environment.py QUESTION [ARGUMENT]

It runs in the repository's folder, before any package is installed, and also on unsupported versions of Python.
"""

import configparser
import importlib
import importlib.metadata
import os
import re
import sys
import sysconfig


def name(requirement: str) -> str:
    """Returns the name of the package of a requirement."""
    return re.split(r"[^\w.-]", requirement)[0].lower()


def version(package: str) -> str:
    """Returns the version of an installed package, or ""."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def requirements(extras: str) -> list:
    """Lists our requirements, and fairseq's except torch, torchaudio (unused; its wheels need CUDA) and pins.

    fairseq-fixed pins hydra-core 1.3.2, which has a known vulnerability, and omegaconf 2.3.0.
    """
    setup = configparser.ConfigParser()
    setup.read("setup.cfg")
    lines = setup["options"]["install_requires"].split("\n")
    for extra in extras.split(","):
        lines += setup["options.extras_require"][extra].split("\n")
    fairseqs = importlib.metadata.requires("fairseq-fixed") or []
    lines += [line for line in fairseqs if "extra ==" not in line and "==" not in line]
    return [line for line in lines if line and name(line) not in ("torch", "torchaudio", "fairseq-fixed")]


def torchaudio_is_broken() -> bool:
    """Tells whether torchaudio is for CUDA and torch is not, which breaks packages that try to import it."""
    if not version("torchaudio") or importlib.import_module("torch").version.cuda is not None:
        return False
    try:
        importlib.import_module("torchaudio")
    except (ImportError, OSError, RuntimeError):
        return True
    return False


if __name__ == "__main__":
    question, *rest = sys.argv[1:] or sys.exit("usage: python recipes/environment.py QUESTION [ARGUMENT]")
    if question == "python":
        sys.exit(sys.version_info < (3, 10))
    elif question == "headers":
        sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))
    elif question == "packages":
        print(sysconfig.get_path("purelib"))
    elif question == "version":
        print(version(rest[0]))
    elif question == "old":
        sys.exit([int(part) for part in re.findall(r"\d+", rest[0])[:2]] >= [2, 6])
    elif question == "requirements":
        print("\n".join(requirements(rest[0])))
    elif question == "torchaudio":
        print("broken" if torchaudio_is_broken() else "")
