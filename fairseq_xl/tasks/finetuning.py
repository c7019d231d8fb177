"""Fine-tuning of encoders in any language: classification, ranking, tagging and question answering."""

import logging
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Optional

from fairseq.tasks import TASK_REGISTRY, register_task

from fairseq_xl.data.dictionary import named_languages
from fairseq_xl.engine.initial_weights import needs_initial_weights, transfer_weights
from fairseq_xl.engine.interfaces import run_config
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.evaluation.prediction_folders import Origin, check_replaceable
from fairseq_xl.finetuning import TASK_TYPES
from fairseq_xl.finetuning.base import camel_case
from fairseq_xl.models.encoder import XLEncoderModel
from fairseq_xl.models.task_language_module import LanguageModuleConfig, TaskLanguageModule, matching_parameters
from fairseq_xl.objectives.base import ObjectiveConfig
from fairseq_xl.objectives.labelled import SHORTEST, LabelledObjective
from fairseq_xl.options import option
from fairseq_xl.tasks.base import XLTask, XLTaskConfig
from fairseq_xl.tasks.labelled import LabelledTask
from fairseq_xl.tasks.planned_batches import PlannedBatches

logger = logging.getLogger(__name__)


@dataclass
class FineTuningConfig(LanguageModuleConfig, XLTaskConfig):
    """Options of every fine-tuning task of encoders."""

    task_files: Optional[str] = option(
        None,
        "folder of SPLIT.LANGUAGE files, in the format of the task (recipes/README.md); several folders, "
        "separated by ':', are searched in order",
    )
    train_langs: str = option("en", "languages to train on, separated by commas")
    eval_langs: str = option("en", "languages of every split but `train`, separated by commas")
    valid_langs: Optional[str] = option(
        None, "languages of the split `valid`, separated by commas (default: --eval-langs)"
    )
    length: int = option(
        256,
        "maximum length of an input, in tokens; longer texts are truncated, sentences to tag and contexts "
        "of questions divided",
    )
    examples_per_epoch: Optional[int] = option(
        None,
        "number of examples drawn at random for each epoch; of question answering: windows (default: each "
        "example once; XLM: 20000)",
        range="1 or more",
    )
    head_dropout: float = option(0.1, "dropout in front of the task's output layer", range="probability")
    init_from: Optional[str] = option(
        None, "fine-tune the encoder of this checkpoint, or of published weights (XLM-R, XLM, BERT)"
    )
    freeze: Optional[str] = option(
        None,
        "freeze the parameters whose names match these patterns, separated by commas; 'language-module': "
        "the language module of an xl_monotrans_* model (Artetxe et al. 2020, section 2)",
    )
    predictions_to: Optional[str] = option(
        None, "folder for the predictions of fairseq-validate, a file for each split and language"
    )


