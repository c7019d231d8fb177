"""What is drawn when: for each epoch a pure function of (seed, epoch).

An epoch is a number of updates. Every update takes world size × update frequency batches; one micro-step is one
batch on every rank, all of one objective. Languages and pairs are drawn batch by batch with p^α (X6, X7), their
examples without replacement within a pass. Nothing of this is state: (epoch, offset) is enough to resume.
"""

from dataclasses import dataclass
from typing import Callable, Optional

import numpy as np
from fairseq.data import data_utils

from fairseq_xl.data.sampling import smoothed_shares
from fairseq_xl.errors import UserError

SCHEDULES = ("alternate", "cycle", "random")

#: Validation noise is the same in every run, so that perplexities compare across seeds.
VALIDATION_SEED = 20190122


@dataclass(frozen=True)
class Draws:
    """One batch: B examples of one source for one objective, and the keys of their noise."""

    objective: str
    source: str
    examples: np.ndarray  # (B,) what the source calls an example: the start of a block, the line of a pair
    keys: np.ndarray  # (B,) uint64


@dataclass(frozen=True)
class Supply:
    """What one objective draws from, and how its batches are cut."""

    objective: str
    sources: dict  # name -> TokenStream or SentencePairs
    length: int  # tokens of a block, or of the longer side of a pair
    framing: int  # how many tokens framing adds to an example
    batch_tokens: int | None  # most tokens of a batch, padding counted
    batch_sentences: int | None  # most examples of a batch
    alpha: float
    # examples (n,), their sizes (n,), their source -> tokens that each may come to in a batch (n,); None: its size
    takes: Optional[Callable] = None

    @property
    def shares(self):
        """Probability of each source, in the order of `sources`."""
        return smoothed_shares([source.sentences for source in self.sources.values()], self.alpha)

    def cut(self, examples, sizes, source):
        """Cuts examples (n,) of these sizes (n,) into batches of similar lengths: a list of (B,) index arrays."""
        sizes = sizes if self.takes is None else self.takes(examples, sizes, source)
        order = np.argsort(sizes, kind="stable")
        sizes = sizes[order] + self.framing
        if self.batch_tokens is not None and sizes[-1] > self.batch_tokens:
            raise UserError(
                f"a batch of {self.objective} holds {self.batch_tokens} tokens but an example has {sizes[-1]}: "
                f"raise --max-tokens or {self.objective}.batch_tokens, or lower {self.objective}.length"
            )
        every = np.arange(len(sizes))
        slices = data_utils.batch_by_size(every, None, sizes, self.batch_tokens, self.batch_sentences, 1)
        return [order[part] for part in slices]

    def batches(self, rng, name, count):
        """`count` random batches of the source `name`: a list of (B,) arrays of examples."""
        source, batches = self.sources[name], []
        typical = self._typical_batch(source)
        while len(batches) < count:
            examples, sizes = source.draw(rng, typical * (count - len(batches)), self.length)
            fresh = self.cut(examples, sizes, source)
            batches += [examples[fresh[i]] for i in rng.permutation(len(fresh))]
        return batches[:count]

    def _typical_batch(self, source):
        if self.batch_tokens is None:
            return self.batch_sentences
        by_tokens = max(1, int(self.batch_tokens / (source.mean_size(self.length) + self.framing)))
        return by_tokens if self.batch_sentences is None else min(by_tokens, self.batch_sentences)


def training_plan(supplies, schedule, seed, epoch, updates, micro_steps, world_size):
    """All batches of an epoch, in the order in which fairseq deals them out to ranks and micro-steps.

    Args:
        supplies: one `Supply` an objective.
        schedule: `alternate`, one objective an update in turn (X7); `cycle`, every objective in every update, by
            accumulation (U2); `random`, one objective an update, drawn uniformly (G1).
        seed, epoch: what the plan is a function of; epochs count from 1.
        updates: optimizer updates of the epoch.
        micro_steps: batches that a rank accumulates for an update (fairseq's --update-freq).
        world_size: number of ranks.

    Returns: a list of updates × micro_steps × world_size `Draws`.
    """
    rng = np.random.default_rng((seed, epoch))
    order = np.repeat(_objective_order(rng, len(supplies), schedule, epoch, updates, micro_steps), world_size)
    plan = [None] * len(order)
    for number, supply in enumerate(supplies):
        slots = np.flatnonzero(order == number)
        names = list(supply.sources)
        chosen = rng.choice(len(names), len(slots), p=supply.shares)
        for index, name in enumerate(names):
            taken = slots[chosen == index]
            for slot, examples in zip(taken, supply.batches(rng, name, len(taken))):
                keys = rng.integers(2**64, size=len(examples), dtype=np.uint64)
                plan[slot] = Draws(supply.objective, name, examples, keys)
    return plan


def _objective_order(rng, objectives, schedule, epoch, updates, micro_steps):
    """(updates · micro_steps,) number of the objective of every micro-step."""
    if schedule == "cycle":
        if micro_steps % objectives:
            raise UserError(
                f"--schedule cycle needs an --update-freq that is a multiple of the {objectives} objectives, "
                f"not {micro_steps}"
            )
        return np.tile(np.arange(objectives), updates * micro_steps // objectives)
    if schedule == "alternate":
        done = (epoch - 1) * updates
        return np.repeat((done + np.arange(updates)) % objectives, micro_steps)
    return np.repeat(rng.integers(objectives, size=updates), micro_steps)


def validation_plan(supplies):
    """Every example of every source once, in a fixed order and with fixed noise: a list of `Draws`."""
    plan = []
    for supply in supplies:
        for name, source in supply.sources.items():
            rng = np.random.default_rng((VALIDATION_SEED, *f"{supply.objective} {name}".encode()))
            examples, sizes = source.every(supply.length)
            keys = rng.integers(2**64, size=len(examples), dtype=np.uint64)
            plan += [
                Draws(supply.objective, name, examples[part], keys[part])
                for part in supply.cut(examples, sizes, source)
            ]
    return plan
