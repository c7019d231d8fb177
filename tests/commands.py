"""fairseq's commands run in this process: a new one would spend seconds on imports.

fairseq was made for one run in a process. What a run leaves behind (metrics, logging handlers and levels, the working
threads' number) is put back after each.
"""

import argparse
import contextlib
import copy
import functools
import io
import json
import logging
import sys
import unittest.mock
from dataclasses import dataclass, field
from pathlib import Path

import fairseq
import torch
from fairseq import checkpoint_utils, options
from fairseq.dataclass import utils as dataclass_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq_cli import eval_lm, generate, interactive, train, validate
from hydra import initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

import fairseq_xl
from fairseq_xl.engine import main
from tests.command_line import cli

fairseq_xl.register()
from fairseq_xl.engine.arguments import TASKS  # noqa: E402
from fairseq_xl.objectives import OBJECTIVES  # noqa: E402
from fairseq_xl.tasks.base import XLTask  # noqa: E402

CPU = ["--cpu", "--num-workers", "0", "--no-progress-bar"]
#: further arguments of a training on each of `tests.devices.DEVICES`
ON = {"cpu": CPU, "cuda": CPU[1:]}


@dataclass
class Output:
    """What a command printed and logged, and the updates that it made."""

    text: str = ""  # what generate and interactive print
    records: list = field(default_factory=list)  # logging records
    updates: dict = field(default_factory=dict)  # number of the update, from 1: its micro-steps' losses as float.hex
    samples: dict = field(default_factory=dict)  # number of the update: its micro-steps' batches
    result: object = None  # what the command's main returned

    @property
    def log(self):
        """Messages, one a line."""
        return "\n".join(record.getMessage() for record in self.records)

    @property
    def losses(self):
        """Losses of all micro-steps in order, in full: float.hex."""
        return [loss for losses in self.updates.values() for loss in losses]

    def lines(self, kind):
        """{number of the line: text} of what generate printed as H-, D-, S-, T- or P- lines."""
        found = {}
        for line in self.text.splitlines():
            if line.startswith(f"{kind}-"):
                number, _, rest = line[2:].partition("\t")
                found.setdefault(int(number), []).append(rest)
        return found

    def statistics(self, name, tag=None):
        """Values of `name` in the records of epochs and validations, as text, in order.

        A training logs JSON, fairseq-validate lines of names and values (--log-format simple).

        Args:
            tag: `train` or a validation split; None: all records.
        """
        values = []
        for record in self.records:
            if tag not in (None, record.name):
                continue
            message = record.getMessage()
            if message.startswith('{"epoch"'):
                value = json.loads(message).get(f"{record.name}_{name}")
                values += [] if value is None else [value]
            elif " subset | " in message:
                values += [part.partition(" ")[2] for part in message.split(" | ") if part.partition(" ")[0] == name]
        return values


@contextlib.contextmanager
def one_run():
    """Runs the body as in a process of its own; yields its `Output`."""
    output, root, threads = Output(), logging.getLogger(), torch.get_num_threads()
    handlers, level = list(root.handlers), root.level
    step, filters, losses = XLTask.train_step, list(root.filters), {}

    def recorded_step(self, sample, model, criterion, optimizer, update_num, ignore_grad=False):
        result = step(self, sample, model, criterion, optimizer, update_num, ignore_grad)
        if not ignore_grad:
            loss = result[2]["loss"]  # read at the end: the run itself does not wait for a GPU
            losses.setdefault(update_num + 1, []).append(loss.clone() if isinstance(loss, torch.Tensor) else loss)
            output.samples.setdefault(update_num + 1, []).append(sample)
        return result

    class Keep(logging.Handler):
        def emit(self, record):
            output.records.append(record)

    metrics.reset()
    root.handlers, root.filters = [Keep()], []
    root.setLevel(logging.INFO)
    keeper = root.handlers[0]
    reset_logging = validate.reset_logging
    XLTask.train_step, validate.reset_logging = recorded_step, lambda: None
    torch.set_num_threads(1)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield output
    finally:
        output.text = printed.getvalue()
        output.updates = {number: [float(loss).hex() for loss in each] for number, each in losses.items()}
        keeper.close()
        XLTask.train_step, validate.reset_logging = step, reset_logging
        torch.set_num_threads(threads)
        root.handlers, root.filters = handlers, filters
        root.setLevel(level)
        metrics.reset()


COMPOSE = dataclass_utils.compose
IN_FOLDER = functools.partial(initialize_config_dir, str(Path(fairseq.__file__).parent / "config"))


