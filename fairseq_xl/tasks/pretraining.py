"""Pre-training with any set of objectives."""

import logging
import re
from dataclasses import dataclass
from typing import Any, Optional

import torch
from fairseq.data import iterators
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task

from fairseq_xl.checkpoints.stacks import LAYERS
from fairseq_xl.data.dictionary import named_languages
from fairseq_xl.data.documents import AdjacentSegments
from fairseq_xl.data.indexed import files_of, is_begun
from fairseq_xl.data.mixed import MixedCorpus
from fairseq_xl.data.monolingual import TokenStream
from fairseq_xl.data.negatives import negatives_file
from fairseq_xl.data.parallel import SentencePairs
from fairseq_xl.data.parallel_documents import ParallelDocuments
from fairseq_xl.data.passes import AUTO
from fairseq_xl.data.plan import SCHEDULES, check_cycle, validation_plan
from fairseq_xl.data.sentence_blocks import SentenceBlocks
from fairseq_xl.data.sentences import Sentences
from fairseq_xl.data.shards import open_other_shards
from fairseq_xl.engine.initial_weights import needs_initial_weights, transfer_weights
from fairseq_xl.engine.interfaces import run_config
from fairseq_xl.errors import UserError, names_of, quoted
from fairseq_xl.io.flags import OBJECTIVE_OPTIONS, merge_objective_options
from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel
from fairseq_xl.models.task_language_module import LanguageModuleConfig, TaskLanguageModule, matching_parameters
from fairseq_xl.objectives import build_objectives, settings_as_text
from fairseq_xl.options import option
from fairseq_xl.tasks.base import XLTask, XLTaskConfig
from fairseq_xl.tasks.labelled import LabelledTask
from fairseq_xl.tasks.planned_batches import MIXED, PlannedBatches

logger = logging.getLogger(__name__)

# type of corpus -> its class
ONE_LANGUAGE = {
    "monolingual": TokenStream,
    "sentence_blocks": SentenceBlocks,
    "sentences": Sentences,
    "documents": AdjacentSegments,
}
TWO_LANGUAGES = {"parallel": SentencePairs, "parallel_documents": ParallelDocuments}

LIMITS = ("batch_tokens", "batch_sentences")  # of an objective's batches

#: options of objectives that say what is sampled, and why they have no effect in a pass
OF_SAMPLING, IN_A_PASS = ("alpha", "mixed", "warmup_length"), "--updates-per-epoch auto reads each example once"

PAIR = re.compile(r"(\w+)-(\w+)")


@dataclass
class XLPretrainingConfig(LanguageModuleConfig, XLTaskConfig):
    """Options of `xl_pretraining`."""

    objectives: str = option("mlm", "objectives, separated by commas: mlm,tlm")
    objective_options: Any = option(  # text; or in YAML for fairseq-hydra-train {mlm: {mask_prob: 0.2}}
        None, "options of objectives, separated by spaces: 'mlm.mask_prob=0.2 tlm.weight=0.5'"
    )
    schedule: ChoiceEnum(SCHEDULES) = option(
        "alternate",
        "order of objectives: alternate: one per update, in turn (Lample & Conneau 2019); cycle: all in "
        "every update, which needs a multiple of their number as --update-freq (Huang et al. 2019); random: a "
        "random one per update (Liang et al. 2020)",
    )
    updates_per_epoch: Any = option(
        "1000",  # text, since auto is text: fairseq would evaluate values of an option whose default is a number
        "updates of an epoch; auto: as many as it takes to read each example once, in batches that mix languages and "
        "in a random order of the objectives",
    )
    langs: Optional[str] = option(
        None, "languages of monolingual text, separated by commas (default: all in the data folder)"
    )
    pairs: Optional[str] = option(
        None, "language pairs, separated by commas: en-de,en-fr (default: all in the data folder)"
    )
    init_from: Optional[str] = option(
        None,
        "initialize a new run from this checkpoint, or from published weights (XLM-R, XLM, BERT); the log "
        "names the parameters that it lacks",
    )
    init_decoder_layers: ChoiceEnum(LAYERS) = option(
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
        "('*.cross_attention*': Luo et al. 2020, table 7); 'language-module': the language module of an "
        "xl_monotrans_* model (Artetxe et al. 2020, section 2)",
    )
    new_language_module: bool = option(
        False,
        "learn a new language module for this run's dictionary, and initialize only the body and the "
        "special symbols from --init-from, whose dictionary may differ (Artetxe et al. 2020, section 2)",
    )
    tokens_per_sample: int = option(0, "no effect; exists because fairseq-eval-lm reads it")


