"""Training from Python: `fairseq_xl.train`, which runs the loop of fairseq-train in the caller's process."""

import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from unittest import mock

import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from fairseq_xl import register
from fairseq_xl.engine.arguments import TASKS, check_configuration
from fairseq_xl.engine.log import caller_logging
from fairseq_xl.engine.main import main
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import load_plain
from fairseq_xl.io.flags import CONFIG, config_files, flags


class Training(NamedTuple):
    """The end of a training, and its best checkpoint."""

    save_dir: str  # folder of the checkpoints, for `fairseq_xl.load`
    updates: int  # that were made
    metric: str  # of the validation, which selects the best checkpoint
    best: float | None  # value of the metric; None without validation
    best_updates: int | None  # of checkpoint_best.pt; None without this file


def train(data: str | Path, config: str | Path | Iterable[str | Path] = (), **keywords: Any) -> Training:
    """Trains as fairseq-train does, or resumes, with the same results, in this process.

        fairseq_xl.train("data-bin/my", config="my/pretrain.yaml", max_update=1000, save_dir="runs/my", fp16=None)

    Args:
        data: data folder, DATA of fairseq-train.
        config: YAML file of flags, or several; later ones override.
        keywords: flags with underscores, which override the files: a value, True for a flag without value, or None for
            no such flag. --user-dir fairseq_xl is not needed.

    It trains in one process, on one GPU if there is one; fairseq-train and torchrun start several. Logging, signal
    handlers and random generators are afterwards what they were. A signal, such as that of Ctrl-C, ends the training
    with a checkpoint, and is then raised again for the caller.

    Raises `UserError` for wrong flags and input, for a task of fairseq, and for several processes.
    """
    register()
    paths = [config] if isinstance(config, (str, Path)) else config
    _, files = config_files(word for path in paths for word in (CONFIG, str(path)))
    arguments = [str(data), *flags(files, keywords)]
    with mock.patch.object(sys, "argv", ["fairseq_xl.train"]):  # fairseq's parser reads it
        parser = options.get_training_parser()
    parser.set_defaults(distributed_world_size=1)
    parser.exit = _refuse
    args = options.parse_args_and_arch(parser, arguments)
    if not args.task.startswith(TASKS):
        raise UserError(f"--task {args.task}: fairseq_xl.train trains the tasks {TASKS}… only, unlike fairseq-train")
    if max(args.distributed_world_size, int(os.environ.get("WORLD_SIZE", 1))) > 1:
        raise UserError("fairseq_xl.train trains in one process: fairseq-train and torchrun start several")
    cfg = convert_namespace_to_omegaconf(args)
    check_configuration(cfg)
    on_gpu = torch.cuda.is_available() and not cfg.common.cpu
    with caller_logging(), torch.random.fork_rng([torch.cuda.current_device()] if on_gpu else []):
        run = main(cfg)
    if run.stopping.signal:
        signal.raise_signal(signal.Signals[run.stopping.signal])
    folder, best, best_updates = cfg.checkpoint.save_dir, run.selection.best, None
    path = os.path.join(folder, f"checkpoint_best{cfg.checkpoint.checkpoint_suffix}.pt")
    if best is not None and os.path.exists(path) and not cfg.checkpoint.no_save:
        best_updates = load_plain(path, mapped=True)["optimizer_history"][-1]["num_updates"]
    return Training(folder, run.trainer.get_num_updates(), run.selection.metric, best, best_updates)


def _refuse(status: int = 0, message: str | None = None) -> NoReturn:
    """Raises a `UserError` in place of `ArgumentParser.exit`, which would end the process."""
    raise UserError((message or "--help").removeprefix("fairseq_xl.train: error: ").strip())