@functools.cache
def composed_groups(groups):
    """hydra's configuration of config groups alone, such as task=xl_translation."""
    return COMPOSE("config", overrides=list(groups), strict=False)


@functools.cache
def parsed_override(text):
    """Key and value of one override of hydra, such as model.layers=2."""
    override = OverridesParser.create().parse_override(text)
    return override.key_or_group, override.value()


COMPOSED = {}  # config groups and keys of overrides: the overrides and the configuration of the latest call with them


def compose(config_name, overrides, strict):
    """Composes like hydra, ten times as fast: each set of config groups is composed once, each value parsed once.

    A configuration starts from the latest one with the same keys; only values that differ are set.
    """
    settings = {text.split("=")[0]: text for text in overrides if "." in text.split("=")[0]}
    groups = tuple(text for text in overrides if "." not in text.split("=")[0])
    same = (groups, *settings)
    before, configured = COMPOSED.pop(same, ({}, None))
    if configured is None:
        configured = copy.deepcopy(composed_groups(groups))
    try:
        for key, text in settings.items():
            if before.get(key) != text:
                OmegaConf.update(configured, *copy.deepcopy(parsed_override(text)), merge=True)
    except Exception:  # hydra tells of it in its own words
        return COMPOSE(config_name, overrides=overrides, strict=strict)
    if not any("={" in text for text in settings.values()):  # a mapping would be merged with the one before
        COMPOSED[same] = settings, configured  # the caller only removes the groups that are not named, then copies it
    return configured


def converted(args):
    """fairseq's configuration of parsed arguments; hydra looks for its caller in the sources of the whole stack."""
    with unittest.mock.patch.multiple(dataclass_utils, compose=compose, initialize=lambda config_path: IN_FOLDER()):
        return convert_namespace_to_omegaconf(args)


def configuration(parser, arguments):
    """fairseq's configuration of a command line."""
    return converted(options.parse_args_and_arch(parser, [str(argument) for argument in arguments]))


def run_train(arguments, defaults=CPU):
    """fairseq-train."""
    with one_run() as output:
        cfg = configuration(options.get_training_parser(), [*arguments, *defaults])
        (main.main if cfg.task._name.startswith(TASKS) else train.main)(cfg)
    return output


def trained(arguments):
    """The last checkpoint of fairseq-train."""
    run_train(arguments)
    return Path(arguments[arguments.index("--save-dir") + 1]) / "checkpoint_last.pt"


def generate_parser():
    """The parser of fairseq-generate."""
    parser = options.get_generation_parser()
    parser.add_argument("--arch", default="wav2vec2")  # as its cli_main does
    return parser


def run_generate(arguments):
    """fairseq-generate."""
    with one_run() as output:
        output.result = generate.main(configuration(generate_parser(), [*arguments, *CPU]))
    return output


def run_interactive(arguments, lines):
    """fairseq-interactive with `lines` on standard input."""
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")))
    try:
        with one_run() as output:
            interactive.main(configuration(options.get_interactive_generation_parser(), [*arguments, *CPU]))
    finally:
        sys.stdin = before
    return output


def run_validate(arguments):
    """fairseq-validate, which takes the model's options from the checkpoint except for those of the command line."""
    arguments = [str(argument) for argument in [*arguments, *CPU]]
    parser = options.get_validation_parser()
    parsed = options.parse_args_and_arch(parser, arguments)
    overrides = options.parse_args_and_arch(options.get_validation_parser(), arguments, suppress_defaults=True)
    with one_run() as output:
        validate.main(converted(parsed), override_args=argparse.Namespace(**vars(overrides)))
    return output


def run_eval_lm(arguments):
    """fairseq-eval-lm; the result has its mean loss in bits and its perplexity."""
    with one_run() as output:
        output.result = eval_lm.main(configuration(options.get_eval_lm_parser(), [*arguments, *CPU]))
    return output


def load(path):
    """A checkpoint's model parameters."""
    return checkpoint_utils.load_checkpoint_to_cpu(str(path))["model"]


def equal_parameters(one, other):
    """Whether two state dicts are bit-identical."""
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


OPTIMIZATION = cli(optimizer="adam", lr="0.003", log_format="simple", log_interval="1", user_dir="fairseq_xl")
MAX_POSITIONS = 40
SIZE = ["--embed-dim", 16, "--ffn-dim", 32, "--heads", 2, "--max-positions", MAX_POSITIONS]


