"""Loads the model and the task of a checkpoint, for use after training."""

from pathlib import Path
from typing import Any

from fairseq_xl import register
from fairseq_xl.checkpoints.identity import found_in
from fairseq_xl.errors import UserError


def load_model(checkpoint: str | Path, data: str | Path | None = None, **options: Any) -> tuple[Any, Any]:
    """The model, in evaluation mode, and the task of a checkpoint; arguments and errors as in `fairseq_xl.load`."""
    register()
    from fairseq import checkpoint_utils

    option_names = options.keys()
    checkpoint, folder = found_in(checkpoint)
    if data is None and folder is not None:  # it may have no text, whose languages and pairs options would name
        data, options = folder, {"langs": None, "pairs": None} | options
    overrides = options if data is None else {"data": str(data)} | options
    (model, *_), cfg, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], arg_overrides=overrides)
    for name in option_names:
        if name not in cfg.task and name not in cfg.model:
            owners = f"neither its task {cfg.task._name} nor its model {cfg.model._name}"
            raise UserError(f"{checkpoint}: {owners} has the option {name}")
    return model.eval(), task
