"""Pre-training with any set of objectives."""

import logging
from collections import Counter
from dataclasses import dataclass
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task

from fairseq_xl.checkpoints.stacks import LAYERS
from fairseq_xl.data.corpora.mixed_corpus import MIXED
from fairseq_xl.data.plan.epoch_plan import SCHEDULES, check_cycle
from fairseq_xl.engine.initial_weights import needs_initial_weights, transfer_weights
from fairseq_xl.errors import UserError
from fairseq_xl.io.flags import OBJECTIVE_OPTIONS, merge_objective_options
from fairseq_xl.io.options import AUTO, UPDATES, option, run_config
from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel
from fairseq_xl.objectives import build_objectives, settings_as_text
from fairseq_xl.objectives.generation import Generation
from fairseq_xl.objectives.log_values import main_metrics
from fairseq_xl.objectives.task_file_objectives import LANGUAGES, FilesObjective, all_read_files, check_languages
from fairseq_xl.objectives.translation import DirectedTranslation, TranslationObjective
from fairseq_xl.tasks.planned_batches import EvaluationDataset, PlannedBatches
from fairseq_xl.tasks.training import TrainingConfig, TrainingTask

logger = logging.getLogger(__name__)

LIMITS = ("batch_tokens", "batch_sentences")  # of an objective's batches
SPLITS = ("train", "valid", "test")

PASS_OPTIONS = ("examples_per_epoch", "upsample_primary", "sampling_temperature")  # of objectives: of a pass only
SAMPLING_OPTIONS = ("alpha", "mixed", "warmup_length")  # without effect in a pass


@dataclass
class XLPretrainingConfig(TrainingConfig):
    """Options of `xl_pretraining`."""

    objectives: str = option(
        "mlm",
        "objectives, separated by commas: mlm,tlm; NAME=OBJECTIVE names one that reads task files (a task type or "
        "generation), so that a run can have several: xnli=classification,paws=classification",
    )
    objective_options: Any = option(  # text; or in YAML for fairseq-hydra-train {mlm: {mask_prob: 0.2}}
        None, "options of objectives, separated by spaces: 'mlm.mask_prob=0.2 tlm.weight=0.5'"
    )
    schedule: ChoiceEnum(SCHEDULES) = option(  # type: ignore[valid-type]
        "alternate",
        "order of objectives: alternate: one per update, in turn (Lample & Conneau 2019); cycle: all in "
        "every update, which needs a multiple of their number as --update-freq (Huang et al. 2019); random: a "
        "random one per update (Liang et al. 2020)",
    )
    updates_per_epoch: Any = option(
        None,
        "updates of an epoch; auto: as many as it takes to read each example once, in batches that mix languages and "
        "in a random order of the objectives (default: auto if all objectives read task files, otherwise 1000)",
    )
    langs: Optional[str] = option(None, "languages of monolingual text, joined by commas (default: all of the data)")
    pairs: Optional[str] = option(None, "language pairs, joined by commas: en-de,en-fr (default: all of the data)")
    init_decoder_layers: ChoiceEnum(LAYERS) = option(  # type: ignore[valid-type]
        "first",
        "layers of a deeper --init-from for the decoder of an encoder-decoder: first or last; all: both "
        "have the same number of layers",
    )
    init_across_heads: bool = option(
        False,
        "accept an --init-from with another number of attention heads, such as XLM's 8 for a model with 16 (Huang et "
        "al. 2019, section 4): the shapes of the weights fit, but this model would compute something else",
    )
    train_only: Optional[str] = option(
        None,
        "train only the parameters whose names match these patterns, separated by commas "
        "('*.cross_attention*': Luo et al. 2020, section 3); 'language-module': the language module of an "
        "xl_monotrans_* model (Artetxe et al. 2020, section 2)",
    )
    new_language_module: bool = option(
        False,
        "learn a new language module for this run's dictionary, and initialize only the body and the "
        "special symbols from --init-from, whose dictionary may differ (Artetxe et al. 2020, section 2)",
    )
    tokens_per_sample: int = option(0, "no effect; exists because fairseq-eval-lm reads it")


