"""The plan of an epoch: batch specifications, a pure function of the run's settings, the text, the seed and the epoch.

An epoch is a number of updates. Each update takes world size × update frequency batches; in one micro-step every rank
gets one batch, all of the same objective. Languages and pairs are sampled for each batch with p^α (Lample & Conneau
2019, section 3.5). Each epoch begins a new pass over every corpus; within a pass no example repeats. The ranks of a
micro-step get batches of similar size, since they wait for the one with the largest.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from fairseq_xl.data import Numbers
from fairseq_xl.data.corpora.base import Corpus
from fairseq_xl.data.corpora.sampling import smoothed_shares
from fairseq_xl.data.framing import InputLength
from fairseq_xl.data.plan.balance import balanced_order
from fairseq_xl.errors import UserError

SCHEDULES = ("alternate", "cycle", "random")

#: Validation noise is the same in every run, so that perplexities compare across seeds.
VALIDATION_SEED = 20190122


@dataclass(frozen=True)
class BatchSpec:
    """One batch: B examples of one corpus for one objective, and a random key for each."""

    objective: str
    corpus_name: str  # a language, a pair, or "mixed"
    examples: np.ndarray  # (B,) the corpus's numbers of the examples
    keys: np.ndarray  # (B,) uint64
    length: int | None = None  # maximum length of each text; None: the objective's
    tokens: int = 0  # number of tokens of all examples, without padding
    padded_tokens: int = 0  # number with padding: B times the length of the longest example
    is_dummy: bool = False  # it counts as nothing: a rank computes it while others have batches


class Lengths(NamedTuple):
    """Numbers of tokens, with framing, of n examples as they are collated."""

    sides: np.ndarray  # (n, k) of the longest input on each of k sides that are padded by themselves
    inputs: np.ndarray | None = None  # (n,) number of inputs of each example; None: one
    tokens: np.ndarray | None = None  # (n,) of all inputs; None: the sum of the sides

    def batch_tokens(self, order: Numbers, begins: Numbers) -> tuple[Numbers, Numbers]:
        """Tokens of batches, without and with padding: (b,) each.

        `order` (n,) are the examples in the order of the batches, which begin at its indices `begins` (b,).
        """
        sides, add = self.sides[order], np.add.reduceat
        tokens = sides.sum(axis=1) if self.tokens is None else self.tokens[order]
        inputs = np.diff(begins, append=len(order)) if self.inputs is None else add(self.inputs[order], begins)
        return add(tokens, begins), inputs * np.maximum.reduceat(sides, begins).sum(axis=1)


@dataclass(frozen=True)
class ObjectiveSampler:
    """Samples the batches of one objective."""

    objective: str
    corpora: dict[str, Corpus]  # by language or pair
    input_length: InputLength
    batch_tokens: int | None  # maximum number of tokens in a batch, padding counted
    batch_sentences: int | None  # maximum number of examples in a batch
    alpha: float
    # examples (n,), their sizes (n,), their corpus -> their `Lengths`; None: sizes and symbols
    lengths: Callable[[Numbers, Numbers, Corpus], Lengths] | None = None

    @property
    def shares(self) -> np.ndarray:
        """Probability of each corpus, in the order of `corpora`."""
        return smoothed_shares([corpus.sentences for corpus in self.corpora.values()], self.alpha)

    def divide(self, examples: Numbers, sizes: Numbers, corpus: Corpus) -> list[tuple[Any, ...]]:
        """Divides examples (n,) of sizes (n,) into batches of similar lengths.

        Returns: a list of (B,) index arrays, each with the batch's numbers of tokens without and with padding.
        """
        lengths, order, begins = self._batches(examples, sizes, corpus)
        tokens = (column.tolist() for column in lengths.batch_tokens(order, begins))
        return list(zip(np.split(order, begins[1:]), *tokens, strict=True))

    def count_batches(self, examples: Numbers, sizes: Numbers, corpus: Corpus) -> int:
        """Counts the batches of `divide`."""
        return len(self._batches(examples, sizes, corpus)[-1])

    def _batches(self, examples: Numbers, sizes: Numbers, corpus: Corpus) -> tuple[Lengths, Numbers, Numbers]:
        """Returns the lengths of examples, their order by length (n,), and the indices in it of first examples (b,)."""
        if self.lengths is None:
            lengths = Lengths((sizes + self.input_length.symbols)[:, None])
        else:
            lengths = self.lengths(examples, sizes, corpus)
        # sorted by the last side, then by those before it; numbers of 16 bits or fewer are sorted much faster
        sides = lengths.sides.T.astype(np.min_scalar_type(lengths.sides.max()))
        order = np.lexsort((*([] if lengths.inputs is None else [lengths.inputs]), *sides))
        longest = lengths.sides.max(axis=1)[order]
        inputs = None if lengths.inputs is None else lengths.inputs[order]
        most = int((longest if inputs is None else longest * inputs).max())
        if self.batch_tokens is not None and most > self.batch_tokens:
            raise UserError(
                f"a batch of {self.objective} holds {self.batch_tokens} tokens but an example has {most}: "
                f"raise --max-tokens or {self.objective}.batch_tokens, or lower {self.objective}.length"
            )
        return lengths, order, cut_by_size(longest, inputs, self.batch_tokens, self.batch_sentences)

    def batches(self, rng: np.random.Generator, name: str, count: int) -> list[tuple[Any, ...]]:
        """Draws `count` batches of the corpus `name`: (B,) arrays of examples, each with its tokens as in `divide`."""
        corpus, batches = self.corpora[name], []
        typical = cast(int, self.batch_sentences)  # examples of a batch; one of the limits is set
        if self.batch_tokens is not None:
            mean_length = corpus.mean_size(self.input_length.text) + self.input_length.symbols
            by_tokens = max(1, int(self.batch_tokens / mean_length))
            typical = min(by_tokens, typical or by_tokens)
        while len(batches) < count:
            examples, sizes = corpus.sample(rng, typical * (count - len(batches)), self.input_length.text)
            fresh = self.divide(examples, sizes, corpus)
            for i in rng.permutation(len(fresh)):
                part, *tokens = fresh[i]
                batches.append((examples[part], *tokens))
        return batches[:count]


def cut_by_size(
    longest: Numbers, inputs: Numbers | None, batch_tokens: int | None, batch_sentences: int | None
) -> Numbers:
    """Cuts a sequence of examples into batches, each as large as the limits allow.

    Args:
        longest, inputs: (n,) tokens of the longest input of each example, and number of its inputs, all of which are
            padded to the longest one of the batch; None: one each.
        batch_tokens: maximum number of tokens with padding, at least that of each example; None: no limit.
        batch_sentences: maximum number of examples; None: no limit.

    Returns: where batches begin, (b,).
    """
    begins, begin, count = [], 0, len(longest)
    before = np.arange(count + 1) if inputs is None else np.concatenate(([0], np.cumsum(inputs)))
    while begin < count:
        begins.append(begin)
        end = min(count, begin + (batch_sentences or count))
        if batch_tokens is not None:
            end = min(end, begin + batch_tokens // int(longest[begin]))  # the others may be longer
            tokens = np.maximum.accumulate(longest[begin:end]) * (before[begin + 1 : end + 1] - before[begin])
            end = begin + int(tokens.searchsorted(batch_tokens, side="right"))
        begin = end
    return np.array(begins)


def training_plan(
    samplers: list[ObjectiveSampler],
    schedule: str,
    seed: int,
    epoch: int,
    updates: int,
    micro_steps: int,
    world_size: int,
) -> list[BatchSpec]:
    """All batches of an epoch, in the order in which ranks and micro-steps get them.

    Args:
        schedule: `alternate`: one objective per update, in turn (Lample & Conneau 2019, section 3.5); `cycle`: every
            objective in every update, by gradient accumulation (Huang et al. 2019, section 4); `random`: one objective
            per update, sampled uniformly (Liang et al. 2020, section 3).
        seed, epoch: seed of the random numbers; epochs count from 1.
        updates: optimizer updates of the epoch.
        micro_steps: batches that a rank accumulates for an update (fairseq's --update-freq).

    Returns: a list of updates × micro_steps × world_size `BatchSpec`.
    """
    rng = np.random.default_rng((seed, epoch))
    count = len(samplers)
    if schedule == "cycle":
        check_cycle(count, micro_steps)
        order = np.tile(np.arange(count), updates * micro_steps // count)
    elif schedule == "alternate":
        order = np.repeat(((epoch - 1) * updates + np.arange(updates)) % count, micro_steps)
    else:
        order = np.repeat(rng.integers(count, size=updates), micro_steps)
    order = np.repeat(order, world_size)  # index of the objective of every batch
    plan: list[Any] = [None] * len(order)
    for objective_index, sampler in enumerate(samplers):
        slots = np.flatnonzero(order == objective_index)
        names = list(sampler.corpora)
        choices = rng.choice(len(names), len(slots), p=sampler.shares)
        for index, name in enumerate(names):
            taken = slots[choices == index]
            for slot, (examples, *tokens) in zip(taken, sampler.batches(rng, name, len(taken))):
                keys = rng.integers(2**64, size=len(examples), dtype=np.uint64)
                plan[slot] = BatchSpec(sampler.objective, name, examples, keys, sampler.input_length.text, *tokens)
    return plan


def balance_ranks(plan: Sequence[BatchSpec], batches_per_update: int, seed: int, epoch: int) -> list[BatchSpec]:
    """Reorders the batches of each objective so that the ranks of a micro-step get batches of similar size.

    The batches of an objective are reordered as in `balanced_order`, among the updates that have the objective.
    Objectives keep their positions, and so does the only batch of one in an update.
    """
    rng = np.random.default_rng((seed, epoch, 1))  # not the plan's generator: the drawn batches stay the same
    sizes = np.array([spec.tokens for spec in plan])
    objectives = np.array([spec.objective for spec in plan])
    order = np.arange(len(plan))
    for objective in np.unique(objectives):
        mask = objectives == objective
        per_update = int(mask.reshape(-1, batches_per_update).sum(axis=1).max())
        positions = np.flatnonzero(mask)
        order[positions] = positions[balanced_order(sizes[positions], per_update, rng, sizes.max())]
    return [plan[index] for index in order.tolist()]


def check_cycle(objectives: int, micro_steps: int) -> None:
    """Raises `UserError` unless the number of micro-steps of an update is a multiple of the number of objectives."""
    if micro_steps % objectives:
        needed = f"an --update-freq that is a multiple of the {objectives} objectives, not {micro_steps}"
        raise UserError(f"--schedule cycle needs {needed}; --batches-per-update divided by the processes sets it")


def validation_plan(samplers: Iterable[ObjectiveSampler], limit: int = 0) -> list[BatchSpec]:
    """The examples of every corpus once, with fixed noise: a list of `BatchSpec`, the same in every run and epoch.

    A corpus with more than `limit` examples (0: any number) gives a fixed random sample of them. A sampled example has
    the same noise as in the plan of all examples, unless the text has lines that are left out.
    """
    plan = []
    for sampler in samplers:
        for name, corpus in sampler.corpora.items():
            seed, length = (VALIDATION_SEED, *f"{sampler.objective} {name}".encode()), sampler.input_length.text
            if 0 < limit < corpus.number_of_examples(length):
                examples, sizes = corpus.sample_of_all(np.random.default_rng((*seed, limit)), limit, length)
                keys = _random_keys_at(seed, corpus.positions(examples, length))
            else:
                examples, sizes = corpus.all_examples(length)
                keys = np.random.default_rng(seed).integers(2**64, size=len(examples), dtype=np.uint64)
            for part, *tokens in sampler.divide(examples, sizes, corpus):
                plan.append(BatchSpec(sampler.objective, name, examples[part], keys[part], None, *tokens))
    return plan


def _random_keys_at(seed: tuple[int, ...], positions: Numbers) -> Numbers:
    """The random keys (n,) uint64 at ascending positions (n,) of a generator's sequence; skips all others."""
    bits, keys = cast(np.random.PCG64, np.random.default_rng(seed).bit_generator), np.empty(len(positions), np.uint64)
    for row, skipped in enumerate((np.diff(positions, prepend=-1) - 1).tolist()):
        bits.advance(skipped)
        keys[row] = bits.random_raw()
    return keys


def number_of_examples(samplers: Iterable[ObjectiveSampler], limit: int = 0) -> int:
    """Number of examples of all corpora and objectives (estimated for long texts), at most `limit` each; 0: all."""
    counts = (corpus.number_of_examples(s.input_length.text) for s in samplers for corpus in s.corpora.values())
    return sum(min(count, limit) if limit else count for count in counts)
