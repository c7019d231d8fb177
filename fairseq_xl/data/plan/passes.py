"""One pass over the data: every example once, in batches of similar lengths, computed as they are read."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fairseq_xl.data import Numbers
from fairseq_xl.data.corpora.mixed_corpus import MixedCorpus, unmixed
from fairseq_xl.data.corpora.sampling import permutation
from fairseq_xl.data.plan.balance import balanced_order
from fairseq_xl.data.plan.epoch_plan import BatchSpec, ObjectiveSampler

ORDER, PARTIAL, BATCHES, EXAMPLES = 1, 2, 3, 4  # purposes of random numbers
CHUNK = 1 << 18  # positions whose examples are sorted by length together


class ObjectivePass(Sequence[BatchSpec]):
    """The batches of a pass over the corpus of one objective.

    The positions of the corpus are permuted and read in chunks. The examples of a chunk are sorted by length and
    divided into batches, which are shuffled. One chunk is in memory.

    Args:
        sampler: sampler of the objective, with a single corpus, which may be a `MixedCorpus`.
        seed, epoch: seeds of the random numbers.
        batches_per_update: number of batches of similar sizes (`balanced_order`).
        repeats: {name of the corpus, or of a part of the mixed one: number of readings of its examples}, by default 1;
            a fraction reads a random part of them.
        index: index of the objective in the run.
    """

    def __init__(
        self,
        sampler: ObjectiveSampler,
        seed: int,
        epoch: int,
        batches_per_update: int,
        repeats: Mapping[str, float] | None = None,
        index: int = 0,
    ):
        ((self.name, self.corpus),) = sampler.corpora.items()
        self.sampler, self.batches_per_update = sampler, batches_per_update
        self.length = sampler.input_length.text  # maximum length of a text, in tokens
        self.key = (seed, epoch, index)
        self.corpus.mean_size(self.length)  # warns of longer texts; raises `UserError` if a corpus has no other
        parts = unmixed(sampler.corpora)
        self.parts = [corpus.for_pass(np.random.default_rng((*self.key, EXAMPLES))) for corpus in parts.values()]
        self.positions = [corpus.number_of_positions(self.length) for corpus in self.parts]
        factors = [(repeats or {}).get(name, 1) for name in parts]
        self.counts = [self._count_positions(part, factor) for part, factor in enumerate(factors)]
        self.position_at = permutation(np.random.default_rng((*self.key, ORDER)), sum(self.counts))
        self.chunk = functools.lru_cache(maxsize=1)(self._batches_of)
        chunks = -(-sum(self.counts) // CHUNK)
        counts = [len(self.chunk(0))] if chunks == 1 else map(self._count, range(chunks))
        self.ends = np.cumsum(list(counts))  # (chunks,) in batches

    def _count_positions(self, part: int, factor: float) -> int:
        """Counts the positions of a part in the pass: those of whole repetitions and of the partial one."""
        positions, corpus = self.positions[part], self.parts[part]
        if factor == 1:
            return positions
        blocks = [np.arange(begin, min(begin + CHUNK, positions)) for begin in range(0, positions, CHUNK)]
        usable = sum(len(corpus.examples_at(block, self.length)[0]) for block in blocks)
        repetitions, remaining = divmod(max(1, round(factor * usable)), max(1, usable))
        total = repetitions * positions
        for block in blocks if remaining else ():
            shuffled = self._partial(part)(block)
            examples = corpus.examples_at(shuffled, self.length)[0]
            if len(examples) >= remaining:
                last = corpus.positions(examples[remaining - 1 : remaining], self.length)
                return total + int(np.flatnonzero(shuffled == last)[0]) + 1
            total, remaining = total + len(block), remaining - len(examples)
        return total

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        index = range(len(self))[index]  # not negative; or an `IndexError`
        chunk = int(np.searchsorted(self.ends, index, side="right"))
        return self.chunk(chunk)[index - int(self.ends[chunk])]  # counted from the end of the chunk

    def _partial(self, part: int) -> Callable[[Any], Any]:
        """Returns the random order of the positions of a part in a partial repetition."""
        return permutation(np.random.default_rng((*self.key, PARTIAL, part)), self.positions[part])

    def _batches_of(self, chunk: int) -> list[BatchSpec]:
        """Returns the batches of a chunk, in the order of reading."""
        rng = np.random.default_rng((*self.key, BATCHES, chunk))
        examples, sizes = self._examples_of(chunk)
        if not len(examples):
            return []
        order = rng.permutation(len(examples))  # examples of equal lengths, of all parts, are in random order
        examples, sizes = examples[order], sizes[order]
        keys = rng.integers(2**64, size=len(examples), dtype=np.uint64)
        batches = self.sampler.divide(examples, sizes, self.corpus)
        batches = [batches[index] for index in rng.permutation(len(batches))]
        tokens = np.array([tokens for _, tokens, _ in batches])
        # the first batches complete the last update of the chunk before
        head = min(len(batches), -int(self.ends[chunk - 1]) % self.batches_per_update if chunk else 0)
        batch_order = [*range(head), *(head + balanced_order(tokens[head:], self.batches_per_update, rng)).tolist()]
        return [
            BatchSpec(self.sampler.objective, self.name, examples[batch], keys[batch], self.length, *counts)
            for batch, *counts in (batches[index] for index in batch_order)
        ]

    def _count(self, chunk: int) -> int:
        """Counts the batches of a chunk."""
        examples, sizes = self._examples_of(chunk)
        return self.sampler.count_batches(examples, sizes, self.corpus) if len(examples) else 0

    def _examples_of(self, chunk: int) -> tuple[Numbers, Numbers]:
        """Returns the examples of a chunk, and their sizes: (m,) each."""
        ends, columns = np.cumsum(self.counts), []
        positions = self.position_at(np.arange(chunk * CHUNK, min((chunk + 1) * CHUNK, ends[-1])))
        part_of = np.searchsorted(ends, positions, side="right")
        for part in np.unique(part_of).tolist():
            part_size, count = self.positions[part], self.counts[part]
            repetition, offsets = np.divmod(positions[part_of == part] - (ends[part] - count), part_size)
            partial = repetition == count // part_size  # a random part of the corpus
            if partial.any():
                offsets[partial] = self._partial(part)(offsets[partial])
            examples, sizes = self.parts[part].examples_at(offsets, self.length)
            columns.append((MixedCorpus.numbered(part, examples), sizes))
        examples, sizes = (np.concatenate(column) for column in zip(*columns, strict=True))
        return examples, sizes


class PassPlan(Sequence[BatchSpec | None]):
    """A pass of each objective; the batches of an update are of one objective, whatever the number of ranks.

    Args:
        seed, epoch: seeds of the random order of updates.
        batches_per_update: number of ranks times micro-steps; the last update of an objective is filled with None.
    """

    def __init__(self, passes: Sequence[ObjectivePass], seed: int, epoch: int, batches_per_update: int):
        self.passes, self.batches_per_update = passes, batches_per_update
        updates = [-(-len(objective_pass) // batches_per_update) for objective_pass in passes]
        kinds = np.repeat(np.arange(len(passes), dtype=np.int16), updates)
        self.kinds = np.random.default_rng((seed, epoch)).permutation(kinds)  # (updates,) index of the objective
        self.updates = np.empty(len(kinds), dtype=np.int64)  # (updates,) number among those of the objective
        for kind, count in enumerate(updates):
            self.updates[self.kinds == kind] = np.arange(count)

    def __len__(self) -> int:
        return len(self.kinds) * self.batches_per_update

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        update, position = divmod(range(len(self))[index], self.batches_per_update)
        batches = self.passes[self.kinds[update]]
        index = int(self.updates[update]) * self.batches_per_update + position
        return batches[index] if index < len(batches) else None
