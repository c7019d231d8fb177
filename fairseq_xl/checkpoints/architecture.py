"""The architecture of a checkpoint or a published model, as flags of a training that starts from it."""

from typing import Any

from fairseq_xl.checkpoints import published_models
from fairseq_xl.checkpoints.identity import open_checkpoint
from fairseq_xl.checkpoints.layouts.base import LAYOUTS, Layout
from fairseq_xl.checkpoints.layouts.stored_origin import stored_origin
from fairseq_xl.errors import UserError
from fairseq_xl.io.configuration import registered_model
from fairseq_xl.io.options import option_name

#: LayerNorm of a published translation model -> its architecture
TRANSLATION = {"pre": "xl_mbart_large", "post": "xl_mt_base"}
#: options of a model that its weights do not depend on
TRAINING = frozenset(("_name", "dropout", "attention_dropout", "activation_dropout", "init_std", "position_init"))


def architecture_flags(path: str, generates: bool = False) -> list[str]:
    """--arch, --framing, the options of the architecture that differ from its defaults, and --freeze.

    The parameters that files of a published layout lack are frozen, so that a trained model can go out in that layout.
    Weights are not read. Raises `UserError` for another file, and for an encoder alone if the task `generates` text.
    """
    content = published_models.read(path, values=False)
    options: dict[str, Any]
    layout: Layout | None
    if isinstance(content, published_models.Published):
        options, depths, layout = content.options, content.depths, content.layout
        if "decoder" in depths:
            arch = TRANSLATION[options["layer_norm"]]
            options = options | {f"{stack}_layers": depth for stack, depth in depths.items()}
        else:
            arch, options = content.layout.architecture, options | {"layers": depths["encoder"]}
    else:
        checkpoint = open_checkpoint(path, content=content, finite=False)
        options = checkpoint.options | {"framing": checkpoint.identity["framing"]}
        arch, origin = str(options.get("_name")), stored_origin(checkpoint.content["task_state"], path)
        layout = LAYOUTS.get(origin.layout) if origin else None
    _, config = registered_model(arch)
    if config is None:
        raise UserError(f"{path} is damaged: its configuration names no known model")
    defaults = config()
    if generates and not hasattr(defaults, "decoder_layers"):
        raise UserError(f"{path} holds an encoder alone: name the encoder-decoder that starts from it, --arch xl_mt_…")
    flags = ["--arch", arch, "--framing", str(options.pop("framing"))]
    for name, value in options.items():
        if name not in TRAINING and value != getattr(defaults, name, value):
            flags += [option_name(name)] if isinstance(value, bool) else [option_name(name), str(value)]
    return [*flags, "--freeze", ",".join(layout.frozen)] if layout and layout.frozen else flags
