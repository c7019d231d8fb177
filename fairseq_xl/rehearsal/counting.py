"""Counts a training without running it: parameters, memory of a GPU by part, tokens of an update, an epoch."""

import copy
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from fairseq import tasks, utils
from omegaconf import open_dict
from torch import nn

from fairseq_xl.data.plan.epoch_plan import check_cycle
from fairseq_xl.errors import UserError
from fairseq_xl.io.options import AUTO, UPDATES, number_of_updates
from fairseq_xl.modules.output import OutputLayer
from fairseq_xl.optimizers import precision
from fairseq_xl.rehearsal.memory import MemoryCount, count_as_loss, count_gradients, cuda_kernels
from fairseq_xl.rehearsal.setting import PRETRAINING, Setting, prepare, pretraining_objectives

SMALL_VOCABULARY = 65500  # symbols from which on fairseq-preprocess writes four bytes a token and not two
LEGACY_BUFFER = 2**28  # most elements of the buffer that fairseq's legacy_ddp exchanges gradients through
BATCHES = 4  # batches of each objective whose largest one is counted


@dataclass(frozen=True)
class BatchCount:
    """The largest batch of an objective."""

    tokens: int  # number of tokens without padding; for bitext and generation, of target tokens
    examples: int  # number of examples
    activations: int  # bytes that the forward pass keeps for the backward pass, without those of the loss
    loss: int  # peak bytes of the loss, in both passes
    peak: int  # peak bytes of all parts together


@dataclass(frozen=True)
class Counts:
    """Memory of a training on each of its GPUs, in bytes, and the text that it reads."""

    precision: str  # fp32, fp16 or bf16, perhaps memory-efficient
    parameters: int  # number of parameters
    trained: int  # number of parameters with a gradient
    weights: int  # bytes of the weights
    master_weights: int  # bytes of FP32 master weights and their gradients
    gradients: int  # bytes of the gradients
    optimizer: int  # bytes of the optimizer's state, after sharding
    buckets: int  # bytes of DDP buckets: gradients that several processes exchange
    batches: dict[str, BatchCount]  # largest batch of each objective, or of another task under its name
    peak: int  # peak bytes in an update, with buckets
    processes: int  # number of processes
    micro_steps: int  # number of micro-steps of a process in an update
    batches_per_update: int | None  # --batches-per-update, by which `micro_steps` is set
    tokens: dict[str, int]  # number of tokens of an update over all processes, by objective ("all" with `cycle`)
    updates: int | None  # number of updates of an epoch; None: unknown
    read_tokens: int | None  # number of tokens that an epoch reads
    read_bytes: int | None  # bytes of text that an epoch reads
    notes: tuple[str, ...]


class _ResizedDictionary:
    """A dictionary that reports another number of symbols and languages, for which a model is built."""

    def __init__(self, dictionary: Any, symbols: int, languages: int):
        self._dictionary, self._symbols, self.num_languages = dictionary, symbols, languages

    def __len__(self) -> int:
        return self._symbols

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dictionary, name)


def bucket_bytes(modules: Iterable[nn.Module], backend: str, as_views: bool = False) -> int:
    """Bytes of the copies of gradients that a process exchanges with others.

    torch's DDP copies all gradients into buckets. fairseq's legacy_ddp has one buffer of at most `LEGACY_BUFFER`
    elements, and larger gradients are exchanged without a copy.

    Args:
        modules: the model, and the criterion if it has parameters; each is wrapped.
        backend: --ddp-backend.
        as_views: --gradient-as-bucket-view, with which torch's gradients are parts of the buckets.
    """
    size = 0
    for module in modules:
        parameters = list(module.parameters())
        trainable = [p for p in parameters if p.requires_grad]
        if not trainable:
            continue
        if backend in ("legacy_ddp", "no_c10d"):
            size += min(LEGACY_BUFFER, sum(p.numel() for p in parameters)) * parameters[0].element_size()
        elif backend in ("pytorch_ddp", "c10d"):
            size += 0 if as_views else sum(p.nbytes for p in trainable)
        else:
            raise UserError(f"--ddp-backend {backend}: its memory cannot be counted, use pytorch_ddp or legacy_ddp")
    return size