def unlabelled(model_class=None):
    """Names of the objectives of this package that read a data folder's text, and run on models of a class."""
    ours = {name: each for name, each in OBJECTIVES.items() if each.__module__.startswith("fairseq_xl.")}
    return sorted(
        name
        for name, each in ours.items()
        if name != "distillation"  # reads a teacher's embeddings too
        and each.corpus_class.num_languages
        and (model_class is None or issubclass(model_class, each.model_class))
    )


def training(data, save_dir, more, task, arch, criterion=None, **options):
    """A command line of fairseq-train: a model of 16 channels."""
    chosen = cli(task=f"xl_{task}", criterion=f"xl_{criterion or task}", arch=arch, **options)
    return [data, *chosen, *SIZE, *cli(max_tokens=256, save_dir=save_dir), *OPTIMIZATION, *more]


BOTH_SIDES = dict(encoder_layers=1, decoder_layers=1)


def pretraining(data, save_dir, *more, objectives="mlm,tlm"):
    """A command line of fairseq-train: one layer of 16 channels."""
    settings = " ".join([f"{name}.length=32" for name in objectives.split(",")] + ["paraphrase.negatives=random"])
    chosen = dict(objectives=objectives, objective_options=settings)
    return training(data, save_dir, more, "pretraining", "xl_xlm_tiny", layers=1, **chosen)


def denoising(data, save_dir, *more, objectives="xdae"):
    """A command line of fairseq-train: one layer of 16 channels a side."""
    settings = " ".join(f"{name}.length=32" for name in objectives.split(","))
    chosen = dict(objectives=objectives, objective_options=settings)
    return training(data, save_dir, more, "pretraining", "xl_xdae_tiny", **BOTH_SIDES, **chosen)


UNSUPERVISED = (
    "xdae.sample_break_mode=eos xdae.noise=shuffle+drop+mask xdae.length=32 back_translation.length=32 "
    "translation.length=31"
)


def unsupervised(data, save_dir, *more):
    """A command line of fairseq-train: unsupervised translation, one layer of 16 channels a side."""
    chosen = dict(criterion="pretraining", objective_options=UNSUPERVISED)
    return training(data, save_dir, more, "unsupervised_translation", "xl_unmt_tiny", **BOTH_SIDES, **chosen)


def evaluated(data, task, path, *more, **options):
    """A command line of fairseq-validate, -generate or -interactive with a checkpoint of the task xl_{task}."""
    return [data, *cli(task=f"xl_{task}", path=path, user_dir="fairseq_xl", **options), *more]


def validation(data, checkpoint):
    """A command line of fairseq-validate: the validation text of a pre-training."""
    return evaluated(data, "pretraining", checkpoint, max_tokens=256, valid_subset="valid")


def dan(data, save_dir, *more):
    """A command line of fairseq-train: the deep averaging network for mining, 16 channels."""
    settings = "paraphrase_similarity.length=32 paraphrase_similarity.batch_sentences=16"
    chosen = cli(task="xl_pretraining", objectives="paraphrase_similarity", objective_options=settings)
    size = cli(criterion="xl_pretraining", arch="xl_dan", embed_dim=16, max_tokens=1024, save_dir=save_dir)
    return [data, *chosen, *size, *OPTIMIZATION, *more]


def translation(data, save_dir, *more):
    """A command line of fairseq-train: one layer of 16 channels a side; name the direction in `more`."""
    return training(data, save_dir, more, "translation", "xl_mt_tiny", **BOTH_SIDES)


def labeled(files, save_dir):
    """Arguments of a training on task files in English and German."""
    languages = "en,de"
    names = cli(task_files=files, train_langs=languages, eval_langs=languages, save_dir=save_dir)
    return [*SIZE, *names, *cli(length=MAX_POSITIONS, batch_size=16), *OPTIMIZATION]


def classification(data, files, save_dir, *more):
    """A command line of fairseq-train: one layer of 16 channels on task files in English and German."""
    return [
        data,
        *cli(task="xl_classification", criterion="xl_classification", arch="xl_xlm_tiny", layers=1),
        *labeled(files, save_dir),
        *more,
    ]


def generation(data, files, save_dir, *more):
    """A command line of fairseq-train: an xDAE of one layer of 16 channels a side on task files in English and German.

    Name other languages in `more`.
    """
    return [
        data,
        *cli(task="xl_generation", criterion="xl_generation", arch="xl_xdae_tiny", encoder_layers=1, decoder_layers=1),
        *labeled(files, save_dir),
        *more,
    ]
