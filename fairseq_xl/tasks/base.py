"""Base of all tasks: dictionary, checks of checkpoints, initial weights, and corrections of fairseq's defaults."""

import gc
import logging
import os
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Optional

import torch
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.logging import metrics as fairseq_metrics
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.tasks import FairseqTask
from omegaconf import II, OmegaConf

from fairseq_xl.checkpoints import identity, transfer
from fairseq_xl.criterions.combined import CombinedCriterion, total
from fairseq_xl.data.dictionary import BPE, JOINING, SENTENCEPIECE, WORDPIECE, XLDictionary
from fairseq_xl.data.encoding import check_pieces, encoding_of
from fairseq_xl.data.framing import FRAMINGS, Framing
from fairseq_xl.data.manifest import check_fingerprint, read_manifest, stored_fingerprint
from fairseq_xl.data.passes import number_of_updates
from fairseq_xl.data.shards import data_folders
from fairseq_xl.data.subwords import FILES, open_model, vocabulary_kind
from fairseq_xl.data.text import languages_apart
from fairseq_xl.engine import save_dir
from fairseq_xl.engine.inputs import Inputs, binarized_fingerprint
from fairseq_xl.engine.log import ordered
from fairseq_xl.engine.metrics import Metrics
from fairseq_xl.engine.option_checks import check_command
from fairseq_xl.errors import GENERATES_NOTHING, UserError, check_ranges, names_of
from fairseq_xl.io.files import sha256_of
from fairseq_xl.io.text import text_of_line
from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel
from fairseq_xl.modules.compilation import check_compiler
from fairseq_xl.modules.stack import Stack
from fairseq_xl.options import option
from fairseq_xl.tasks.subwords import XLSubwords

logger = logging.getLogger(__name__)


@dataclass
class XLTaskConfig(FairseqDataclass):
    """Options of every task."""

    data: Optional[str] = option(
        None,
        "folder written by `python -m preprocess`; or shards, one of which is read in each epoch: a folder "
        "of shards, a pattern in quotes ('DATA/*'), or several folders joined by ':'",
    )
    framing: ChoiceEnum(FRAMINGS) = option(
        "xl",
        "framing of inputs: xl (<s> x </s>), or that of published weights: xlm (</s> x </s>), bert (one "
        "</s> between two texts), mbart (x </s> [xx])",
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
        "validate on at most this many examples per language, pair or direction, and per objective or subtask: a "
        "fixed random sample (0: all). fairseq-validate takes the sample with xl_pretraining and "
        "xl_unsupervised_translation, and all examples with other tasks. --max-valid-steps may end validation earlier",
        range="0 or more",
    )
    updates_per_epoch: Any = option(
        "auto", "updates of an epoch, for which examples are drawn; auto: an epoch reads each example once"
    )
    update_freq: Any = II("optimization.update_freq")
    seed: int = II("common.seed")


