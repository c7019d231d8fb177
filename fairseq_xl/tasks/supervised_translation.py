"""Supervised translation from pre-trained encoders and decoders."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, cast

import numpy as np
import torch
from fairseq.tasks import register_task
from omegaconf import OmegaConf

from fairseq_xl.checkpoints import published_models
from fairseq_xl.checkpoints.layouts.exported_folders import fairseq_checkpoint
from fairseq_xl.checkpoints.transfer import Pretrained
from fairseq_xl.data.corpora.text_pairs import LONGEST, TextPairs
from fairseq_xl.data.framing import Framing
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.special_symbols import check_direction
from fairseq_xl.engine.epochs import Epochs
from fairseq_xl.engine.initial_weights import (
    transfer_weights,
    without_cross_attention,
)
from fairseq_xl.engine.interfaces import run_config, run_option
from fairseq_xl.errors import UserError, names_of
from fairseq_xl.io.configuration import FAIRSEQ_CRITERIONS
from fairseq_xl.io.options import option
from fairseq_xl.models.config import EncoderDecoderConfig
from fairseq_xl.objectives.data_folder import PAIR
from fairseq_xl.objectives.objective_options import config_of
from fairseq_xl.objectives.translation import DirectionOptions, Translation
from fairseq_xl.objectives.translation_scores import TranslationScorer
from fairseq_xl.tasks.planned_batches import EvaluationDataset, PlannedBatches
from fairseq_xl.tasks.seq2seq import XLSeq2SeqConfig, XLSeq2SeqTask

logger = logging.getLogger(__name__)


@dataclass
class XLTranslationConfig(DirectionOptions, XLSeq2SeqConfig):
    """Options of `xl_translation`."""

    lang_pairs: Optional[str] = option(
        None, "training directions, separated by commas: en-de,de-en (default: -s and -t)"
    )
    source_lang: Optional[str] = option(
        None, "source language of generation or of a single direction", argparse_alias="-s"
    )
    target_lang: Optional[str] = option(
        None, "target language of generation or of a single direction", argparse_alias="-t"
    )
    eval_bleu: bool = option(
        False,
        "in validation, translate greedily; log BLEU of each direction, their mean `bleu`, the percentage "
        "of translations in a wrong language and the length ratio",
    )
    random_cross_attention: bool = option(
        False,
        "leave cross-attention and its layer normalization random, though the checkpoint of "
        "--init-decoder-from has them: a control for models whose pre-training trains them",
    )


@register_task("xl_translation", dataclass=XLTranslationConfig)
class XLTranslationTask(XLSeq2SeqTask):
    """Translation in one or several directions (Lample & Conneau 2019, section 4.3)."""

    criterion = "xl_translation"
    other_criterions = FAIRSEQ_CRITERIONS
    objective_name, group_name = "translation", "direction"

    def __init__(self, cfg: Any, dictionary: XLDictionary) -> None:
        super().__init__(cfg, dictionary)
        if bool(cfg.source_lang) != bool(cfg.target_lang):
            raise UserError("give both --source-lang and --target-lang, or neither")
        single = f"{cfg.source_lang}-{cfg.target_lang}" if cfg.source_lang else None
        names = names_of("--lang-pairs", cfg.lang_pairs) if cfg.lang_pairs else [single] if single else []
        if not names:
            raise UserError("name the direction: -s en -t de, or --lang-pairs en-de,de-en")
        if wrong := [name for name in names if not PAIR.fullmatch(name)]:
            raise UserError(f"--lang-pairs {cfg.lang_pairs}: {wrong[0]} is no pair such as en-de")
        if cfg.random_cross_attention and not cfg.init_decoder_from:
            raise UserError("--random-cross-attention needs --init-decoder-from")
        self.reported_truncations = []  # datasets whose truncated lines a warning has listed
        self.trained_directions = None  # of the evaluated checkpoint
        self.lang_pairs = [tuple(name.split("-")) for name in names]
        self.pair: Any = (cfg.source_lang, cfg.target_lang) if single else self.lang_pairs[0]
        self.scorer = TranslationScorer(dictionary, self.folder(), names) if cfg.eval_bleu else None
        self.build_objectives()

    def build_objectives(self) -> None:
        """Builds the objective with the options of task and criterion."""
        self.reset_plans()
        options = config_of(
            Translation,
            self.cfg,
            vars(DirectionOptions()),
            directions=",".join(map("-".join, self.lang_pairs)),
            alpha=1 / self.cfg.sampling_temperature,
            label_smoothing=run_option(self.cfg, "criterion.label_smoothing", 0.0),
        )
        self.objectives = {"translation": Translation(options, self.dictionary, self.framing, named=False)}
        self.objective.test_direction = "-".join(self.inference_pair) if self.cfg.source_lang else None
        self.objective.scorer = self.scorer

    @property
    def inference_pair(self) -> tuple[str, str]:
        """The direction of -s and -t, or else the first one."""
        pair: tuple[str, str] = self.pair
        return pair

    def identity(self) -> dict[str, Any]:
        """The base identity with the translation directions: of a loaded checkpoint, those of its training."""
        return super().identity() | {"lang_pairs": self.trained_directions or list(map("-".join, self.lang_pairs))}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Checks a checkpoint's identity, and that it was trained for the directions of this run."""
        super().load_state_dict(state_dict)
        path = state_dict.get("path", "the checkpoint")
        trained = state_dict["fairseq_xl"].get("lang_pairs")
        if trained is None:
            raise UserError(f"{path} is not a translation model: train one from it with --init-encoder-from")
        self.trained_directions = trained
        self.build_objectives()
        for source, target in dict.fromkeys((self.inference_pair, *self.lang_pairs)):
            if not check_direction(trained, source, target, path):
                logger.warning("%s was not trained for %s-%s: zero-shot translation", path, source, target)

    def describe_batch(self, sample: Any) -> str:
        """The task and the directions of a batch, for messages."""
        batch, names = sample["batch"], self.dictionary.languages
        pairs = torch.cat((batch["languages"], batch["other_languages"]), dim=1).unique(dim=0).tolist()
        return f"{self.cfg._name} of {','.join(f'{names[source]}-{names[target]}' for source, target in pairs)}"

    def options_without_effect(self, run: Any) -> dict[str, str]:
        """As the base class; -s and -t name the direction of generation, --lang-pairs those of a training."""
        unused = super().options_without_effect(run)
        if self.cfg.lang_pairs and self.cfg.source_lang:
            unused[f"-s {self.cfg.source_lang} -t {self.cfg.target_lang}"] = "--lang-pairs names the directions"
        return unused

    # --- model -------------------------------------------------------------------------------------------------

    def check_architecture(self, cfg: Any) -> None:
        """As the base class; raises `UserError` for an encoder."""
        super().check_architecture(cfg)
        if not hasattr(cfg, "share_embeddings"):
            name = getattr(cfg, "_name", None) or cfg.arch
            raise UserError(
                f"--arch {name}: xl_translation runs encoder-decoders of xl_mt_* and xl_unmt_*, such as xl_mt_tiny"
            )

    def adapt_pretrained(self, pretrained: Pretrained, model: Any) -> Pretrained:
        """Removes cross-attention from the decoder's checkpoint with --random-cross-attention."""
        is_random = self.cfg.random_cross_attention and pretrained.path == self.cfg.init_decoder_from
        return without_cross_attention(pretrained) if is_random else pretrained

    def checkpoint_of(self, path: str) -> dict[str, Any] | None:
        """Converts XLM's published translation model, the file `path`, to a checkpoint; None for any other file.

        Raises `UserError` for a published encoder without a decoder.
        """
        published = published_models.read(path) if Path(path).suffix == published_models.XLM_SUFFIX else None
        if not isinstance(published, published_models.Published):
            return None
        depths = {f"{stack}_layers": depth for stack, depth in published.depths.items()}
        if "decoder_layers" not in depths:
            raise UserError(f"{path} holds no decoder; use --init-encoder-from to start a translation model from it")
        options: dict[str, Any] = {name: value for name, value in published.options.items() if name != "framing"}
        model_cfg = vars(EncoderDecoderConfig(_name="xl_mt_big", **(options | depths)))
        cfg = OmegaConf.create({"task": OmegaConf.to_container(self.cfg), "model": model_cfg})
        self.framing = Framing.of(published.options["framing"], self.dictionary)
        model = self.build_model(cfg.model, from_checkpoint=True)
        transfer_weights(self, model, {"encoder": path, "decoder": path})
        directions = [f"{a}-{b}" for a in published.languages for b in published.languages if a != b]
        identity = self.identity() | {"lang_pairs": directions or ["-".join(self.inference_pair)]}
        return fairseq_checkpoint(cast(Any, cfg), model.state_dict()) | {"task_state": {"fairseq_xl": identity}}

    # --- validation --------------------------------------------------------------------------------------------

    def metrics(self) -> list[str]:
        """Names of the validation metrics: the criterion's and, with --eval-bleu, the scores of translations."""
        criterion = run_config(self.cfg).criterion
        smoothed = criterion._name != "cross_entropy" or criterion.sentence_avg
        accuracy = ["accuracy"] if criterion.get("report_accuracy") else []
        scores = self.scorer.metrics({"bleu": self.scorer.directions}) if self.scorer else []
        perplexities = [f"ppl_{'-'.join(pair)}" for pair in self.lang_pairs] if self._has_own_criterion() else []
        return ["loss", *(["nll_loss"] if smoothed else []), "ppl", *perplexities, *accuracy, *scores]

    # --- data --------------------------------------------------------------------------------------------------

    def dataset_class(self, trains: bool) -> type[PlannedBatches]:
        """The class of the data set of a split; fairseq's criterions need fairseq's samples."""
        return PlannedBatches if trains and self._has_own_criterion() else EvaluationDataset

    def _has_own_criterion(self) -> bool:
        return run_option(self.cfg, "criterion._name", self.criterion) == self.criterion

    def load_dataset(self, split: str, *args: Any, **kwargs: Any) -> None:
        """Opens the pairs; those of validation and tests have their sizes in memory, since they are truncated.

        Validation leaves out pairs with an empty side.
        """
        super().load_dataset(split, *args, **kwargs)
        if split == "train" and not self.evaluates:
            return
        corpora, validates = self.datasets[split].corpora["translation"], split.startswith(("train", "valid"))
        for name, pairs in corpora.items():
            corpora[name] = pairs.in_memory(pairs.filled if validates else None)

    def get_batch_iterator(
        self, dataset: PlannedBatches, *, max_positions: Any = None, max_tokens: int | None = None, **kwargs: Any
    ) -> Epochs:
        """fairseq hook: the batches of the plan, of pairs of at most `max_positions` tokens on each side.

        Longer pairs of training text are left out, other text is truncated; a warning says how many. Raises `UserError`
        for a line above --max-tokens, or if no training pair is short enough.
        """
        corpora = dataset.corpora["translation"].values()
        if not all(isinstance(corpus, TextPairs) for corpus in corpora):
            longest = min(max_positions or (LONGEST, LONGEST))
            try:
                sum(corpus.mean_size(longest) for corpus in corpora)
            except UserError as error:
                raise UserError(
                    f"no training pair fits {max_positions} tokens (source, target), the smaller of --max-tokens "
                    f"{max_tokens} and --max-positions: raise the smaller one ({error})"
                ) from None
            return super().get_batch_iterator(dataset, max_tokens=max_tokens, longest=longest, **kwargs)
        truncated = np.empty(0, dtype=int) if max_positions is None else self.truncate(dataset, max_positions)
        if len(truncated) and dataset not in self.reported_truncations:
            self.reported_truncations.append(dataset)
            logger.warning(
                "%d lines have more than %s tokens (source, target) and are truncated; the first: %s",
                *(len(truncated), tuple(max_positions), (truncated[:10] + 1).tolist()),
            )
        self.check_longest(dataset, max_tokens, "a line")
        return super().get_batch_iterator(dataset, max_tokens=max_tokens, **kwargs)
