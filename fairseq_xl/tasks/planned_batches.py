"""Planned batches of all tasks, in training and in evaluation."""

import itertools
import logging
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import FairseqDataset
from torch.utils.data import Dataset

from fairseq_xl.data.corpora.mixed_corpus import MIXED
from fairseq_xl.data.corpora.text_pairs import TextPairs
from fairseq_xl.data.plan.epoch_plan import (
    SCHEDULES,
    BatchSpec,
    ObjectiveSampler,
    balance_ranks,
    number_of_examples,
    training_plan,
    validation_plan,
)
from fairseq_xl.data.plan.passes import ObjectivePass, PassPlan
from fairseq_xl.data.store.manifest import folder_of_epoch
from fairseq_xl.engine.epochs import Epochs, Plan
from fairseq_xl.engine.selection import check_selection
from fairseq_xl.engine.waiting import log_padding_and_waiting
from fairseq_xl.errors import UserError
from fairseq_xl.io.options import AUTO, run_config
from fairseq_xl.objectives.base import Objective
from fairseq_xl.objectives.data_folder import DataFolder, check_splits, open_other_shards
from fairseq_xl.objectives.task_file_objectives import FilesObjective
from fairseq_xl.tasks.base import XLTask

logger = logging.getLogger(__name__)


class PlannedBatches(Dataset[Any]):
    """Collates batches of a plan by objectives {name: objective} and corpora {objective: {language or pair: corpus}}.

    The index of an item is the `BatchSpec` of a whole batch, or None for {}.
    """

    def __init__(self, objectives: Mapping[str, Objective], corpora: dict[str, dict[str, Any]], split: str = ""):
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
    """Planned batches with the entries of fairseq's samples, for its generator, commands and criterions.

    A sample also has the entries of `Objective.net_input` and, for generation, ``constraints``
    and ``positions``: the predicted positions of each source, or None. Ids count lines through the corpora.
    """

    def __getitem__(self, batch_spec: BatchSpec | None) -> dict[str, Any]:
        sample = super().__getitem__(batch_spec)
        if batch_spec is None:
            return sample
        corpora = self.corpora[batch_spec.objective]
        corpus = corpora[batch_spec.corpus_name]
        if isinstance(corpus, TextPairs):
            earlier = itertools.takewhile(lambda item: item is not corpus, corpora.values())
            sample["id"] = sample["id"] + sum(len(item.sizes) for item in earlier)
            if corpus.constraints is not None:
                sample["constraints"] = torch.stack([corpus.constraints[line] for line in batch_spec.examples])
            if corpus.masked_positions is not None:
                sample["positions"] = [corpus.masked_positions[line] for line in batch_spec.examples]
        return sample | self.objectives[batch_spec.objective].net_input(sample["batch"])


