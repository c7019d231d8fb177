"""Cross-lingual pre-training, fine-tuning and generation as a fairseq plugin: ``--user-dir fairseq_xl``."""

from fairseq_xl import compat

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
