"""What a checkpoint stores of the published folder that its model came from, under ``task_state.published``.

It is plain data and tensors. A training that starts from the model stores it again, so that its checkpoints say in any
folder what the published one said.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fairseq_xl.checkpoints.layouts.name_mapping import State
from fairseq_xl.checkpoints.layouts.sentence_transformers import SentenceSettings, parse_settings
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.configuration import check_values
from fairseq_xl.io.files import parsed_object

KEY = "published"  # in the state of the task
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_KINDS: dict[str, Any] = {"layout": str, "framing": str, "has_output": bool, "config": str, "dtype": str}
_KINDS |= {"names": dict, "parameters": dict, "sentences": dict, "generation": str | None}


@dataclass(frozen=True)
class Origin:
    """A published folder."""

    layout: str
    framing: str
    has_output: bool  # whether it predicts masked tokens, or the next one
    config: str  # the text of config.json
    names: dict[str, str]  # of the parameters: the layout's -> those in the file
    parameters: State  # those that our model lacks, such as a pooler, or has as a sum, by their names in the file
    sentences: dict[str, str]  # {name: text} of the files of sentence-transformers
    dtype: str = ""  # of the weights, a name of `DTYPES`; "": they have several types, or it is not known
    generation: str | None = None  # the text of generation_config.json, "" without the file; None: not known

    @cached_property
    def settings(self) -> SentenceSettings | None:
        """How texts become sentence embeddings; None if it was no folder of sentence-transformers."""
        return parse_settings(self.sentences, "task_state.published")

    @property
    def entries(self) -> dict[str, Any]:
        """The entries of config.json; raises `UserError` for damaged ones, and for those that name code."""
        content = parsed_object(self.config, "task_state.published.config")
        if content.get("auto_map"):
            raise UserError(f"task_state.published.config names code, auto_map {quoted(content['auto_map'])}")
        return content

    def state_dict(self) -> dict[str, Any]:
        """Its entry in the state of the task."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


def stored_origin(task_state: Mapping[str, Any], path: object) -> Origin | None:
    """The origin in the task state of the checkpoint `path`, None without; `UserError` for a damaged one."""
    stored = task_state.get(KEY)
    if stored is None:
        return None
    damaged = UserError(f"{path} is damaged: task_state.{KEY} does not describe a published folder")
    if not isinstance(stored, dict):
        raise damaged
    entries: dict[str, Any] = {"dtype": "", "generation": None, **stored}  # earlier versions stored neither
    check_values(entries, _KINDS, f"task_state.{KEY}", path, _KINDS)
    texts = [*entries["names"].items(), *entries["sentences"].items(), *((name, "") for name in entries["parameters"])]
    has_tensors = all(isinstance(value, Tensor) for value in entries["parameters"].values())
    has_tensors &= entries["dtype"] in ("", *DTYPES) and entries["parameters"].keys() <= {*entries["names"].values()}
    if not has_tensors or not all(isinstance(text, str) for pair in texts for text in pair):
        raise damaged
    return Origin(**{name: entries[name] for name in _KINDS})
