"""Cross-lingual pre-training, fine-tuning and generation as a fairseq plugin: ``--user-dir fairseq_xl``."""

import importlib.util
import sys

__version__ = "0.1.0"

if sys.argv[:1] == ["-m"]:  # python -m fairseq_xl.…: the imports below would end in a traceback
    for package in ("torch", "fairseq", "omegaconf", "sentencepiece", "sacrebleu"):
        if importlib.util.find_spec(package) is None:
            sys.exit(
                f"fairseq_xl: error: the package {package} is missing: `. recipes/environment.sh` in the repository "
                "prepares and activates the environment"
            )

from fairseq_xl import compat  # noqa: E402

compat.install()

# fairseq imports nothing below a user-dir whose package was imported before, and criterions never: do it here.
from fairseq_xl import criterions, models, objectives, optimizers, tasks  # noqa: E402, F401
from fairseq_xl.criterions import (  # noqa: E402, F401
    classification as _classification_criterion,
    generation as _generation_criterion,
    pretraining as _pretraining_criterion,
)
from fairseq_xl.tasks import (  # noqa: E402, F401
    classification as _classification_task,
    generation as _generation_task,
    pretraining as _pretraining_task,
    translation as _translation_task,
)
