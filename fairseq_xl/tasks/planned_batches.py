"""Planned batches of pre-training, in training and in validation."""

import itertools
import logging
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch
from fairseq.data import FairseqDataset
from torch.utils.data import Dataset

from fairseq_xl.data.corpus import Corpus
from fairseq_xl.data.passes import AUTO, ObjectivePass, PassPlan
from fairseq_xl.data.plan import (
    BatchSpec,
    ObjectiveSampler,
    balance_ranks,
    number_of_examples,
    training_plan,
    validation_plan,
)
from fairseq_xl.data.text_pairs import TextPairs
from fairseq_xl.engine.epochs import Epochs, Plan
from fairseq_xl.engine.waiting import log_padding_and_waiting
from fairseq_xl.errors import UserError
from fairseq_xl.objectives.base import Objective
from fairseq_xl.objectives.sequence import net_input

logger = logging.getLogger(__name__)

MIXED = "mixed"  # name, in the log, of the corpus whose batches mix languages


class PlannedBatches(Dataset[Any]):
    """Collates batches from the plan: the index of an item is the `BatchSpec` of a whole batch; {} for None.

    Args:
        objectives: the task's, by name.
        corpora: {objective: {language or pair: corpus}}.
        split: its name.
    """

    def __init__(self, objectives: Mapping[str, Objective], corpora: dict[str, dict[str, Corpus]], split: str = ""):
        self.objectives, self.corpora, self.split = objectives, corpora, split

    def __len__(self) -> int:
        """Number of sentences or sentence pairs, not of batches."""
        return sum(corpus.sentences for corpora in self.corpora.values() for corpus in corpora.values())

    def __getitem__(self, batch_spec: BatchSpec | None) -> dict[str, Any]:
        """The batch of a specification, with its objective, corpus and sizes."""
        if batch_spec is None:
            return {}
        objective = self.objectives[batch_spec.objective]
        batch = objective.collate(batch_spec, self.corpora[batch_spec.objective][batch_spec.corpus_name])
        if "tokens" not in batch:
            raise UserError(
                f"`collate` of the objective {batch_spec.objective} returned {', '.join(batch) or 'no keys'}: a batch "
                "also needs the key 'tokens', the token ids that the model reads"
            )
        return {
            "id": torch.from_numpy(batch_spec.examples),
            "objective": batch_spec.objective,
            "corpus": batch_spec.corpus_name,
            "split": self.split,
            "is_dummy": batch_spec.is_dummy,
            "nsentences": len(batch_spec.examples),
            "ntokens": objective.num_tokens(batch),
            "batch": batch,
        }


class EvaluationDataset(PlannedBatches, FairseqDataset):
    """Batches of sources, and of targets if there are any, for fairseq's generator, commands and criterions.

    A batch also has the entries of `fairseq_xl.objectives.sequence.net_input` and, for generation, ``constraints`` and
    ``positions``: those that the decoder predicts of each source, or None. Ids are numbers of lines, counted through
    the corpora.
    """

    def __getitem__(self, batch_spec: BatchSpec | None) -> dict[str, Any]:
        """The batch of a specification."""
        sample = super().__getitem__(batch_spec)
        if batch_spec is None:
            return sample
        corpora = self.corpora[batch_spec.objective]
        corpus: Any = corpora[batch_spec.corpus_name]
        if isinstance(corpus, TextPairs):
            before = itertools.takewhile(lambda each: each is not corpus, corpora.values())
            sample["id"] = sample["id"] + sum(len(each.sizes) for each in before)
            if corpus.constraints is not None:
                sample["constraints"] = torch.stack([corpus.constraints[line] for line in batch_spec.examples])
            if corpus.masked_positions is not None:
                sample["positions"] = [corpus.masked_positions[line] for line in batch_spec.examples]
        return sample | net_input(sample["batch"])