class XLTask(FairseqTask):
    """Base of all tasks.

    A checkpoint stores its identity (`fairseq_xl.checkpoints.identity`) and the files that it was trained on
    (`fairseq_xl.engine.inputs`). A resumed run refuses a checkpoint of another format, dictionary, framing, class of
    model or number of attention heads, and of other sub-words or files. Evaluation refuses one of another format or
    dictionary or of other sub-words, and takes over its framing.
    """

    #: name of its criterion
    criterion = None
    #: names of further criterions that can train its models
    other_criterions = frozenset()
    #: whether fairseq-generate and fairseq-interactive run its models
    generates = False
    #: whether the token embeddings of checkpoints are used, so that their dictionary must be this run's
    uses_pretrained_tokens = True
    #: class and number of attention heads of the model that was built last
    built_class = attention_heads = None

    def __init__(self, cfg, dictionary):
        super().__init__(cfg)
        check_ranges(getattr(type(self), "__dataclass"), cfg)
        self.dictionary = dictionary
        self.framing = Framing.of(str(cfg.framing), dictionary)
        self.loaded_framing = None  # framing of the checkpoints that were loaded for evaluation
        self.training_begun = False  # whether fairseq-train has begun, which limits validation to a sample
        self.inputs, self.encoding = Inputs(), encoding_of(self.folder())

    @classmethod
    def setup_task(cls, cfg, **kwargs):
        """Loads ``dict.txt``; raises `UserError` unless it is the dictionary of all data folders and of their text."""
        run = run_config(cfg)
        if run is not None:
            check_command(run, cfg._name, {cls.criterion, *cls.other_criterions})
        if not cfg.data:
            raise UserError("DATA is missing: name the data folder that `python -m preprocess` wrote")
        folders = data_folders(cfg.data)
        for folder in folders:
            if not folder.is_dir():
                raise UserError(f"{folder}: no such data folder")
        cfg.data = os.pathsep.join(map(str, folders))
        cfg.updates_per_epoch = number_of_updates(cfg.updates_per_epoch)
        dictionary = XLDictionary.load(folders[0] / "dict.txt")
        for folder in folders:
            _check_dictionary(folder, dictionary)
        return cls(cfg, dictionary)

    def folder(self, epoch=1):
        """The data folder of an epoch: epochs cycle through the shards, as in fairseq."""
        folders = self.cfg.data.split(os.pathsep)
        return Path(folders[(epoch - 1) % len(folders)])

    def open_other_shards(self, open_folder, split, epoch):
        """Calls `open_folder` for each data folder except the one of `epoch`, and discards the result.

        It does so before the first epoch of training only, so that a damaged shard is reported before training. Logs
        which shard the epoch reads.
        """
        folders = self.cfg.data.split(os.pathsep)
        if split == "train" and len(folders) > 1:
            place = (epoch - 1) % len(folders) + 1
            logger.info("epoch %d reads %s, shard %d of %d", epoch, self.folder(epoch), place, len(folders))
        if split == "train" and split not in self.datasets:
            for folder in {Path(folder) for folder in folders} - {self.folder(epoch)}:
                open_folder(folder, split)
                gc.collect()  # corpora have reference cycles, which keep memory maps open

    def add_texts(self, folder, split, *paths):
        """Adds files of a data folder to the `inputs` of a split, with the folder's number if there are several."""
        folders = self.cfg.data.split(os.pathsep)
        prefix = f"{folders.index(str(folder))}/" if len(folders) > 1 else ""
        for path in paths:
            name = f"{path.parent.name}/{path.name}"
            entry = stored_fingerprint(path.parent.parent, name)
            self.inputs.add(split, f"{prefix}{name}", path, binarized_fingerprint(path, entry))

    @property
    def evaluates(self):
        """Whether a command evaluates checkpoints: fairseq-generate, fairseq-validate, fairseq-interactive."""
        run = run_config(self.cfg)
        return run is not None and bool(OmegaConf.select(run, "common_eval.path"))

    def dataset(self, split):
        """The dataset of a split."""
        return self.datasets[split]

    @property
    def source_dictionary(self):
        """The joint dictionary."""
        return self.dictionary

    @property
    def target_dictionary(self):
        """The joint dictionary."""
        return self.dictionary

    def check_architecture(self, cfg):
        """Raises `UserError` for the config of a model that is not of this package, and for a number out of range."""
        name = getattr(cfg, "_name", None) or getattr(cfg, "arch", None)
        if name not in ARCH_MODEL_REGISTRY or not hasattr(cfg, "max_positions"):
            kind = XLEncoderDecoderModel if self.generates else object
            raise UserError(f"--arch {name}: choose one of {', '.join(_architectures(kind))}")
        check_ranges(MODEL_DATACLASS_REGISTRY[name], cfg)

    def metrics(self):
        """Names of the validation metrics, for --best-checkpoint-metric; None: the criterion has its own."""

    def describe_batch(self, sample):
        """The task and the languages of a batch, for messages."""
        ids = sample["batch"]["languages"] if "batch" in sample else sample["net_input"]["src_languages"]
        return f"{self.cfg._name} of {','.join(self.dictionary.languages[number] for number in ids.unique().tolist())}"

    def build_model(self, cfg, from_checkpoint=False):
        """Builds the model and stores its class and attention heads, which shapes of weights do not show."""
        self.check_architecture(cfg)
        model = super().build_model(cfg, from_checkpoint)
        self.built_class, self.attention_heads = type(model), getattr(cfg, "heads", None)
        if not from_checkpoint:
            self._set_up_stacks(model)
        return model

    def _set_up_stacks(self, model):
        """Makes the stacks of layers train as --compile and --checkpoint-activations say."""
        if not (self.cfg.compile or self.cfg.checkpoint_activations):
            return
        stacks = [module for module in model.modules() if isinstance(module, Stack)]
        if not stacks:
            option = "--compile" if self.cfg.compile else "--checkpoint-activations"
            raise UserError(f"{option} needs a Transformer, not {type(model).described}")
        if self.cfg.compile:
            check_compiler(self.cfg.compile_backend, on_gpu=torch.cuda.is_available() and not self._on_cpu())
        for stack in stacks:
            stack.backend = self.cfg.compile_backend if self.cfg.compile else None
            stack.checkpoint_activations = self.cfg.checkpoint_activations

    def _on_cpu(self):
        run = run_config(self.cfg)
        return run is not None and run.common.cpu

    def build_bpe(self, args):
        """Builds fairseq's BPE for raw input; its sub-words must be the data folder's (`UserError`)."""
        name, kind, run = getattr(args, "_name", None), vocabulary_kind(self.folder()), run_config(self.cfg)
        joins = None if run is None else run.common_eval.post_process
        if joins not in (None, "none", *JOINING):
            fitting = {BPE: "subword_nmt", WORDPIECE: "wordpiece"}.get(self.dictionary.word_mark, SENTENCEPIECE)
            raise UserError(f"--post-process {joins} does not fit the pieces of {self.folder()}: give {fitting}")
        if name not in (None, "xl_subwords") and kind != "sentencepiece":
            raise UserError(f"--bpe {name}: {self.folder()} has a vocabulary of kind {kind}: give --bpe xl_subwords")
        if name not in (None, "xl_subwords") and languages_apart(self.folder()):
            raise UserError(f"--bpe {name}: the languages of {self.folder()} share no piece: give --bpe xl_subwords")
        if name == "sentencepiece":
            if OmegaConf.is_missing(args, "sentencepiece_model"):
                path = self.folder() / "sentencepiece.model"
                raise UserError(f"--bpe sentencepiece needs --sentencepiece-model {path}")
            model = open_model(args.sentencepiece_model, self.folder())
            check_pieces(model, Path(args.sentencepiece_model), self.dictionary)
            digest = sha256_of(args.sentencepiece_model)
            if self.encoding.get("sentencepiece.model", digest) != digest:
                path = self.folder() / "sentencepiece.model"
                raise UserError(f"--sentencepiece-model {args.sentencepiece_model}: expected a copy of {path}")
        if name == "xl_subwords":
            language = self.inference_pair[0] if self.generates else None
            bpe = XLSubwords(args, self.folder(), self.dictionary, language)
        else:
            bpe = self.default_bpe if args is None else super().build_bpe(args)
        if bpe is not None and joins in JOINING:
            bpe.decode = str  # --remove-bpe joins the pieces; decoding again would remove all spaces
        return bpe

    #: sub-words of raw input without --bpe
    default_bpe = None

    def build_generator(self, *more, **options):
        """fairseq hook of fairseq-generate and fairseq-interactive; raises `UserError` unless the task `generates`."""
        if not self.generates:
            raise UserError(f"{self.cfg._name} {GENERATES_NOTHING}")
        return super().build_generator(*more, **options)

    def get_interactive_tokens_and_lengths(self, lines, encode_fn):
        """fairseq hook: encodes raw lines as `TextEncoder` does; text without a piece is ``<unk>``."""

        def encode(text):
            return text and (encode_fn(text) or self.dictionary.unk_word)

        return super().get_interactive_tokens_and_lengths(map(text_of_line, lines), encode)

    # --- options of evaluations --------------------------------------------------------------------------------

    @classmethod
    def override_options(cls, options, overrides, identity):
        """Overrides options of a checkpoint's task by those of an evaluation's command line or program.

        `fairseq_xl.io.loading` calls it where the checkpoint's configuration makes the task (fairseq-validate, `load`).

        Args:
            options: the checkpoint's task options.
            overrides: {name: value}, also of other sections.
            identity: the checkpoint's identity; {} if it has none.
        """
        known = getattr(cls, "__dataclass").__dataclass_fields__
        for name in overrides.keys() & known.keys() - {"_name"}:  # also those that are newer than the checkpoint
            options[name] = overrides[name]
        if "valid_langs" in known and overrides.get("eval_langs") is not None:
            options.valid_langs = overrides.get("valid_langs")

    @classmethod
    def check_data_folder(cls, options, trained, found, path):
        """Raises `UserError` unless the data folder exists and has a checkpoint's dictionary.

        `fairseq_xl.io.loading` calls it before it makes the task, which looks up the checkpoint's languages.

        Args:
            options: options of the task.
            trained: DATA of the checkpoint's training.
            found: the checkpoint's identity; {} if it has none.
            path: the checkpoint's file.
        """
        if not options.data:
            return  # `setup_task` says that it is missing
        folder = data_folders(options.data)[0]
        if options.data == trained and not folder.is_dir():
            raise UserError(
                f"{folder}: no such data folder: {path} names it, a relative one from the folder in which it was "
                "trained; give another one, as in `fairseq-xl predict CHECKPOINT DATA`"
            )
        file = folder / "dict.txt"
        if found and file.is_file() and not options.get("language_module"):
            dictionary = XLDictionary.load(file)
            _check_dictionary(folder, dictionary)  # first: a damaged folder may be the right one
            identity.check_identity(found, path, dictionary, file, trained)

    # --- identity of checkpoints -------------------------------------------------------------------------------

    def identity(self):
        """The identity that a checkpoint stores: plain Python, which loading cannot execute."""
        return {
            "format": identity.FORMAT_VERSION,
            "task": type(self).__name__,
            "dictionary": self.dictionary.digest(),
            "languages": list(self.dictionary.languages),
            "framing": self.framing.name,
            "heads": self.attention_heads,
            "encoding": self.encoding,
        }

    def state_dict(self):
        """fairseq hook: the part of the task that a checkpoint stores."""
        return {"fairseq_xl": self.identity(), "inputs": self.inputs.read}

    def load_state_dict(self, state_dict):
        """Checks a checkpoint's identity before its weights are loaded (generate, validate, interactive, eval-lm)."""
        path = state_dict.get("path", "the checkpoint")  # `fairseq_xl.io.loading` adds it
        found = state_dict.get("fairseq_xl")
        self.check_identity(found, path, self.uses_pretrained_tokens)
        if self.loaded_framing not in (None, found["framing"]):
            raise UserError(
                f"{path} was trained with --framing {found['framing']}, the checkpoint before it with "
                f"{self.loaded_framing}"
            )
        default = getattr(type(self), "__dataclass").framing
        if str(self.cfg.framing) not in (str(default), found["framing"]):
            raise UserError(f"--framing {self.cfg.framing}: {path} was trained with --framing {found['framing']}")
        self.loaded_framing = found["framing"]
        self.framing = Framing.of(found["framing"], self.dictionary)

    def check_fits(self, state, path):
        """Raises `UserError` unless a checkpoint's weights mean the same in this run's model.

        The training loop calls it before it loads weights, to resume or to fine-tune.

        Args:
            state: the whole checkpoint.
            path: its file, for messages.
        """
        found = (state.get("task_state") or {}).get("fairseq_xl")
        self.check_identity(found, path)
        transfer.check_backbone(path, state, self.built_class)
        if found["heads"] != self.attention_heads:
            raise UserError(
                f"{path} has {found['heads']} attention heads, this model {self.attention_heads}: the shapes "
                "of the weights fit, but this model would compute something else"
            )
        if found["framing"] != self.framing.name:
            raise UserError(f"{path} was trained with --framing {found['framing']}, this run has {self.framing.name}")

    def check_inputs(self, state, path):
        """Raises `UserError` unless a run that continues the epoch of a checkpoint reads the same files.

        The training loop calls it after `check_fits`, with the same arguments.
        """
        cfg = run_config(self.cfg).checkpoint
        if not (cfg.reset_dataloader or path == cfg.finetune_from_model):
            self.inputs.resume(state["task_state"].get("inputs"), path)

    def check_identity(self, found, origin, tokens=True):
        """Raises `UserError` unless `found`, from the file `origin`, is the identity of a checkpoint for this run.

        If its token embeddings are used (`tokens`), its dictionary must be this run's.
        """
        dictionary = self.dictionary if tokens else None
        identity.check_identity(found, origin, dictionary, self.folder() / "dict.txt")

    # --- initial weights ---------------------------------------------------------------------------------------

    def needs_initial_weights(self, from_checkpoint):
        """Whether a new model is trained from its initial weights, so that no checkpoint replaces them."""
        if from_checkpoint:
            return False
        run = run_config(self.cfg)
        restored = None if run is None else save_dir.choose_checkpoint(run.checkpoint)[0]
        if restored is None or not os.path.isfile(restored):
            return True
        logger.info("%s is restored: the weights that --init-* name are not read", restored)
        return False

    def transfer_weights(self, model, files, layers="all", tokens=True):
        """Gives a new model the weights of checkpoints, and logs what was copied, new and unused.

        Args:
            files: {part of the model: a file or None} (`fairseq_xl.checkpoints.transfer.initialize`).
            layers: layers of a deeper checkpoint that the decoder takes.
            tokens: whether the token embeddings are taken too.

        Returns: a `Report` for each file.
        """
        requirements = transfer.Requirements(
            self.dictionary,
            self.folder() / "dict.txt",
            self.framing.name,
            getattr(self.cfg, "init_across_heads", None),
            tokens and self.uses_pretrained_tokens,
        )
        return transfer.initialize(
            model, files, requirements, layers, lambda pretrained: self.adapt_pretrained(pretrained, model)
        )

    def transfer_initial_weights(self, model, files, from_checkpoint):
        """Initializes a new encoder-decoder from `files`, if one is given (`transfer_weights`)."""
        if any(files.values()) and self.needs_initial_weights(from_checkpoint):
            self.transfer_weights(model, files, str(self.cfg.init_decoder_layers))

    def adapt_pretrained(self, pretrained, model):
        """Hook: changes weights (`Pretrained`) before they are copied into a new model."""
        return pretrained

    # --- training ----------------------------------------------------------------------------------------------

    def stored_options(self):
        """The options that the run and its checkpoints have with other values than were given: {name: value}."""
        return {"data": self.cfg.data, "updates_per_epoch": self.cfg.updates_per_epoch}  # all shards; a number

    def begin_training(self):
        """Limits validation to a sample from now on; the training loop calls it before it restores a checkpoint.

        Raises `UserError` if the sub-words of the data folder have changed: training does not read them, but its
        checkpoints refer to them.
        """
        self.training_begun = True
        for name in chain.from_iterable(FILES.values()):
            if (self.folder() / name).is_file():
                check_fingerprint(self.folder(), name)

    def options_without_effect(self, run):
        """Options of the task that have no effect on this training: {``--option value``: reason}."""
        return {}

    def build_criterion(self, cfg, from_checkpoint=False):
        """Builds the criterion, and gives it the objectives and the names of their corpora."""
        criterion = super().build_criterion(cfg, from_checkpoint)
        if isinstance(criterion, CombinedCriterion):
            criterion.set_objectives(self.objectives, self.corpora_of_objectives())
        return criterion

    def corpora_of_objectives(self):
        """{objective: names of its corpora, of which losses are logged}."""
        raise NotImplementedError(f"{type(self).__name__}.corpora_of_objectives")

    def begin_epoch(self, epoch, model):
        """fairseq hook, which this package's training loop does not call; raises `UserError`."""
        raise UserError(
            f"{self.cfg._name} is trained by the loop of fairseq_xl, and this command runs another one: in "
            "fairseq-hydra-train add hydra.callbacks.fairseq_xl._target_=fairseq_xl.engine.hydra.Registering"
        )

    def train_step(self, sample, model, criterion, optimizer, update_num, ignore_grad=False):
        """A micro-step: adds the gradients of a batch to those of the update (`fairseq_xl.engine.interfaces.Task`).

        Args:
            optimizer: the `fairseq_xl.optimizers.precision.Optimizer` of the run.
            ignore_grad: whether the batch is a dummy, whose gradients are 0.
        """
        model.set_num_updates(update_num)
        weight = self.objectives[sample["objective"]].weight(update_num)
        with optimizer.autocast():
            loss, size, statistics = criterion(model, sample | {"weight": weight})
        optimizer.backward(loss * 0 if ignore_grad else loss)
        return loss, size, statistics

    def log(self, metrics, logging_outputs, criterion):
        """Logs the statistics of an update or of a validation step.

        Args:
            metrics: `fairseq_xl.engine.metrics.Metrics`.
            logging_outputs: those of all micro-steps, or their sum over ranks.
        """
        tokens = total(logging_outputs, "ntokens")
        metrics.average("wpb", tokens, digits=1)
        metrics.rate("wps", tokens, 1)
        metrics.average("bsz", total(logging_outputs, "nsentences"), digits=1)
        criterion.log(metrics, logging_outputs)

    def reduce_metrics(self, logging_outputs, criterion):
        """fairseq-validate's hook: logs the statistics of a whole validation, and ends it."""
        metrics = Metrics()
        self.log(metrics, logging_outputs, criterion)
        for name, value in ordered(metrics.values()).items():
            fairseq_metrics.log_scalar(name, value)
        self.end_validation(metrics)

    def end_validation(self, metrics, updates=None):
        """Called after the validation of a split.

        Args:
            metrics: `fairseq_xl.engine.metrics.Metrics` of the validation.
            updates: their number so far; None in fairseq-validate.
        """


