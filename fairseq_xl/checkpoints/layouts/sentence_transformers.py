"""Files of sentence-transformers beside a model: pooling, normalization, prompts and length.

A converted checkpoint keeps them; `fairseq-xl embed` applies them, and they are written back. Nothing in them is run.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from fairseq_xl.checkpoints.layouts.published_files import CONFIG, TOKENIZER_CONFIG
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.files import json_object, parsed_json, read_whole, write_json
from fairseq_xl.io.text import decoded

MODULES, LENGTH, PROMPTS = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
#: names of poolings there -> here
_MODE = "pooling_mode_"
_POOLINGS = {"mean": "mean", "mean_tokens": "mean", "cls": "first", "cls_token": "first"}


@dataclass(frozen=True)
class SentenceSettings:
    """How texts become sentence embeddings; the defaults are those of a model without such files."""

    pooling: str = "mean"
    normalize: bool = False  # to length 1
    prompts: tuple[tuple[str, str], ...] = ()  # (name, text in front of each sentence)
    default_prompt: str | None = None  # a name
    max_length: int | None = None  # most tokens of a text
    files: tuple[str, ...] = ()  # below the folder

    def prompt(self, name: str | None) -> str:
        """The text of a prompt, None: the default one; raises `UserError` for an unknown name."""
        name, prompts = self.default_prompt if name is None else name, dict(self.prompts)
        if name is not None and name not in prompts:
            raise UserError(f"--prompt {name}: expected one of {', '.join(prompts) or 'none'}, the model's prompts")
        return prompts[name] if name is not None else ""


def read_settings(folder: Path) -> SentenceSettings | None:
    """The settings of a folder, None without modules.json; `UserError` for modules and settings that we lack."""
    if not (folder / MODULES).is_file():
        return None
    modules = parsed_json(decoded(read_whole(folder / MODULES), folder / MODULES), folder / MODULES)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise UserError(f"{folder / MODULES} is no list of modules")
    kinds, paths = [], []
    for module in modules:
        kind, path = str(module.get("type")), str(module.get("path"))
        if not kind.startswith("sentence_transformers.") or PurePath(path).name != path or path == "..":
            raise UserError(f"{folder / MODULES} names {quoted(kind)} in {quoted(path)}, which is no module to be read")
        kinds.append(kind.rpartition(".")[2])
        paths.append(path)
    if kinds[:2] != ["Transformer", "Pooling"] or paths[0] or kinds[2:] not in ([], ["Normalize"]):
        raise UserError(f"{folder / MODULES} has {', '.join(kinds)}; expected Transformer, Pooling, maybe Normalize")
    pooling = json_object(folder / paths[1] / CONFIG)
    modes = [name.removeprefix(_MODE) for name, value in pooling.items() if name.startswith(_MODE) and value is True]
    modes = [str(pooling["pooling_mode"])] if "pooling_mode" in pooling else modes
    files = [folder / name for name in (LENGTH, PROMPTS)]
    length, prompts = (json_object(file) if file.is_file() else {} for file in files)
    texts: Any = prompts.get("prompts") or {}
    if len(modes) != 1 or modes[0] not in _POOLINGS or length.get("do_lower_case") or not isinstance(texts, dict):
        raise UserError(f"{folder} has pooling {', '.join(modes)}, or lower case; expected mean or cls")
    if any(texts.values()) and pooling.get("include_prompt", True) is not True:
        raise UserError(f"{folder} leaves out the tokens of prompts in pooling")
    longest, default = length.get("max_seq_length"), prompts.get("default_prompt_name")
    if longest is not None and (type(longest) is not int or longest < 1):
        raise UserError(f"{folder / LENGTH}: max_seq_length is {quoted(longest)}, expected a positive integer")
    if default and default not in [*texts]:
        raise UserError(f"{folder / PROMPTS}: default_prompt_name is {quoted(default)}, which is none of its prompts")
    if longest is None and (folder / TOKENIZER_CONFIG).is_file():
        longest = json_object(folder / TOKENIZER_CONFIG).get("model_max_length")
    return SentenceSettings(
        pooling=_POOLINGS[modes[0]],
        normalize=kinds[2:] == ["Normalize"],
        prompts=tuple((str(name), str(text)) for name, text in texts.items()),
        default_prompt=default or None,
        max_length=int(longest) if isinstance(longest, (int, float)) and 1 <= longest < 1e6 else None,
        files=(MODULES, LENGTH, PROMPTS, *(f"{path}/{CONFIG}" for path in paths[1:])),
    )


def copy_settings(settings: SentenceSettings, source: Path, folder: Path) -> None:
    """Copies the files of settings to another folder; the length is named where it is the tokenizer's."""
    for name in settings.files:
        if (source / name).is_file():
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(source / name, folder / name)
    length = json_object(folder / LENGTH) if (folder / LENGTH).is_file() else {}
    if length.get("max_seq_length") is None and settings.max_length is not None:
        write_json(folder / LENGTH, length | {"max_seq_length": settings.max_length})
