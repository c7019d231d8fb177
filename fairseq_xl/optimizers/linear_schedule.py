"""A learning rate that warms up, and decays linearly to 0 at the last update (Devlin et al. 2019)."""

from dataclasses import dataclass
from typing import Any, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II

from fairseq_xl.errors import check_number, check_ranges
from fairseq_xl.io.options import option


@dataclass
class XLLinearConfig(FairseqDataclass):
    """Options of `xl_linear`."""

    warmup_share: Optional[float] = option(
        None, "share of all updates in which the learning rate rises to --lr, in place of --warmup-updates"
    )
    warmup_updates: int = option(0, "updates in which the learning rate rises to --lr", range="0 or more")
    lr: list[float] = II("optimization.lr")


@register_lr_scheduler("xl_linear", dataclass=XLLinearConfig)
class XLLinearSchedule(FairseqLRScheduler):
    """Linear warm-up and linear decay, as fairseq's `polynomial_decay`; the number of updates need not be given."""

    total = warmup = 0

    def __init__(self, cfg: Any, optimizer: Any):
        super().__init__(cfg, optimizer)
        check_ranges(XLLinearConfig, cfg)
        if cfg.warmup_share is not None:
            check_number("--warmup-share", cfg.warmup_share, "probability")

    def set_total(self, updates: int) -> None:
        """Sets the number of updates of the whole training; the warm-up leaves at least the last one."""
        share = self.cfg.warmup_share
        self.total = updates
        self.warmup = min(self.cfg.warmup_updates if share is None else int(share * updates), updates - 1)

    def step_update(self, num_updates: int) -> float:
        """Sets and returns the learning rate after an update."""
        if self.warmup and num_updates <= self.warmup:
            factor = num_updates / float(self.warmup)
        else:
            factor = 1 - (num_updates - self.warmup) / (self.total - self.warmup) if num_updates < self.total else 0.0
        self.optimizer.set_lr(self.cfg.lr[0] * factor)
        return float(self.optimizer.get_lr())
