"""Base of pre-training and fine-tuning: any number of objectives, their heads, a language module, predictions."""

import logging
from dataclasses import dataclass
from typing import Any, Optional

from omegaconf import OmegaConf

from fairseq_xl.checkpoints.transfer import Pretrained
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.engine.epochs import Epochs
from fairseq_xl.engine.metrics import Metrics
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.evaluation.prediction_folders import Origin
from fairseq_xl.io.options import option, run_config, run_option
from fairseq_xl.models.frozen_parameters import FrozenConfig, freeze
from fairseq_xl.models.task_language_module import LanguageModuleConfig, TaskLanguageModule
from fairseq_xl.objectives.labelled import LabelledObjective
from fairseq_xl.objectives.log_values import sums_by_objective
from fairseq_xl.objectives.predictions import Predictions
from fairseq_xl.objectives.task_file_objectives import FilesObjective, check_files_exist
from fairseq_xl.tasks.base import XLTaskConfig
from fairseq_xl.tasks.planned_batches import PlannedBatches, PlannedTask

logger = logging.getLogger(__name__)


@dataclass
class TrainingConfig(LanguageModuleConfig, FrozenConfig, XLTaskConfig):
    """Options of pre-training and fine-tuning."""

    init_from: Optional[str] = option(
        None,
        "initialize a new run from this checkpoint, or from published weights (XLM-R, XLM, BERT); without --arch, or "
        "with --arch auto, with its architecture too. The log names the parameters that it lacks",
    )
    predictions_to: Optional[str] = option(
        None,
        "folder for the predictions of labelled text in validation, a file for each split and language; in "
        "xl_pretraining a subfolder for each labelled objective",
    )


