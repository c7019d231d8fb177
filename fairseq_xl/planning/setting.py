"""The flags of a training and the size of its text, from a command line or from a list such as recipes/papers.yaml."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from fairseq_xl.engine.option_checks import check, split_update
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.yaml_files import load
from fairseq_xl.planning.gpus import count_and_name

#: keys of an entry of a list -> their types
KEYS: dict[str, type] = {"files": list, "flags": str, "parameters": str, "gpus": str}
KEYS |= dict.fromkeys(("vocabulary", "languages", "examples", "line-tokens"), int)


@dataclass(frozen=True)
class Setting:
    """A training and its text, as far as memory and updates depend on them."""

    files: tuple[str, ...] = ()  # of flags
    flags: tuple[str, ...] = ()  # of the command line
    vocabulary: int = 32000  # symbols of the dictionary, special ones included
    languages: int = 2  # language symbols among them
    examples: int | None = None  # training examples (pairs of sentences, labeled texts) of all languages; None: unknown
    line_tokens: int | None = None  # of a line of bitext; None: `LINE`, or what objectives read at most
    parameters: str | None = None  # number of parameters that a paper prints
    gpus: str | None = None  # those of the paper, as in 64 V100
    name: str = ""

    @property
    def arguments(self) -> list[str]:
        """Arguments of fairseq-train without the data folder."""
        return [*(word for file in self.files for word in ("--config", file)), *self.flags]


def configuration(setting: Setting) -> Any:
    """The configuration of fairseq-train; a wrong flag ends the program with a sentence, as there."""
    parser, arguments = options.get_training_parser(), ["data", *setting.arguments]
    parser.prog = "fairseq-xl plan"
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, arguments))
    if not str(cfg.task._name).startswith("xl_"):
        raise UserError(f"--task {cfg.task._name}: expected a task of this package, such as xl_pretraining")
    check(cfg)
    split_update(cfg)
    return cfg


def read_list(path: Path) -> list[Setting]:
    """Reads a list of trainings, ``SYSTEM: {NAME: {files: […], …}}``; raises `UserError` for another file."""
    settings = []
    for system, trainings in _mapping(load(path), f"{path}").items():
        for name, entry in _mapping(trainings, f"{path}: {system}").items():
            where = f"{path}: {system}: {name}"
            for key, value in _mapping(entry, where).items():
                if type(value) is not KEYS.get(key):
                    expected = ", ".join(f"{key}: {kind.__name__}" for key, kind in KEYS.items())
                    raise UserError(f"{where}: {key}: {quoted(value)}: expected some of {expected}")
            if not entry.get("files"):
                raise UserError(f"{where}: the key 'files' is missing")
            if "gpus" in entry:
                count_and_name(entry["gpus"])
            values = {key.replace("-", "_"): value for key, value in entry.items()}
            values["files"] = tuple(str(path.parent / file) for file in entry["files"])
            values["flags"] = tuple(shlex.split(entry.get("flags", "")))
            flags = [f"`{entry['flags']}`"] if "flags" in entry else []
            settings.append(Setting(name=f"{system}, {name}: {' '.join([*entry['files'], *flags])}", **values))
    return settings


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{where}: expected a mapping, found {quoted(value)}")
    return value


def listed_setting(files: Sequence[str], flags: Sequence[str]) -> Setting:
    """The setting of these files in a papers.yaml above them, one with the same flags if there is one; else a new one.

    It has the files and flags of the arguments, and the paper's GPUs of any entry of the same files.
    """
    paths = [Path(file).resolve() for file in files]
    lists = [folder / "papers.yaml" for folder in paths[-1].parents[:4]] if paths else []
    listed = next((read_list(path) for path in lists if path.is_file()), [])
    same = [setting for setting in listed if [Path(file).resolve() for file in setting.files] == paths]
    setting = next((setting for setting in same if setting.flags == tuple(flags)), same[0] if same else Setting())
    gpus = setting.gpus or next((entry.gpus for entry in same if entry.gpus), None)
    return replace(setting, name=" ".join(files), files=tuple(files), flags=tuple(flags), gpus=gpus)
