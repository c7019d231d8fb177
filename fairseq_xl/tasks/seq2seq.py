"""Base of translation and generation: raw input and beam search."""

import functools
import logging
import os
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf

from fairseq_xl.data.corpora.mixed_corpus import unmixed
from fairseq_xl.data.corpora.text_pairs import TextPairs
from fairseq_xl.data.vocabulary import tokenizers
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.engine.epochs import Epochs
from fairseq_xl.engine.initial_weights import InitialWeightsConfig, initial_weights, transfer_initial_weights
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.prediction_folders import Origin, write_origin
from fairseq_xl.io.options import option, option_name, run_config
from fairseq_xl.io.text import text_of_line
from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel
from fairseq_xl.models.frozen_parameters import FrozenConfig, freeze
from fairseq_xl.models.generation_options import check_generation, check_run
from fairseq_xl.models.generator import generate, generator_class, restrict
from fairseq_xl.objectives.corrupted_lines import fill_sources
from fairseq_xl.tasks.base import XLTaskConfig
from fairseq_xl.tasks.language_pieces import language_pieces
from fairseq_xl.tasks.planned_batches import EvaluationDataset, PlannedBatches, PlannedTask
from fairseq_xl.tasks.subword_bpe import XLSubwords

logger = logging.getLogger(__name__)


@dataclass
class XLSeq2SeqConfig(InitialWeightsConfig, FrozenConfig, XLTaskConfig):
    """Options of tasks that generate with fairseq's generator."""

    target_pieces_only: bool = option(
        False,
        "in generation, write only pieces of the target language: those that occur in its training text, "
        "with at least 1/20 of their share in the text of any other language",
    )


