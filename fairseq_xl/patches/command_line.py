"""Checks of the options of fairseq's commands."""

import dataclasses
import difflib
import functools
import os
import re
import sys
import warnings
from pathlib import Path

from fairseq import models, options, utils
from fairseq.dataclass import utils as dataclass_utils
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_REGISTRY
from hydra.core.hydra_config import HydraConfig
from omegaconf.errors import OmegaConfBaseException

from fairseq_xl import error_reporting
from fairseq_xl.engine import save_dir
from fairseq_xl.engine.launch import TASKS
from fairseq_xl.engine.options import BOTH_PRECISIONS, MISSING_LR, PRECISIONS, check_betas
from fairseq_xl.errors import GENERATES_NOTHING, UserError, check_number, quoted
from fairseq_xl.io import bounds
from fairseq_xl.io.literals import literal
from fairseq_xl.io.signals import end_by_exception
from fairseq_xl.renamed import new_key, refuse_old_options


def install() -> None:
    """Checks options, reports errors of commands in one sentence and hides warnings that a user cannot act on."""
    if HydraConfig.initialized():  # the process is fairseq-hydra-train, which imports the plugin when it runs
        error_reporting.install()
        os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # hydra raises errors instead of showing them in its way
    options.parse_args_and_arch = _require_lr_and_one_precision(_check_command_line(options.parse_args_and_arch))
    models.build_model = _check_task_of_model(models.build_model)
    dataclass_utils.merge_with_parent = _explain_option_errors(dataclass_utils.merge_with_parent)
    # every command of fairseq uses hydra's old interface; one of these warnings has no module to filter by
    warnings.filterwarnings("ignore", category=UserWarning, module=r"hydra\.")
    warnings.filterwarnings("ignore", message=r"\n'\w+' is validated against ConfigStore", category=UserWarning)
    # fairseq pins memory and uses the old name of autocast on every machine
    warnings.filterwarnings("ignore", message=".*pin_memory.*no accelerator")
    warnings.filterwarnings("ignore", message=".*torch.cuda.amp.autocast", category=FutureWarning)


def _explain_option_errors(original):
    """Raises `UserError` for an unknown, renamed or ill-typed option of fairseq-hydra-train."""

    @functools.wraps(original)
    def merge_with_parent(dataclass, cfg, *args, **kwargs):
        """Checks the options of a section, and composes it as fairseq does."""
        save_dir.use_job_folder(cfg._get_parent())
        for key in map(str, cfg):
            if new_key(key) != key:
                raise UserError(f"{cfg._get_full_key(key)} is now called {cfg._get_full_key(new_key(key))}")
        try:
            return original(dataclass, cfg, *args, **kwargs)
        except OmegaConfBaseException as error:
            known = ", ".join(name for name in dataclass.__dataclass_fields__ if name != "_name")
            reason = str(error).splitlines()[0]
            raise UserError(f"{cfg._get_full_key(error.key)}: {reason} (options: {known})") from error

    return merge_with_parent


def _check_command_line(original):
    """Checks arguments, and shows errors without argparse's hundreds of lines of usage and of fairseq's names."""

    @functools.wraps(original)
    def parse_args_and_arch(parser, input_args=None, *args, **kwargs):
        """Parses arguments as fairseq does, and checks them."""
        if input_args is None:  # a command, not a program that calls fairseq
            error_reporting.install()
            end_by_exception()
        arguments = list(map(str, sys.argv[1:] if input_args is None else input_args))
        refuse_old_options(arguments)
        parser.error = functools.partial(_refuse_arguments, parser, arguments)
        for action in parser._actions:
            if action.dest in ("arch", "task") and action.default is None:  # fairseq would fail on None
                action.required = True
        found = original(parser, input_args, *args, **kwargs)
        _check_arguments(vars(found[0] if isinstance(found, tuple) else found))
        return found

    return parse_args_and_arch


