"""LoRA adapters of peft (Hu et al. 2021): W + s B A, with A (r, in), B (out, r) and s = alpha / r, in place of W.

The base model is a folder of transformers on this machine. Nothing in an adapter is run.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_xl.checkpoints.layouts.base import QUESTIONS, SEQUENCES, TOKEN_LABELS, Layout
from fairseq_xl.checkpoints.layouts.name_mapping import State
from fairseq_xl.checkpoints.layouts.published_files import load_weights
from fairseq_xl.checkpoints.layouts.weight_checks import check_parameters
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.files import json_object

CONFIG, WEIGHTS = "adapter_config.json", ("adapter_model.safetensors", "adapter_model.bin")
#: task_type of an adapter -> its head, which it stores itself
_HEADS = {"SEQ_CLS": SEQUENCES, "TOKEN_CLS": TOKEN_LABELS, "QUESTION_ANS": QUESTIONS}
#: settings -> the only values whose weights are W + s B A; other initial weights change W
_ONLY: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("use_dora", "fan_in_fan_out", "lora_bias"), (False,)),
    **dict.fromkeys(("rank_pattern", "alpha_pattern"), ({},)),
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal"),
    "alora_invocation_tokens": (None,),
}
_SAVED = re.compile(r"\.modules_to_save(\.default)?(?=\.)")


@dataclass(frozen=True)
class Adapter:
    """An adapter."""

    folder: Path
    base: Path  # folder of the base model
    scale: float
    head: str | None  # as the name of its class in transformers ends
    weights: State

    def merged(self, weights: State, layout: Layout) -> State:
        """The weights of the base model with the adapter's; `UserError` for an adapter of another model."""
        merged = {layout.canonical(name): value for name, value in weights.items()}
        for key, value in self.weights.items():
            name = layout.canonical(_SAVED.sub("", key.removeprefix("base_model.model.")))
            module, separator, part = name.rpartition(".lora_")
            if not separator:
                merged[name] = value  # of a head, or a bias
            elif part.startswith(("A", "embedding_A")):
                self._add(merged, f"{module}.weight", value, self.weights.get(key.replace("_A", "_B")), part)
            elif not part.startswith(("B", "embedding_B")) or key.replace("_B", "_A") not in self.weights:
                raise UserError(f"{self.folder} has {key}, which cannot be merged")
        return merged

    def _add(self, merged: State, name: str, down: Any, up: Any, part: str) -> None:
        if name not in merged or up is None or down.dim() != 2 or up.dim() != 2 or len(down) != up.size(1):
            raise UserError(f"{self.folder} adapts {name}, which {self.base} or the adapter lacks")
        value, delta = merged[name], self.scale * (up.float() @ down.float())
        delta = delta.T if part.startswith("embedding") else delta
        if delta.shape != value.shape:
            raise UserError(f"{self.folder} adapts {name} of shape {tuple(delta.shape)}, {self.base} has another one")
        if not value.is_meta:
            merged[name] = (value.float() + delta).to(value.dtype)


def read_adapter(folder: Path) -> Adapter | None:
    """The adapter in a folder, None in other folders; `UserError` for one that is damaged, or has no base model."""
    if not (folder / CONFIG).is_file():
        return None
    config = json_object(folder / CONFIG)
    rank, alpha, name = (config.get(key) for key in ("r", "lora_alpha", "base_model_name_or_path"))
    if config.get("peft_type") != "LORA" or type(rank) is not int or rank < 1 or not isinstance(alpha, (int, float)):
        raise UserError(f"{folder / CONFIG} is no LoRA adapter: it has {quoted(config.get('peft_type'))}, r {rank}")
    for key, only in _ONLY.items():
        if config.get(key) not in (*only, None):
            values = ", ".join(map(str, only))
            raise UserError(f"{folder / CONFIG}: {key} is {quoted(config[key])}; only {values} can be merged")
    places = [Path(str(name)), folder / str(name), folder.parent / Path(str(name)).name]
    base = next((place for place in places if (place / "config.json").is_file()), None)
    if base is None:
        raise UserError(f"{folder / CONFIG} names the base model {quoted(name)}: put its folder beside {folder}")
    file = next((folder / name for name in WEIGHTS if (folder / name).is_file()), folder / WEIGHTS[0])
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    return Adapter(folder, base, scale, _HEADS.get(str(config.get("task_type"))), check_parameters(load_weights(file)))
