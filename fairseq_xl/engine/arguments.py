"""Checks of the arguments of fairseq's commands, before anything is built."""

import argparse
import dataclasses
import difflib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from omegaconf import DictConfig, OmegaConf

from fairseq_xl.engine.option_checks import BOTH_PRECISIONS, PRECISIONS, check_arch, is_ours
from fairseq_xl.errors import GENERATES_NOTHING, UserError, check_number, quoted
from fairseq_xl.io import bounds
from fairseq_xl.io.changed_settings import options_of
from fairseq_xl.io.checkpoints import check_checkpoint, load_plain
from fairseq_xl.io.flags import file_of, option_value
from fairseq_xl.io.options import check_literals, literal, option_name
from fairseq_xl.optimizers.float32_state import parse_betas

TASKS = "xl_"  # prefix of the names of this package's tasks


def check_configuration(cfg: DictConfig) -> None:
    """Raises `UserError` for options that fairseq would run as Python, and for a model that does not fit the task."""
    plain: Any = OmegaConf.to_container(cfg, enum_to_str=True)
    check_literals(plain)
    check_arch(*(options_of(cfg, section).get("_name") for section in ("model", "task")))
    if seed := OmegaConf.select(cfg, "ema.ema_seed_model"):
        check_checkpoint(load_plain(seed), seed)  # fairseq reads it as torch does


def check_arguments(args: dict[str, Any]) -> None:
    """Raises `UserError` for arguments that fairseq checks late or by an assertion."""
    if args.get("adam_betas") is not None:
        parse_betas("--adam-betas", args["adam_betas"])
    for name in ("model_overrides", "optimizer_overrides"):  # fairseq evaluates them
        text = args.get(name)
        try:
            overrides = {} if text is None else literal(text)
        except UserError:
            overrides = None
        if not isinstance(overrides, dict) or not all(isinstance(key, str) for key in overrides):
            expected = "expected a dict of options, such as \"{'data': 'FOLDER'}\""
            raise UserError(f"{option_name(name)} {quoted(text)}: {expected}")
    check_literals(args)
    if sum(bool(args.get(kind)) for kind in PRECISIONS) > 1:
        raise UserError(BOTH_PRECISIONS)
    for kind in ("tokenizer", "bpe"):  # fairseq takes None for an option that needs text, and fails
        dataclass = REGISTRIES[kind]["dataclass_registry"].get(args.get(kind))
        for field in dataclasses.fields(dataclass) if dataclass else ():
            if field.type is str and args.get(field.name, "") is None:
                raise UserError(f"--{kind} {args[kind]}: {option_name(field.name)} is missing")
    if args.get("total_num_update", 0) is None:
        raise UserError("--total-num-update is missing: name the update at which --lr-scheduler polynomial_decay ends")
    if args.get("path", "") is None:
        raise UserError("--path is missing: name the checkpoint to load")
    check_arch(args.get("arch"), args.get("task"))
    if str(args.get("task")).startswith(TASKS):
        _check_ours(args)
    elif args.get("task") in ("translation", "language_modeling") and args.get("data"):
        _check_data(args["task"], args["data"])


def _check_ours(args: dict[str, Any]) -> None:
    """Raises `UserError` for options of a task of this package that are wrong or have no effect."""
    for name in ("beam", "nbest"):
        check_number(f"--{name}", args.get(name, 1), "1 or more", bounds.LARGEST_BEAM)
    if args.get("sampling") and args.get("nbest", 1) != args.get("beam", 1):
        raise UserError(f"--sampling needs equal --beam and --nbest: --beam {args['beam']}, --nbest {args['nbest']}")
    if args.get("lm_path"):  # fairseq-interactive ignores it
        raise UserError(
            f"--lm-path {args['lm_path']} is not supported: beam search uses no language model; leave it out"
        )
    if "buffer_size" in args and not TASK_REGISTRY[args["task"]].generates:
        raise UserError(f"fairseq-interactive --task {args['task']}: the task {GENERATES_NOTHING}")
    _check_shards(args)
    if "path" in args and "nbest" not in args:
        _check_evaluation(args, "fairseq-eval-lm" if "softmax_batch" in args else "fairseq-validate")
    if args.get("replace_unk") is not None:
        raise UserError("--replace-unk is not supported: a data folder has no text with words in place of <unk>")
    batch, lines = args.get("batch_size"), args.get("buffer_size")
    if batch and lines is not None and batch > max(lines, 1):
        raise UserError(f"--batch-size {batch} is larger than --buffer-size {lines}")
    folder = args.get("results_path")
    if folder and os.path.lexists(folder) and not os.path.isdir(folder):
        raise UserError(f"--results-path {folder}: expected a folder, found a file")


def _check_evaluation(args: dict[str, Any], command: str) -> None:
    """Raises `UserError` for options without effect in fairseq-validate or fairseq-eval-lm."""
    defaults: dict[str, Any] = {"results_path": None, "max_valid_steps": None}
    defaults |= dict.fromkeys(("quiet", "bf16", "amp"), False)
    if command == "fairseq-validate":
        defaults |= {"gen_subset": "test", "post_process": None}
    else:
        defaults["valid_subset"] = "valid"
    for name, default in defaults.items():
        if args.get(name, default) != default:
            raise UserError(f"{option_name(name)} {args[name]} has no effect in {command}: leave it out")