@register_task("xl_pretraining", dataclass=XLPretrainingConfig)
class XLPretrainingTask(TrainingTask):
    """Pre-training on the objectives of ``--objectives`` in the order of ``--schedule``."""

    criterion = "xl_pretraining"
    #: options of objectives that a run has unless --objective-options sets them
    default_objective_options = ""
    group_name = "language or pair and objective"

    @classmethod
    def setup_task(cls, cfg: Any, **kwargs: Any) -> Any:
        """Converts objective options from a mapping to text; sets defaults that depend on task and objectives."""
        cfg.objective_options = add_defaults(settings_as_text(cfg.objective_options), cls.default_objective_options)
        if cfg.updates_per_epoch is None:
            cfg.updates_per_epoch = AUTO if all_read_files(cfg.objectives) else UPDATES
        return super().setup_task(cfg, **kwargs)

    def stored_options(self) -> dict[str, Any]:
        """As of every task, and the objectives' options as text, which --objective-options can override."""
        return super().stored_options() | {"objective_options": self.cfg.objective_options}

    def build_objectives(self) -> None:
        """Builds the objectives of --objectives; raises `UserError` if none can be trained."""
        self.reset_plans()
        self.objectives = build_objectives(
            self.cfg.objectives, self.cfg.objective_options, self.dictionary, self.framing
        )
        if not any(objective.is_trained for objective in self.objectives.values()):
            raise UserError("--objective-options: the weights of all objectives are 0")
        for name, objective in self.objectives.items() if self.cfg.updates_per_epoch == AUTO else ():
            if objective.is_trained and min(factor for _, factor in objective.weight_schedule) == 0:
                raise UserError(
                    f"--objective-options {name}.weight={objective.cfg.weight}: it becomes 0, which needs a number of "
                    "--updates-per-epoch"
                )
        readers = [objective for objective in self.objectives.values() if isinstance(objective, FilesObjective)]
        owners = self.language_module.languages
        language = self.cfg.lang or (owners[0] if len(owners) == 1 else None)
        if language and any(objective.languages_of(split) != [language] for objective in readers for split in SPLITS):
            settings = [f"{objective.name}.{key}={language}" for objective in readers for key in LANGUAGES]
            self.cfg.objective_options = merge_settings(self.cfg.objective_options, " ".join(settings))
            self.build_objectives()
            return
        for objective in self.objectives.values():
            objective.set_languages(self.first_folder.languages(None))
        for objective in readers:
            check_languages(objective.cfg, objective.option, self.dictionary)
        repeated = [name for name, count in Counter(XLPretrainingTask.metrics(self)).items() if count > 1]
        if repeated:
            raise UserError(f"--objectives {self.cfg.objectives}: {repeated[0]} would stand for two values in the log")

    def check_trained(self, identity: dict[str, Any], path: str) -> None:
        """Raises `UserError` for a checkpoint of another task."""
        if "objectives" not in identity:
            raise UserError(f"{path} was trained with {identity['task']}, not with xl_pretraining")
        self.trained_path, self.trained_objectives = path, identity["objectives"].split(",")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As the base class; warns of directions of translation for which the checkpoint was not trained."""
        super().load_state_dict(state_dict)
        directions = state_dict["fairseq_xl"].get("lang_pairs")
        for objective in self.objectives.values():
            if directions and isinstance(objective, DirectedTranslation):
                objective.check_directions(directions, self.trained_path)

    def identity(self) -> dict[str, Any]:
        """The base identity with the objectives, their options, and the languages and directions that they train."""
        identity = {"objectives": self.cfg.objectives, "objective_options": self.cfg.objective_options or ""}
        trained = [objective for objective in self.objectives.values() if objective.is_trained]
        generators = [objective for objective in trained if isinstance(objective, Generation)]
        if generators:
            languages = [code for objective in generators for code in objective.languages_of("train")]
            lengths = [objective.cfg.length for objective in generators if objective.cfg.length is not None]
            identity |= {"writes": list(dict.fromkeys(languages)), "length": min(lengths, default=None)}
        translators = [objective for objective in trained if isinstance(objective, TranslationObjective)]
        if translators:
            identity["lang_pairs"] = translators[0].trained_directions(self.first_folder)
        return super().identity() | identity

    def describe_batch(self, sample: Any) -> str:
        """The objective and the language or pair of a batch, for messages."""
        return f"{sample['objective']} of {sample['corpus']}"

    def metrics(self) -> list[str]:
        """Names of the validation metrics: `ppl`, `loss`, and those of every objective, by corpus and over all."""
        corpora, metrics = self.objective_corpora(), ["ppl", "loss"]
        metrics += ["score"] * (len(main_metrics(self.objectives)) > 1)
        for name, objective in self.objectives.items():
            names = [corpus for corpus in corpora[name] if corpus != MIXED]
            if isinstance(objective, FilesObjective):
                names = objective.languages_of("valid")
            metrics += objective.metric_names(names)
            if name in self.labelled:
                metrics += [f"{name}_loss", *(f"{name}_{code}_loss" for code in names)]
        return metrics

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """As the base class; raises `UserError` for a schedule that does not fit --update-freq."""
        is_sampled = self.cfg.updates_per_epoch != AUTO
        if self.schedule == "cycle" and is_sampled and not from_checkpoint and run_config(self.cfg) is not None:
            for micro_steps in self.cfg.update_freq:
                check_cycle(sum(objective.is_trained for objective in self.objectives.values()), int(micro_steps))
        return super().build_model(cfg, from_checkpoint)

    def initialize(self, model: Any, from_checkpoint: bool) -> None:
        self.language_module.set_trains_body(model)
        if not self.cfg.init_from and self.labelled and needs_initial_weights(self, from_checkpoint):
            logger.info("the model has random weights: there is no --init-from")
        if not self.cfg.init_from or not needs_initial_weights(self, from_checkpoint):
            return
        path = self.cfg.init_from
        if isinstance(model, XLEncoderDecoderModel):
            transfer_weights(self, model, {"encoder": path, "decoder": path}, str(self.cfg.init_decoder_layers))
            return
        (report,) = transfer_weights(self, model, {"model": path}, tokens=not self.cfg.new_language_module)
        self.language_module.check_transfer(model, report)

    # --- options -----------------------------------------------------------------------------------------------

    @classmethod
    def override_options(cls, options: Any, overrides: dict[str, Any], identity: dict[str, Any]) -> None:
        """Overrides the checkpoint's options by --objective-options, in commands whose task is the checkpoint's."""
        settings, names = overrides.get("objective_options"), overrides.get("objectives")
        if settings is not None or names is not None:
            options.objective_options = merge_options(identity, settings, names)

    def adopt_options(self, options: Any, identity: dict[str, Any]) -> None:
        """Takes languages, pairs and options that the command line lacks from the checkpoint, in fairseq-eval-lm."""
        self.cfg.objective_options = merge_options(identity, self.cfg.objective_options, self.cfg.objectives)
        self.cfg.langs = self.cfg.langs or self.cfg.lang or options.get("langs") or options.get("lang")
        self.cfg.pairs = self.cfg.pairs or options.get("pairs")
        self.__dict__.pop("first_folder", None)

    def options_without_effect(self, run: Any) -> dict[str, str]:
        """Options without effect: limits of batches, languages, pairs and options of objectives."""
        unused, keys, reason = super().options_without_effect(run), PASS_OPTIONS, "it is for --updates-per-epoch auto"
        if self.cfg.updates_per_epoch == AUTO:
            keys, reason = SAMPLING_OPTIONS, "--updates-per-epoch auto reads each example once"
            unused |= {} if self.schedule == SCHEDULES[0] else {f"--schedule {self.schedule}": reason}
        for name, objective in self.objectives.items():
            for key in keys:
                value, field = getattr(objective.cfg, key, None), objective.Config.__dataclass_fields__.get(key)
                if field is not None and value != field.default:
                    unused[f"--objective-options {name}.{key}={value}"] = reason
        counts = {objective.corpus_class.num_languages for objective in self.objectives.values()}
        for name in ("max_tokens", "batch_size"):
            limited = {
                key: [f"{key}.{limit}" for limit in LIMITS if getattr(objective.cfg, limit) is not None]
                for key, objective in self.objectives.items()
            }
            sizes = [
                objective.cfg.batch_tokens or (objective.cfg.batch_sentences or 0) * (objective.cfg.length or 0)
                for objective in self.objectives.values()
            ]
            if run.dataset[name] is None or not all(limited.values()):
                continue
            limits = ", ".join(limit for limits in limited.values() for limit in limits)
            if name != "max_tokens" or run.dataset[name] < max(sizes):  # fairseq-train requires a limit
                unused[f"--{name.replace('_', '-')} {run.dataset[name]}"] = f"the size of a batch is {limits}"
        if self.cfg.langs and 1 not in counts:
            unused[f"--langs {self.cfg.langs}"] = "no objective reads monolingual text"
        if self.cfg.pairs and 2 not in counts:
            unused[f"--pairs {self.cfg.pairs}"] = "no objective reads parallel text"
        if self.cfg.tokens_per_sample:
            unused[f"--tokens-per-sample {self.cfg.tokens_per_sample}"] = "the option length of each objective is used"
        if self.cfg.init_across_heads and not self.cfg.init_from:
            unused["--init-across-heads"] = "--init-from is needed"
        owners = {setting.partition(".")[0] for setting in (self.cfg.objective_options or "").split()}
        if surplus := sorted(owners - self.objectives.keys()):
            logger.info("--objective-options: those of %s are not used (--objectives)", ", ".join(surplus))
        return unused

    # --- fairseq-eval-lm ---------------------------------------------------------------------------------------

    def eval_lm_dataloader(
        self,
        dataset: PlannedBatches,
        max_tokens: int | None = None,
        batch_size: int | None = None,
        context_window: int = 0,
        num_shards: int = 1,
        shard_id: int = 0,
        **kwargs: Any,
    ) -> Any:
        """Batches for fairseq-eval-lm: the CLM objective scores every token of a split, or of a shard of it, once."""
        if "clm" not in self.objectives:
            raise UserError("fairseq-eval-lm scores a causal language model: give --objectives clm")
        if "clm" not in self.trained_objectives:
            raise UserError(f"{self.trained_path} was trained with {','.join(self.trained_objectives)}, not with clm")
        if context_window:
            raise UserError("--context-window is not supported: no state is carried over between blocks")
        text = EvaluationDataset(self.objectives, {"clm": dataset.corpora["clm"]})
        limits = {"max_tokens": max_tokens, "max_sentences": batch_size}
        return self.shard(text, num_shards, shard_id, **limits).next_epoch_itr(shuffle=False)


def merge_options(identity: dict[str, Any], options: Any, objectives: str | None = None) -> str:
    """Overrides the objective options of a checkpoint's identity; those of its objectives not in `objectives` go."""
    stored = identity.get("objectives") or ""
    renamed = {part.partition("=")[0] for part in stored.split(",") if "=" in part}
    removed = renamed - {part.partition("=")[0] for part in (objectives or stored).split(",")}
    words = (identity.get("objective_options") or "").split()
    settings = " ".join(word for word in words if word.partition(".")[0] not in removed)
    overrides = settings_as_text(options)
    keys = {word.partition("=")[0] for word in (overrides or "").split()}
    for name in {key.removesuffix(".eval_langs") for key in keys if key.endswith(".eval_langs")}:
        if f"{name}.valid_langs" not in keys:  # as for --eval-langs
            settings = " ".join(word for word in settings.split() if word.partition("=")[0] != f"{name}.valid_langs")
    return merge_settings(settings, overrides)


def merge_settings(*texts: str | None) -> str:
    """Joins objective options; later ones override earlier ones."""
    return merge_objective_options([word for text in texts for word in (OBJECTIVE_OPTIONS, text or "")])[1]


def add_defaults(options: Any, defaults: str) -> str | None:
    """Adds the options of `defaults` to objective options (text or None) that lack their keys."""
    keys = {option.partition("=")[0] for option in (options or "").split()}
    missing = [option for option in defaults.split() if option.partition("=")[0] not in keys]
    return " ".join(filter(None, [*missing, options])) or None