def count(setting: Setting, folder: Path) -> Counts:
    """Counts a training of a setting; writes generated text to the new folder `folder`. Raises `UserError`."""
    training = prepare(setting, folder)
    cfg = training.cfg
    if cfg.common.amp:
        raise UserError("--amp: its memory cannot be counted, use --fp16 or --bf16")
    task = tasks.setup_task(_with_short_plan(cfg))
    model, criterion, update = _one_update(task, cfg, setting)
    objectives = pretraining_objectives(cfg, task.dictionary)
    tokens, read, updates = _tokens_and_updates(cfg, update["batches"], setting, objectives)
    parameters = list(chain(model.parameters(), criterion.parameters()))
    trainable = [p.numel() for p in parameters if p.requires_grad]
    distributed, state, buckets = cfg.distributed_training, update["optimizer"], 0
    if distributed.zero_sharding == "os":
        loads = [0] * distributed.distributed_world_size
        for size in sorted(trainable, reverse=True):  # torch gives each to the process that has the least
            loads[loads.index(min(loads))] += size
        state = math.ceil(state * Fraction(max(loads), sum(loads)))
    if distributed.distributed_world_size > 1:
        buckets = bucket_bytes((model, criterion), distributed.ddp_backend, distributed.gradient_as_bucket_view)
    common = cfg.common
    precision_name = "fp16" if common.fp16 else "bf16" if common.bf16 else "fp32"
    if common.memory_efficient_fp16 or common.memory_efficient_bf16:
        precision_name = f"memory-efficient {precision_name}"
    update |= {"optimizer": state, "peak": update["peak"] - (update["optimizer"] - state) + buckets}
    return Counts(
        **update,
        precision=precision_name,
        parameters=sum(p.numel() for p in parameters),
        trained=sum(trainable),
        buckets=buckets,
        processes=distributed.distributed_world_size,
        micro_steps=int(cfg.optimization.update_freq[0]),
        batches_per_update=cfg.task.batches_per_update,
        tokens=tokens,
        updates=updates,
        read_tokens=read,
        read_bytes=None if read is None else read * (2 if setting.vocabulary < SMALL_VOCABULARY else 4),
        notes=tuple(training.notes),
    )


def _one_update(task: Any, cfg: Any, setting: Setting) -> tuple[Any, Any, dict[str, Any]]:
    """Builds model and criterion on the meta device, and counts an update of one process alone.

    It runs the largest batch of each objective, and a step of the optimizer.

    Returns: the model, the criterion, and the memory by the names of fields of `Counts`.
    """
    memory = MemoryCount()
    with memory, cuda_kernels(), torch.device("meta"):
        model, criterion = _build(task, cfg, setting)
        memory.forget_peaks()
        weights = memory.total
        with memory.as_part("master_weights"):
            parameters = chain(model.parameters(), criterion.parameters())
            optimizer = precision.build(cfg, [p for p in parameters if p.requires_grad])
        count_gradients(memory, model)
        _separate_loss(memory, model, criterion)
    samples = _largest_batches(task, cfg, model)
    copies = memory.bytes["master_weights"]
    half = torch.float16 if cfg.common.fp16 else torch.bfloat16 if cfg.common.bf16 else torch.float32
    with memory, cuda_kernels():
        run = {name: _run_batch(memory, sample, model, criterion, optimizer, half) for name, sample in samples.items()}
        gradients = memory.bytes["gradients"]
        step = _step(memory, optimizer, model, cfg.optimization.clip_norm)
        state, master_weights = memory.bytes["optimizer"], memory.bytes["master_weights"]
        optimizer.zero_grad()
    fp32_gradients = memory.bytes["master_weights"] - copies  # they stay for the next update
    accumulates = cfg.optimization.update_freq[0] > 1  # all gradients exist from an update's second micro-step on
    present = state + fp32_gradients + (gradients if accumulates else 0)
    batches = {
        name: replace(count, peak=present + (without_gradients if accumulates else count.peak))
        for name, (count, without_gradients) in run.items()
    }
    peak = max(step, *(count.peak for count in batches.values()))
    sizes = {"weights": weights, "gradients": gradients, "master_weights": master_weights, "optimizer": state}
    return model, criterion, {"batches": batches, "peak": peak, **sizes}


def _with_short_plan(cfg: Any) -> Any:
    """The task's options, in pre-training with `BATCHES` batches of each objective; `UserError` for a wrong cycle."""
    if cfg.task._name not in PRETRAINING:
        return cfg.task
    options = copy.deepcopy(cfg.task)
    objectives = len(str(options.objectives).split(","))
    if str(options.schedule) == "cycle":
        check_cycle(objectives, int(cfg.optimization.update_freq[0]))
    with open_dict(options):
        options.schedule, options.update_freq = "alternate", [1]
        options.updates_per_epoch = BATCHES * objectives
    return options


def _build(task: Any, cfg: Any, setting: Setting) -> tuple[Any, Any]:
    """The model, with the setting's vocabulary and in the precision of training, and the criterion."""
    for objective in task.objectives.values():
        objective.scorer = None  # it would read translations, which have no values here
    dictionary = task.dictionary
    task.dictionary = _ResizedDictionary(dictionary, setting.vocabulary, setting.languages)
    try:
        model, criterion = task.build_model(cfg.model), task.build_criterion(cfg.criterion)
    finally:
        task.dictionary = dictionary
    for module in (model, criterion):
        if cfg.common.fp16:
            module.half()
        elif cfg.common.bf16:
            module.bfloat16()
        module.train()
    return model, criterion


