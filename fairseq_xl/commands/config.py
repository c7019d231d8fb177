"""Prints the configuration that --config files and flags make together, each flag with its file and line.

    fairseq-xl config recipes/xlm/config/pretrain.yaml recipes/xlm/config/pretrain-toy.yaml --max-update 10

The output is such a file itself. With --hydra it is the YAML of the same training for fairseq-hydra-train, without
the data folder: `fairseq-hydra-train --config-dir FOLDER --config-name NAME task.data=DATA`.
"""

import contextlib
import io
import re
import sys
from typing import Any

import yaml

from fairseq_xl.commands import flag, parser_of
from fairseq_xl.errors import UserError
from fairseq_xl.io.flags import config_files, expanded, overridden
from fairseq_xl.io.yaml_files import CONSTANTS, NUMBER, key_lines, parse

USAGE = "fairseq-xl config CONFIG.yaml … [--flag value …] [--hydra]"
HYDRA = flag("--hydra", "print the YAML of fairseq-hydra-train")
#: sections of fairseq's configuration that the name of a class selects
NAMED = ("task", "criterion", "model", "optimizer", "lr_scheduler")
#: of every run: files stay in the folder of the checkpoints, relative paths in the current one, and the callback
#: registers the package before fairseq looks for its training loop
HYDRA_RUN = {
    "callbacks": {"fairseq_xl": {"_target_": "fairseq_xl.engine.hydra.Registering"}},
    "job": {"chdir": False},
    "run": {"dir": "${checkpoint.save_dir}"},
    "sweep": {"dir": "${checkpoint.save_dir}", "subdir": "${hydra.job.num}"},
}


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    words, configs = config_files(sys.argv[1:] if arguments is None else arguments)
    while words and words[0].endswith((".yaml", ".yml")):
        configs.append(words.pop(0))
    options, flags = parser_of(__name__, HYDRA, usage=USAGE, allow_abbrev=False).parse_known_args(words)
    if not configs:
        raise UserError("config: name the YAML files of a training")
    if not options.hydra and (short := [word for word in flags if re.fullmatch("-[a-z]", word)]):
        raise UserError(f"config: {short[0]}: a file has long names, such as --source-lang for -s")
    merged = overridden(configs, flags)
    _check([*(word for config in configs for word in ("--config", config)), *flags])
    sys.stdout.write(_hydra(merged, configs) if options.hydra else _with_origins(merged, configs, flags))


def _check(words: list[str]) -> None:
    """Raises `UserError` for flags that neither training nor validation nor generation takes.

    A file that overrides others need not have an architecture and a learning rate.
    """
    from fairseq import options

    from fairseq_xl import register

    register()
    errors = []
    needed = (("--arch", "xl_xlm_tiny"), ("--lr", "0.1"))
    absent = [word for pair in needed if pair[0] not in expanded(words) for word in pair]
    commands = [(options.get_training_parser, absent)]
    commands += [
        (parser, ["--path", "PATH"]) for parser in (options.get_validation_parser, options.get_generation_parser)
    ]
    for parser, defaults in commands:
        try:
            with contextlib.redirect_stderr(io.StringIO()) as shown:
                options.parse_args_and_arch(parser(), ["DATA", *defaults, *words])
            return
        except SystemExit:
            errors.append(shown.getvalue().strip().partition(": error: ")[2])
        except UserError as error:
            errors.append(str(error))
    raise UserError(errors[0])


def _with_origins(merged: list[str], configs: list[str], flags: list[str]) -> str:
    """Lines of YAML, each with a comment that says where the flag comes from."""
    own_flags = {word.partition("=")[0] for word in flags if word.startswith("-")}
    places = {config: key_lines(config) for config in configs}
    lines: dict[str, str] = {}  # the last one of a flag
    for position, word in enumerate(merged):
        if not word.startswith("--"):
            continue
        name, _, value = word[2:].partition("=")
        if not value:
            following = merged[position + 1 : position + 2]
            value = following[0] if following and not following[0].startswith("--") else "true"
        files = [f"{config}:{numbers[name]}" for config, numbers in places.items() if name in numbers]
        origins = files if name == "objective-options" else files[-1:]
        if f"--{name}" in own_flags:
            origins = [*(origins if name == "objective-options" else []), "command line"]
        text = yaml.safe_dump({name: _value(value)}, width=1 << 20).strip()
        lines[name] = f"{text}  # {', '.join(origins)}\n"
    return "".join(lines.values()) or "{}\n"


def _hydra(merged: list[str], configs: list[str]) -> str:
    """The YAML for fairseq-hydra-train: what the flags set, section by section."""
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from omegaconf import OmegaConf

    from fairseq_xl import register

    register()
    words = ["DATA", *merged]
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))
    set_names = vars(options.parse_args_and_arch(options.get_training_parser(), words, suppress_defaults=True))
    sections: dict[str, Any] = {"hydra": HYDRA_RUN}
    content: Any = OmegaConf.to_container(cfg, resolve=False, enum_to_str=True)
    for section in (*(name for name in content if name not in NAMED), *NAMED):  # named ones repeat values, such as lr
        values = content[section] if isinstance(content[section], dict) else {}
        options_of_section = {"_name": values["_name"]} if section in NAMED else {}
        options_of_section |= {name: value for name, value in values.items() if set_names.pop(name, None) is not None}
        if options_of_section:
            sections[section] = options_of_section
    task = sections["task"]
    task["data"] = None
    if settings := task.get("objective_options"):  # setting by setting, so that hydra's command line overrides one
        task["objective_options"] = {}
        for setting in settings.split():
            name, _, value = setting.partition("=")
            objective, _, key = name.partition(".")
            task["objective_options"].setdefault(objective, {})[key] = _value(value)
    sections["common"] = {"user_dir": "fairseq_xl"} | sections.get("common", {})
    return f"# {' '.join(configs)}\n{yaml.safe_dump(sections, sort_keys=False, width=120, default_flow_style=None)}"


def _value(text: str) -> Any:
    return parse(text, text) if text in CONSTANTS or NUMBER.fullmatch(text) else text
