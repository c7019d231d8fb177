"""Planned batches of pre-training, in training and in validation."""

import logging
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from fairseq.data import FairseqDataset

from fairseq_xl.data.balance import log_padding_and_waiting
from fairseq_xl.data.corpus import Corpus
from fairseq_xl.data.data_loader import EpochBatches
from fairseq_xl.data.plan import (
    BatchSpec,
    ObjectiveSampler,
    balance_ranks,
    number_of_examples,
    training_plan,
    validation_plan,
)
from fairseq_xl.errors import UserError
from fairseq_xl.objectives.base import Objective
from fairseq_xl.tasks.base import iterator_options

logger = logging.getLogger(__name__)


class PlannedBatches(FairseqDataset):
    """Collates batches from the plan: the index of an item is the `BatchSpec` of a whole batch.

    Args:
        objectives: the task's, by name.
        corpora: {objective: {language or pair: corpus}}.
    """

    def __init__(self, objectives: Mapping[str, Objective], corpora: dict[str, dict[str, Corpus]]):
        self.objectives, self.corpora = objectives, corpora

    def __len__(self) -> int:
        """Number of sentences or sentence pairs, not of batches."""
        return sum(corpus.sentences for corpora in self.corpora.values() for corpus in corpora.values())

    def __getitem__(self, batch_spec: BatchSpec) -> dict[str, Any]:
        """The batch of a specification, with its objective, corpus and sizes."""
        objective = self.objectives[batch_spec.objective]
        batch = objective.collate(batch_spec, self.corpora[batch_spec.objective][batch_spec.corpus_name])
        if "tokens" not in batch:
            raise UserError(
                f"`collate` of the objective {batch_spec.objective} returned {', '.join(batch) or 'no keys'}: a batch "
                "also needs the key 'tokens', the token ids that the model reads"
            )
        return {
            "objective": batch_spec.objective,
            "corpus": batch_spec.corpus_name,
            "nsentences": len(batch_spec.examples),
            "ntokens": int(batch["tokens"].ne(objective.dictionary.pad()).sum()),
            "batch": batch,
        }

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """Returns the only sample, a whole batch; {} for a rank without a batch."""
        return samples[0] if samples else {}


class PlannedTask:
    """Base of the task whose batches are planned; a subclass sets `cfg`, `objectives` and `datasets`."""

    cfg: Any
    objectives: dict[str, Objective]
    datasets: dict[str, PlannedBatches]  # by split

    @cached_property
    def _validation_plans(self) -> dict[tuple[Any, ...], list[BatchSpec]]:
        return {}

    @cached_property
    def _logged_epochs(self) -> set[int]:
        return set()

    def forget_plans(self) -> None:
        """Forgets the plans of validation, which belong to the objectives, and which epochs have been logged."""
        for name in ("_validation_plans", "_logged_epochs"):
            self.__dict__.pop(name, None)

    def samplers(
        self, dataset: PlannedBatches, max_tokens: int | None, max_sentences: int | None, update: int | None = None
    ) -> list[ObjectiveSampler]:
        """Makes a sampler for each objective of a dataset; `update`: first one of the epoch, or None in validation."""
        samplers = []
        for name in dataset.corpora:
            objective = self.objectives[name]
            tokens, sentences = objective.cfg.batch_tokens, objective.cfg.batch_sentences
            if tokens is None and sentences is None:
                tokens, sentences = max_tokens, max_sentences
            samplers.append(
                ObjectiveSampler(
                    name,
                    dataset.corpora[name],
                    objective.input_length if update is None else objective.input_length_at(update),
                    tokens,
                    sentences,
                    objective.cfg.alpha,
                    objective.collated_lengths,
                )
            )
        return samplers

    def get_batch_iterator(
        self,
        dataset: PlannedBatches,
        max_tokens: int | None = None,
        max_sentences: int | None = None,
        seed: int = 1,
        num_shards: int = 1,
        **kwargs: Any,
    ) -> EpochBatches:
        """Iterates over the plan of each epoch: sampled batches in training, each example once in validation."""
        training, limits = dataset is self.datasets.get("train"), (max_tokens, max_sentences)

        def plan(_: Any, epoch: int) -> list[list[BatchSpec]]:
            """Returns the batches of an epoch, each a list of one `BatchSpec`."""
            if training:
                return [[spec] for spec in self._training_plan(dataset, *limits, seed, epoch, num_shards)]
            return [[spec] for spec in self._validation_plan(dataset, *limits)]

        return EpochBatches(
            *(dataset, dataset.collater, plan, seed, num_shards),
            disable_shuffling=True,
            **iterator_options(kwargs | {"skip_remainder_batch": False}),  # an epoch is a number of updates
        )

    def _training_plan(
        self,
        dataset: PlannedBatches,
        max_tokens: int | None,
        max_sentences: int | None,
        seed: int,
        epoch: int,
        ranks: int,
    ) -> list[BatchSpec]:
        """The plan of an epoch; the first time, its shares of padding and of waiting are logged."""
        frequencies, updates = list(self.cfg.update_freq), self.cfg.updates_per_epoch
        micro_steps, done = int(frequencies[min(epoch, len(frequencies)) - 1]), (epoch - 1) * updates
        samplers, schedule = self.samplers(dataset, max_tokens, max_sentences, done), str(self.cfg.schedule)
        if schedule != "cycle":  # it needs all of them
            samplers = [sampler for sampler in samplers if self.objectives[sampler.objective].weight(done) > 0]
            if not samplers:
                raise UserError(f"the weights of all objectives are 0 from update {done} on: lower --max-update")
        drawn = training_plan(samplers, schedule, seed, epoch, updates, micro_steps, ranks)
        balanced = balance_ranks(drawn, micro_steps * ranks, seed, epoch)
        if epoch not in self._logged_epochs:
            self._logged_epochs.add(epoch)
            before, after = (np.array([spec.tokens for spec in plan]) for plan in (drawn, balanced))
            log_padding_and_waiting(epoch, ranks, before, after, np.array([spec.padded_tokens for spec in balanced]))
        return balanced

    def _validation_plan(
        self, dataset: PlannedBatches, max_tokens: int | None, max_sentences: int | None
    ) -> list[BatchSpec]:
        """The plan of all validations on a dataset; the first time, the log says which share of the examples it has."""
        key = dataset, max_tokens, max_sentences
        if key not in self._validation_plans:
            samplers, limit = self.samplers(*key), self.cfg.validation_examples
            self._validation_plans[key] = validation_plan(samplers, limit)
            used, every = number_of_examples(samplers, limit), number_of_examples(samplers)
            if used < every:
                split = next(name for name, each in self.datasets.items() if each is dataset)
                logger.info(
                    "validation on %s reads a fixed sample: %s of %s examples, at most %s of each language or pair and "
                    "objective (--validation-examples; 0: all)",
                    *(split, f"{used:,}", f"{every:,}", f"{limit:,}"),
                )
        return self._validation_plans[key]
