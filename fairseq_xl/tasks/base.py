"""Base of all tasks: dictionary, model, and checks of checkpoints."""

import os
from collections.abc import Callable, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, cast

import torch
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.logging import metrics as fairseq_metrics
from fairseq.tasks import FairseqTask
from omegaconf import II

from fairseq_xl.checkpoints import identity as identities
from fairseq_xl.checkpoints.layouts.stored_origin import KEY as ORIGIN, Origin, stored_origin
from fairseq_xl.checkpoints.transfer import Pretrained, check_fits
from fairseq_xl.criterions.combined import CombinedCriterion, FairseqCriterionWrapper
from fairseq_xl.data.framing import FRAMINGS, Framing
from fairseq_xl.data.store.manifest import data_folders, folder_of_epoch
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.subwords import check_files
from fairseq_xl.engine.log import log_batches, ordered
from fairseq_xl.engine.metrics import Metrics
from fairseq_xl.engine.option_checks import check_architecture, check_command
from fairseq_xl.errors import GENERATES_NOTHING, UserError, check_ranges
from fairseq_xl.io.files import FORMATS
from fairseq_xl.io.fingerprints import Inputs
from fairseq_xl.io.options import AUTO, number_of_updates, option, run_config, run_option
from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel
from fairseq_xl.modules.stack import set_up_stacks
from fairseq_xl.tasks.subword_bpe import build_bpe


@dataclass
class XLTaskConfig(FairseqDataclass):
    """Options of every task."""

    data: Optional[str] = option(
        None,
        "folder written by `fairseq-xl data prepare`; or shards, one of which is read in each epoch: a folder "
        "of shards, a pattern in quotes ('DATA/*'), or several folders joined by ':'",
    )
    framing: ChoiceEnum(FRAMINGS) = option(  # type: ignore[valid-type]
        "xl",
        "framing of inputs: xl (<s> x </s>), or that of published weights: xlm (</s> x </s>), bert (one "
        "</s> between two texts), mbart (x </s> [xx]), nllb ([xx] x </s>)",
    )
    compile: bool = option(
        False,
        "compile the layers with torch.compile in training, which delays the first updates; slower on CPU with dropout",
    )
    compile_backend: str = option(
        "inductor", "backend of --compile; aot_eager and eager run without a compiler, for debugging"
    )
    checkpoint_activations: bool = option(
        False,
        "store only the inputs of layers and compute the rest again in the backward pass: less memory, "
        "and one more forward pass of the layers",
    )
    validation_examples: int = option(
        5000,  # as many sentences as XLM's scripts take for validation: usual sets are read in full
        "validate on at most this many examples per language, pair or direction, and per objective: a "
        "fixed random sample (0: all). fairseq-validate takes the sample with xl_pretraining and "
        "xl_unsupervised_translation, and all examples with other tasks. --max-valid-steps may end validation earlier",
        range="0 or more",
    )
    updates_per_epoch: Any = option(
        "auto", "updates of an epoch, for which examples are drawn; auto: an epoch reads each example once"
    )
    batches_per_update: Optional[int] = option(
        None,
        "batches of an update, whatever the number of processes, which must divide it; sets --update-freq. Batches and "
        "dropout of an update depend on --seed and its number only",
        range="1 or more",
    )
    update_freq: Any = II("optimization.update_freq")
    seed: int = II("common.seed")


