"""Replacements of fairseq's functions that start its commands and parse their arguments."""

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from fairseq import options, utils
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import progress_bar
from omegaconf import DictConfig

from fairseq_xl.engine import launch
from fairseq_xl.engine.arguments import (
    TASKS,
    check_arguments,
    check_configuration,
    check_task_is_named,
    refuse_arguments,
)
from fairseq_xl.engine.initial_weights import with_architecture
from fairseq_xl.engine.log import shorten_console
from fairseq_xl.engine.option_checks import BOTH_PRECISIONS, MISSING_LR
from fairseq_xl.errors import UserError
from fairseq_xl.io import error_reporting
from fairseq_xl.io.flags import config_files, expanded, named_arch
from fairseq_xl.io.options import literal_type
from fairseq_xl.io.signals import end_by_exception

_call_main = distributed_utils.call_main
_parse_args_and_arch = options.parse_args_and_arch
_format_stats = progress_bar.BaseProgressBar._format_stats


def call_main(cfg: DictConfig, main: Callable[..., Any], **kwargs: Any) -> Any:
    """Runs a command, in place of fairseq's function, through which all of its commands go.

    A training of a task of this package runs `fairseq_xl.engine.main.main` in place of fairseq's; an evaluation of one
    without CUDA runs in one process; everything else is fairseq's. Raises `UserError` as `check_configuration`.
    """
    check_configuration(cfg)
    if str(cfg.task._name).startswith(TASKS):
        shorten_console()
        if hasattr(sys.modules.get(getattr(main, "__module__", "")), "validate_and_save"):  # fairseq_cli.train
            return launch.train(cfg)
        if cfg.common.cpu or not torch.cuda.is_available():
            _evaluate_alone(cfg.distributed_training)
    return _call_main(cfg, main, **kwargs)


def _evaluate_alone(training: DictConfig) -> None:
    """Evaluates in one process without CUDA; fairseq would start as many as there are GPUs: none."""
    if training.distributed_world_size > 1 and not launch.only_counts_gpus(training):
        count = training.distributed_world_size
        raise UserError(f"--distributed-world-size {count}: evaluation without CUDA takes one process")
    training.distributed_world_size, training.distributed_init_method = 1, None


def format_stats(self: Any, stats: dict[str, Any]) -> Any:
    """Formats numbers alone, as `BaseProgressBar._format_stats`: fairseq-validate also has sums that are vectors."""
    numbers = {name: value for name, value in stats.items() if value is not None and not getattr(value, "ndim", 0)}
    return _format_stats(self, numbers)


def parse_args_and_arch(
    parser: argparse.ArgumentParser,
    input_args: Sequence[Any] | None = None,
    parse_known: bool = False,
    suppress_defaults: bool = False,
    modify_parser: Callable[[argparse.ArgumentParser], None] | None = None,
) -> Any:
    """Parses arguments as fairseq does, whose function it replaces, and checks them.

    Files of --config stand for their flags (`fairseq_xl.io.flags`), --init-from without --arch for its architecture.
    Text is never run as Python, --lr has no default for tasks of this package, and --bf16 does not ask for TPUs. Errors
    show neither argparse's hundreds of lines of usage nor fairseq's names.
    """
    words = list(map(str, sys.argv[1:] if input_args is None else input_args))
    if suppress_defaults:
        return _given_options(parser, words, modify_parser)
    if input_args is None:  # a command, not a program that calls fairseq
        error_reporting.install()
        end_by_exception()
    arguments, (command_line, files) = _with_architecture(parser, expanded(words)), config_files(words)
    parser.error = functools.partial(refuse_arguments, parser, arguments, command_line, files)  # type: ignore[method-assign]
    arch, trains = named_arch(arguments), any(action.dest == "arch" for action in parser._actions)
    if trains and (arch is None or arch.startswith(TASKS)):
        check_task_is_named(files, arguments)
    for action in parser._actions:
        if action.dest in ("arch", "task") and action.default is None:  # fairseq would fail on None
            action.required = True
    lr = utils.eval_str_list(parser.get_default("lr"))  # None in commands that do not train
    if lr is not None:
        parser.set_defaults(lr=lr)

    def modify(parser: argparse.ArgumentParser) -> None:
        """Makes the parser read literals, where fairseq evaluates text as Python."""
        if modify_parser is not None:
            modify_parser(parser)
        for action in parser._actions:
            action.type = literal_type(action.type)

    try:
        parsed = _parse_args_and_arch(parser, arguments, parse_known, modify_parser=modify)
    except ValueError as error:
        if not str(error).startswith("Cannot combine --fp16 and --tpu"):  # fairseq treats --bf16 as --tpu here
            raise
        raise UserError(BOTH_PRECISIONS) from error
    args = parsed[0] if parse_known else parsed
    args.tpu = args.tpu and "--tpu" in arguments
    if lr is not None and getattr(args, "lr", None) is lr and str(args.task).startswith(TASKS):
        raise UserError(MISSING_LR)
    if getattr(args, "cpu", False) and not any(word.startswith("--distributed-w") for word in arguments):
        args.distributed_world_size = 1  # fairseq's default is the number of GPUs
    check_arguments(vars(args))
    return parsed


def _given_options(parser: argparse.ArgumentParser, words: list[str], modify_parser: Any) -> argparse.Namespace:
    """The options of the command line alone, without defaults and --config: they override a checkpoint's."""
    args = parse_args_and_arch(parser, words, modify_parser=modify_parser)
    own_parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, parents=[parser])
    own_parser.set_defaults(**dict.fromkeys(vars(args)))
    for action in own_parser._actions:
        action.required = False  # it may be in a file
    options_given = own_parser.parse_args(_with_architecture(parser, config_files(words)[0]))
    return argparse.Namespace(**{name: value for name, value in vars(options_given).items() if value is not None})


def _with_architecture(parser: argparse.ArgumentParser, arguments: list[str]) -> list[str]:
    """The arguments of a command, with the architecture of --init-from if it trains and names none."""
    trains = any(action.dest == "arch" for action in parser._actions)
    return with_architecture(arguments) if trains else arguments