class PlannedTask(XLTask):
    """Base of tasks with planned batches; a subclass sets `objectives`."""

    objectives: dict[str, Objective]
    datasets: dict[str, PlannedBatches]  # by split
    #: whether the files of a training have to be checked before its text is loaded
    files_unchecked = False
    #: a data folder has a pair if its bitext has one of these splits
    pair_splits: tuple[str, ...] = ("train",)
    #: the groups of examples that --validation-examples limits, for messages
    group_name = "language"
    #: {objective: {name of a corpus: number of times that a pass over the data reads its examples}}
    repeats: Mapping[str, Mapping[str, float]] = {}

    @property
    def schedule(self) -> str:
        """The order of the objectives."""
        return str(getattr(self.cfg, "schedule", SCHEDULES[0]))

    def data_folder(self, epoch: int = 1, folder: Path | None = None) -> DataFolder:
        """The `DataFolder` of an epoch, or of a folder."""
        folder = folder or folder_of_epoch(self.cfg.data, epoch)
        langs, lang, pairs = (getattr(self.cfg, name, None) for name in ("langs", "lang", "pairs"))
        return DataFolder(folder, self.dictionary, self.inputs, self.cfg.data, langs or lang, pairs, self.pair_splits)

    @cached_property
    def first_folder(self) -> DataFolder:
        """The first data folder, which determines languages and pairs."""
        return self.data_folder()

    def mixes(self, name: str) -> bool:
        """Whether training batches of an objective mix languages."""
        return self.objectives[name].mixes or self.cfg.updates_per_epoch == AUTO

    def objective_corpora(self) -> dict[str, list[str]]:
        """{objective: names of its corpora, and "mixed" if training batches mix them}."""
        items = self.objectives.items()
        return {name: objective.corpora(self.first_folder) + [MIXED] * self.mixes(name) for name, objective in items}

    def dataset_class(self, trains: bool) -> type[PlannedBatches]:
        """The class of the data set of a split."""
        return PlannedBatches

    def load_dataset(
        self, split: str, combine: bool = False, task_cfg: Any = None, epoch: int = 1, **kwargs: Any
    ) -> None:
        """Opens the corpora of the objectives, without languages and pairs that lack the split."""
        open_other_shards(self.cfg.data, epoch, split, self.datasets, self._open_texts)
        trains = split == "train" and not self.evaluates
        if self.files_unchecked:
            self._check_files()
        folder, corpora = self.data_folder(epoch), {}
        for name, objective in self._read_in(split).items():
            corpora[name] = objective.open(folder, split, trains, mixes=self.mixes(name))
            if not corpora[name]:  # in validation only, and there is no text
                del corpora[name]
        if trains:
            self.inputs.check_complete(split)
        if trains and self.cfg.updates_per_epoch == AUTO:
            self.repeats = {name: self.objectives[name].repeats(texts) for name, texts in corpora.items()}
        self.datasets[split] = self.dataset_class(trains)(self.objectives, corpora, split)

    def _read_in(self, split: str) -> dict[str, Objective]:
        """{name: objective} of a split; in training without those whose weight is always 0."""
        return {name: item for name, item in self.objectives.items() if item.is_trained or split != "train"}

    def _open_texts(self, folder: Path, split: str) -> None:
        """Opens the text of a data folder."""
        data_folder = self.data_folder(folder=folder)
        for objective in self._read_in(split).values():
            if not isinstance(objective, FilesObjective):
                objective.open(data_folder, split, trains=not self.evaluates)

    def _check_files(self) -> None:
        """Reads the files of a training before anything is encoded; raises `UserError` for their errors."""
        self.files_unchecked, run = False, run_config(self.cfg)
        if self.validated_splits and not run.dataset.ignore_unused_valid_subsets:
            check_splits(self.cfg.data, self.validated_splits)
        if any(isinstance(objective, FilesObjective) for objective in self.objectives.values()):
            check_selection(run, self)
        for objective in self.objectives.values():
            objective.check_files(self.first_folder, self.validated_splits)

    @property
    def validated_splits(self) -> list[str]:
        """The validation splits of a training."""
        dataset = run_config(self.cfg).dataset
        return [] if dataset.disable_validation else dataset.valid_subset.split(",")

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """As the base class; the files of a training are checked before its text is loaded."""
        model = super().build_model(cfg, from_checkpoint)
        self.files_unchecked = not from_checkpoint and run_config(self.cfg) is not None
        return model

    def check_trained(self, identity: dict[str, Any], path: str) -> None:
        """Raises `UserError` for a checkpoint, the file `path`, that was not trained with this task."""
        raise NotImplementedError(f"{type(self).__name__}.check_trained")

    # --- batches -----------------------------------------------------------------------------------------------

    def validation_limit(self, objective: str, dataset: PlannedBatches) -> int:
        """Maximum number of examples of a corpus of an objective that an evaluation reads; 0: all."""
        in_full = isinstance(dataset, EvaluationDataset) and not self.training_begun
        return 0 if in_full else int(self.cfg.validation_examples)

    def reset_plans(self) -> None:
        """Removes the plans of validation, which belong to the objectives, and the record of logged epochs."""
        self._validation_plans: dict[tuple[Any, ...], list[BatchSpec]] = {}
        self._logged_epochs: set[int] = set()

    def samplers(
        self, dataset: PlannedBatches, max_tokens: int | None, max_sentences: int | None, update: int | None = None
    ) -> list[ObjectiveSampler]:
        """A sampler for each objective; `update`: the epoch's first one, None in validation and in a pass."""
        samplers = []
        for name, corpora in dataset.corpora.items():
            objective, options = self.objectives[name], self.objectives[name].cfg
            length = objective.input_length if update is None else objective.input_length_at(update)
            tokens, sentences = options.batch_tokens, options.batch_sentences
            if tokens is None and sentences is None:
                tokens, sentences = max_tokens, max_sentences
            limits = length, tokens, sentences
            samplers.append(ObjectiveSampler(name, corpora, *limits, options.alpha, objective.lengths))
        return samplers

    def get_batch_iterator(
        self,
        dataset: PlannedBatches,
        *,
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
        """The batches of the plan: in an evaluation those of all examples once, or of a fixed sample.

        In `training` batches are sampled, or an epoch is a pass over the data.
        """
        limits = {"max_tokens": max_tokens, "max_sentences": max_sentences}

        def plan(epoch: int, ranks: int, micro_steps: int, logs: bool = True) -> Plan:
            """The plan of an epoch; `logs`: whether its shares of padding and of waiting are logged."""
            if not training:
                return self._validation_plan(dataset, limits)
            return self._training_plan(dataset, limits, seed, epoch, ranks, micro_steps, logs)

        is_pass = training and self.cfg.updates_per_epoch == AUTO
        return Epochs(
            dataset,
            plan,
            num_shards,
            shard_id,
            [int(count) for count in self.cfg.update_freq] if training else [1],
            keeps_layout=is_pass,
            keeps_updates=is_pass and len(dataset.corpora) > 1,
            pads=not self.evaluates,
            epoch=epoch,
            num_workers=num_workers,
            buffer_size=data_buffer_size,
        )

    def shard(self, dataset: PlannedBatches, num_shards: int, shard_id: int, **limits: Any) -> Epochs:
        """Every `num_shards`-th batch of an evaluation from `shard_id` on; raises `UserError` if there is none."""
        epochs = PlannedTask.get_batch_iterator(self, dataset, num_shards=num_shards, shard_id=shard_id, **limits)
        if shard_id >= len(epochs.specs):
            raise UserError(f"--shard-id {shard_id}: the text has {len(epochs.specs)} batches only")
        return epochs

    def _training_plan(
        self,
        dataset: PlannedBatches,
        limits: dict[str, Any],
        seed: int,
        epoch: int,
        ranks: int,
        micro_steps: int,
        logs: bool,
    ) -> Plan:
        """The plan of an epoch; the first call that `logs` logs its shares of padding and of waiting."""
        updates = self.cfg.updates_per_epoch
        if updates == AUTO:
            return self._pass(self.samplers(dataset, **limits), seed, epoch, ranks, micro_steps, logs)
        update = (epoch - 1) * updates
        samplers, schedule = self.samplers(dataset, update=update, **limits), self.schedule
        if schedule != "cycle":  # it needs all of them
            samplers = [sampler for sampler in samplers if self.objectives[sampler.objective].weight(update) > 0]
            if not samplers:
                raise UserError(f"the weights of all objectives are 0 from update {update} on: lower --max-update")
        layout = micro_steps, ranks
        if schedule == "cycle" and self.cfg.batches_per_update:  # the same order with any number of processes
            layout = len(samplers), micro_steps * ranks // len(samplers)
        unordered = training_plan(samplers, schedule, seed, epoch, updates, *layout)
        balanced = balance_ranks(unordered, micro_steps * ranks, seed, epoch)
        if logs and epoch not in self._logged_epochs:
            self._logged_epochs.add(epoch)
            before, after = (np.array([spec.tokens for spec in plan]) for plan in (unordered, balanced))
            log_padding_and_waiting(epoch, ranks, before, after, np.array([spec.padded_tokens for spec in balanced]))
        return balanced

    def _pass(
        self, samplers: list[ObjectiveSampler], seed: int, epoch: int, ranks: int, micro_steps: int, logs: bool
    ) -> Plan:
        """The plan of an epoch that has each example once."""
        per_update = ranks * micro_steps
        passes = [
            ObjectivePass(sampler, seed, epoch, per_update, self.repeats.get(sampler.objective), index)
            for index, sampler in enumerate(samplers)
        ]
        if logs and epoch not in self._logged_epochs:
            self._logged_epochs.add(epoch)
            specs = [spec for item in passes for spec in item.chunk(0)]
            tokens, padded = np.array([(spec.tokens, spec.padded_tokens) for spec in specs]).T
            total = sum(map(len, passes))
            share = f"; shares of {len(specs):,} of {total:,} batches" if len(specs) < total else ""
            log_padding_and_waiting(epoch, ranks, None, tokens, padded, share)
        return PassPlan(passes, seed, epoch, per_update) if len(passes) > 1 else passes[0]

    def _validation_plan(self, dataset: PlannedBatches, limits: dict[str, int | None]) -> list[BatchSpec]:
        """The plan of all validations on a dataset; the first call logs its share of the examples."""
        key = dataset, *limits.values(), self.training_begun
        if key in self._validation_plans:
            return self._validation_plans[key]
        samplers = self.samplers(dataset, **limits)
        maxima = {sampler.objective: self.validation_limit(sampler.objective, dataset) for sampler in samplers}
        plan = [spec for sampler in samplers for spec in validation_plan([sampler], maxima[sampler.objective])]
        split = next((name for name, item in self.datasets.items() if item is dataset), None)
        if split is None:  # text of a command, which is read once
            return plan
        self._validation_plans[key] = plan
        used = sum(number_of_examples([sampler], maxima[sampler.objective]) for sampler in samplers)
        total = number_of_examples(samplers)
        if used < total:
            logger.info(
                "validation on %s reads a fixed sample: %s of %s examples, at most %s of each %s "
                "(--validation-examples; 0: all)",
                *(split, f"{used:,}", f"{total:,}", f"{max(maxima.values()):,}", self.group_name),
            )
        return plan