def _separate_loss(memory: MemoryCount, model: Any, criterion: Any) -> None:
    """Counts what output layers and the criterion's `compute_loss` allocate as the loss."""
    for module in model.modules():
        if isinstance(module, OutputLayer):
            for name, member in vars(type(module)).items():
                if callable(member) and not name.startswith("_"):
                    count_as_loss(memory, module, name)
    if hasattr(criterion, "compute_loss"):
        count_as_loss(memory, criterion, "compute_loss")


def _largest_batches(task: Any, cfg: Any, model: Any) -> dict[str, Any]:
    """{objective, or the task's name: its largest batch among the first ones}."""
    task.load_dataset("train")
    longest = utils.resolve_max_positions(task.max_positions(), model.max_positions(), cfg.dataset.max_tokens)
    iterator = task.get_batch_iterator(
        task.dataset("train"),
        max_tokens=cfg.dataset.max_tokens,
        max_sentences=cfg.dataset.batch_size,
        max_positions=longest,
        seed=cfg.common.seed,
        training=True,
    ).next_epoch_itr(shuffle=False)
    largest: dict[str, Any] = {}
    planned = cfg.task._name in PRETRAINING
    for sample in iterator if planned else itertools.islice(iterator, BATCHES):
        name = sample["objective"] if planned else str(cfg.task._name)
        if name not in largest or sample["ntokens"] > largest[name]["ntokens"]:
            largest[name] = sample
    return largest


def _run_batch(
    memory: MemoryCount, sample: dict[str, Any], model: Any, criterion: Any, optimizer: Any, dtype: torch.dtype
) -> tuple[BatchCount, int]:
    """Runs forward and backward pass of a batch; returns its counts and its peak without gradients."""

    def to_meta(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to("meta", dtype if tensor.is_floating_point() else tensor.dtype)

    memory.forget_peaks()
    with memory.as_part("activations"):
        moved = utils.apply_to_sample(to_meta, sample)
        if sample.get("objective") == "back_translation":  # its translations: as long as the sentences
            batch = moved["batch"]
            moved["batch"] = batch | {"source": batch | {"languages": batch["other_languages"]}}
        loss, *_ = criterion(model, moved)
        activations = memory.bytes["activations"]
    del moved
    with memory.as_part("temporary"):
        optimizer.backward(loss)
    count = BatchCount(
        tokens=int(sample["ntokens"]),
        examples=int(sample["nsentences"] if "nsentences" in sample else len(sample["id"])),
        activations=activations,
        loss=memory.largest["loss"],
        peak=memory.peak,
    )
    return count, memory.peak_without_gradients


def _step(memory: MemoryCount, optimizer: Any, model: Any, clip_norm: float) -> int:
    """Clips and steps twice; returns the peak of the second step, as the first one creates the optimizer's state."""
    model_ids = {id(parameter) for parameter in model.parameters()}
    for part in ("optimizer", "temporary"):
        memory.forget_peaks()
        with memory.as_part(part):
            optimizer.multiply_grads(0.5)
            optimizer.clip_grad_norm(clip_norm)
            optimizer.step()
        copies = [p for group in optimizer.torch_optimizer.param_groups for p in group["params"]]
        gradients = [p.grad for p in copies if id(p) not in model_ids and p.grad is not None]
        memory.move(gradients, "master_weights")
        del copies, gradients  # the second step makes new gradients
    return memory.peak


def _tokens_and_updates(
    cfg: Any, batches: dict[str, BatchCount], setting: Setting, objectives: dict[str, Any]
) -> tuple[dict[str, int], int | None, int | None]:
    """Tokens of an update over all processes, tokens that an epoch reads, and updates of an epoch."""
    micro_steps = int(cfg.optimization.update_freq[0]) * cfg.distributed_training.distributed_world_size
    updates_per_epoch = number_of_updates(cfg.task.get("updates_per_epoch")) or UPDATES
    by_name = {name: batch.tokens for name, batch in batches.items()}
    if objectives and updates_per_epoch != AUTO:
        if str(cfg.task.get("schedule")) == "cycle":
            tokens = {"all": sum(by_name.values()) * micro_steps // len(by_name)}
        else:
            tokens = {name: count * micro_steps for name, count in by_name.items()}
        return tokens, sum(tokens.values()) * updates_per_epoch // len(tokens), updates_per_epoch
    tokens = {name: count * micro_steps for name, count in by_name.items()}
    examples = cfg.task.get("examples_per_epoch") or setting.examples
    if examples is None or len(batches) > 1:
        return tokens, None, None
    (batch,) = batches.values()
    updates = math.ceil(math.ceil(examples / batch.examples) / micro_steps)
    return tokens, examples * batch.tokens // batch.examples, updates
