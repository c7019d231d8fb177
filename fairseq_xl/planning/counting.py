"""Counts a training without running it: memory of a GPU by part, floating-point operations, tokens and updates.

Operations (FLOPs) are those of matrix products and attention in both passes, two for each multiplication and addition,
as torch's `flop_counter` finds them by the shapes of each operator. Layers that --checkpoint-activations computes again
count again, the output layer at predicted tokens only. Left out are normalization, activation functions, embeddings,
the optimizer, and the generation of translations. An encoder with L layers of C channels, F in feed-forward layers, and
inputs of T tokens takes for each token 6 (4 C² + 2 C F) L + 14 L C T: six for each parameter that multiplies it (Kaplan
et al. 2020, section 2.1), and attention (12 L C T in Narayanan et al. 2021, appendix), whose fused kernels compute the
scores again in the backward pass.
"""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import tasks, utils
from torch import Tensor

from fairseq_xl.data.plan.epoch_plan import training_plan
from fairseq_xl.errors import UserError
from fairseq_xl.io.options import AUTO
from fairseq_xl.modules.data_parallel import LEGACY
from fairseq_xl.modules.output import OutputLayer
from fairseq_xl.optimizers import precision
from fairseq_xl.planning.generated_text import PRETRAINING, prepare
from fairseq_xl.planning.memory import MemoryCount, count_as_loss, count_gradients, cuda_kernels
from fairseq_xl.planning.setting import Setting

LEGACY_BUFFER = 2**28  # most elements of the buffer that fairseq's legacy_ddp exchanges gradients through
BATCHES = 4  # batches of each objective whose largest one is counted


