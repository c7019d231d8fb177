"""From raw text to a data folder: ``python -m preprocess CONFIG.yaml DATA_BIN``."""

import importlib.util
import sys

from fairseq_xl.io import error_reporting

if sys.argv[:1] == ["-m"]:  # the command is python -m preprocess.…, whose own imports would fail with a traceback
    for package in ("numpy", "sentencepiece", "tqdm", "yaml"):
        if importlib.util.find_spec(package) is None:
            sys.exit(
                f"preprocess: the package {package} is missing: `. recipes/environment.sh` in the repository "
                "prepares and activates the environment"
            )
    error_reporting.install()  # also of Ctrl-C during imports