def _require_lr_and_one_precision(original):
    """Refuses training without --lr for tasks of this package, and --fp16 together with --bf16 for all tasks."""

    @functools.wraps(original)
    def parse_args_and_arch(parser, input_args=None, *args, **kwargs):
        """Parses arguments without a default for --lr in commands that train, and without the --tpu of --bf16."""
        default = parser.get_default("lr")
        if default is not None:  # a command that trains
            default = utils.eval_str_list(default)
            parser.set_defaults(lr=default)
        try:
            parsed = original(parser, input_args, *args, **kwargs)
        except ValueError as error:
            if not str(error).startswith("Cannot combine --fp16 and --tpu"):  # fairseq treats --bf16 as --tpu here
                raise
            raise UserError(BOTH_PRECISIONS) from error
        namespace = parsed[0] if isinstance(parsed, tuple) else parsed  # a tuple where unknown arguments are allowed
        if getattr(namespace, "tpu", False):  # fairseq sets it for --bf16, and then looks for TPUs
            namespace.tpu = "--tpu" in (sys.argv[1:] if input_args is None else input_args)
        if default is not None and getattr(namespace, "lr", None) is default and namespace.task.startswith(TASKS):
            raise UserError(MISSING_LR)
        return parsed

    return parse_args_and_arch


def _check_overrides(option: str, text: str) -> None:
    """Raises `UserError` unless the text is a dict of options and values: fairseq evaluates it."""
    try:
        overrides = literal(text)
    except UserError:
        overrides = None
    if not isinstance(overrides, dict) or not all(isinstance(name, str) for name in overrides):
        raise UserError(f"{option} {quoted(text)}: expected a dict of options, such as \"{{'data': 'FOLDER'}}\"")


def _check_arguments(given: dict) -> None:
    """Raises `UserError` for arguments that fairseq checks late or by an assertion."""
    if given.get("adam_betas") is not None:
        check_betas(given["adam_betas"])
    for name in ("model_overrides", "optimizer_overrides"):
        if given.get(name) is not None:
            _check_overrides(f"--{name.replace('_', '-')}", given[name])
    if sum(bool(given.get(kind)) for kind in PRECISIONS) > 1:
        raise UserError(BOTH_PRECISIONS)
    for kind in ("tokenizer", "bpe"):  # fairseq takes None for an option that needs text, and fails
        chosen = REGISTRIES[kind]["dataclass_registry"].get(given.get(kind))
        for field in dataclasses.fields(chosen) if chosen else ():
            if field.type is str and given.get(field.name, "") is None:
                raise UserError(f"--{kind} {given[kind]}: --{field.name.replace('_', '-')} is missing")
    if given.get("path", "") is None:
        raise UserError("--path is missing: name the checkpoint to load")
    check_number("--beam", given.get("beam", 1), "1 or more", bounds.LARGEST_BEAM)
    check_number("--nbest", given.get("nbest", 1), "1 or more", bounds.LARGEST_BEAM)
    if given.get("sampling") and given.get("nbest", 1) != given.get("beam", 1):
        raise UserError(f"--sampling needs equal --beam and --nbest: --beam {given['beam']}, --nbest {given['nbest']}")
    if given.get("lm_path"):  # fairseq-interactive ignores it
        file = given["lm_path"]
        raise UserError(f"--lm-path {file} is not supported: beam search uses no language model; leave it out")
    if "buffer_size" in given and not getattr(TASK_REGISTRY.get(given.get("task")), "generates", True):
        raise UserError(f"fairseq-interactive --task {given['task']}: the task {GENERATES_NOTHING}")
    if str(given.get("task", "")).startswith(TASKS):
        _check_shards(given)
        if "path" in given and "nbest" not in given:
            _check_evaluation(given, "fairseq-eval-lm" if "softmax_batch" in given else "fairseq-validate")
        if given.get("replace_unk") is not None:
            raise UserError("--replace-unk is not supported: a data folder has no text with words in place of <unk>")
    batch, lines = given.get("batch_size"), given.get("buffer_size")
    if batch and lines is not None and batch > max(lines, 1):
        raise UserError(f"--batch-size {batch} is larger than --buffer-size {lines}")
    folder = given.get("results_path")
    if folder and os.path.lexists(folder) and not os.path.isdir(folder):
        raise UserError(f"--results-path {folder}: expected a folder, found a file")
    if given.get("arch") and given.get("task"):
        _check_arch_and_task(given["arch"], given["task"])
    if given.get("task") == "translation" and given.get("data"):  # the default of fairseq-generate
        _check_data_of_translation(given["data"])
    if given.get("task") == "language_modeling" and given.get("data"):  # the default of fairseq-eval-lm
        folder = Path(given["data"].split(os.pathsep)[0])
        if (folder / "manifest.json").is_file():
            ours = "--task xl_pretraining --objectives clm"
            raise UserError(f"--task language_modeling (the default) does not read {folder}: use {ours}")


