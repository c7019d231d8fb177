"""Versions of the installed packages."""

import sys

import numpy
import torch

from fairseq_xl.versions import versions as installed_versions


def test_versions_name_what_is_installed():
    versions = installed_versions()
    assert versions["torch"] == torch.__version__ and versions["numpy"] == numpy.__version__
    assert versions["python"] == sys.version.split()[0]
    packages = {"sentencepiece", "sacrebleu", "sacremoses", "rouge-score", "py3langid"}
    assert set(versions) == {"python", "fairseq", "torch", "numpy", *packages}
    assert versions["fairseq"]
