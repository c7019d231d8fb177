"""Cross-lingual pre-training, fine-tuning and generation as a fairseq plugin: ``--user-dir fairseq_xl``.

``import fairseq_xl`` imports neither torch nor fairseq. ``--user-dir``, `register` and `load` register the package's
tasks, models, criterions, objectives and optimizers with fairseq.
"""

import sys

from fairseq_xl.renamed import refuse_old_command

__version__ = "0.1.0"

if sys.argv[:1] == ["-m"]:  # python -m fairseq_xl.…, before the module is found
    refuse_old_command()


def register() -> None:
    """Registers all tasks, models, criterions, objectives and optimizers with fairseq, and patches it.

    ``--user-dir fairseq_xl`` does the same. A second call changes nothing.
    """
    from fairseq_xl import registration  # noqa: F401


def load(checkpoint, data=None, **options):
    """Loads a checkpoint's model, in evaluation mode, and its task.

    Args:
        checkpoint: a file of fairseq-train.
        data: data folder with the dictionary; None: that of the training.
        options: options of the task or the model that replace the checkpoint's, such as ``lang="de"``.

    Returns:
        the model and the task, whose ``dictionary`` is the model's.
    """
    register()
    from fairseq import checkpoint_utils

    overrides = options if data is None else {"data": str(data)} | options
    (model, *_), _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], arg_overrides=overrides)
    return model.eval(), task