@register_task("xl_pretraining", dataclass=XLPretrainingConfig)
class XLPretrainingTask(LabelledTask, XLTask):
    """Pre-trains a model with the objectives of ``--objectives`` in the order of ``--schedule``."""

    criterion = "xl_pretraining"
    #: options of objectives that a run has unless --objective-options sets them
    default_objective_options = ""
    group_name = "language or pair and objective"
    #: a pair is known if its bitext has one of these splits
    splits_of_pairs: tuple[str, ...] = ("train",)

    def __init__(self, cfg, dictionary):
        super().__init__(cfg, dictionary)
        self.language_module = TaskLanguageModule(cfg, dictionary, self.folder(), new=cfg.new_language_module)
        self.uses_pretrained_tokens = self.language_module.replacement is None
        self._build_objectives()

    @classmethod
    def setup_task(cls, cfg, **kwargs):
        """Converts objective options from a mapping to text, and adds the task's defaults."""
        cfg.objective_options = with_defaults(settings_as_text(cfg.objective_options), cls.default_objective_options)
        return super().setup_task(cfg, **kwargs)

    def stored_options(self):
        """As of every task, and the objectives' options as text, which --objective-options can override."""
        options = {"objective_options": self.cfg.objective_options}
        return super().stored_options() | options | self.language_module.stored_options()

    def _build_objectives(self):
        self.forget_plans()
        self.objectives = build_objectives(
            self.cfg.objectives, self.cfg.objective_options, self.dictionary, self.framing
        )
        if not any(objective.is_trained for objective in self.objectives.values()):
            raise UserError("--objective-options: the weights of all objectives are 0")
        for name, each in self.objectives.items() if self.cfg.updates_per_epoch == AUTO else ():
            if each.is_trained and min(factor for _, factor in each.schedule) == 0:
                raise UserError(
                    f"--objective-options {name}.weight={each.cfg.weight}: it becomes 0, which needs a number of "
                    "--updates-per-epoch"
                )
        for objective in self.objectives.values():
            objective.set_languages(self._languages(None))
        for name in self.types:
            for key in ("train_langs", "eval_langs"):
                languages = getattr(self.objectives[name].cfg, key)
                named_languages(f"--objective-options {name}.{key}", languages, self.dictionary)

    def load_state_dict(self, state_dict):
        """Checks the checkpoint's identity and takes over its framing."""
        super().load_state_dict(state_dict)
        identity, self.trained_path = state_dict["fairseq_xl"], state_dict.get("path", "the checkpoint")
        self.language_module.restore(identity)
        if "objectives" not in identity:
            raise UserError(f"{self.trained_path} was trained with {identity['task']}, not with xl_pretraining")
        self.trained_objectives = identity["objectives"].split(",")
        self._build_objectives()
        for name, each in self.types.items():
            each.load_state(identity.get("type_state", {}).get(name, {}), self.trained_path)

    def identity(self):
        """Returns the base identity with the objectives and their options."""
        return (
            super().identity()
            | self.language_module.identity()
            | {
                "objectives": self.cfg.objectives,
                "objective_options": self.cfg.objective_options or "",
            }
            | ({"type_state": self._learned_states()} if self.types else {})
        )

    def _learned_states(self):
        return {name: each.learned_state() for name, each in self.types.items()}

    @property
    def schedule(self):
        """The order of the objectives."""
        return str(self.cfg.schedule)

    def corpora_of_objectives(self):
        """{objective: its languages or pairs, and "mixed" if training batches mix them}."""
        return {
            name: self._names_of_corpora(name, each) + ([MIXED] if self._mixes(each) or name in self.types else [])
            for name, each in self.objectives.items()
        }

    def _names_of_corpora(self, name, objective):
        if name not in self.types:
            return self._texts(objective, None)
        return list(dict.fromkeys(code for split in ("train", "valid") for code in self.languages_of_type(name, split)))

    def _mixes(self, objective):
        """Whether training batches of an objective mix languages."""
        return objective.cfg.mixed or self.cfg.updates_per_epoch == AUTO

    def describe_batch(self, sample):
        """The objective and the language or pair of a batch, for messages."""
        return f"{sample['objective']} of {sample['corpus']}"

    def metrics(self):
        """Names of the validation metrics: `ppl`, `loss`, and both for every term, by corpus and over all corpora."""
        corpora, found = self.corpora_of_objectives(), ["ppl", "loss"]
        for name, each in self.objectives.items():
            names = [corpus for corpus in corpora[name] if corpus != MIXED]
            found += each.metric_names(names)
            if name in self.types:
                found += [f"{name}_loss", *(f"{name}_{code}_loss" for code in names)]
        return found

    def build_model(self, cfg, from_checkpoint=False):
        """Builds the model with the heads of all objectives; raises `UserError` if an objective does not fit it."""
        sampled = self.cfg.updates_per_epoch != AUTO
        if self.schedule == "cycle" and sampled and not from_checkpoint and run_config(self.cfg) is not None:
            for micro_steps in self.cfg.update_freq:
                check_cycle(sum(each.is_trained for each in self.objectives.values()), int(micro_steps))
        self.check_architecture(cfg)
        if not from_checkpoint or not all(each.learned for each in self.types.values()):
            self.learn()
        for name, objective in self.objectives.items():
            positions = objective.input_length.positions
            if positions > cfg.max_positions:
                raise UserError(
                    f"{name}.length={objective.cfg.length} needs {positions} positions, the model has --max-positions "
                    f"{cfg.max_positions}"
                )
        self.language_module.prepare(cfg, self.cfg.init_from, from_checkpoint)
        model = super().build_model(cfg, from_checkpoint)
        for name, objective in self.objectives.items():
            if not isinstance(model, objective.model_class):
                raise UserError(f"{name} needs {objective.model_class.described}")
            model.add_heads(objective.heads(cfg))
        self.language_module.attach(model, self.cfg.init_from, from_checkpoint)
        if self.cfg.train_only and not from_checkpoint:
            freeze_others(model, self.cfg.train_only.split(","))
        self.language_module.set_trains_body(model)
        if self.cfg.init_from and needs_initial_weights(self, from_checkpoint):
            self._initialize(model, self.cfg.init_from)
        return model

    def _initialize(self, model, path):
        if isinstance(model, XLEncoderDecoderModel):
            transfer_weights(self, model, {"encoder": path, "decoder": path}, str(self.cfg.init_decoder_layers))
            return
        (report,) = transfer_weights(self, model, {"model": path}, tokens=not self.cfg.new_language_module)
        self.language_module.check_transfer(model, report)

    def adapt_pretrained(self, pretrained, model):
        """Removes the language module that the run does not use."""
        return self.language_module.adapt(pretrained, model)

    def check_fits(self, state, path):
        """Raises `UserError` unless a checkpoint to resume from fits."""
        super().check_fits(state, path)
        found = state["task_state"]["fairseq_xl"]
        self.language_module.restore(found, resumes=True)
        if (theirs := found.get("type_state", {})) != (self._learned_states() if self.types else {}):
            raise UserError(f"{path} was trained on other task files, with {quoted(theirs)}")

    def folders_of_type(self, name):
        """The option that names the folders of an objective's files, and the folders."""
        return f"--objective-options {name}.task_files", self.objectives[name].cfg.task_files

    def languages_of_type(self, name, split):
        """The languages of a split that a labelled objective reads."""
        cfg = self.objectives[name].cfg
        return (cfg.train_langs if split == "train" else cfg.eval_langs).split(",")

    def input_name(self, name, path):
        """The name of a file of an objective among the `inputs`."""
        return f"{name}/{super().input_name(name, path)}"

    def load_dataset(self, split, combine=False, task_cfg=None, epoch=1, **kwargs):
        """Opens the corpora that the objectives read; languages and pairs without this split are left out."""
        open_other_shards(self.cfg.data, epoch, split, self.datasets, self._corpora)
        corpora = self._corpora(self.folder(epoch), split)
        corpora |= self.labelled_corpora(split, [name for name, _ in self._of_split(split) if name in self.types])
        for name, objective in self._of_split(split):
            if self._mixes(objective) and split == "train" and not self.evaluates and name not in self.types:
                corpora[name] = {MIXED: MixedCorpus(corpora[name], objective.cfg.alpha)}
        if split == "train":
            self.inputs.check_complete(split)
        self.datasets[split] = PlannedBatches(self.objectives, corpora, split)

    def _corpora(self, folder, split):
        """The corpora of a split that each objective reads: {objective: {language or pair: corpus}}."""
        chosen, opened = [(name, each) for name, each in self._of_split(split) if name not in self.types], {}
        corpora = {name: {} for name, _ in chosen}
        for name, objective in chosen:
            kind = objective.corpus_type
            for text in self._texts(objective, split):
                if (kind, text) not in opened:
                    opened[kind, text] = self._open(kind, folder, split, text)
                corpora[name][text] = opened[kind, text]
            if not corpora[name] and not objective.is_trained:
                del corpora[name]
                continue
            if not corpora[name]:
                text = "parallel text" if kind.startswith("parallel") else "monolingual text"
                text += " of documents" if kind.endswith("documents") else ""
                raise UserError(
                    f"{folder}: no {text} for the split {split!r}, which --objectives {name} reads: add it to the "
                    "corpus description and run `python -m preprocess`"
                )
            for text, corpus in corpora[name].items():
                objective.check(corpus)
                if getattr(objective, "mined", False):
                    self.add_texts(split, negatives_file(folder / text / f"{split}.{text}"))
        return corpora

    def _of_split(self, split):
        """The objectives that read a split, and their names: in training those whose weight is not always 0."""
        every = self.objectives.items()
        return [(name, each) for name, each in every if each.is_trained or split != "train"]

    def _open(self, kind, folder, split, name):
        if kind in ONE_LANGUAGE:
            corpus, prefixes = ONE_LANGUAGE[kind](folder / name / split, name, len(self.dictionary)), [split]
        else:
            prefix, codes = f"{split}.{name}", name.split("-")
            corpus = TWO_LANGUAGES[kind](folder / name / prefix, *codes, len(self.dictionary))
            prefixes = [f"{prefix}.{code}" for code in codes]
        self.add_texts(split, *files_of(folder / name, prefixes))
        return corpus

    def _texts(self, objective, split="train"):
        """Returns the languages or pairs of an objective's corpora in a split (None: in any split).

        Raises `UserError` if `leave_out` names one without text.
        """
        names = self._languages if objective.corpus_type in ONE_LANGUAGE else self.language_pairs
        left_out = objective.cfg.leave_out
        left_out = names_of(f"{objective.name}.leave_out", left_out) if left_out else []
        there = self._present_languages() if objective.corpus_type in ONE_LANGUAGE else self._present_pairs()
        for name in left_out:
            if name not in there:
                setting = f"{objective.name}.leave_out={objective.cfg.leave_out}"
                valid = ", ".join(there) or "none"
                raise UserError(
                    f"--objective-options {setting}: {self.folder()} has no text of {name}; expected one of {valid}"
                )
        return [name for name in names(split) if name not in left_out]

    def _languages(self, split="train"):
        """Returns the languages of --langs (default: all) with text in a split (None: with training text)."""
        chosen = self._chosen("--langs", self.cfg.langs or self.cfg.lang, self._present_languages())
        return [code for code in chosen if split is None or is_begun(self.folder() / code / split)]

    def _present_languages(self):
        return [code for code in self.dictionary.languages if is_begun(self.folder() / code / "train")]

    def language_pairs(self, split="train"):
        """Returns the pairs of --pairs (default: all) with text in a split (None: in one of `splits_of_pairs`)."""
        chosen = self._chosen("--pairs", self.cfg.pairs, self._present_pairs())
        return [name for name in chosen if split is None or self._has_pair(name, split)]

    def _present_pairs(self):
        names = sorted(path.name for path in self.folder().iterdir() if PAIR.fullmatch(path.name))
        return [name for name in names if any(self._has_pair(name, split) for split in self.splits_of_pairs)]

    def _has_pair(self, name, split):
        return any(is_begun(self.folder() / name / f"{split}.{name}.{code}") for code in name.split("-"))

    def _chosen(self, option, wanted, present):
        if not wanted:
            return present
        names = names_of(option, wanted)
        missing = [name for name in names if name not in present]
        if missing:
            raise UserError(
                f"{option}: {self.folder()} has no text of {', '.join(missing)}; expected one of "
                f"{', '.join(present) or 'none'}"
            )
        return names

    @classmethod
    def override_options(cls, options, overrides, identity):
        """--objective-options of an evaluation override single options of the checkpoint's objectives.

        `fairseq_xl.io.loading` calls it where the checkpoint's configuration makes the task (fairseq-validate, `load`).
        """
        if overrides.get("objective_options") is not None:
            named = overrides.get("objectives")
            options.objective_options = merged_options(identity, overrides["objective_options"], named)

    def adopt_options(self, options, identity):
        """Takes the checkpoint's languages, pairs and options of objectives, unless the command line names others.

        `fairseq_xl.io.loading` calls it where the command line makes the task (fairseq-eval-lm).
        """
        self.cfg.objective_options = merged_options(identity, self.cfg.objective_options, self.cfg.objectives)
        self.cfg.langs = self.cfg.langs or self.cfg.lang or options.get("langs") or options.get("lang")
        self.cfg.pairs = self.cfg.pairs or options.get("pairs")

    def options_without_effect(self, run):
        """As the base, with limits of batches, languages, pairs and options of objectives that no objective reads."""
        found = super().options_without_effect(run)
        if self.cfg.updates_per_epoch == AUTO:
            found |= self._without_effect_in_a_pass()
        kinds = {each.corpus_type for each in self.objectives.values()}
        for name in ("max_tokens", "batch_size"):
            limited = {
                objective: [f"{objective}.{limit}" for limit in LIMITS if getattr(each.cfg, limit) is not None]
                for objective, each in self.objectives.items()
            }
            sizes = [
                each.cfg.batch_tokens or (each.cfg.batch_sentences or 0) * each.cfg.length
                for each in self.objectives.values()
            ]
            if run.dataset[name] is None or not all(limited.values()):
                continue
            limits = ", ".join(limit for limits in limited.values() for limit in limits)
            if name == "max_tokens" and run.dataset[name] >= max(sizes):  # fairseq-train requires a limit
                logger.info("--max-tokens %d is not used: the size of a batch is %s", run.dataset[name], limits)
            else:
                found[f"--{name.replace('_', '-')} {run.dataset[name]}"] = f"the size of a batch is {limits}"
        if self.cfg.langs and not kinds & ONE_LANGUAGE.keys():
            found[f"--langs {self.cfg.langs}"] = "no objective reads monolingual text"
        if self.cfg.pairs and not kinds & TWO_LANGUAGES.keys():
            found[f"--pairs {self.cfg.pairs}"] = "no objective reads parallel text"
        if self.cfg.tokens_per_sample:
            found[f"--tokens-per-sample {self.cfg.tokens_per_sample}"] = "the option length of each objective is used"
        if self.cfg.init_across_heads and not self.cfg.init_from:
            found["--init-across-heads"] = "--init-from is needed"
        owners = {setting.partition(".")[0] for setting in (self.cfg.objective_options or "").split()}
        if others := sorted(owners - self.objectives.keys()):
            logger.info("--objective-options: those of %s are not used (--objectives)", ", ".join(others))
        return found

    def _without_effect_in_a_pass(self):
        """Options of sampling, which a pass over the data does not use."""
        found = {} if self.schedule == SCHEDULES[0] else {f"--schedule {self.schedule}": IN_A_PASS}
        for name, each in self.objectives.items():
            for key in OF_SAMPLING:
                value, field = getattr(each.cfg, key, None), each.Config.__dataclass_fields__.get(key)
                if field is not None and value != field.default:
                    found[f"--objective-options {name}.{key}={value}"] = IN_A_PASS
        return found

    # --- fairseq-eval-lm ---------------------------------------------------------------------------------------

    def eval_lm_dataloader(
        self, dataset, max_tokens=None, batch_size=None, context_window=0, num_shards=1, shard_id=0, **kwargs
    ):
        """Batches for fairseq-eval-lm: the CLM objective scores every token of a split, or of a shard of it, once."""
        if "clm" not in self.objectives:
            raise UserError("fairseq-eval-lm scores a causal language model: give --objectives clm")
        if "clm" not in self.trained_objectives:
            raise UserError(f"{self.trained_path} was trained with {','.join(self.trained_objectives)}, not with clm")
        if context_window:
            raise UserError("--context-window is not supported: no state is carried over between blocks")
        plan = validation_plan(self.samplers(dataset, max_tokens, batch_size))
        plan = [batch_spec for batch_spec in plan if batch_spec.objective == "clm"]
        if shard_id >= len(plan):
            raise UserError(f"--shard-id {shard_id}: the text has {len(plan)} batches only")
        plan = plan[shard_id::num_shards]
        samples = (self._scoring_sample(dataset, batch_spec) for batch_spec in plan)
        return iterators.CountingIterator(samples, total=len(plan))

    def _scoring_sample(self, dataset, batch_spec):
        sample = dataset[batch_spec]
        batch = sample["batch"]
        target = torch.full_like(batch["tokens"], self.dictionary.pad())
        target.view(-1)[batch["predicted_positions"]] = batch["target"]
        return {
            "id": torch.from_numpy(batch_spec.examples),
            "ntokens": len(batch["target"]),
            "target": target,
            "net_input": {"compute": self.objectives["clm"].scores, "batch": batch},
        }