def _architectures(kind):
    """The registered architectures of a class by family: ["xl_dan", "xl_mt_{base,big,small,tiny}", …]."""
    families = {}
    for name in sorted(known for known in ARCH_MODEL_REGISTRY if known.startswith("xl_")):
        if not issubclass(ARCH_MODEL_REGISTRY[name], kind):
            continue
        family, _, size = name.rpartition("_")
        several = size in ("tiny", "small", "base", "big", "large")
        families.setdefault(family if several else name, []).extend([size] if several else [])
    return [f"{family}_{{{','.join(sizes)}}}" if sizes else family for family, sizes in families.items()]


def run_config(cfg):
    """Returns the run's configuration, whose section `task` is `cfg`; None for a task created without a command."""
    return cfg._get_parent() if OmegaConf.is_config(cfg) else None


def named_languages(option, names, dictionary):
    """``en,de`` -> [en, de]; raises `UserError` for a language that is repeated or not in the dictionary."""
    languages = names_of(option, names)
    for language in languages:
        dictionary.language_id(language)
    return languages


def _check_dictionary(folder, dictionary):
    """Raises `UserError` if the text of a folder was binarized with another dictionary."""
    if XLDictionary.load(folder / "dict.txt").digest() != dictionary.digest():
        raise UserError(f"{folder / 'dict.txt'} differs from the dictionary of the first data folder")
    written = read_manifest(folder).get("dictionary", {}).get("sha256")
    if written not in (None, dictionary.digest()):
        raise UserError(
            f"{folder / 'dict.txt'} is not the dictionary that the text was binarized with: {folder / 'manifest.json'}"
        )
    check_fingerprint(folder, "dict.txt")
    joint = (folder / "dict.txt").read_bytes()
    for beside in sorted(folder.glob("*/dict*.txt")):
        if set(beside.parent.name.split("-")) <= set(dictionary.languages) and beside.read_bytes() != joint:
            symbols = XLDictionary.load(beside).symbols
            if symbols != dictionary.symbols[: len(symbols)]:
                raise UserError(
                    f"{folder / 'dict.txt'} is not the dictionary that the text of {beside.parent.name} was binarized "
                    f"with: {beside}"
                )
