"""The language module of a task's model, in training and evaluation (Artetxe et al. 2020, section 2)."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional

from fairseq.dataclass import FairseqDataclass
from omegaconf import open_dict
from torch import Tensor, nn

from fairseq_xl.checkpoints.language_modules import body_digest, in_module, read, split
from fairseq_xl.errors import UserError
from fairseq_xl.io.options import option
from fairseq_xl.models.monotrans import XLMonoTransModel

logger = logging.getLogger(__name__)


@dataclass
class LanguageModuleConfig(FairseqDataclass):
    """Options of tasks whose models can have language modules."""

    lang: Optional[str] = option(None, "the run's only language, which the dictionary and --language-module must have")
    language_module: Optional[str] = option(
        None,
        "replace the checkpoint's language module by the one in this file: a language module or another checkpoint "
        "(Artetxe et al. 2020, section 2)",
    )


class TaskLanguageModule:
    """The language module of a task's xl_monotrans_* model: the checkpoint's, a new one, or that of --language-module.

    A checkpoint stores the hash of the body that its language module was learned with. A module is put into that body
    only, or into one that was fine-tuned from it. If `new`, the run begins with a new module in place of the
    checkpoint's.
    """

    def __init__(self, cfg: Any, dictionary: Any, folder: Path, new: bool = False):
        self.file, self.new = cfg.language_module, new
        #: SHA-256 of the body that the module was learned with; None if both are trained together
        self.body: str | None = None
        self.trains_body = False
        self.replacement: Any = read(cfg.language_module, cfg.lang) if cfg.language_module else None
        if self.replacement is not None:
            self.replacement.check_dictionary(self.file, dictionary, folder / "dict.txt")
        if cfg.lang:
            dictionary.language_id(cfg.lang)

    def stored_options(self) -> dict[str, None]:
        """The options without the module: the model contains it now, and its checkpoints must not ask for the file."""
        return {"language_module": None, "lang": None}

    @property
    def languages(self) -> list[str]:
        """Languages of the module in --language-module; empty without this option."""
        return [] if self.replacement is None else self.replacement.languages

    def identity(self) -> dict[str, str]:
        """The language module's part of the identity: the hash of its body, if it is set."""
        return {"body": self.body} if self.body else {}

    def restore(self, identity: Mapping[str, Any], resumes: bool = False) -> None:
        """Takes over the hash of the body from a checkpoint's identity, unless a resumed run trains the body."""
        self.body = None if resumes and self.trains_body else identity.get("body")

    # --- model -------------------------------------------------------------------------------------------------

    def prepare(self, cfg: Any, init_from: str | None, from_checkpoint: bool) -> None:
        """Sets the adapters of the module in --language-module in a model's config, before the model is built."""
        if self.replacement is None:
            return
        if not from_checkpoint and not init_from:
            raise UserError(
                f"--language-module {self.file}: --init-from must name the model whose language module it replaces"
            )
        if not hasattr(cfg, "adapters"):
            raise UserError(f"--language-module {self.file} needs {XLMonoTransModel.description}")
        self.replacement.check_positions(self.file, cfg.language_positions)
        with open_dict(cfg):
            cfg.adapters = self.replacement.adapters

    def attach(self, model: Any, init_from: str | None, from_checkpoint: bool) -> None:
        """Checks that the module fits a model; the model then puts it in place of a loaded checkpoint's module."""
        if self.new and not from_checkpoint:
            if not (init_from and isinstance(model, XLMonoTransModel)):
                raise UserError(f"--new-language-module needs --init-from and {XLMonoTransModel.description}")
            if self.replacement is not None:
                raise UserError(
                    f"--new-language-module: --language-module {self.file} would take its place; choose one of them"
                )
        if self.replacement is None:
            return
        if from_checkpoint:
            model.before_loading = self._replace_module
        needed = split(model.state_dict(), self.replacement.language_positions)[0]
        for name, value in needed.items():
            replacement = self.replacement.state.get(name)
            if replacement is None:
                raise UserError(f"--language-module {self.file} lacks {name}, which the model has")
            if replacement.shape != value.shape:
                raise UserError(
                    f"--language-module {self.file}: {name} has shape {tuple(replacement.shape)}, the model needs "
                    f"{tuple(value.shape)}"
                )
        surplus = sorted(self.replacement.state.keys() - needed.keys())
        if surplus:
            raise UserError(f"--language-module {self.file} has {surplus[0]}, which the model lacks")

    def _replace_module(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """A model's state dict with the module of --language-module; `UserError` for one learned with another body."""
        state = self.replacement.put_into(state, self.file, self.body)
        self.body = self.replacement.body
        logger.info("language module of %s from %s", ", ".join(self.languages), self.file)
        return state

    # --- initial weights ---------------------------------------------------------------------------------------

    def adapt(self, pretrained: Any, model: nn.Module) -> Any:
        """Removes the language module from initial weights if the run learns a new one, or replaces it."""
        if not isinstance(model, XLMonoTransModel):
            return pretrained
        positions, identity, state = model.cfg.language_positions, pretrained.identity, pretrained.state
        # a new module is learned with the classifier's body, not with the one that the classifier was tuned from
        stored = None if identity.get("head") and self.new else identity.get("body")
        self.body = stored or body_digest(state, positions)
        if self.replacement is not None:
            state = self._replace_module(state)
        elif self.new:
            state = split(state, positions)[1]
        return replace(pretrained, state=state)

    def set_trains_body(self, model: nn.Module) -> None:
        """Sets `trains_body`: if a run trains the body too, its language module fits no other model."""
        self.trains_body = any(p.requires_grad for name, p in _shared(model) if name.startswith("encoder."))

    def check_transfer(self, model: nn.Module, report: Any) -> None:
        """Raises `UserError` for a new parameter that is frozen: it would stay random."""
        new = report.new["model"]
        lacking = [name for name, parameter in _shared(model) if name in new and not parameter.requires_grad]
        if lacking:
            kind = "a fine-tuned model, " if report.pretrained.identity.get("head") else ""
            raise UserError(
                f"{report.pretrained.path}, {kind}lacks {lacking[0]}, which would stay random: train it, or do "
                "without it"
            )
        if self.trains_body:
            self.body = None
            if self.new:
                logger.warning(
                    "the body is trained too: the language module fits no other model (--train-only language-module)"
                )


def _shared(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """(name, parameter) of an xl_monotrans_* model without its language module; [] for other models."""
    if not isinstance(model, XLMonoTransModel):
        return []
    positions = model.cfg.language_positions
    return [(name, value) for name, value in model.named_parameters() if not in_module(name, positions)]