def _check_evaluation(given: dict, command: str) -> None:
    """Raises `UserError` for options without effect in fairseq-validate or fairseq-eval-lm."""
    defaults = {"results_path": None, "quiet": False, "max_valid_steps": None, "valid_subset": "valid"}
    defaults |= dict.fromkeys(("bf16", "amp"), False)
    if command == "fairseq-validate":
        del defaults["valid_subset"]
        defaults |= {"gen_subset": "test", "post_process": None}
    for name, default in defaults.items():
        if given.get(name, default) != default:
            raise UserError(f"--{name.replace('_', '-')} {given[name]} has no effect in {command}: leave it out")


def _check_shards(given: dict) -> None:
    """Raises `UserError` for shards in commands that have none, and for a wrong --shard-id."""
    shards, shard = given.get("num_shards", 1), given.get("shard_id", 0)
    has_shards = ("nbest" in given and "buffer_size" not in given) or "softmax_batch" in given
    if (shards, shard) != (1, 0) and not has_shards:
        raise UserError("--num-shards and --shard-id have no effect: they are for fairseq-generate and fairseq-eval-lm")
    world = given.get("distributed_world_size") or 1
    if "nbest" in given and world != 1:  # fairseq-generate starts one process, which would leave out text
        raise UserError(f"--distributed-world-size {world}: to generate in several processes, give --num-shards")
    if not 0 <= shard < shards:
        raise UserError(f"--shard-id {shard}: expected 0 or more, below --num-shards {shards}")


def _check_data_of_translation(data: str) -> None:
    """Raises `UserError` if fairseq's task `translation` gets a data folder of ours, which has a joint dictionary."""
    first = data.split(os.pathsep)[0]
    for folder in (Path(first), Path(first.removesuffix("*")) / "0"):  # or the first of its shards
        if not (folder / "dict.txt").is_file() or any(folder.glob("dict.*.txt")):
            continue
        found = f"--task translation (the default) does not read {folder}, which has one dict.txt"
        raise UserError(f"{found}: use --task xl_translation")


def _check_arch_and_task(arch: "str | None", task: "str | None") -> None:
    """Raises `UserError` for one of our models with a task of fairseq, whose dictionary names no languages."""
    if task in TASK_REGISTRY and not _is_ours(TASK_REGISTRY[task]) and _is_ours(ARCH_MODEL_REGISTRY.get(arch)):
        ours = ", ".join(sorted(name for name, found in TASK_REGISTRY.items() if _is_ours(found)))
        default = " (or, if no --task is given, the configuration that this one overrides before it)"
        more = default if task == "translation" else ""  # fairseq's default
        raise UserError(f"--task {task} does not fit --arch {arch}: expected one of {ours}{more}")


def _is_ours(registered) -> bool:
    return registered is not None and registered.__module__.startswith("fairseq_xl.")


def _check_task_of_model(original):
    """Applies `_check_arch_and_task` in fairseq-hydra-train too, which parses no arguments."""

    @functools.wraps(original)
    def build_model(cfg, task, *args, **kwargs):
        """Builds a model after its architecture and task are checked."""
        names = (getattr(cfg, name, None) for name in ("_name", "arch"))
        _check_arch_and_task(next(filter(None, names), None), getattr(getattr(task, "cfg", None), "_name", None))
        return original(cfg, task, *args, **kwargs)

    return build_model