class XLSeq2SeqTask(PlannedTask):
    """Base of tasks with an encoder-decoder, fairseq's generator and a single objective."""

    generates = True
    #: name of the objective
    objective_name: str
    #: class of its models
    model_class: Any = XLEncoderDecoderModel
    pair: Any = None  # `inference_pair`, if it is set
    #: whether `_warn_of_unknown` has warned
    warned_of_unknown = False
    #: origins of the checkpoints of fairseq-generate, with --results-path
    origins: tuple[Origin, ...] = ()

    def __init__(self, cfg: Any, dictionary: XLDictionary) -> None:
        super().__init__(cfg, dictionary)
        self.weight_files = initial_weights(cfg)  # of a new model

    @property
    def objective(self) -> Any:
        """The objective."""
        return self.objectives[self.objective_name]

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Builds the model; a new one starts from the weights of --init-*."""
        model = super().build_model(cfg, from_checkpoint)
        if not isinstance(model, self.model_class):
            raise UserError(f"{self.cfg._name} needs {self.model_class.description}")
        if not from_checkpoint:
            freeze(model, self.cfg.freeze)
        transfer_initial_weights(self, model, self.weight_files, from_checkpoint)
        return model

    def dataset_class(self, trains: bool) -> type[PlannedBatches]:
        """The class of the data set of a split; fairseq's generator evaluates."""
        return PlannedBatches if trains else EvaluationDataset

    @property
    def inference_pair(self) -> tuple[str, str]:
        """Source and target language of fairseq-generate and fairseq-interactive."""
        return self.pair

    def describe_batch(self, sample: Any) -> str:
        """The task and the languages or directions of a batch, for messages."""
        batch, names = sample["batch"], self.dictionary.languages
        pairs = torch.cat((batch["languages"], batch["other_languages"]), dim=1).unique(dim=0).tolist()
        directions = ("-".join(dict.fromkeys((names[source], names[target]))) for source, target in pairs)
        return f"{self.cfg._name} of {','.join(directions)}"

    def resume_from(self, state: dict[str, Any], path: str) -> None:
        """As the base class; raises `UserError` for a checkpoint of another task."""
        super().resume_from(state, path)
        self.check_trained(state["task_state"]["fairseq_xl"], path)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As the base class and `check_trained`; with --results-path, stores the origin of the checkpoint."""
        super().load_state_dict(state_dict)
        self.check_trained(state_dict["fairseq_xl"], state_dict.get("path", "the checkpoint"))
        run = run_config(self.cfg)
        if run is not None and OmegaConf.select(run, "common_eval.results_path") and "path" in state_dict:
            self.origins = (*self.origins, Origin.from_checkpoint(state_dict["path"], self.cfg._name))

    # --- data --------------------------------------------------------------------------------------------------

    def get_batch_iterator(
        self, dataset: PlannedBatches, *, max_positions: Any = None, max_tokens: int | None = None, **kwargs: Any
    ) -> Epochs:
        """The batches of the plan; in fairseq-generate every n-th batch from --shard-id on, n of --num-shards.

        Text that is in memory is truncated (`truncate`); raises `UserError` if it is then longer than --max-tokens.
        """
        texts = list(unmixed(dataset.corpora[self.objective_name]).values())
        limits = kwargs | {"max_tokens": max_tokens}
        if all(isinstance(text, TextPairs) for text in texts):
            self.truncate(texts, max_positions)
            longest = max(int(text.sides_of(text.example_ids).max(initial=0)) for text in texts)
            if max_tokens is not None and longest > max_tokens:
                advice = "raise it or lower --length" if self.objective.longest else "raise it"
                raise UserError(f"a line has {longest} tokens, more than --max-tokens {max_tokens}: {advice}")
        if not self.evaluates:
            return super().get_batch_iterator(dataset, **limits)
        run = run_config(self.cfg)
        if any(text.targets is None for text in texts):
            for name in ("prefix_size", "score_reference"):
                if run.generation[name]:
                    raise UserError(f"{option_name(name)}: the text has no targets")
        shards, shard = (OmegaConf.select(run, f"dataset.{name}") for name in ("num_shards", "shard_id"))
        if shards in (None, 1):  # None: a checkpoint without this section
            return super().get_batch_iterator(dataset, **limits)
        return self.shard(dataset, **limits | {"num_shards": shards, "shard_id": shard})

    def truncate(self, texts: Sequence[TextPairs], max_positions: tuple[int, int] | None) -> None:
        """Truncates sources and targets to the limits of objective and models; a warning lists the longer lines."""
        limits = [longest for longest in (self.objective.longest, max_positions) if longest]
        if not limits:
            return
        longest = limits[0] if not self.evaluates else tuple(map(min, zip(*limits, strict=True)))
        truncated = np.concatenate([text.truncate(longest) for text in texts]) + 1
        if len(truncated):
            logger.warning(
                "%d lines have more than %s tokens (source, target) and are truncated; the first: %s",
                *(len(truncated), tuple(longest), truncated[:10].tolist()),
            )

    # --- generation --------------------------------------------------------------------------------------------

    def build_generator(
        self,
        models: Any,
        args: Any,
        seq_gen_cls: Any = None,
        extra_gen_cls_kwargs: dict[str, Any] | None = None,
        prefix_allowed_tokens_fn: Any = None,
    ) -> Any:
        """Builds `fairseq_xl.models.generator`; raises `UserError` for options without effect."""
        check_generation(args, len(self.dictionary))
        run = args._get_parent() if OmegaConf.is_config(args) else None
        if run is not None and OmegaConf.select(run, "common_eval.path"):  # a command, not the run of a checkpoint
            check_run(run, interactive=extra_gen_cls_kwargs is None)  # fairseq-generate passes a language model
            if self.origins:
                path = os.path.join(run.common_eval.results_path, f"generate-{run.dataset.gen_subset}.txt")
                write_origin(path, Origin.from_ensemble(self.origins))
        default, options = generator_class(args, models, self.dictionary)
        kwargs = options | (extra_gen_cls_kwargs or {})
        generator = super().build_generator(models, args, seq_gen_cls or default, kwargs, prefix_allowed_tokens_fn)
        if self.cfg.target_pieces_only and not args.score_reference:
            if args.constraints:
                raise UserError("--target-pieces-only does not work with --constraints, which may need other pieces")
            restrict(generator, self.language_pieces(self.inference_pair[1]))
        elif not args.score_reference and self.dictionary.is_padding.any():
            restrict(generator, ~self.dictionary.is_padding)
        return generator

    def language_pieces(self, language: str) -> Any:
        """The pieces of a language, by the training text of all data folders: (V,) bool."""
        return language_pieces(self.cfg.data.split(os.pathsep), self.dictionary, language)

    def build_tokenizer(self, args: Any) -> Any:
        """The tokenizer of raw lines and the detokenizer, the data folder's or --tokenizer; pieces stay as they are."""
        names = tokenizers.named_in(self.folder())
        source, target = self.inference_pair
        if not {source, target} & names.keys():
            return super().build_tokenizer(args)
        if args is not None:
            raise UserError(f"--tokenizer: leave it out, those of {self.folder() / 'manifest.json'} are applied")
        run, default = run_config(self.cfg), self.default_bpe
        always = run is None or run.bpe is not None

        def encode(line: str) -> str:
            raw = always or (default is not None and not default.is_in_pieces(line))
            return tokenizers.tokenize(line, names.get(source) if raw else None, source)

        decode = functools.partial(tokenizers.detokenize, name=names.get(target), language=target)
        return types.SimpleNamespace(encode=encode, decode=decode)

    @cached_property
    def default_bpe(self) -> XLSubwords | None:
        """The data folder's sub-words, for fairseq-interactive without --bpe; None if the folder has none."""
        run, (source, _) = run_config(self.cfg), self.inference_pair
        if run is None or not run.interactive.buffer_size:  # fairseq-interactive sets it to 1 or more
            return None
        return XLSubwords.from_folder(self.folder(), self.dictionary, source)

    def get_interactive_tokens_and_lengths(self, lines: Iterable[str], encode_fn: Callable[[str], str]) -> Any:
        """fairseq hook: encodes raw lines as `TextEncoder` does; text without a piece is ``<unk>``."""

        def encode(text: str) -> str:
            return text and (encode_fn(text) or self.dictionary.unk_word)

        return super().get_interactive_tokens_and_lengths(map(text_of_line, lines), encode)

    def build_dataset_for_inference(
        self, src_tokens: Any, src_lengths: Any, constraints: Any = None, **kwargs: Any
    ) -> EvaluationDataset:
        """The dataset of fairseq-interactive from sources that end in ``</s>``, and fairseq's packed --constraints."""
        self._warn_of_unknown(src_tokens)
        return self.build_dataset(src_tokens, None, self.inference_pair, constraints)

    def build_dataset(
        self,
        sources: Any,
        targets: Any,
        pair: tuple[str, str],
        constraints: Any = None,
        longest: tuple[int, int] | None = None,
    ) -> EvaluationDataset:
        """The dataset of source sentences and, if there are any, their targets, which end in ``</s>``.

        Args:
            pair: the codes of their languages.
            constraints: those of fairseq-interactive; None without.
            longest: numbers of tokens to which they are truncated; None: those of `truncate`.
        """
        sizes = np.ones((len(sources), 2), dtype=np.int64)
        for side, sentences in enumerate((sources, targets or ())):
            sizes[: len(sentences), side] = [len(sentence) for sentence in sentences]
        corpus = TextPairs(sources, targets, sizes, pair, constraints=constraints)
        if longest:
            corpus.truncate(longest)
        return EvaluationDataset(self.objectives, {self.objective_name: {"-".join(pair): corpus}})

    def _warn_of_unknown(self, src_tokens: Any) -> None:
        """Warns once if half or more of the input is ``<unk>``."""
        unknown = sum(int((tokens == self.dictionary.unk()).sum()) for tokens in src_tokens)
        total = sum(len(tokens) - 1 for tokens in src_tokens)  # without </s>
        if self.warned_of_unknown or 2 * unknown < max(total, 1):
            return
        self.warned_of_unknown = True
        logger.warning("%d of %d tokens of the input are <unk>", unknown, total)

    def inference_step(
        self, generator: Any, models: Any, sample: Any, prefix_tokens: Any = None, constraints: Any = None
    ) -> Any:
        """Runs beam search from the target language's symbol; predictions of masked tokens are put into the source."""
        inputs = {"prefix_tokens": prefix_tokens, "constraints": constraints}
        hypotheses = generate(generator, models, sample, self.dictionary, self.inference_pair, **inputs)
        return fill_sources(hypotheses, sample, self.dictionary.pad())
