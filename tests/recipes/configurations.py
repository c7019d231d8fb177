"""The YAML files of the recipes, and what they configure."""

import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import torch
from fairseq import models

from fairseq_xl.data.framing import Framing
from fairseq_xl.objectives import build_objectives
from recipes import experiment, updates
from recipes.launch import flags, split_warmup_share

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
XLM, VECO = RECIPES / "xlm/config", RECIPES / "veco/config"
PRETRAINING = {
    "paper": [XLM / "pretrain.yaml"],
    "paper-mt": [XLM / "pretrain.yaml", XLM / "pretrain-mt.yaml"],
    "toy": [XLM / "pretrain.yaml", XLM / "pretrain-toy.yaml"],
    "lohelp": [XLM / "pretrain.yaml", RECIPES / "lohelp/pretrain.yaml"],
}


def configuration(files, *more):
    arguments = ["data", "--user-dir", str(RECIPES.parent / "fairseq_xl"), *split_warmup_share(flags(files))[0], *more]
    return updates.configuration(arguments)


def objectives_of(cfg, dictionary):
    """{name: `Objective`} of a configuration of xl_pretraining."""
    framing = Framing.of("xl", dictionary)
    return build_objectives(cfg.task.objectives, cfg.task.objective_options, dictionary, framing)


def build(cfg, dictionary):
    with torch.device("meta"):
        return models.build_model(cfg.model, SimpleNamespace(dictionary=dictionary))


def listed(capsys, file, *arguments):
    """{step: its commands, lists of words} of an experiment, from --list."""
    experiment.main([str(RECIPES / file), "--list", *arguments])
    blocks = re.findall(r"^(\S+)\n((?:    .*\n)+)", capsys.readouterr().out, re.MULTILINE)
    return {name: [shlex.split(line) for line in lines.splitlines()] for name, lines in blocks}