class TrainingTask(PlannedTask):
    """Base of pre-training and fine-tuning; a subclass builds the `objectives`."""

    #: whether names of objectives are part of names in the log and of predictions
    named = True

    def __init__(self, cfg: Any, dictionary: XLDictionary) -> None:
        super().__init__(cfg, dictionary)
        self.predictions: Predictions | None = None  # of validations, with --predictions-to
        self.learned_state = None  # of the loaded checkpoint
        is_new = getattr(cfg, "new_language_module", False)  # of pre-training
        self.language_module = TaskLanguageModule(cfg, dictionary, self.folder(), is_new)
        self.uses_pretrained_tokens = self.language_module.replacement is None
        self.build_objectives()

    def build_objectives(self) -> None:
        """Builds the `objectives`."""
        raise NotImplementedError(f"{type(self).__name__}.build_objectives")

    @property
    def labelled(self) -> dict[str, Any]:
        """{name: labelled objective}."""
        return {name: item for name, item in self.objectives.items() if isinstance(item, LabelledObjective)}

    # --- data --------------------------------------------------------------------------------------------------

    def load_dataset(
        self, split: str, combine: bool = False, task_cfg: Any = None, epoch: int = 1, **kwargs: Any
    ) -> None:
        """As the base class; frees the training examples of labelled objectives."""
        super().load_dataset(split, combine, task_cfg, epoch, **kwargs)
        for objective in self.labelled.values() if split == "train" else ():
            objective.training_examples = {}

    def learn(self) -> None:
        """Reads the training files of labelled objectives, once, and sets their state."""
        if "train" not in self.datasets:
            for objective in self.labelled.values():
                if not objective.training_examples:
                    objective.learn_files(self.first_folder)

    def validation_limit(self, objective: str, dataset: PlannedBatches) -> int:
        """As the base class; files are read in full for predictions and in evaluations."""
        reads_files = isinstance(self.objectives[objective], FilesObjective)
        if reads_files and (self.cfg.predictions_to or not self.training_begun):
            return 0
        return super().validation_limit(objective, dataset)

    def get_batch_iterator(self, dataset: PlannedBatches, *, max_tokens: int | None = None, **kwargs: Any) -> Epochs:
        """The batches of the plan; raises `UserError` for a labelled example longer than --max-tokens."""
        for name in self.labelled.keys() & dataset.corpora.keys():
            objective = self.labelled[name]
            has_limits = objective.cfg.batch_tokens is not None or objective.cfg.batch_sentences is not None
            for corpus in dataset.corpora[name].values() if not has_limits else ():
                objective.check_longest(corpus, max_tokens)
        return super().get_batch_iterator(dataset, max_tokens=max_tokens, **kwargs)

    # --- state -------------------------------------------------------------------------------------------------

    def stored_options(self) -> dict[str, Any]:
        """As the base class, with --lang and --language-module unset: the checkpoint contains the module."""
        return super().stored_options() | self.language_module.stored_options()

    def type_state(self) -> dict[str, Any]:
        """The learned state of labelled objectives: {name: {key: value}}; in fine-tuning {key: value}."""
        states = {name: objective.learned_state() for name, objective in self.labelled.items()}
        return states if self.named else next(iter(states.values()))

    def identity(self) -> dict[str, Any]:
        """The base identity with the language module's body and what the labelled objectives learned."""
        state = {"type_state": self.type_state()} if self.labelled else {}
        return super().identity() | self.language_module.identity() | state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Checks a checkpoint's identity, and takes over its framing and the learned state of its objectives."""
        super().load_state_dict(state_dict)
        identity, path = state_dict["fairseq_xl"], state_dict.get("path", "the checkpoint")
        self.check_trained(identity, path)
        self.language_module.restore(identity)
        learned = identity.get("type_state", {})
        if self.learned_state not in (None, learned):
            raise UserError(f"{path} was trained on other files than the checkpoint before it: {quoted(learned)}")
        self.learned_state = learned
        self.build_objectives()
        for name, objective in self.labelled.items():
            objective.load_state(learned.get(name, {}) if self.named else learned, path)
        if self.cfg.predictions_to and "path" in state_dict:
            self._collect_predictions(Origin.from_checkpoint(path, self.predicted_task))

    def resume_from(self, state: dict[str, Any], path: str) -> None:
        """As the base class; takes over its language module, and raises `UserError` unless it fits."""
        super().resume_from(state, path)
        identity = state["task_state"]["fairseq_xl"]
        self.language_module.restore(identity, resumes=True)
        self.check_trained(identity, path)
        stored_states, states = identity.get("type_state", {}), self.type_state() if self.labelled else {}
        if self.named and list(stored_states) != list(states):  # weights have the order of the heads
            stored, present = (", ".join(names) or "none" for names in (stored_states, states))
            raise UserError(f"{path} was trained with the labelled objectives {stored}; this run has {present}")
        for name, learned in states.items() if self.named else [("", states)]:
            stored = stored_states.get(name, {}) if name else stored_states
            for key, value in learned.items():
                if stored.get(key) != value:
                    shown = f"{name} {key}".strip().replace("_", " ")
                    raise UserError(
                        f"{path} was trained on other files, with {shown} {stored.get(key)}; this run has {value}"
                    )

    # --- model -------------------------------------------------------------------------------------------------

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Builds the model with the heads of all objectives; raises `UserError` if an objective does not fit it."""
        self.check_architecture(cfg)
        if self.named and not from_checkpoint and run_config(self.cfg) is not None:
            readers = [objective for objective in self.objectives.values() if isinstance(objective, FilesObjective)]
            check_files_exist(readers, ("train", *self.validated_splits))
        if not from_checkpoint or not all(objective.learned for objective in self.labelled.values()):
            self.learn()
        for objective in self.objectives.values():
            objective.check_model(cfg)
        self.language_module.prepare(cfg, self.cfg.init_from, from_checkpoint)
        model = super().build_model(cfg, from_checkpoint)
        for name, objective in self.objectives.items():
            model_class: Any = objective.model_class
            if not isinstance(model, model_class):
                raise UserError(f"{name if self.named else self.cfg._name} needs {model_class.description}")
            model.add_heads(objective.heads(cfg))
        self.language_module.attach(model, self.cfg.init_from, from_checkpoint)
        if not from_checkpoint:
            freeze(model, self.cfg.freeze, getattr(self.cfg, "train_only", None))
        self.initialize(model, from_checkpoint)
        return model

    def initialize(self, model: Any, from_checkpoint: bool) -> None:
        """Copies the weights of --init-from to a new model."""
        raise NotImplementedError(f"{type(self).__name__}.initialize")

    def adapt_pretrained(self, pretrained: Pretrained, model: Any) -> Pretrained:
        """Removes an unused language module."""
        return self.language_module.adapt(pretrained, model)

    # --- validation --------------------------------------------------------------------------------------------

    @property
    def predicted_task(self) -> str:
        """The name of the task in predictions: the objectives, joined by commas."""
        return ",".join(self.objectives)

    def begin_training(self) -> None:
        """Checks --predictions-to before a training."""
        super().begin_training()
        if self.cfg.predictions_to:
            self._collect_predictions(
                Origin(f"the training in {run_config(self.cfg).checkpoint.save_dir}", None, self.predicted_task)
            )

    def _collect_predictions(self, origin: Origin) -> None:
        """Writes the predictions of validations to --predictions-to."""
        if not self.labelled:
            raise UserError(
                f"--predictions-to {self.cfg.predictions_to}: no objective has labels: {self.predicted_task}"
            )
        splits = run_option(self.cfg, "dataset.valid_subset", "")
        self.predictions = Predictions(self.labelled, self.cfg.predictions_to, origin, splits.split(","))

    def begin_valid_epoch(self, epoch: int, model: Any) -> None:
        """fairseq hook before each validation in training: removes the predictions of the previous one."""
        super().begin_valid_epoch(epoch, model)
        if self.predictions:
            self.predictions.predictions.clear()

    def end_validation(self, metrics: Metrics, updates: int | None = None) -> None:
        """Warns of collapse after warm-up; raises `UserError` if predictions are not complete."""
        if self.labelled and (updates is None or updates >= self._warmup_updates()):
            sums = sums_by_objective(metrics.read("_losses"))
            for name, objective in self.labelled.items():
                objective.warn_of_collapse(sums.get(name, {}))
        if self.predictions:
            self.predictions.check_complete(f"--max-valid-steps {run_config(self.cfg).dataset.max_valid_steps}")

    def _warmup_updates(self) -> int:
        run = run_config(self.cfg)
        limits = OmegaConf.select(run, "lr_scheduler.warmup_updates"), run.optimization.max_update
        return min(limit or 0 for limit in limits)