class XLTask(FairseqTask):
    """Base of all tasks, with the interface of the training loop (`fairseq_xl.engine.interfaces`) and of fairseq."""

    #: name of its criterion, and names of further criterions that can train its models
    criterion: str
    other_criterions: Set[str] = frozenset()
    #: whether fairseq-generate and fairseq-interactive run its models
    generates = False
    #: whether the token embeddings of checkpoints are used, so that their dictionary must be this run's
    uses_pretrained_tokens = True
    #: sub-words of raw input without --bpe
    default_bpe: Any = None
    #: class and number of attention heads of the model that was built last
    built_class, attention_heads = cast(Any, (None, None))

    def __init__(self, cfg: Any, dictionary: XLDictionary) -> None:
        super().__init__(cfg)
        check_ranges(getattr(type(self), "__dataclass"), cfg)
        self.dictionary, self.framing = dictionary, Framing.of(str(cfg.framing), dictionary)
        self.loaded_framing = None  # framing of the checkpoints that were loaded for evaluation
        self.origin: Origin | None = None  # the published folder that the model came from
        #: whether a command evaluates checkpoints: fairseq-generate, fairseq-validate, fairseq-interactive
        self.evaluates = bool(run_option(cfg, "common_eval.path", None))
        self.training_begun = False  # whether fairseq-train has begun, which limits validation to a sample
        self.inputs, self.encoding = Inputs(), identities.encoding_of(self.folder())

    @classmethod
    def setup_task(cls, cfg: Any, **kwargs: Any) -> Any:
        """Loads ``dict.txt``; raises `UserError` unless it is the dictionary of all data folders and of their text."""
        check_command(run_config(cfg), cfg._name, {cls.criterion, *cls.other_criterions})
        if not cfg.data:
            raise UserError("DATA is missing: name the data folder that `fairseq-xl data prepare` wrote")
        folders = data_folders(cfg.data)
        dictionary = identities.dictionary_of(folders, kwargs.get("languages"), cfg)
        cfg.data = os.pathsep.join(map(str, folders))
        cfg.updates_per_epoch = number_of_updates(cfg.updates_per_epoch) or AUTO
        return cls(cfg, dictionary)

    def folder(self, epoch: int = 1) -> Path:
        """The data folder of an epoch: epochs cycle through the shards, as in fairseq."""
        return folder_of_epoch(self.cfg.data, epoch)

    def dataset(self, split: str) -> Any:
        """The dataset of a split."""
        return self.datasets[split]

    #: {name: objective}
    objectives: dict[str, Any]
    #: {objective: names of the corpora whose losses are logged}
    objective_corpora: Callable[[], dict[str, list[str]]]
    #: the joint dictionary, for fairseq
    source_dictionary = target_dictionary = property(lambda self: self.dictionary)

    def check_architecture(self, cfg: Any) -> None:
        """Raises `UserError` for the config of a model that is not of this package, and for a number out of range."""
        check_architecture(cfg, XLEncoderDecoderModel if self.generates else object)

    def describe_batch(self, sample: Any) -> str:
        """The task and the languages of a batch, for messages."""
        ids = sample["batch"]["languages"].unique().tolist()
        return f"{self.cfg._name} of {','.join(self.dictionary.text_languages[index] for index in ids)}"

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Builds the model; stores its class and its number of attention heads, which no shape of weights shows."""
        self.check_architecture(cfg)
        model = super().build_model(cfg, from_checkpoint)
        self.built_class, self.attention_heads = type(model), getattr(cfg, "heads", None)
        if not from_checkpoint:
            set_up_stacks(model, self.cfg, torch.cuda.is_available() and not run_option(self.cfg, "common.cpu", False))
        return model

    def build_bpe(self, args: Any) -> Any:
        """Builds fairseq's BPE for raw input; its sub-words must be the data folder's (`UserError`)."""
        joins = run_option(self.cfg, "common_eval.post_process", None)
        language = self.inference_pair[0] if self.generates else None
        return build_bpe(args, joins, self.folder(), self.dictionary, self.encoding, language, lambda: self.default_bpe)

    def build_generator(self, *args: Any, **options: Any) -> Any:
        """Builds the generator of fairseq-generate and fairseq-interactive; `UserError` unless the task `generates`."""
        if not self.generates:
            raise UserError(f"{self.cfg._name} {GENERATES_NOTHING}")
        return super().build_generator(*args, **options)

    #: `fairseq_xl.engine.loading` calls it before it creates the task
    check_data_folder = staticmethod(identities.check_data_folder)

    def identity(self) -> dict[str, Any]:
        """The identity of the task in checkpoints: plain Python, which loading cannot execute."""
        return {
            "format": FORMATS["checkpoint"],
            "task": self.cfg._name,
            "dictionary": self.dictionary.digest(),
            "languages": list(self.dictionary.languages),
            "framing": self.framing.name,
            "heads": self.attention_heads,
            "encoding": self.encoding,
        }

    def state_dict(self) -> dict[str, Any]:
        """fairseq hook: the state of the task in checkpoints."""
        origin = {ORIGIN: self.origin.state_dict()} if self.origin else {}
        return {"fairseq_xl": self.identity(), "inputs": self.inputs.read} | origin

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Checks a checkpoint's identity before it is evaluated (generate, validate, interactive, eval-lm)."""
        path = state_dict.get("path", "the checkpoint")  # `fairseq_xl.engine.loading` adds it
        identity, self.origin = state_dict["fairseq_xl"], stored_origin(state_dict, path)
        if self.uses_pretrained_tokens:
            identities.check_vocabulary(identity, path, self.dictionary, self.folder() / "dict.txt")
        default, value = str(getattr(type(self), "__dataclass").framing), str(self.cfg.framing)
        identities.check_framing(identity["framing"], path, self.loaded_framing, None if value == default else value)
        self.loaded_framing, self.framing = identity["framing"], Framing.of(identity["framing"], self.dictionary)

    def resume_from(self, state: dict[str, Any], path: str) -> None:
        """Takes over a checkpoint's published origin; `UserError` unless its weights mean the same in this model."""
        self.origin = stored_origin(state["task_state"], path)
        check_fits(state, path, self.identity(), self.dictionary, self.folder() / "dict.txt", self.built_class)

    def adapt_pretrained(self, pretrained: Pretrained, model: Any) -> Pretrained:
        """Hook: changes weights (`Pretrained`) before they are copied into a new model."""
        return pretrained

    def stored_options(self) -> dict[str, Any]:
        """{option: value} that replaces the command line's in the run and its checkpoints."""
        return {"data": self.cfg.data, "updates_per_epoch": self.cfg.updates_per_epoch}  # all shards; a number

    def begin_training(self) -> None:
        """Limits validation to a sample from now on; raises `UserError` if the sub-words have changed."""
        self.training_begun = True
        check_files(self.folder())  # training does not read them, but its checkpoints refer to them

    def options_without_effect(self, run: Any) -> dict[str, str]:
        """Options of the task that have no effect on this training: {``--option value``: reason}."""
        return {}

    def build_criterion(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Builds the criterion, wraps one of fairseq, and sets its objectives and the names of their corpora."""
        criterion = super().build_criterion(cfg, from_checkpoint)
        if not isinstance(criterion, CombinedCriterion):
            criterion = FairseqCriterionWrapper(criterion)
        criterion.set_objectives(self.objectives, self.objective_corpora())
        return criterion

    def begin_epoch(self, epoch: int, model: Any) -> None:
        """fairseq hook, which this package's training loop does not call; raises `UserError`."""
        raise UserError(
            f"{self.cfg._name} is trained by the loop of fairseq_xl, and this command runs another one: in "
            "fairseq-hydra-train add hydra.callbacks.fairseq_xl._target_=fairseq_xl.engine.hydra.Registering"
        )

    def train_step(
        self, sample: Any, model: Any, criterion: Any, optimizer: Any, update_num: int, ignore_grad: bool = False
    ) -> Any:
        """A micro-step: adds the gradients of a batch to the update's; those of a dummy (`ignore_grad`) are 0."""
        model.set_num_updates(update_num)
        weight = self.objectives[sample["objective"]].weight(update_num)
        with optimizer.autocast():
            loss, size, statistics = criterion(model, sample | {"weight": weight})
        optimizer.backward(loss * 0 if ignore_grad else loss)
        return loss, size, statistics

    def reduce_metrics(self, logging_outputs: Any, criterion: Any) -> None:
        """fairseq-validate's hook: logs the statistics of a whole validation, and ends it."""
        log_batches(metrics := Metrics(), logging_outputs, criterion)
        for name, value in ordered(metrics.values()).items():
            fairseq_metrics.log_scalar(name, value)
        self.end_validation(metrics)

    def end_validation(self, metrics: Metrics, updates: int | None = None) -> None:
        """Called after the validation of a split, with its `Metrics`; `updates` is None in fairseq-validate."""
