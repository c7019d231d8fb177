"""Parameters that a training leaves as they are."""

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from fairseq.dataclass import FairseqDataclass
from torch import nn

from fairseq_xl.checkpoints.language_modules import in_module
from fairseq_xl.errors import UserError
from fairseq_xl.io.options import option
from fairseq_xl.models.monotrans import XLMonoTransModel

PATTERN = "language-module"  # stands for all parameters of the language module among patterns of parameter names


@dataclass
class FrozenConfig(FairseqDataclass):
    """The option of tasks that can freeze parameters."""

    freeze: Optional[str] = option(
        None,
        "freeze the parameters whose names match these patterns, separated by commas; 'language-module': "
        "the language module of an xl_monotrans_* model (Artetxe et al. 2020, section 2)",
    )


def freeze(model: nn.Module, patterns: str | None, only: str | None = None) -> None:
    """Freezes the parameters of --freeze, and all but those of --train-only.

    Raises `UserError` for a pattern that matches no parameter, and if no parameter is left to train.
    """
    frozen = matching_parameters(model, patterns.split(","), "--freeze") if patterns else set()
    if only:
        frozen |= {name for name, _ in model.named_parameters()}.difference(
            matching_parameters(model, only.split(","), "--train-only")
        )
    for name in frozen:
        model.get_parameter(name).requires_grad = False
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UserError(f"--freeze {patterns}: no parameter is left to train")


def matching_parameters(model: nn.Module, patterns: Iterable[str], option: str) -> set[str]:
    """Names of parameters that match a pattern (``language-module``: all of it); `UserError` if one matches none."""
    names, matching = [name for name, _ in model.named_parameters()], set()
    for pattern in patterns:
        if pattern == PATTERN and isinstance(model, XLMonoTransModel):
            matches = [name for name in names if in_module(name, model.cfg.language_positions)]
        else:
            matches = fnmatch.filter(names, pattern)
        if not matches:
            raise UserError(f"{option} {pattern}: no parameter has such a name; the first is {names[0]}")
        matching.update(matches)
    return matching
