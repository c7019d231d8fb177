"""Checks of a training's options that fairseq omits, or makes too late."""

import re
from bisect import bisect
from collections.abc import Collection
from typing import Any

from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.tasks import TASK_REGISTRY
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from fairseq_xl.errors import UserError, check_number, check_ranges
from fairseq_xl.io.options import option_name
from fairseq_xl.modules.data_parallel import BACKENDS
from fairseq_xl.optimizers.float32_state import parse_betas

MISSING_LR = "--lr is missing: set the learning rate (fairseq's default of 0.25 is for plain SGD)"
BOTH_PRECISIONS = "--fp16, --bf16 and --amp, or their --memory-efficient- forms, exclude each other: choose one of them"
PRECISIONS = ("fp16", "bf16", "amp")
#: options of fairseq's loop that this one does not have, with their values without effect
UNSUPPORTED: dict[str, dict[str, tuple[Any, ...]]] = {
    "common": {
        "tpu": (False,),
        "model_parallel_size": (1,),
        "quantization_config_path": (None,),
        "empty_cache_freq": (0,),
        "on_cpu_convert_precision": (False,),
    },
    "checkpoint": {"write_checkpoints_asynchronously": (False,)},
    "distributed_training": {
        "pipeline_model_parallel": (False,),
        "cpu_offload": (False,),
        "ddp_backend": BACKENDS,
        "heartbeat_timeout": (-1,),
    },
    "optimization": {"use_bmuf": (False,), "debug_param_names": (False,)},
}

#: valid ranges of fairseq options that fairseq does not check
NUMBERS: dict[str, dict[str, str]] = {
    "optimization": {"lr": "0 or more", "update_freq": "1 or more"}
    | dict.fromkeys(("clip_norm", "max_update", "max_epoch"), "0 or more"),
    "dataset": {"max_tokens": "1 or more", "batch_size": "1 or more"},
}


def check(cfg: DictConfig) -> None:
    """Raises `UserError` for options of a run that are missing, contradict each other, or are not supported.

    With fairseq-hydra-train, a precision on the command line replaces that of a file.
    """
    if cfg.optimizer is None:
        raise UserError("--optimizer is missing: choose one, such as xl_adam")
    if cfg.dataset.max_tokens is None and cfg.dataset.batch_size is None:
        raise UserError("--max-tokens or --batch-size is missing: set one of them, the size of a batch")
    if cfg.optimizer._name == "composite":
        raise UserError("--optimizer composite is not supported by the tasks of this package")
    _choose_precision(cfg.common)
    if HydraConfig.initialized() and not _is_set_in_hydra("optimization.lr"):
        raise UserError(MISSING_LR.replace("--lr", "optimization.lr"))
    parse_betas("--adam-betas", getattr(cfg.optimizer, "adam_betas", (0.9, 0.999)))
    if cfg.distributed_training.zero_sharding == "os":
        if cfg.optimizer._name not in ("xl_adam", "xl_lamb"):
            raise UserError(f"--zero-sharding os needs --optimizer xl_adam or xl_lamb, not {cfg.optimizer._name}")
        if cfg.common.amp:
            raise UserError("--zero-sharding os does not support --amp: it needs fp32, --fp16 or --bf16")
    for section, values in UNSUPPORTED.items():
        for name, supported in values.items():
            value = OmegaConf.select(cfg, f"{section}.{name}", default=supported[0])
            if value not in supported:
                raise UserError(f"{option_name(name)} {value} is not supported by the tasks of this package")


