"""The YAML files of the recipes, and what they configure."""

import contextlib
import functools
import io
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import torch
from fairseq import models, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from fairseq_xl.data.framing import Framing
from fairseq_xl.io.flags import flags
from fairseq_xl.objectives import build_objectives
from recipes import experiment

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
XLM, VECO = RECIPES / "xlm/config", RECIPES / "veco/config"
PRETRAINING = {
    "paper": [XLM / "pretrain.yaml"],
    "paper-mt": [XLM / "pretrain.yaml", XLM / "pretrain-mt.yaml"],
    "toy": [XLM / "pretrain.yaml", XLM / "pretrain-toy.yaml"],
    "lohelp": [XLM / "pretrain.yaml", RECIPES / "lohelp/pretrain.yaml"],
}


def configuration(files, *more):
    arguments = ["data", "--user-dir", str(RECIPES.parent / "fairseq_xl"), *flags(files), *more]
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), arguments))


def objectives_of(cfg, dictionary):
    """{name: `Objective`} of a configuration of xl_pretraining."""
    framing = Framing.of("xl", dictionary)
    return build_objectives(cfg.task.objectives, cfg.task.objective_options, dictionary, framing)


def build(cfg, dictionary):
    with torch.device("meta"):
        return models.build_model(cfg.model, SimpleNamespace(dictionary=dictionary))


@functools.cache
def listed(file, *arguments):
    """{step: its commands, lists of words} of an experiment, from --list."""
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        experiment.main([str(RECIPES / file), "--list", *arguments])
    blocks = re.findall(r"^(\S+)\n((?:    .*\n)+)", shown.getvalue(), re.MULTILINE)
    return {name: [shlex.split(line) for line in lines.splitlines()] for name, lines in blocks}
