"""Maps models of this package to models of transformers that compute the same (recipes/interchange/README.md).

`has_form` and `obstacles` of each layout define the models that it can express; others are refused with the reason.
"""

from dataclasses import replace

from fairseq_xl.checkpoints.layouts.base import LAYOUTS, PLUGIN, Counterpart
from fairseq_xl.checkpoints.layouts.plugin_checkpoint import Own
from fairseq_xl.checkpoints.parameter_names import BIAS, TOKENS
from fairseq_xl.checkpoints.stacks import count_layers
from fairseq_xl.errors import UserError


def counterpart(model: Own, head: bool = True, layout: str | None = None) -> Counterpart:
    """The model of transformers that computes what a model of ours computes.

    Args:
        head: whether the head that it was fine-tuned with is part of it; False: the encoder with its output layer.
        layout: the layout of the counterpart; None: the first one that fits.

    Raises `UserError` with the reason for a model without counterpart, and for a layout that is not there.
    """
    head_class = model.head_class if head and not model.has_decoder else None
    if head and not model.has_decoder and model.head and not head_class:
        raise UserError(
            f"{model.path} was fine-tuned for {model.head.replace('_', ' ')}, which has no head in transformers: "
            "--no-head exports its encoder"
        )
    exportable = {name: candidate for name, candidate in LAYOUTS.items() if candidate.model_types}
    if layout is not None and layout not in exportable:
        raise UserError(f"--layout {layout}: expected one of {', '.join(sorted(exportable))}")
    candidates = exportable.values() if layout is None else [exportable[layout]]
    suitable = next((candidate for candidate in candidates if candidate.has_form(model, head_class)), None)
    if suitable is None:
        raise UserError(f"{model.path} has another form than models of --layout {layout}")
    reason = next((reason for reason, applies in suitable.obstacles(model, head_class).items() if applies), None)
    if reason:
        raise UserError(f"{model.path} has no counterpart in transformers, which has no model with {reason}")
    exported = suitable.export(model, head_class)
    return replace(exported, config=exported.config | {PLUGIN: {"framing": model.options["framing"]}})


def sentence_encoder(model: Own, layer: int | None) -> Counterpart:
    """The encoder up to a layer, without output layer and head, for sentence embeddings.

    Args:
        layer: index of the layer whose hidden states are pooled, from 1; None: the last one.

    Raises `UserError` for a layer that the model does not have, and for a model without counterpart.
    """
    depth = count_layers(model.state, "encoder")
    layer = depth if layer is None else layer
    if not 1 <= layer <= depth:
        raise UserError(f"--layer {layer}: expected 1 to {depth}, the layers of {model.path}")
    if model.languages:
        raise UserError(
            f"{model.path} has no counterpart in transformers, which has no model with language embeddings (--lang XX "
            "exports the model for one language)"
        )
    deeper = tuple(f"encoder.layers.{index}." for index in range(layer, depth))
    state = {
        name: value
        for name, value in model.state.items()
        if name.startswith("encoder.") and name != BIAS and not name.startswith(deeper)
    }
    # without its output layer, a model of XLM's form is one of XLM-R's form
    exported = counterpart(replace(model, state=state, options=model.options | {"output_form": "dense"}), head=False)
    layout, zeros = exported.layout, state[TOKENS].new_zeros(state[TOKENS].size(1), state[TOKENS].size(1))
    prefix = f"{layout.encoder_prefix}pooler.dense"
    pooler = {f"{prefix}.weight": zeros, f"{prefix}.bias": zeros[0].clone()}  # not used
    config = exported.config | {"architectures": [f"{layout.model_class}Model"]}
    return replace(exported, config=config, weights=exported.weights | pooler)