def split_update(cfg: DictConfig) -> None:
    """Sets --update-freq to the share of a process in --batches-per-update; `UserError` if there is no equal share."""
    batches, processes = cfg.task.get("batches_per_update"), cfg.distributed_training.distributed_world_size
    if batches is None:
        return
    option = f"--batches-per-update {batches}"
    check_number("--batches-per-update", batches, "1 or more")
    if list(cfg.optimization.update_freq) != [1]:
        raise UserError(f"{option}: leave out --update-freq, which follows from it and the number of processes")
    if cfg.optimization.skip_remainder_batch:
        raise UserError(f"{option}: leave out --skip-remainder-batch, the last update of an epoch is of what is left")
    objectives = cfg.task.objectives.count(",") + 1 if str(cfg.task.get("schedule")) == "cycle" else 1
    # a process has all objectives of a cycle; another number of batches is refused where the cycle is planned
    rounds = batches if batches % objectives else batches // objectives
    if rounds % processes:
        divisors = [count for count in range(1, rounds + 1) if rounds % count == 0]
        index = bisect(divisors, processes)
        nearest = " or ".join(map(str, divisors[index - 1 : index + 1]))
        rounds_of = f" has {rounds} batches of each of {objectives} objectives, which" if rounds != batches else ""
        raise UserError(f"{option}{rounds_of} cannot be divided by {processes} processes: start {nearest}")
    cfg.optimization.update_freq = cfg.task.update_freq = [batches // processes]


def check_command(run: Any, task: str, criterions: Collection[str]) -> None:
    """Raises `UserError` for wrong options that fairseq accepts.

    `run` is the configuration of a command, or of a checkpoint, which may lack some options, or None; `criterions` can
    train the task.
    """
    if run is None:
        return
    split = OmegaConf.select(run, "dataset.train_subset", default="train")
    if split != "train":
        raise UserError(f"--train-subset {split}: only the split 'train' can be trained on")
    criterion = OmegaConf.select(run, "criterion._name")
    if OmegaConf.select(run, "optimizer") is not None and criterion not in criterions:
        raise UserError(f"{task} needs --criterion {' or '.join(sorted(criterions))}, not {criterion}")
    for section, names in NUMBERS.items():
        for name, expected in names.items():
            value = OmegaConf.select(run, f"{section}.{name}")
            if OmegaConf.is_list(value) and not value:
                raise UserError(f"{option_name(name)}: expected one or more numbers, found none")
            for element in value if OmegaConf.is_list(value) else [] if value is None else [value]:
                check_number(option_name(name), element, expected)


def check_arch(arch: str | None, task: str | None) -> None:
    """Raises `UserError` for one of our models with a task of fairseq, whose dictionary names no languages."""
    if is_ours(ARCH_MODEL_REGISTRY.get(arch)) and task in TASK_REGISTRY and not is_ours(TASK_REGISTRY[task]):
        names = ", ".join(sorted(name for name, registered in TASK_REGISTRY.items() if is_ours(registered)))
        default = " (fairseq's default)" if task == "translation" else ""
        raise UserError(f"--task {task}{default} does not fit --arch {arch}: expected one of {names}")


def check_architecture(cfg: Any, kind: type) -> None:
    """Raises `UserError` for a model of another package, naming those of a class, and for a number out of range."""
    name = getattr(cfg, "_name", None) or getattr(cfg, "arch", None)
    if name in ARCH_MODEL_REGISTRY and hasattr(cfg, "max_positions"):
        check_ranges(MODEL_DATACLASS_REGISTRY[name], cfg)
        return
    families: dict[str, list[str]] = {}
    for arch in sorted(arch for arch in ARCH_MODEL_REGISTRY if arch.startswith("xl_")):
        if issubclass(ARCH_MODEL_REGISTRY[arch], kind):
            family, _, size = arch.rpartition("_")
            has_sizes = size in ("tiny", "small", "base", "big", "large")
            families.setdefault(family if has_sizes else arch, []).extend([size] if has_sizes else [])
    names = [f"{family}_{{{','.join(sizes)}}}" if sizes else family for family, sizes in families.items()]
    raise UserError(f"--arch {name}: choose one of {', '.join(names)}")


def is_ours(registered: Any) -> bool:
    """Whether a class of fairseq's registries is of this package."""
    return getattr(registered, "__module__", "").startswith("fairseq_xl.")


def _choose_precision(common: DictConfig) -> None:
    """Replaces the precision of fairseq-hydra-train's files by that of its command line; `UserError` for two of them.

    As in fairseq-train, a memory-efficient form is a precision too.
    """
    for kind in PRECISIONS[:2]:
        common[kind] |= common[f"memory_efficient_{kind}"]
    precisions = [kind for kind in PRECISIONS if common[kind]]
    if len(precisions) < 2:
        return
    overrides = " ".join(HydraConfig.get().overrides.task) if HydraConfig.initialized() else ""
    named = [kind for kind in precisions if re.search(rf"\bcommon\.(memory_efficient_)?{kind}=", overrides)]
    if len(named) != 1:
        where = f"{HydraConfig.get().job.config_name}: " if HydraConfig.initialized() else ""
        raise UserError(where + BOTH_PRECISIONS)
    for kind in set(precisions) - set(named):
        common[kind] = False
        if kind != "amp":
            common[f"memory_efficient_{kind}"] = False


def _is_set_in_hydra(key: str) -> bool:
    """Whether hydra's value of `key` is set in a file or on the command line, and not fairseq's default."""
    loader: Any = GlobalHydra.instance().config_loader()
    job = HydraConfig.get()
    overrides = list(job.overrides.task)
    if any(override.lstrip("+").startswith(f"{key}=") for override in overrides):
        return True
    tree = loader.compute_defaults_list(job.job.config_name, overrides + list(job.overrides.hydra), RunMode.RUN)
    files = [loader.repository.load_config(default.config_path) for default in tree.defaults]
    return any(file.provider != "structured" and OmegaConf.select(file.config, key) is not None for file in files)