def count(setting: Setting, folder: Path, memory: float | None = None) -> dict[str, Any]:
    """Counts a training of a setting; writes generated text to the new folder `folder`. Raises `UserError`.

    Batches may fill the `memory` of a GPU, in bytes; None: unknown. Returns: the result of `fairseq-xl plan` with
    memory in bytes. "batches" are the largest of each objective, or of another task under its name.
    """
    cfg, notes = prepare(setting, folder)
    if cfg.common.amp:
        raise UserError("--amp: its memory cannot be counted, use --fp16 or --bf16")
    per_update = int(cfg.optimization.update_freq[0]) * cfg.distributed_training.distributed_world_size
    update = _Update(tasks.setup_task(cfg.task), cfg)
    try:
        collates = _largest_batches(update.task, cfg, update.model)
    except UserError as error:
        if setting.line_tokens is None or str(folder) not in str(error):
            raise
        reason = re.sub(rf"{re.escape(str(folder))}\S*: ", "", str(error))
        raise UserError(f"--line-tokens {setting.line_tokens}: {reason}") from None
    samples = {name: collate() for name, collate in collates.items()}
    batches = {name: update.run(sample) for name, sample in samples.items()}
    step = update.step(cfg.optimization.clip_norm)
    parts, extra_bytes = update.parts, update.distribute(cfg.distributed_training)
    parts |= {part: max(batch[part] for batch in batches.values()) for part in ("activations", "loss")}
    for name, batch in batches.items():
        batch["peak"] += update.resident_bytes + extra_bytes
        if memory is not None:
            fits = step + extra_bytes <= memory  # the optimizer's step, whatever the batch
            largest = update.largest_batch(collates[name], batch, memory, extra_bytes) if fits else 0
            batch |= {"most_examples": largest, "most_tokens": largest * batch["tokens"] // batch["examples"]}
    parts["peak"] = max(step + extra_bytes, *(batch["peak"] for batch in batches.values()))
    if len(cfg.optimization.update_freq) > 1:
        notes.append(f"--update-freq: all epochs are counted as the first, {cfg.optimization.update_freq[0]}")
    epoch = _updates_per_epoch(update.task, setting, batches, per_update, notes)
    ends = cfg.optimization.max_update, cfg.optimization.max_epoch * (epoch or 0)
    updates = min(filter(lambda end: end > 0, ends), default=None)
    if updates is None:
        notes.append("no end: set --max-update, or --max-epoch and, of a task that is no pre-training, --examples")
    means = {name: sum(batch[name] for batch in batches.values()) / len(batches) for name in ("tokens", "flops")}
    tokens, flops = int(means["tokens"] * per_update), means["flops"] * per_update
    return {
        "parameters": sum(p.numel() for p in update.parameters),
        "trained_parameters": sum(p.numel() for p in update.parameters if p.requires_grad),
        "precision": update.precision,
        "gpus": cfg.distributed_training.distributed_world_size,
        "memory": parts,
        "batches_per_update": per_update,
        "tokens_per_update": tokens,
        "flops_per_update": flops,
        "updates_per_epoch": epoch,
        "updates": updates,
        "tokens": updates and updates * tokens,
        "flops": updates and updates * flops,
        "notes": notes,
        "batches": batches,
    }


def _updates_per_epoch(
    task: Any, setting: Setting, batches: dict[str, Any], per_update: int, notes: list[str]
) -> int | None:
    """Updates of an epoch, or None where the size of the text is unknown; notes `setting.examples` without effect."""
    sampled, updates, reason = task.cfg.get("examples_per_epoch"), task.cfg.updates_per_epoch, ""
    if updates != AUTO or sampled:
        reason = f"--examples-per-epoch is {sampled}" if updates == AUTO else f"--updates-per-epoch is {updates}"
    elif len(batches) > 1:
        reason = "the epoch has several objectives"
    if setting.examples and reason:
        notes.append(f"--examples: no effect, {reason}")
    if updates != AUTO:
        return int(updates)
    directions = task.directions if task.cfg.get("lang_pairs") else [""]  # en-de,de-en reads each pair twice
    pairs = {frozenset(direction.split("-")) for direction in directions}
    examples = sampled or (setting.examples or 0) * len(directions) // len(pairs)
    if not examples or len(batches) > 1:
        return None
    return math.ceil(math.ceil(examples / next(iter(batches.values()))["examples"]) / per_update)


def bucket_bytes(modules: Any, distributed: Any) -> int:
    """Bytes of the copies of gradients that a process exchanges with others, by the options of `distributed`.

    torch's DDP copies all gradients of each module into buckets, which may be the gradients themselves. fairseq's
    legacy_ddp has a buffer of at most `LEGACY_BUFFER` elements, and larger gradients are exchanged without a copy.
    """
    size = 0
    for module in modules if distributed.distributed_world_size > 1 else ():
        parameters = list(module.parameters())
        trained = sum(p.nbytes for p in parameters if p.requires_grad)
        if trained and distributed.ddp_backend in LEGACY:
            size += min(LEGACY_BUFFER, sum(p.numel() for p in parameters)) * parameters[0].element_size()
        elif not distributed.gradient_as_bucket_view:
            size += trained
    return size


def _largest_batches(task: Any, cfg: Any, model: Any) -> dict[str, Callable[..., dict[str, Any]]]:
    """{objective, or the task's name: its largest batch among the first ones}: functions of the number of examples."""
    task.load_dataset("train")
    dataset, batches = task.dataset("train"), {}
    longest = utils.resolve_max_positions(task.max_positions(), model.max_positions(), cfg.dataset.max_tokens)
    limits = {"max_tokens": cfg.dataset.max_tokens, "max_sentences": cfg.dataset.batch_size}
    task.get_batch_iterator(dataset, max_positions=longest, training=True, **limits)  # truncates texts
    for sampler in task.samplers(dataset, **limits):
        specs = training_plan([sampler], "alternate", cfg.common.seed, 1, BATCHES, 1, 1)
        largest = max(specs, key=lambda spec: spec.tokens)

        def collate(examples: int | None = None, spec: Any = largest) -> dict[str, Any]:
            count = examples or len(spec.examples)
            columns = {name: np.resize(getattr(spec, name), count) for name in ("examples", "keys")}  # repeats them
            return dict(dataset[replace(spec, **columns)])

        batches[sampler.objective if cfg.task._name in PRETRAINING else str(cfg.task._name)] = collate
    return batches


class _Update:
    """An update of one process alone, on the meta device, and `parts`, its bytes."""

    def __init__(self, task: Any, cfg: Any):
        common, self.task, self.memory = cfg.common, task, MemoryCount()
        self.accumulates = cfg.optimization.update_freq[0] > 1  # all gradients exist from the second micro-step on
        self.precision = "fp16" if common.fp16 else "bf16" if common.bf16 else "fp32"
        self.dtype = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}[self.precision]
        if common.memory_efficient_fp16 or common.memory_efficient_bf16:
            self.precision = f"memory-efficient {self.precision}"
        for objective in task.objectives.values():
            objective.scorer = None  # it would read translations, which have no values here
        with self.memory, cuda_kernels(), torch.device("meta"):
            self.model, self.criterion = task.build_model(cfg.model), task.build_criterion(cfg.criterion)
            for module in (self.model, self.criterion):
                module.to(self.dtype).train()
            self.parameters = [*self.model.parameters(), *self.criterion.parameters()]
            self.memory.forget_peaks()
            self.parts = {"weights": self.memory.total}
            with self.memory.as_part("master_weights"):
                self.optimizer = precision.build(cfg, [p for p in self.parameters if p.requires_grad])
            self.bytes_before_step = self.memory.total
        count_gradients(self.memory, self.model)
        for module in self.model.modules():
            for name, member in vars(type(module)).items() if isinstance(module, OutputLayer) else ():
                if callable(member) and not name.startswith("_"):
                    count_as_loss(self.memory, module, name)
        if hasattr(self.criterion, "compute_loss"):
            count_as_loss(self.memory, self.criterion, "compute_loss")

    def run(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Counts forward and backward pass of a batch.

        Returns: numbers of examples, of tokens without padding (in translation and generation, of the target), and of
        operations; bytes that the forward pass keeps for the backward pass, without those of the loss; peak bytes of
        the loss in both passes, and of all parts.
        """
        memory = self.memory
        with memory, cuda_kernels():
            memory.forget_peaks()
            flops = memory.flops
            with memory.as_part("activations"):
                moved = utils.apply_to_sample(self._to_meta, sample)
                if sample["objective"] == "back_translation":  # its translations: as long as the sentences
                    batch = moved["batch"]
                    moved["batch"] = batch | {"source": batch | {"languages": batch["other_languages"]}}
                loss, *_ = self.criterion(self.model, moved)
                activations = memory.bytes["activations"]
            del moved
            with memory.as_part("temporary"):
                self.optimizer.backward(loss)
        peak = memory.peak_without_gradients if self.accumulates else memory.peak
        counts: dict[str, Any] = {"examples": int(sample["nsentences"]), "tokens": int(sample["ntokens"])}
        counts |= {"flops": float(memory.flops - flops), "activations": activations, "loss": memory.largest["loss"]}
        return counts | {"peak": peak}

    def _to_meta(self, tensor: Tensor) -> Tensor:
        return tensor.to("meta", self.dtype if tensor.is_floating_point() else tensor.dtype)

    def step(self, clip_norm: float) -> int:
        """Clips and steps twice, as the first step creates the optimizer's state, and removes the gradients.

        Returns the peak bytes of the second step; adds to `parts`, and sets `resident_bytes`, those that are in memory
        during later batches and were not before.
        """
        memory, weights = self.memory, {id(p) for p in self.parameters}
        self.parts["gradients"] = memory.bytes["gradients"]
        with memory, cuda_kernels():
            for part in ("optimizer", "temporary"):
                memory.forget_peaks()
                with memory.as_part(part):
                    self.optimizer.multiply_grads(0.5)
                    self.optimizer.clip_grad_norm(clip_norm)
                    self.optimizer.step()
                copies = (p for group in self.optimizer.torch_optimizer.param_groups for p in group["params"])
                memory.move([p.grad for p in copies if id(p) not in weights and p.grad is not None], "master_weights")
            peak = memory.peak
            self.parts["fp32_master_weights"] = memory.bytes["master_weights"]
            self.parts["optimizer_state"] = memory.bytes["optimizer"]
            self.optimizer.zero_grad()
        self.gradients = self.parts["gradients"] if self.accumulates else 0
        self.resident_bytes = memory.total - self.bytes_before_step + self.gradients
        return peak

    def distribute(self, distributed: Any) -> int:
        """Replaces the optimizer's state by a process's part of it, and adds the buckets; returns the bytes added."""
        trained = sorted((p.numel() for p in self.parameters if p.requires_grad), reverse=True)
        loads = [0] * (distributed.distributed_world_size if distributed.zero_sharding == "os" else 1)
        for size in trained:  # torch gives each to the process that has the least
            loads[loads.index(min(loads))] += size
        state = self.parts["optimizer_state"]
        self.parts["optimizer_state"] = math.ceil(state * Fraction(max(loads), sum(loads)))
        self.parts["ddp_buckets"] = bucket_bytes((self.model, self.criterion), distributed)
        return self.parts["optimizer_state"] - state + self.parts["ddp_buckets"]

    def largest_batch(self, collate: Any, batch: dict[str, Any], memory: float, extra_bytes: int) -> int:
        """Examples of a batch whose peak, with `extra_bytes`, fills `memory` to 99 % or up to one example; 0: none."""
        self.optimizer.zero_grad()
        resident_bytes = self.gradients + extra_bytes
        peaks = {0: self.memory.total + resident_bytes, batch["examples"]: batch["peak"]}
        while peaks[0] <= memory:
            fit = max(examples for examples, peak in peaks.items() if peak <= memory)
            above = min((examples for examples in peaks if examples > fit), default=8 * fit)
            if peaks[fit] > 0.99 * memory or above == fit + 1:
                return fit
            first, second = (fit, above) if above in peaks else sorted(peaks)[-2:]
            slope = max(1.0, (peaks[second] - peaks[first]) / (second - first))
            examples = fit + math.floor((memory - peaks[fit]) / slope)
            if above in peaks and len(peaks) % 3 == 0:  # interpolation alone may converge slowly
                examples = (fit + above) // 2
            examples = min(max(examples, fit + 1), above - (above in peaks))
            peaks[examples] = self.run(collate(examples))["peak"] + resident_bytes
            self.optimizer.zero_grad()
        return 0
