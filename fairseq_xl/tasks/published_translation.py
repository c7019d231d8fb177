"""Translation models that XLM's authors published, as checkpoints."""

from pathlib import Path
from typing import Any, cast

from omegaconf import OmegaConf

from fairseq_xl.checkpoints import published_models
from fairseq_xl.checkpoints.layouts.exported_folders import fairseq_checkpoint
from fairseq_xl.data.framing import Framing
from fairseq_xl.engine.initial_weights import transfer_weights
from fairseq_xl.errors import UserError
from fairseq_xl.models.model_options import EncoderDecoderConfig


def published_checkpoint(task: Any, path: str) -> dict[str, Any] | None:
    """Converts XLM's published translation model to a checkpoint, and sets the task's framing; None for another file.

    Raises `UserError` for a published encoder without a decoder.
    """
    published = published_models.read(path) if Path(path).suffix == published_models.XLM_SUFFIX else None
    if not isinstance(published, published_models.Published):
        return None
    depths = {f"{stack}_layers": depth for stack, depth in published.depths.items()}
    if "decoder_layers" not in depths:
        raise UserError(f"{path} holds no decoder; use --init-from to start a translation model from it")
    options: dict[str, Any] = {name: value for name, value in published.options.items() if name != "framing"}
    model_cfg = vars(EncoderDecoderConfig(_name="xl_mt_big", **(options | depths)))
    cfg = OmegaConf.create({"task": OmegaConf.to_container(task.cfg), "model": model_cfg})
    task.framing = Framing.of(published.options["framing"], task.dictionary)
    model = task.build_model(cfg.model, from_checkpoint=True)
    transfer_weights(task, model, {"encoder": path, "decoder": path})
    directions = [f"{a}-{b}" for a in published.languages for b in published.languages if a != b]
    identity = task.identity() | {"lang_pairs": directions or ["-".join(task.inference_pair)]}
    return fairseq_checkpoint(cast(Any, cfg), model.state_dict()) | {"task_state": {"fairseq_xl": identity}}
