"""Fine-tuning of encoders in any language: classification, ranking, tagging and question answering."""

import logging
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Any, get_type_hints

from fairseq.tasks import TASK_REGISTRY, register_task

from fairseq_xl.engine.initial_weights import needs_initial_weights, transfer_weights
from fairseq_xl.errors import UserError
from fairseq_xl.io.options import option, option_name
from fairseq_xl.objectives.base import OBJECTIVES
from fairseq_xl.objectives.labelled import LabelledConfig, camel_case, labelled_objectives
from fairseq_xl.objectives.objective_options import config_of
from fairseq_xl.objectives.task_file_objectives import LANGUAGES, FilesOptions, check_languages
from fairseq_xl.tasks.training import TrainingConfig, TrainingTask

logger = logging.getLogger(__name__)


@dataclass
class FineTuningConfig(FilesOptions, TrainingConfig):
    """Options of every fine-tuning task of encoders."""

    length: int = option(
        256,
        "maximum length of an input, in tokens; longer texts are truncated, sentences to tag and contexts "
        "of questions divided",
    )
    head_dropout: float = option(0.1, "dropout in front of the task's output layer", range="probability")
    best_by_language: bool = option(
        False,
        "also save checkpoint_best_LANGUAGE.pt, with the best --best-checkpoint-metric of each validated language",
    )


class FineTuningTask(TrainingTask):
    """An encoder with the head of a labelled objective, whose options are the task's; training mixes languages."""

    named = False
    #: name of the objective
    task_type: str

    def build_objectives(self) -> None:
        """Makes the objective."""
        cfg, owners = self.cfg, self.language_module.languages
        self.reset_plans()
        if cfg.lang or len(owners) == 1:
            cfg.train_langs = cfg.eval_langs = cfg.lang or owners[0]
            cfg.valid_langs = None
        check_languages(cfg, option_name, self.dictionary)
        kind = OBJECTIVES[self.task_type]
        options = config_of(kind, cfg, getattr(type(self), "__dataclass").__dataclass_fields__)
        self.objectives = {self.task_type: kind(options, self.dictionary, self.framing, named=False)}

    def objective_corpora(self) -> dict[str, list[str]]:
        """No losses of single corpora are logged: statistics are by language."""
        return {self.task_type: []}

    def stored_options(self) -> dict[str, Any]:
        """The options of the base class, and the languages, which --lang or a language module may have set."""
        return super().stored_options() | {name: self.cfg[name] for name in LANGUAGES}

    def identity(self) -> dict[str, Any]:
        """The base identity with the head."""
        return super().identity() | {"head": self.task_type}

    def check_trained(self, identity: dict[str, Any], path: str) -> None:
        """Raises `UserError` for a checkpoint without this head."""
        if identity.get("head") != self.task_type:
            raise UserError(f"{path} has no head of {self.cfg._name}: fine-tune its encoder with --init-from {path}")

    def metrics(self) -> list[str]:
        """Names of the validation metrics: the objective's metrics, `loss`, and each metric by language."""
        objective = self.labelled[self.task_type]
        names, count = objective.metric_names(objective.languages_of("valid")), len(objective.metrics())
        return [*names[:count], "loss", *names[count:]]

    def initialize(self, model: Any, from_checkpoint: bool) -> None:
        """Copies the encoder of --init-from in a new run."""
        if needs_initial_weights(self, from_checkpoint):
            if self.cfg.init_from:
                transfer_weights(self, model, {"encoder": self.cfg.init_from})
            else:
                logger.info("the encoder has random weights: there is no --init-from")


def define_tasks() -> None:
    """Defines and registers the task `xl_{name}` of each labelled objective that has none yet."""
    for name, kind in labelled_objectives().items():
        if f"xl_{name}" not in TASK_REGISTRY:
            namespace = {"__doc__": f"Options of `xl_{name}`.", "__module__": __name__}
            types, common = get_type_hints(kind.Config), LabelledConfig.__dataclass_fields__
            options = [
                (item.name, types[item.name], field(default=item.default, metadata=item.metadata))
                for item in fields(kind.Config)
                if item.name not in common
            ]
            bases = (FineTuningConfig,)
            config = make_dataclass(f"XL{camel_case(name)}Config", options, bases=bases, namespace=namespace)
            members = {"__doc__": kind.__doc__, "criterion": f"xl_{name}", "task_type": name}
            register_task(f"xl_{name}", dataclass=config)(type(f"XL{camel_case(name)}Task", (FineTuningTask,), members))


define_tasks()
