"""What all our tasks share: the dictionary, identity checks of checkpoints, and remedies for fairseq's data loading."""

import json
import logging
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.tasks import FairseqTask
from omegaconf import II

from fairseq_xl import compat
from fairseq_xl.checkpoints import published
from fairseq_xl.data.dictionary import XLDictionary
from fairseq_xl.data.framing import FRAMINGS, Framing
from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1


@dataclass
class XLTaskConfig(FairseqDataclass):
    """Options of every task."""

    data: Optional[str] = field(
        default=None, metadata={"help": "folder that `python -m preprocess` wrote; several, joined by ':', are shards"}
    )
    framing: ChoiceEnum(FRAMINGS) = field(
        default="xl",
        metadata={"help": "framing of inputs: xl (<s> x </s>), or xlm (</s> x </s>) for published XLM weights"},
    )
    seed: int = II("common.seed")
    # fairseq reads these two from the task's options only; its own default is to keep both.
    persistent_workers: bool = field(
        default=False, metadata={"help": "keep loading processes across epochs; they never hear of the new epoch"}
    )
    reuse_dataloader: bool = field(
        default=False, metadata={"help": "keep the loader across epochs; it never hears of the new epoch"}
    )


class XLTask(FairseqTask):
    """Base of our tasks.

    A checkpoint of these tasks says which format, dictionary, framing, attention heads and task made it; loading it
    beside another dictionary, or with another framing, is refused in one sentence.
    """

    def __init__(self, cfg, dictionary):
        super().__init__(cfg)
        self.dictionary = dictionary
        self.framing = Framing.of(str(cfg.framing), dictionary)
        self.terminated = False  # whether this process got SIGTERM

    @classmethod
    def setup_task(cls, cfg, **kwargs):
        """Loads ``dict.txt``, the same in every data folder, and checks that the text was binarised with it."""
        if not cfg.data:
            raise UserError("name the folder of binarised text that `python -m preprocess` wrote")
        folders = [Path(folder) for folder in cfg.data.split(os.pathsep)]
        for folder in folders:
            if not folder.is_dir():
                raise UserError(f"{folder}: no such folder of binarised text")
        dictionary = XLDictionary.load(folders[0] / "dict.txt")
        for folder in folders:
            _check_dictionary(folder, dictionary)
        return cls(cfg, dictionary)

    def folder(self, epoch=1):
        """The data folder of an epoch: shards take turns, as fairseq's do."""
        folders = self.cfg.data.split(os.pathsep)
        return Path(folders[(epoch - 1) % len(folders)])

    @property
    def source_dictionary(self):
        """The joint dictionary."""
        return self.dictionary

    @property
    def target_dictionary(self):
        """The joint dictionary."""
        return self.dictionary

    def build_model(self, cfg, from_checkpoint=False):
        """Builds the model and remembers what tells its weights apart from others of the same shapes."""
        model = super().build_model(cfg, from_checkpoint)
        self.heads = cfg.heads
        return model

    def get_batch_iterator(self, dataset, required_batch_size_multiple=1, **kwargs):
        """fairseq's iterator; but the last partial batch, which it drops by default, is kept."""
        return super().get_batch_iterator(dataset, required_batch_size_multiple=1, **kwargs)

    # --- identity of checkpoints -------------------------------------------------------------------------------

    def identity(self):
        """What a checkpoint says of itself: plain Python, nothing that unpickling could execute."""
        return {
            "format": FORMAT_VERSION,
            "task": type(self).__name__,
            "dictionary": self.dictionary.digest(),
            "languages": list(self.dictionary.languages),
            "framing": self.framing.name,
            "heads": getattr(self, "heads", None),
        }

    def state_dict(self):
        """fairseq hook: what a checkpoint keeps of the task."""
        return {"fairseq_xl": self.identity()}

    def load_state_dict(self, state_dict):
        """Checks a checkpoint's identity before its weights are loaded (generate, validate, interactive, eval-lm)."""
        identity = state_dict.get("fairseq_xl")
        if identity is None:
            raise UserError("the checkpoint was not written by fairseq_xl")
        self.check_identity(identity, "the checkpoint")
        self.framing = Framing.of(identity["framing"], self.dictionary)

    def check_fits(self, state, path):
        """Raises `UserError` unless the weights of a checkpoint mean the same in this run's model.

        Called by `fairseq_xl.compat` before fairseq-train loads weights, to resume or to fine-tune.

        Args:
            state: the whole checkpoint.
            path: its file, for messages.
        """
        identity = state.get("task_state", {}).get("fairseq_xl")
        if identity is None:
            raise UserError(f"{path} was not written by fairseq_xl")
        self.check_identity(identity, path)
        if identity["heads"] != self.heads:
            raise UserError(
                f"{path} has {identity['heads']} attention heads, this model {self.heads}: the weights would fit "
                "and mean something else"
            )
        if identity["framing"] != self.framing.name:
            raise UserError(
                f"{path} was trained with --framing {identity['framing']}, this run has {self.framing.name}"
            )

    def check_identity(self, identity, origin):
        """Raises `UserError` if `identity`, of the file `origin`, has another format or dictionary."""
        if identity["format"] != FORMAT_VERSION:
            raise UserError(f"{origin} has format {identity['format']}, this version reads {FORMAT_VERSION}")
        if identity["dictionary"] != self.dictionary.digest():
            raise UserError(
                f"{origin} was trained with another dictionary (languages {', '.join(identity['languages'])}) than "
                f"{self.folder() / 'dict.txt'} ({len(self.dictionary)} symbols, languages "
                f"{', '.join(self.dictionary.languages)})"
            )

    def read_donor(self, path, model, tokens_only=False):
        """Weights that a new model starts from: a checkpoint of ours, or a published encoder.

        Args:
            path: a file, or for published encoders also their folder (`fairseq_xl.checkpoints.published`).
            model: the new model; it gives the rows that a published encoder lacks.
            tokens_only: only the table of tokens will be used, so that a published encoder may differ in the rest.

        Returns: a state dict under our names, as `XLEncoderModel` lists them.
        Raises `UserError` where the weights would mean something else in this run's model.
        """
        donor = published.read(path)
        if not isinstance(donor, published.Published):
            state = compat.check_checkpoint(donor, path)
            XLTask.check_fits(self, state, path)  # not the task's own: a donor may be of another task
            return state["model"]
        for name in ["embed_dim"] if tokens_only else donor.options:
            found, needed = self.framing.name if name == "framing" else getattr(model.cfg, name), donor.options[name]
            if str(found) != str(needed):
                raise UserError(f"{path} needs --{name.replace('_', '-')} {needed}, this run has {found}")
        symbols = self.dictionary.symbols[: self.dictionary.first_language]
        published.check_symbols(donor, symbols, self.folder() / "dict.txt")
        state, new = published.with_new_rows(donor, model.state_dict(), self.dictionary.languages)
        logger.info("%s: published weights, new rows: %s", path, ", ".join(new) or "none")
        return state

    # --- stopping ----------------------------------------------------------------------------------------------

    def get_checkpoint_dict(self):
        """fairseq hook: how long --patience has waited, which fairseq itself forgets."""
        return {type(self).__name__: compat.early_stopping()}

    def set_checkpoint_dict(self, state):
        """fairseq hook: goes on waiting where the stopped run was."""
        compat.restore_early_stopping(state)

    def begin_epoch(self, epoch, model):
        """On SIGTERM training stops after the update in progress, saves and exits with 0, without validating."""
        if self.cfg._get_parent() is None:  # no command's configuration: nothing to stop
            return

        def stop(signum, frame):
            logger.warning("SIGTERM: saving after this update, then stopping")
            self.terminated = True

        signal.signal(signal.SIGTERM, stop)

    def optimizer_step(self, optimizer, model, update_num):
        """fairseq hook: makes the update; then all ranks stop together if one of them got SIGTERM."""
        super().optimizer_step(optimizer, model, update_num)
        if compat.any_rank(self.terminated, next(model.parameters()).device):
            run = self.cfg._get_parent()
            run.optimization.stop_time_hours = 1e-9
            run.dataset.disable_validation = True


def _check_dictionary(folder, dictionary):
    """Raises `UserError` if the folder's text was binarised with another dictionary."""
    if XLDictionary.load(folder / "dict.txt").digest() != dictionary.digest():
        raise UserError(f"{folder / 'dict.txt'} is another dictionary than that of the first data folder")
    manifest = folder / "manifest.json"
    if manifest.is_file():
        written = json.loads(manifest.read_text(encoding="utf-8")).get("dictionary", {}).get("sha256")
        if written not in (None, dictionary.digest()):
            raise UserError(f"{folder / 'dict.txt'} is not the dictionary that the text was binarised with: {manifest}")
