"""Configurations of fairseq-hydra-train."""

import contextlib

from fairseq.dataclass.initialize import add_defaults, hydra_init
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from fairseq_xl.commands import config


def write_hydra(path, files, *flags):
    """Writes the YAML of some files and flags."""
    with path.open("w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
        config.main([*map(str, files), *map(str, flags), "--hydra"])


def composed(folder, name, *overrides):
    """The configuration of a YAML file with all defaults, as fairseq-hydra-train has it."""
    GlobalHydra.instance().clear()
    hydra_init(name)
    with initialize_config_dir(config_dir=str(folder), version_base="1.1"):
        cfg = compose(config_name=name, overrides=list(overrides))
    add_defaults(cfg)
    return cfg
