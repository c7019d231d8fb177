"""Versions of the installed packages."""

import sys

import numpy
import torch

import fairseq_xl
from fairseq_xl import commands
from fairseq_xl.io.versions import version, versions as installed_versions


def test_versions_name_what_is_installed():
    versions = installed_versions()
    # the metadata of some torch wheels lacks the local label: 2.6.0 for 2.6.0+cu124
    assert versions["torch"] in (torch.__version__, torch.__version__.partition("+")[0])
    assert versions["numpy"] == numpy.__version__
    assert versions["python"] == sys.version.split()[0]
    packages = {"sentencepiece", "sacrebleu", "sacremoses", "rouge-score", "py3langid"}
    assert set(versions) == {"python", "fairseq", "torch", "numpy", *packages}
    assert versions["fairseq"]


def test_the_version_of_the_package_needs_no_installation():
    assert version("fairseq_xl") == fairseq_xl.__version__
    assert version("no-such-package") is None


def test_the_command_shows_versions(monkeypatch, capsys):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    commands.main(["--version"])
    found = ", ".join(f"{package} {version(package)}" for package in ("fairseq_xl", "fairseq", "torch"))
    assert capsys.readouterr().out == f"{found}\n"