#: options of other toolkits -> what fairseq has in their place
OPTIONS_ELSEWHERE = {
    **dict.fromkeys(("learning_rate",), "--lr"),
    **dict.fromkeys(("num_train_epochs", "num_epochs", "epochs"), "--max-epoch"),
    **dict.fromkeys(("max_steps", "num_steps", "train_steps"), "--max-update"),
    **dict.fromkeys(("warmup_steps", "num_warmup_steps"), "--warmup-updates"),
    **dict.fromkeys(("per_device_train_batch_size", "train_batch_size"), "--batch-size"),
    "gradient_accumulation_steps": "--update-freq",
    "max_grad_norm": "--clip-norm",
    "lr_scheduler_type": "--lr-scheduler",
    **dict.fromkeys(("output_dir", "save_path"), "--save-dir"),
    **dict.fromkeys(("resume_from_checkpoint", "resume"), "--restore-file"),
    **dict.fromkeys(("model_name_or_path", "pretrained_model"), "--init-from"),
    "logging_steps": "--log-interval",
    "save_steps": "--save-interval-updates",
    "eval_steps": "--validate-interval-updates",
    **dict.fromkeys(("max_seq_length", "max_length"), "--length in fine-tuning"),
    **dict.fromkeys(("device", "no_cuda", "gpu", "gpus"), "GPUs, which are used if there are any, or --cpu"),
}


def _value(arguments: list, option: str) -> "str | None":
    """The last value of an option among arguments."""
    last = None
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == option:
            last = value if equals else next(iter(arguments[index + 1 :]), None)
    return last


def _hint(parser, arguments: list, unknown: list) -> "str | None":
    """What to give in place of the first unknown argument."""
    first = unknown[0]
    options = parser._option_string_actions
    if first.startswith("--"):
        name = first.partition("=")[0]
        dashes, plain = name.replace("_", "-"), name[2:].replace("-", "_")
        close = difflib.get_close_matches(dashes, options, 1, 0.8)
        instead = OPTIONS_ELSEWHERE.get(plain) or (dashes if dashes in options else None) or next(iter(close), None)
        return instead and f"did you mean {instead}?"
    before = arguments[: arguments.index(first)] if first in arguments else []
    before = [argument for argument in before if argument.startswith("--")]
    action = options.get(before[-1]) if before else None
    if action is None:
        return None
    if action.nargs == 0:
        return f"{before[-1]} takes no value"
    return f"{before[-1]} takes one value; several are joined by commas"


def _refuse_arguments(parser, arguments, message):
    """Ends the command like argparse's `error`, without the usage; of long lists of choices it shows ours.

    Args:
        arguments: all arguments of the command line.
    """
    wrong, listed, choices = message.partition("(choose from ")
    if listed:
        ours = [name for name in re.findall(r"[\w.-]+", choices) if name.startswith("xl_")]
        wrong += f"(choose from {', '.join(ours)}, or fairseq's own)" if ours else f"(choose from {choices}"
    unknown = wrong.removeprefix("unrecognized arguments: ").split()
    if wrong.startswith("unrecognized arguments: ") and unknown[-1].endswith((".yaml", ".yml")):
        parser.exit(2, f"{parser.prog}: error: {unknown[-1]}: configuration files stand before all flags\n")
    if wrong.startswith("unrecognized arguments: ") and all(map(os.path.exists, unknown)):  # of DATA/* without quotes
        wrong += ": DATA is one argument; quote a pattern, 'DATA/*'"
    elif wrong.startswith("unrecognized arguments: "):
        task, arch = TASK_REGISTRY.get(_value(arguments, "--task")), _value(arguments, "--arch")
        if _is_ours(task) and arch in ARCH_MODEL_REGISTRY and not _is_ours(ARCH_MODEL_REGISTRY[arch]):
            kind = "an encoder-decoder of fairseq_xl: xl_mt_…" if task.generates else "a model of fairseq_xl: xl_…"
            raise UserError(f"--arch {arch} does not fit --task {_value(arguments, '--task')}: expected {kind}")
        wrong += "".join(f": {hint}" for hint in filter(None, [_hint(parser, arguments, unknown)]))
    # fairseq's parsers of lists have no name
    wrong = wrong.replace("invalid <lambda> value:", "expected a finite number, or several joined by commas, found")
    parser.exit(2, f"{parser.prog}: error: {wrong}\n")