def merged_options(identity, options, objectives=None):
    """The objective options of a checkpoint's identity and, overriding them, other ones.

    Args:
        objectives: those of the run; the checkpoint's options of objectives that have a name of their own and are not
            among them are left out. None: the checkpoint's.
    """
    stored = identity.get("objectives") or ""
    own = {part.partition("=")[0] for part in stored.split(",") if "=" in part}
    left_out = own - {part.partition("=")[0] for part in (objectives or stored).split(",")}
    words = (identity.get("objective_options") or "").split()
    kept = " ".join(word for word in words if word.partition(".")[0] not in left_out)
    texts = (kept, settings_as_text(options))
    return merge_objective_options([word for text in texts for word in (OBJECTIVE_OPTIONS, text or "")])[1]


def with_defaults(options, defaults):
    """Adds the options of `defaults` to objective options (text or None), except for keys that these already set."""
    given = {option.partition("=")[0] for option in (options or "").split()}
    added = [option for option in defaults.split() if option.partition("=")[0] not in given]
    return " ".join(filter(None, [*added, options])) or None


def freeze_others(model, patterns):
    """Trains only parameters whose names match one of `patterns`; raises `UserError` for a pattern without a match."""
    trained = matching_parameters(model, patterns, "--train-only")
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name in trained
