"""Files of sentence-transformers beside a model: pooling, normalization, prompts and length.

A converted checkpoint stores their text; `fairseq-xl embed` and searches apply them, and they are written back. Nothing
in them is run.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from fairseq_xl.checkpoints.layouts.published_files import CONFIG, TOKENIZER_CONFIG
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.files import json_object, parsed_json, parsed_object, read_whole
from fairseq_xl.io.text import decoded

MODULES, LENGTH, PROMPTS = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
LONGEST = "max_seq_length"  # in `LENGTH`
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
    files: Mapping[str, str] = field(default_factory=dict)  # {name below the folder: text}

    def prompt(self, name: str | None) -> str:
        """The text of a prompt, None: the default one, empty: none; raises `UserError` for an unknown name."""
        name, prompts = self.default_prompt if name is None else name, dict(self.prompts)
        if name and name not in prompts:
            raise UserError(f"--prompt {name}: expected one of {', '.join(prompts) or 'none'}, the model's prompts")
        return prompts[name] if name else ""

    def description(self) -> dict[str, Any]:
        """The settings by name, for people."""
        names = ("pooling", "normalize", "default_prompt", "max_length")
        return {name: getattr(self, name) for name in names} | {"prompts": dict(self.prompts)}

    def files_with(self, pooling: str, max_length: int, dim: int) -> dict[str, str]:
        """The files with a pooling, a length and a number of channels; whatever else they say stays."""
        files = dict(self.files or _FILES)
        if pooling != self.pooling or not self.files:
            (name,) = (f"{path}/{CONFIG}" for path in _modules(files[MODULES], MODULES)[1:2])
            content = parsed_object(files.get(name, "{}"), name) | {"word_embedding_dimension": dim}
            content = {key: value for key, value in content.items() if not key.startswith("pooling_mode")}
            modes = {"cls_token": pooling == "first", "mean_tokens": pooling == "mean"}
            modes |= {"max_tokens": False, "mean_sqrt_len_tokens": False}
            files[name] = _written(content | {f"{_MODE}{mode}": used for mode, used in modes.items()})
        length = parsed_object(files.get(LENGTH, "{}"), LENGTH)
        if length.get(LONGEST) != max_length:
            files[LENGTH] = _written(length | {LONGEST: max_length})
        return files


def read_settings(folder: Path) -> SentenceSettings | None:
    """The settings of a folder, None without modules.json; `UserError` for modules and settings that we lack."""
    names = [name for name in (MODULES, LENGTH, PROMPTS) if (folder / name).is_file()]
    files = {name: decoded(read_whole(folder / name), folder / name) for name in names}
    if MODULES not in files:
        return None
    for path in _modules(files[MODULES], folder)[1:]:
        file = folder / path / CONFIG
        if file.is_file():
            files[f"{path}/{CONFIG}"] = decoded(read_whole(file), file)
    length = parsed_object(files.get(LENGTH, "{}"), folder / LENGTH)
    if length.get(LONGEST) is None and (folder / TOKENIZER_CONFIG).is_file():
        longest = json_object(folder / TOKENIZER_CONFIG).get("model_max_length")
        if isinstance(longest, (int, float)) and 1 <= longest < 1e6:
            files[LENGTH] = _written(length | {LONGEST: int(longest)})
    return parse_settings(files, folder)


def parse_settings(files: Mapping[str, str], folder: object) -> SentenceSettings | None:
    """As `read_settings`, of {name: text} of the files of a folder."""
    if MODULES not in files:
        return None
    paths = _modules(files[MODULES], folder)
    other = files.keys() - {MODULES, LENGTH, PROMPTS, *(f"{path}/{CONFIG}" for path in paths[1:])}
    if other:  # `write_sentence_transformers` would write it
        raise UserError(f"{folder} has {quoted(min(other))}, which is no file of its modules")
    place = Path(str(folder))
    pooling, length, prompts = (
        parsed_object(files.get(name, "{}"), place / name) for name in (f"{paths[1]}/{CONFIG}", LENGTH, PROMPTS)
    )
    modes = [name.removeprefix(_MODE) for name, value in pooling.items() if name.startswith(_MODE) and value is True]
    modes = [str(pooling["pooling_mode"])] if "pooling_mode" in pooling else modes
    texts: Any = prompts.get("prompts") or {}
    if len(modes) != 1 or modes[0] not in _POOLINGS or length.get("do_lower_case") or not isinstance(texts, dict):
        raise UserError(f"{folder} has pooling {', '.join(modes)}, or lower case; expected mean or cls")
    if any(texts.values()) and pooling.get("include_prompt", True) is not True:
        raise UserError(f"{folder} leaves out the tokens of prompts in pooling")
    longest, default = length.get(LONGEST), prompts.get("default_prompt_name")
    if longest is not None and (type(longest) is not int or longest < 1):
        raise UserError(f"{place / LENGTH}: max_seq_length is {quoted(longest)}, expected a positive integer")
    if default and default not in [*texts]:
        raise UserError(f"{place / PROMPTS}: default_prompt_name is {quoted(default)}, which is none of its prompts")
    return SentenceSettings(
        pooling=_POOLINGS[modes[0]],
        normalize=len(paths) == 3,
        prompts=tuple((str(name), str(text)) for name, text in texts.items()),
        default_prompt=default or None,
        max_length=longest,
        files=files,
    )


def _modules(text: str, folder: object) -> list[str]:
    """The folders of the modules in modules.json; raises `UserError` for other modules than those that we have."""
    file = Path(str(folder)) / MODULES
    modules = parsed_json(text, file)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise UserError(f"{file} is no list of modules")
    kinds, paths = [], []
    for module in modules:
        kind, path = str(module.get("type")), str(module.get("path"))
        if not kind.startswith("sentence_transformers.") or PurePath(path).name != path or path == ".." or "\0" in path:
            raise UserError(f"{file} names {quoted(kind)} in {quoted(path)}, which is no module to be read")
        kinds.append(kind.rpartition(".")[2])
        paths.append(path)
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]):
        raise UserError(f"{file} has {', '.join(kinds)}; expected Transformer, Pooling, maybe Normalize")
    if paths[0] or not all(paths[1:]):
        raise UserError(f"{file} has the paths {paths}; expected the folder itself first, and then folders in it")
    return paths


def _written(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


#: of a model that had none: names of the classes that all versions of sentence-transformers know
_FILES = {
    MODULES: _written(
        [
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        ]
    ),
    LENGTH: _written({"do_lower_case": False}),
    PROMPTS: _written({"prompts": {}, "similarity_fn_name": "cosine"}),
}