class PlannedTask:
    """Base of tasks: their batches are planned; a subclass sets `cfg`, `objectives` and `datasets`."""

    cfg: Any
    objectives: dict[str, Objective]
    datasets: dict[str, PlannedBatches]  # by split
    evaluates: bool
    training_begun: bool
    #: order of the objectives
    schedule = "alternate"
    #: what a corpus of the validation is of, for messages
    group_name = "language"
    #: {objective: {name of a corpus: number of times that a pass over the data reads its examples}}
    repeats: Mapping[str, Mapping[str, float]] = {}

    def validation_limit(self, objective: str) -> int:
        """Maximum number of examples of a corpus of an objective that validation reads; 0: all."""
        return int(self.cfg.validation_examples)

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
                    objective.lengths,
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
        shard_id: int = 0,
        num_workers: int = 0,
        epoch: int = 1,
        data_buffer_size: int = 0,
        training: bool = False,
        **kwargs: Any,
    ) -> Epochs:
        """The batches of the plan: in an evaluation those of each example once.

        Args:
            training: whether the model is trained on them: batches are sampled, or an epoch is a pass over the data.
        """
        limits = max_tokens, max_sentences

        def plan(epoch: int, ranks: int, micro_steps: int) -> Plan:
            """The plan of an epoch."""
            if not training:
                return self._validation_plan(dataset, *limits)
            return self._training_plan(dataset, *limits, seed, epoch, ranks, micro_steps)

        is_pass = training and self.cfg.updates_per_epoch == AUTO
        return Epochs(
            dataset,
            plan,
            num_shards,
            shard_id,
            [int(number) for number in self.cfg.update_freq] if training else [1],
            keeps_layout=is_pass,
            keeps_updates=is_pass and len(dataset.corpora) > 1,
            pads=not self.evaluates,
            epoch=epoch,
            num_workers=num_workers,
            buffer_size=data_buffer_size,
        )

    def _training_plan(
        self,
        dataset: PlannedBatches,
        max_tokens: int | None,
        max_sentences: int | None,
        seed: int,
        epoch: int,
        ranks: int,
        micro_steps: int,
    ) -> Plan:
        """The plan of an epoch; the first time, its shares of padding and of waiting are logged."""
        updates = self.cfg.updates_per_epoch
        if updates == AUTO:
            return self._pass(self.samplers(dataset, max_tokens, max_sentences), seed, epoch, ranks, micro_steps)
        done = (epoch - 1) * updates
        samplers, schedule = self.samplers(dataset, max_tokens, max_sentences, done), self.schedule
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

    def _pass(self, samplers: list[ObjectiveSampler], seed: int, epoch: int, ranks: int, micro_steps: int) -> Plan:
        """The plan of an epoch that has each example once."""
        per_update = ranks * micro_steps
        passes = [
            ObjectivePass(each, seed, epoch, per_update, self.repeats.get(each.objective), number)
            for number, each in enumerate(samplers)
        ]
        if epoch not in self._logged_epochs:
            self._logged_epochs.add(epoch)
            specs = [spec for each in passes for spec in each.chunk(0)]
            tokens, padded = np.array([(spec.tokens, spec.padded_tokens) for spec in specs]).T
            every = sum(map(len, passes))
            part = f"; shares of {len(specs):,} of {every:,} batches" if len(specs) < every else ""
            log_padding_and_waiting(epoch, ranks, None, tokens, padded, part)
        return PassPlan(passes, seed, epoch, per_update) if len(passes) > 1 else passes[0]

    def _validation_plan(
        self, dataset: PlannedBatches, max_tokens: int | None, max_sentences: int | None
    ) -> list[BatchSpec]:
        """The plan of all validations on a dataset; the first time, the log says which share of the examples it has."""
        key = dataset, max_tokens, max_sentences, self.training_begun
        if key in self._validation_plans:
            return self._validation_plans[key]
        samplers = self.samplers(dataset, max_tokens, max_sentences)
        limits = {each.objective: self.validation_limit(each.objective) for each in samplers}
        plan = [spec for each in samplers for spec in validation_plan([each], limits[each.objective])]
        split = next((name for name, each in self.datasets.items() if each is dataset), None)
        if split is None:  # text of a command, which is read once
            return plan
        self._validation_plans[key] = plan
        used = sum(number_of_examples([each], limits[each.objective]) for each in samplers)
        every = number_of_examples(samplers)
        if used < every:
            logger.info(
                "validation on %s reads a fixed sample: %s of %s examples, at most %s of each %s "
                "(--validation-examples; 0: all)",
                *(split, f"{used:,}", f"{every:,}", f"{max(limits.values()):,}", self.group_name),
            )
        return plan