def _check_shards(args: dict[str, Any]) -> None:
    """Raises `UserError` for shards in commands that have none, and for a wrong --shard-id."""
    shards, shard = args.get("num_shards", 1), args.get("shard_id", 0)
    has_shards = ("nbest" in args and "buffer_size" not in args) or "softmax_batch" in args
    if (shards, shard) != (1, 0) and not has_shards:
        raise UserError("--num-shards and --shard-id have no effect: they are for fairseq-generate and fairseq-eval-lm")
    world = args.get("distributed_world_size") or 1
    if "nbest" in args and world != 1:  # fairseq-generate starts one process, which would leave out text
        raise UserError(f"--distributed-world-size {world}: to generate in several processes, give --num-shards")
    if not 0 <= shard < shards:
        raise UserError(f"--shard-id {shard}: expected 0 or more, below --num-shards {shards}")


def _check_data(task: str, data: str) -> None:
    """Raises `UserError` for a data folder of ours with the default task of fairseq-generate or fairseq-eval-lm."""
    first = data.split(os.pathsep)[0]
    for folder in (Path(first), Path(first.removesuffix("*")) / "0"):  # or the first of its shards
        if task == "language_modeling":
            if (folder / "manifest.json").is_file() and not any(folder.glob("*.idx")):
                instead = "--task xl_pretraining --objectives clm"
                raise UserError(f"--task {task} (the default) does not read {folder}: use {instead}")
        elif (folder / "dict.txt").is_file() and not any(folder.glob("dict.*.txt")):
            sentence = f"--task {task} (the default) does not read {folder}, which has one dict.txt"
            raise UserError(f"{sentence}: use --task xl_translation")


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


def _hint(parser: argparse.ArgumentParser, arguments: list[str], first: str) -> str | None:
    """Advice about the first unknown argument."""
    names = parser._option_string_actions
    if first.startswith("--"):
        name = first.partition("=")[0].replace("_", "-")
        close = difflib.get_close_matches(name, names, 1, 0.8)
        instead = OPTIONS_ELSEWHERE.get(name[2:].replace("-", "_")) or (name if name in names else None)
        instead = instead or next(iter(close), None)
        return instead and f"did you mean {instead}?"
    if first.startswith("-"):
        return None
    before = arguments[: arguments.index(first)] if first in arguments else []
    before = [argument for argument in before if argument.startswith("--")]
    action = names.get(before[-1]) if before else None
    if action is None:
        return None
    if action.nargs == 0:
        return f"{before[-1]} takes no value"
    return f"{before[-1]} takes one value; several are joined by commas"


def _options_of_tasks() -> set[str]:
    """The options of the package's tasks that fairseq's translation lacks."""
    configs = [config for name, config in TASK_DATACLASS_REGISTRY.items() if is_ours(TASK_REGISTRY[name])]
    names = {field.name for config in configs for field in dataclasses.fields(config)}
    return {
        option_name(name)
        for name in names - {field.name for field in dataclasses.fields(TASK_DATACLASS_REGISTRY["translation"])}
    }


def check_task_is_named(files: Sequence[str], arguments: Sequence[str]) -> None:
    """Raises `UserError` if --config files and the command line name no --task, as a file that overrides another."""
    if files and option_value(arguments, "--task") is None:
        raise UserError(
            f"{files[0]}: --task is missing: if the file overrides another one, as its first lines say, name that one "
            "before it"
        )


def refuse_arguments(
    parser: argparse.ArgumentParser,
    arguments: list[str],
    command_line: Sequence[str],
    files: Sequence[str],
    message: str,
) -> NoReturn:
    """Ends the command like argparse's `error`, without the usage; of long lists of choices it shows this package's.

    An argument that comes from one of the --config `files`, and not from the command line, is named with its file.
    """
    flag = re.match(r"(?:unrecognized arguments:|argument) (--[\w-]+)", message)
    path = file_of(files, flag[1]) if flag and option_value(command_line, flag[1]) is None else None
    wrong, listed, choices = message.partition("(choose from ")
    if listed:
        names = [name for name in re.findall(r"[\w.-]+", choices) if name.startswith("xl_")]
        wrong += f"(choose from {', '.join(names)}, or fairseq's own)" if names else f"(choose from {choices}"
    unknown = wrong.removeprefix("unrecognized arguments: ").split()
    if files and flag and flag[1] in _options_of_tasks():
        check_task_is_named([str(path or files[0])], arguments)
    if wrong.startswith("unrecognized arguments: "):
        task, arch = TASK_REGISTRY.get(option_value(arguments, "--task")), option_value(arguments, "--arch")
        if unknown[-1].endswith((".yaml", ".yml")):
            wrong = f"{unknown[-1]}: name a file of flags with --config"
        elif all(map(os.path.exists, unknown)):  # of DATA/* without quotes
            wrong += ": DATA is one argument; quote a pattern, 'DATA/*'"
        elif is_ours(task) and arch in ARCH_MODEL_REGISTRY and not is_ours(ARCH_MODEL_REGISTRY[arch]):
            kind = "an encoder-decoder of fairseq_xl: xl_mt_…" if task.generates else "a model of fairseq_xl: xl_…"
            raise UserError(f"--arch {arch} does not fit --task {option_value(arguments, '--task')}: expected {kind}")
        elif hint := _hint(parser, arguments, unknown[0]):
            wrong += f": {hint}"
    # fairseq's parsers of lists have no name
    wrong = wrong.replace("invalid <lambda> value:", "expected a finite number, or several joined by commas, found")
    parser.exit(2, f"{parser.prog}: error: {f'{path}: ' if path else ''}{wrong}\n")