class FineTuningTask(LabelledTask, XLTask):
    """An encoder with a head for each of its task types: fine-tune and test in any languages.

    Each task type is an objective. Batches of training mix languages.
    """

    #: the task type
    task_type = None

    def __init__(self, cfg, dictionary):
        super().__init__(cfg, dictionary)
        self.predictions_to = cfg.predictions_to
        self._build_objectives(self.make_types())
        self.loaded_state = None  # what the task types of the loaded checkpoints learned
        self.language_module = TaskLanguageModule(cfg, dictionary, self.folder())
        self.uses_pretrained_tokens = self.language_module.replacement is None
        owners = self.language_module.languages
        if cfg.lang or len(owners) == 1:
            self._use_only(cfg.lang or owners[0])
        named_languages("--train-langs", cfg.train_langs, dictionary)
        named_languages("--eval-langs", cfg.eval_langs, dictionary)
        if cfg.valid_langs is not None:
            named_languages("--valid-langs", cfg.valid_langs, dictionary)
        if cfg.length < SHORTEST:
            raise UserError(f"--length {cfg.length}: an input needs at least {SHORTEST} tokens")

    def make_types(self):
        """{name: `TaskType`} of the task."""
        return {self.task_type.name: self.task_type(self.cfg, self.framing)}

    @property
    def type(self):
        """The only task type."""
        (found,) = self.types.values()
        return found

    @property
    def head(self):
        """The name of what the task predicts, in the identity of checkpoints."""
        return self.type.name

    def _build_objectives(self, types):
        self.forget_plans()
        named = len(types) > 1 or self.task_type is None
        self.objectives = {
            name: LabelledObjective(
                ObjectiveConfig(length=self.cfg.length), self.dictionary, self.framing, name, each, named
            )
            for name, each in types.items()
        }

    def corpora_of_objectives(self):
        """No losses of single corpora are logged: statistics are by language."""
        return dict.fromkeys(self.objectives, ())

    def _use_only(self, language):
        """Sets the languages of all splits to this one."""
        self.cfg.train_langs = self.cfg.eval_langs = language
        self.cfg.valid_langs = None

    def stored_options(self):
        """As of every task, and the languages, of which those of a language module may be the only ones."""
        languages = {name: self.cfg[name] for name in ("train_langs", "eval_langs", "valid_langs")}
        return super().stored_options() | languages | self.language_module.stored_options()

    # --- identity ----------------------------------------------------------------------------------------------

    def identity(self):
        """Returns the base identity with the head and the state of the task type."""
        own = {"head": self.head, "type_state": self.learned_state()}
        return super().identity() | self.language_module.identity() | own

    def learned_state(self):
        """What the task type learned: {name: value}."""
        return self.type.learned_state()

    def load_learned_state(self, found, path):
        """Takes over what a checkpoint's task type learned."""
        self.type.load_state(found, path)

    def load_state_dict(self, state_dict):
        """Checks a checkpoint's identity and takes over what its task type learned; those of an ensemble must agree."""
        super().load_state_dict(state_dict)
        found = state_dict["fairseq_xl"]
        path = state_dict.get("path", "the checkpoint")
        self._check_head(found, path)
        self.language_module.restore(found)
        learned = found.get("type_state", {})
        if self.loaded_state not in (None, learned):
            raise UserError(f"{path} was trained on other files than the checkpoint before it: {quoted(learned)}")
        self.load_learned_state(learned, path)
        self.loaded_state = learned
        self._build_objectives(self.types)
        if self.cfg.predictions_to and "path" in state_dict:
            self._set_origin(Origin.of_checkpoint(path, self.head))

    def begin_training(self):
        """Checks --predictions-to before a training."""
        super().begin_training()
        if self.cfg.predictions_to:
            folder = run_config(self.cfg).checkpoint.save_dir
            self._set_origin(Origin(f"the training in {folder}", None, self.head))

    def folders_of_predictions(self):
        """{subfolder of --predictions-to, "" for itself: its task type}."""
        return {"": self.type}

    def _set_origin(self, origin):
        """Sets the model of --predictions-to; raises `UserError` if the folder would keep those of another model."""
        self.origin, run = origin, run_config(self.cfg)
        splits = run.dataset.valid_subset.split(",") if run is not None else []
        self.prefixes = [f"{split}.{language}." for split in splits for language in self._languages(split)]
        for name, each in self.folders_of_predictions().items():
            check_replaceable(Path(self.cfg.predictions_to, name), origin._replace(task=each.name), self.prefixes)

    def _check_head(self, found, path):
        if found.get("head") != self.head:
            raise UserError(f"{path} has no head of {self.cfg._name}: fine-tune its encoder with --init-from {path}")

    def check_fits(self, state, path):
        """Raises `UserError` unless a checkpoint to resume from has this run's head."""
        super().check_fits(state, path)
        found = state["task_state"]["fairseq_xl"]
        self.language_module.restore(found, resumes=True)
        self._check_head(found, path)
        theirs = found.get("type_state", {})
        for name, ours in self.learned_state().items():
            if theirs.get(name) != ours:
                shown = f"{name.replace('_', ' ')} {theirs.get(name)}; this run has {ours}"
                raise UserError(f"{path} was trained on other files, with {shown}")

    # --- model -------------------------------------------------------------------------------------------------

    def metrics(self):
        """Names of the validation metrics: the task type's metrics, `loss`, and each metric by language."""
        names = self.objectives[self.type.name].metric_names(self._languages("valid"))
        count = len(self.type.metrics())
        return [*names[:count], "loss", *names[count:]]

    def build_model(self, cfg, from_checkpoint=False):
        """Builds the encoder and the heads; a new run takes the encoder of --init-from."""
        self.check_architecture(cfg)
        if not from_checkpoint or not all(each.learned for each in self.types.values()):
            self.learn()
        if self.cfg.length > cfg.max_positions:
            raise UserError(f"--length {self.cfg.length} is more than the model's --max-positions {cfg.max_positions}")
        self.language_module.prepare(cfg, self.cfg.init_from, from_checkpoint)
        model = super().build_model(cfg, from_checkpoint)
        self.language_module.attach(model, self.cfg.init_from, from_checkpoint)
        if not isinstance(model, XLEncoderModel):
            raise UserError(f"{self.cfg._name} needs {XLEncoderModel.described}")
        for each in self.types.values():
            model.add_heads(each.heads(cfg))
        if self.cfg.freeze and not from_checkpoint:
            for name in matching_parameters(model, self.cfg.freeze.split(","), "--freeze"):
                model.get_parameter(name).requires_grad = False
        if needs_initial_weights(self, from_checkpoint):
            if self.cfg.init_from:
                transfer_weights(self, model, {"encoder": self.cfg.init_from})
            else:
                logger.info("the encoder has random weights: there is no --init-from")
        return model

    def adapt_pretrained(self, pretrained, model):
        """Removes the language module that the run does not use."""
        return self.language_module.adapt(pretrained, model)

    # --- data --------------------------------------------------------------------------------------------------

    def _languages(self, split):
        named = {"train": self.cfg.train_langs, "valid": self.cfg.valid_langs or self.cfg.eval_langs}
        return named.get(split, self.cfg.eval_langs).split(",")

    def languages_of_type(self, name, split):
        """The languages of a split that a task type has."""
        return self._languages(split)

    def folders_of_type(self, name):
        """The option that names the folders of a task type's files, and the folders, joined by ':'."""
        return "--task-files", self.cfg.task_files

    def get_batch_iterator(self, dataset, max_tokens=None, **kwargs):
        """The batches of the plan; raises `UserError` for an example longer than --max-tokens."""
        for name, corpora in dataset.corpora.items():
            for corpus in corpora.values():
                self.check_longest(name, corpus, max_tokens)
        return super().get_batch_iterator(dataset, max_tokens=max_tokens, **kwargs)

    def load_dataset(self, split, combine=False, task_cfg=None, epoch=1, **kwargs):
        """Reads and encodes the files of a split in its languages."""
        corpora = self.labelled_corpora(split, self.types)
        if split == "train":
            self.inputs.check_complete(split)
            sizes = {name: sum(each.sentences for each in of_type.values()) for name, of_type in corpora.items()}
            counts = self.examples_of_types(sizes)
            self.repeats = {name: dict.fromkeys(each, counts[name] / sizes[name]) for name, each in corpora.items()}
        self.datasets[split] = PlannedBatches(self.objectives, corpora, split)

    def examples_of_types(self, sizes):
        """The number of examples of each task type in an epoch, from how many there are."""
        return {name: self.cfg.examples_per_epoch or size for name, size in sizes.items()}


def define_tasks():
    """Defines and registers the task `xl_{name}` of each task type that has none yet."""
    for name, task_type in TASK_TYPES.items():
        if f"xl_{name}" not in TASK_REGISTRY:
            config = make_config(name, task_type.Config)
            described = {"__doc__": task_type.__doc__, "criterion": f"xl_{name}", "task_type": task_type}
            made = type(f"XL{camel_case(name)}Task", (FineTuningTask,), described)
            register_task(f"xl_{name}", dataclass=config)(made)


def make_config(name, *configs):
    """The options dataclass of `xl_{name}`: those of every fine-tuning task and of these `TypeConfig`s."""
    described = {"__doc__": f"Options of `xl_{name}`.", "__module__": __name__}
    return make_dataclass(f"XL{camel_case(name)}Config", [], bases=(*configs, FineTuningConfig), namespace=described)


define_tasks()
