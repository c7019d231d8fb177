"""An update: zero, micro-steps, reduce, clip, step, log."""

import contextlib
import functools
import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from fairseq import utils
from fairseq.data import iterators
from fairseq.distributed import utils as distributed_utils
from fairseq.models.ema import EMA, build_ema
from fairseq.optim import lr_scheduler
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from fairseq_xl.engine import divergence
from fairseq_xl.engine.interfaces import Logged, Sample, Task
from fairseq_xl.engine.log import log_batches
from fairseq_xl.engine.metrics import EPOCH, INTERVAL, Metrics
from fairseq_xl.io.ranks import sum_over_ranks
from fairseq_xl.modules.data_parallel import wrap
from fairseq_xl.optimizers import precision
from fairseq_xl.optimizers.precision import Overflow

logger = logging.getLogger("fairseq.trainer")  # its name in logs, which programs read


class Trainer:
    """A model in training: its updates, validation steps, and the state in its checkpoints, which fairseq reads.

    Model and criterion are handed in as the task builds them, in float32 on the CPU.

    Attributes:
        device: where the model is.
        world_size, rank: the number of processes, and the index of this one.
        model: the trained model, wrapped in a run of several processes.
        optimizer: makes updates from gradients, in the precision of the run.
        metrics: statistics since the last record of an interval and of an epoch.
    """

    def __init__(self, cfg: DictConfig, task: Task, model: Any, criterion: Any):
        self.cfg, self.task, self.criterion = cfg, task, criterion
        on_gpu = torch.cuda.is_available() and not cfg.common.cpu
        self.device = torch.device("cuda" if on_gpu else "cpu")
        self.world_size, self.rank = 1, 0
        if cfg.distributed_training.distributed_world_size > 1:
            self.world_size = distributed_utils.get_data_parallel_world_size()
            self.rank = distributed_utils.get_data_parallel_rank()
        self.dtype = torch.float16 if cfg.common.fp16 else torch.bfloat16 if cfg.common.bf16 else torch.float32
        self._model = model.to(self.dtype)
        self.criterion.to(self.device, self.dtype)
        if self.world_size > 1:
            self.model: Any = wrap(self._model, cfg.distributed_training, self.device)
        else:
            self.model = self._model.to(self.device)
        self._history: list[dict] = []
        self._num_updates = self._retries = 0
        self.metrics = Metrics(INTERVAL, EPOCH)
        self._started, self._seconds_before = time.time(), 0.0
        self._build_optimizer()

    def _build_optimizer(self) -> None:
        parameters = [*self.model.parameters(), *self.criterion.parameters()]
        trainable = [parameter for parameter in parameters if parameter.requires_grad]
        self.optimizer = precision.build(self.cfg, trainable)
        if self.cfg.distributed_training.zero_sharding == "os":
            from fairseq_xl.optimizers._sharded import shard  # the import takes half a second

            shard(self.optimizer.fairseq_optimizer)
        self.lr_scheduler = lr_scheduler.build_lr_scheduler(self.cfg.lr_scheduler, self.optimizer.fairseq_optimizer)
        self.lr_scheduler.step_update(0)

    @functools.cached_property
    def ema(self) -> EMA:
        """The average of the weights over updates (--store-ema), from those after the first update on."""
        return build_ema(self._model, self.cfg.ema, self.device)

    # --- updates -----------------------------------------------------------------------------------------------

    def train_step(self, samples: Sequence[Sample]) -> bool:
        """Makes an update from its micro-steps; returns False if an overflow skips it. `UserError` if it diverges."""
        utils.set_torch_seed(self.cfg.common.seed + self._num_updates)  # a resumed run has the same dropout
        self.model.train()
        self.criterion.train()
        self.optimizer.zero_grad()
        try:
            logged, size = self._accumulate(samples)
            logged, size = self._reduce(logged, size)
            if self.world_size > 1:
                self.model.all_reduce_grads()
            self.optimizer.multiply_grads(self.world_size / size)
            norm = self.optimizer.clip_grad_norm(self.cfg.optimization.clip_norm)
            self._check_norm(norm)
        except Overflow as error:
            logger.info("NOTE: gradient overflow detected, ignoring gradient, %s", error)
            self.optimizer.zero_grad()
            if self.cfg.common.amp and self._retries < self.cfg.common.amp_batch_retries:
                self._retries += 1
                return self.train_step(samples)
            self._retries = 0
            self._log_loss_scale()
            return False
        except precision.Diverged as error:
            raise divergence.error(self, samples, str(error)) from error
        self.optimizer.step()
        self._retries = 0
        self._set_num_updates(self._num_updates + 1)
        if self.cfg.ema.store_ema:
            self.ema.step(self._model, self._num_updates)
            self.metrics.latest("ema_decay", self.ema.get_decay(), 5)
        self._log(logged, norm)
        return True

    def _accumulate(self, samples: Sequence[Sample]) -> tuple[list[Logged], Any]:
        """Adds the gradients of all micro-steps; returns their statistics, and the sum of their sample sizes."""
        logged, size, steps = [], 0, list(enumerate(samples))
        if self.world_size == 1:
            steps = [step for step in steps if not step[1]["is_dummy"]] or steps  # no other rank waits
        for step, sample in steps:
            if self.cfg.task.get("batches_per_update"):  # dropout by position in the update, whatever the rank
                key = self.cfg.common.seed, self._num_updates, step * self.world_size + self.rank
                utils.set_torch_seed(int(np.random.SeedSequence(key).generate_state(1)[0]))
            sample, is_dummy = self._to_device(sample)
            is_last = step == len(samples) - 1  # whose backward pass averages the gradients over ranks
            with contextlib.nullcontext() if is_last or self.world_size == 1 else self.model.no_sync():
                _, step_size, statistics = self.task.train_step(
                    sample, self.model, self.criterion, self.optimizer, self._num_updates, ignore_grad=is_dummy
                )
            if is_dummy:  # it counts as nothing
                statistics, step_size = {name: value * 0 for name, value in statistics.items()}, step_size * 0
            logged.append(statistics)
            size = size + step_size
        return logged, size

    def _reduce(self, logged: list[Logged], size: Any) -> tuple[list[Logged], Any]:
        """Sums statistics and sample size over ranks; a sample size of 0 becomes 1."""
        size = size.float() if torch.is_tensor(size) else float(size)
        if self.world_size == 1:
            return logged, size or 1.0
        sums = self._sum_over_ranks(logged, size=size)
        size = sums.pop("size")
        return [sums], torch.where(size == 0, 1, size)

    def _sum_over_ranks(self, logged: list[Logged], **numbers: Any) -> dict[str, Any]:
        """Statistics of this rank's steps, and further numbers, summed over ranks; {name: float64 tensor}."""
        totals = {key: sum(statistics[key] for statistics in logged if key in statistics) for key in logged[0]}
        return sum_over_ranks(totals | numbers, self.device)

    def _check_norm(self, norm: Tensor) -> None:
        """Waits for the device; raises `Overflow` or `Diverged` for gradients that are not finite or not equal."""
        norms = [float(norm)]
        if self.world_size > 1 and self.device.type == "cuda":
            rank_norms = norm.new_zeros(self.world_size, dtype=torch.double)
            rank_norms[self.rank] = norm
            norms = distributed_utils.all_reduce(rank_norms, distributed_utils.get_data_parallel_group()).tolist()
        self.optimizer.check(next((value for value in norms if not math.isfinite(value)), norms[0]))
        divergence.check_equal(norms)

    def _log(self, logged: list[Logged], norm: Tensor) -> None:
        """Logs an update; nothing here waits for the device."""
        if self.device.type == "cuda":
            used, whole = torch.cuda.max_memory_allocated(), torch.cuda.get_device_properties(self.device).total_memory
            torch.cuda.reset_peak_memory_stats()
            self.metrics.latest("gb_free", (whole - used) / 2**30, 1)
        self.metrics.latest("wall", round(self.wall()))
        self.metrics.rate("ups", 1.0, 2)
        self.metrics.average("gnorm", norm, digits=3)
        if self.cfg.optimization.clip_norm > 0:
            self.metrics.average("clip", (norm > self.cfg.optimization.clip_norm) * 100.0, digits=1)
        log_batches(self.metrics, logged, self.criterion)
        self._log_loss_scale()

    def _log_loss_scale(self) -> None:
        if self.optimizer.loss_scale is not None:
            self.metrics.latest("loss_scale", self.optimizer.loss_scale, 4)

    # --- validation --------------------------------------------------------------------------------------------

    @torch.no_grad()
    def valid_step(self, sample: Sample, metrics: Metrics) -> None:
        """Evaluates a batch, and logs its statistics, summed over ranks."""
        self.model.eval()
        self.criterion.eval()
        sample, is_dummy = self._to_device(sample)
        _, _, statistics = self.task.valid_step(sample, self.model, self.criterion)
        if is_dummy:
            statistics = {name: value * 0 for name, value in statistics.items()}
        logged = [self._sum_over_ranks([statistics])] if self.world_size > 1 else [statistics]
        log_batches(metrics, logged, self.criterion)

    # --- batches -----------------------------------------------------------------------------------------------

    def get_train_iterator(self, epoch: int, load_dataset: bool = True) -> iterators.EpochBatchIterating:
        """The batches of an epoch of this rank."""
        cfg = self.cfg.dataset
        if load_dataset:
            self.task.load_dataset(cfg.train_subset, epoch=epoch)
        limits = {"max_tokens": cfg.max_tokens, "max_sentences": cfg.batch_size}
        return self._batches(cfg.train_subset, cfg.max_tokens, epoch=epoch, training=True, **limits)

    def get_valid_iterator(self, subset: str) -> iterators.EpochBatchIterating:
        """The batches of a validation split of this rank, the same in each epoch."""
        cfg = self.cfg.dataset
        return self._batches(subset, max_tokens=cfg.max_tokens_valid, max_sentences=cfg.batch_size_valid)

    def _batches(self, subset: str, *lengths: int | None, **options: Any) -> iterators.EpochBatchIterating:
        """The batches of a split; `lengths`: limits of a sequence beside those of task and model."""
        cfg = self.cfg.dataset
        return self.task.get_batch_iterator(
            dataset=self.task.dataset(subset),
            max_positions=utils.resolve_max_positions(self.task.max_positions(), self._model.max_positions(), *lengths),
            seed=self.cfg.common.seed,
            num_shards=self.world_size,
            shard_id=self.rank,
            num_workers=cfg.num_workers,
            data_buffer_size=cfg.data_buffer_size,
            **options,
        )

    def _to_device(self, sample: Sample) -> tuple[Sample, bool]:
        """A batch on the device in the precision of the run, and whether it is a dummy."""
        if self.device.type == "cuda":
            sample = utils.move_to_cuda(sample)
        if self.dtype != torch.float32:
            sample = utils.apply_to_sample(
                lambda values: values.to(self.dtype) if values.dtype == torch.float32 else values, sample
            )
        return sample, sample["is_dummy"]

    # --- epochs and the learning rate --------------------------------------------------------------------------

    def begin_epoch(self, epoch: int) -> None:
        self.lr_scheduler.step_begin_epoch(epoch)
        self._update_lr()

    def lr_step(self, epoch: int, value: float | None = None) -> float:
        """Sets the learning rate at the end of an epoch, by its validation value; returns it."""
        self.lr_scheduler.step(epoch, value)
        return self._update_lr()

    def _update_lr(self) -> float:
        rate: float = self.lr_scheduler.step_update(self._num_updates)
        self.metrics.latest("lr", rate)
        return rate

    def get_lr(self) -> float:
        return self.optimizer.fairseq_optimizer.get_lr()

    def get_model(self) -> Any:
        """The model without its wrapper."""
        return self._model

    def get_num_updates(self) -> int:
        """The number of updates since the first training of the model."""
        return self._num_updates

    def _set_num_updates(self, count: int) -> None:
        self._num_updates = count
        self._update_lr()
        self.metrics.latest("num_updates", count)

    def seconds(self) -> float:
        """The time of training in seconds, with that of earlier runs."""
        return self.wall() + self._seconds_before

    def wall(self) -> float:
        """The time since the start of this run's training, in seconds."""
        return time.time() - self._started

    # --- checkpoints -------------------------------------------------------------------------------------------

    def consolidate(self) -> None:
        """Gathers the state of a sharded optimizer on rank 0; all ranks call it before it is saved."""
        optimizer: Any = self.optimizer.torch_optimizer
        if hasattr(optimizer, "consolidate_state_dict") and not self.cfg.checkpoint.no_save_optimizer_state:
            optimizer.consolidate_state_dict()

    def state_dict(self) -> dict[str, Any]:
        """The state of the training in fairseq's format of checkpoints."""
        extra = {"statistics": self.metrics.state_dict(), "previous_training_time": self.seconds()}
        if self.cfg.ema.store_ema:
            extra["ema"] = self.ema.get_model().state_dict()
            if self.cfg.ema.ema_fp32:
                extra["ema_fp32_params"] = self.ema.fp32_params
        state = {
            "args": None,
            "cfg": OmegaConf.to_container(self.cfg, resolve=True, enum_to_str=True),
            "model": self._model.state_dict(),
            "criterion": self.criterion.state_dict() if utils.has_parameters(self.criterion) else None,
            "optimizer_history": [
                *self._history,
                {
                    "criterion_name": type(self.criterion).__name__,
                    "optimizer_name": self.optimizer.name,
                    "lr_scheduler_state": self.lr_scheduler.state_dict(),
                    "num_updates": self._num_updates,
                },
            ],
            "task_state": self.task.state_dict(),
            "extra_state": extra,
        }
        if not self.cfg.checkpoint.no_save_optimizer_state:
            state["last_optimizer_state"] = self.optimizer.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any], resets: Mapping[str, bool], overrides: Mapping[str, Any]) -> None:
        """Restores a checkpoint, whose weights it removes, without the states in `resets`, by --optimizer-overrides."""
        last, extra = state["optimizer_history"][-1], state["extra_state"]
        self._model.set_num_updates(last["num_updates"])
        self._model.load_state_dict(state.pop("model"), strict=True, model_cfg=self.cfg.model)
        if utils.has_parameters(self.criterion):
            self.criterion.load_state_dict(state["criterion"], strict=True)
        self._history = state["optimizer_history"]
        self._build_optimizer()  # the copies of weights in float32 are the new ones
        optimizer_state = state.get("last_optimizer_state")
        if optimizer_state is not None and not resets["optimizer"]:
            if not resets["lr_scheduler"]:
                self.lr_scheduler.load_state_dict(last["lr_scheduler_state"])
            self.optimizer.load_state_dict(optimizer_state, overrides)
            self._set_num_updates(last["num_updates"])
        if not resets["meters"]:
            self._seconds_before = float(extra.get("previous_training_time", 0.0))
        self._started = time.time()
        position = extra["train_iterator"]
        self.lr_step(position["epoch"])
        if "statistics" in extra and not (resets["meters"] or resets["dataloader"]) and position["iterations_in_epoch"]:
            self.metrics.load_state_dict(extra["statistics"])
        if self.cfg.ema.store_ema:  # without an average in the checkpoint it begins with the weights
            self.ema.restore(extra.get("ema") or self._model.state_dict(), build_fp32_params=False)
            if self.cfg.ema.ema_fp32:
                self.ema.build_fp32_params(extra.get("ema_fp32_params"))
