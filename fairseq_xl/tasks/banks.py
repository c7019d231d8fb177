"""Banks in training and evaluation: which one a model has (MonoTrans, M1-M3)."""

import fnmatch
import logging
from dataclasses import dataclass, field
from typing import Optional

from omegaconf import open_dict

from fairseq_xl.checkpoints import banks
from fairseq_xl.errors import UserError
from fairseq_xl.models.monotrans import XLMonoTransModel
from fairseq_xl.tasks.base import XLTask, XLTaskConfig

logger = logging.getLogger(__name__)

BANK = "bank"  # what stands for all parameters of the bank among patterns of names


@dataclass
class BankTaskConfig(XLTaskConfig):
    """Options of tasks whose models may have banks."""

    lang: Optional[str] = field(
        default=None, metadata={"help": "the one language to work on, whose symbol the dictionary and the bank have"}
    )
    bank: Optional[str] = field(
        default=None,
        metadata={
            "help": "file with the bank that replaces that of the checkpoint: of one language, of several, or another "
            "checkpoint (M1)"
        },
    )


class BankTask(XLTask):
    """A task whose models may have banks: xl_monotrans_*.

    A checkpoint says over which body its bank was learned. A bank is put into a model of that body only, or of what was
    fine-tuned from it.
    """

    def __init__(self, cfg, dictionary):
        super().__init__(cfg, dictionary)
        self.body = None  # SHA-256 of the body that the bank was learned over, where the model's own is another by now
        if cfg.bank:
            self.bank = banks.read(cfg.bank, cfg.lang)
            self._check_dictionary()
        if cfg.lang:
            dictionary.language_id(cfg.lang)
        run = cfg._get_parent()
        if run is not None:  # it is in the model from now on: a checkpoint must not ask for the file
            run.task.bank, run.task.lang = None, None

    def _check_dictionary(self):
        if self.bank["dictionary"] != self.dictionary.digest():
            raise UserError(
                f"--bank {self.cfg.bank} is of another dictionary (languages {', '.join(self.bank['languages'])}) than "
                f"{self.folder() / 'dict.txt'} (languages {', '.join(self.dictionary.languages)})"
            )

    # --- identity ----------------------------------------------------------------------------------------------

    def identity(self):
        """What every checkpoint says of itself, and over which body its bank was learned."""
        return super().identity() | ({"body": self.body} if self.body else {})

    def load_state_dict(self, state_dict):
        """Checks the checkpoint's identity."""
        super().load_state_dict(state_dict)
        self.body = state_dict["fairseq_xl"].get("body")

    def check_fits(self, state, path, **how):
        """Raises `UserError` unless a checkpoint to go on from fits; takes over which body its bank is of."""
        super().check_fits(state, path, **how)
        self.body = state["task_state"]["fairseq_xl"].get("body")

    # --- model -------------------------------------------------------------------------------------------------

    def build_model(self, cfg, from_checkpoint=False):
        """Builds the model, for --bank in its form; weights that it loads as a checkpoint then get that bank."""
        if self.bank is not None:
            if not from_checkpoint and not self.cfg.init_from:
                raise UserError(f"--bank {self.cfg.bank}: --init-from must name the model whose bank it replaces")
            self._fit_to_bank(cfg)
        model = super().build_model(cfg, from_checkpoint)
        if self.bank is not None:
            self._check_shapes(model.state_dict())
            if from_checkpoint:
                model.before_loading = self._with_bank
        return model

    def _fit_to_bank(self, cfg):
        if not hasattr(cfg, "adapters"):
            raise UserError(f"--bank {self.cfg.bank} needs {XLMonoTransModel.described}")
        if cfg.language_positions != self.bank["language_positions"]:
            has = {True: "with", False: "without"}
            raise UserError(
                f"--bank {self.cfg.bank} is {has[self.bank['language_positions']]} positions of its own "
                f"(--language-positions), the model {has[cfg.language_positions]}"
            )
        with open_dict(cfg):
            cfg.adapters = self.bank["adapters"]

    def _check_shapes(self, state):
        needed = banks.split(state, self.bank["language_positions"])[0]
        for name, value in needed.items():
            found = self.bank["state"].get(name)
            if found is None:
                raise UserError(f"--bank {self.cfg.bank} lacks {name}, which the model has")
            if found.shape != value.shape:
                raise UserError(
                    f"--bank {self.cfg.bank}: {name} has shape {tuple(found.shape)}, the model needs "
                    f"{tuple(value.shape)}"
                )
        more = sorted(self.bank["state"].keys() - needed.keys())
        if more:
            raise UserError(f"--bank {self.cfg.bank} has {more[0]}, which the model lacks")

    def _with_bank(self, state):
        """The state dict of a model with the bank in place of its own: of its body, or of what that was tuned from."""
        if self.bank["body"] not in (self.body, banks.body_digest(state, self.bank["language_positions"])):
            raise UserError(f"--bank {self.cfg.bank} was learned over another body than the model's")
        self.body = self.bank["body"]
        logger.info("bank of %s from %s", ", ".join(self.bank["languages"]), self.cfg.bank)
        return banks.put_in(state, self.bank)

    # --- the first weights -------------------------------------------------------------------------------------

    def read_donor(self, path, model, part="model", own_bank=True):
        """As `XLTask.read_donor`; --bank replaces its bank, and without `own_bank` it comes without one."""
        state = super().read_donor(path, model, part, own_bank and self.bank is None)
        if not isinstance(model, XLMonoTransModel):
            return state
        positions, identity = model.cfg.language_positions, self.donor_identity
        # a new bank is learned over what is there: for a classifier not the body that it was tuned from
        remembered = None if "labels" in identity and not own_bank else identity.get("body")
        self.body = remembered or banks.body_digest(state, positions)
        if self.bank is not None:
            return self._with_bank(state)
        return state if own_bank else banks.split(state, positions)[1]


def matched(model, patterns, option):
    """Names of the parameters that match one of `patterns`, of which ``bank`` stands for the language's bank.

    Raises `UserError` naming `option` for a pattern that matches none.
    """
    names, found = [name for name, _ in model.named_parameters()], set()
    for pattern in patterns:
        if pattern == BANK and isinstance(model, XLMonoTransModel):
            fitting = [name for name in names if banks.owned(name, model.cfg.language_positions)]
        else:
            fitting = fnmatch.filter(names, pattern)
        if not fitting:
            raise UserError(f"{option} {pattern}: no parameter has such a name; the first is {names[0]}")
        found.update(fitting)
    return found
