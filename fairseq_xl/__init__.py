"""Cross-lingual pre-training, fine-tuning and generation as a fairseq plugin: ``--user-dir fairseq_xl``.

``import fairseq_xl`` imports neither torch nor fairseq. ``--user-dir``, `register` and `load` register the package's
tasks, models, criterions, objectives and optimizers with fairseq.
"""

import sys

__version__ = "0.1.0"

if __name__ != "fairseq_xl":  # its modules would be imported twice
    sys.exit(f"--user-dir: the folder {__path__[0]} must be called fairseq_xl, found {__name__}")


def register() -> None:
    """Registers all tasks, models, criterions, objectives and optimizers with fairseq, and patches it.

    ``--user-dir fairseq_xl`` does the same. A second call changes nothing.
    """
    from fairseq_xl import tasks  # noqa: F401


def load(checkpoint, data=None, **options):
    """Loads a checkpoint's model, in evaluation mode, and its task, for use from Python.

    Args:
        checkpoint: a file of fairseq-train, or a folder with one of `fairseq_xl.io.checkpoints.CHECKPOINTS`.
        data: data folder with dict.txt and its sub-words; None: the checkpoint's folder if it has a dict.txt, otherwise
            that of the training.
        options: options of the task or the model that replace the checkpoint's, such as ``lang="de"``.

    Returns: a `fairseq_xl.inference.hub.HubInterface`: its methods `encode`, `fill_mask`, `score`, `translate`,
        `generate` and `predict`, its attributes `model` and `task`; ``model, task = fairseq_xl.load(...)`` gives both.

    Raises `UserError` for a checkpoint that cannot be loaded, and for options that its task and its model lack.
    """
    register()
    from fairseq import checkpoint_utils

    from fairseq_xl.errors import UserError
    from fairseq_xl.inference.hub import HubInterface
    from fairseq_xl.io.checkpoints import found_in

    given = options.keys()
    checkpoint, folder = found_in(checkpoint)
    if data is None and folder is not None:  # it may have no text, whose languages and pairs options would name
        data, options = folder, {"langs": None, "pairs": None} | options
    overrides = options if data is None else {"data": str(data)} | options
    (model, *_), cfg, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], arg_overrides=overrides)
    for name in given:
        if name not in cfg.task and name not in cfg.model:
            owners = f"neither its task {cfg.task._name} nor its model {cfg.model._name}"
            raise UserError(f"{checkpoint}: {owners} has the option {name}")
    return HubInterface(model.eval(), task)
