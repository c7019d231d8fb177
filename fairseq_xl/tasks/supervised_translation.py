"""Supervised translation from pre-trained encoders and decoders."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from fairseq.tasks import register_task
from omegaconf import OmegaConf

from fairseq_xl.checkpoints import published_models
from fairseq_xl.checkpoints.layouts.exported_folders import fairseq_checkpoint
from fairseq_xl.data.framing import Framing
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.engine.initial_weights import transfer_weights
from fairseq_xl.errors import UserError, names_of
from fairseq_xl.io.configuration import FAIRSEQ_CRITERIONS
from fairseq_xl.io.options import option, run_config, run_option
from fairseq_xl.models.model_options import EncoderDecoderConfig
from fairseq_xl.objectives.data_folder import PAIR
from fairseq_xl.objectives.objective_options import config_of
from fairseq_xl.objectives.translation import DirectedTranslation, DirectionOptions
from fairseq_xl.objectives.translation_scores import TranslationScorer
from fairseq_xl.tasks.planned_batches import EvaluationDataset, PlannedBatches
from fairseq_xl.tasks.seq2seq import XLSeq2SeqConfig, XLSeq2SeqTask


@dataclass
class XLTranslationConfig(DirectionOptions, XLSeq2SeqConfig):
    """Options of `xl_translation`."""

    lang_pairs: Optional[str] = option(None, "training directions, joined by commas: en-de,de-en (default: -s and -t)")
    source_lang: Optional[str] = option(None, "source language of generation or of one direction", argparse_alias="-s")
    target_lang: Optional[str] = option(None, "target language of generation or of one direction", argparse_alias="-t")
    eval_bleu: bool = option(
        False,
        "in validation, translate greedily; log BLEU of each direction, their mean `bleu`, the percentage "
        "of translations in a wrong language and the length ratio",
    )


@register_task("xl_translation", dataclass=XLTranslationConfig)
class XLTranslationTask(XLSeq2SeqTask):
    """Translation in one or several directions (Lample & Conneau 2019, section 4.3)."""

    criterion = "xl_translation"
    other_criterions = FAIRSEQ_CRITERIONS
    objective_name, group_name = "translation", "direction"
    trained_directions: Optional[list[str]] = None  # of the evaluated checkpoint

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
        self.directions, self.pair = names, tuple((single or names[0]).split("-"))
        self.scorer = TranslationScorer(dictionary, self.folder(), names) if cfg.eval_bleu else None
        self.build_objectives()

    def build_objectives(self) -> None:
        """Builds the objective with the options of task and criterion."""
        self.reset_plans()
        options = config_of(
            DirectedTranslation,
            self.cfg,
            vars(DirectionOptions()),
            directions=",".join(self.directions),
            alpha=1 / self.cfg.sampling_temperature,
            label_smoothing=run_option(self.cfg, "criterion.label_smoothing", 0.0),
        )
        self.objectives = {"translation": DirectedTranslation(options, self.dictionary, self.framing, named=False)}
        self.objective.test_direction = "-".join(self.pair) if self.cfg.source_lang else None
        self.objective.scorer = self.scorer

    def identity(self) -> dict[str, Any]:
        """The base identity with the translation directions: of a loaded checkpoint, those of its training."""
        return super().identity() | {"lang_pairs": self.trained_directions or self.directions}

    def check_trained(self, identity: dict[str, Any], path: str) -> None:
        """Raises `UserError` for a model that does not translate."""
        if "lang_pairs" not in identity:
            raise UserError(f"{path} is not a translation model: train one from it with --init-from")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Checks a checkpoint's identity, and that it was trained for the directions of this run."""
        super().load_state_dict(state_dict)
        self.trained_directions = state_dict["fairseq_xl"]["lang_pairs"]
        self.build_objectives()
        self.objective.check_directions(self.trained_directions, state_dict.get("path", "the checkpoint"))

    def checkpoint_of(self, path: str) -> dict[str, Any] | None:
        """Converts XLM's published translation model to a checkpoint, and takes its framing; None for another file.

        Raises `UserError` for a published encoder without a decoder.
        """
        published = published_models.read(path) if Path(path).suffix == published_models.XLM_SUFFIX else None
        if not isinstance(published, published_models.Published):
            return None
        depths = {f"{stack}_layers": depth for stack, depth in published.depths.items()}
        if "decoder_layers" not in depths:
            raise UserError(f"{path} holds no decoder; use --init-from to start a translation model from it")
        options: dict[str, Any] = {name: value for name, value in published.options.items() if name != "framing"}
        model_cfg = vars(EncoderDecoderConfig(_name="xl_mt_big", **(options | depths)))
        cfg: Any = OmegaConf.create({"task": OmegaConf.to_container(self.cfg), "model": model_cfg})
        self.framing = Framing.of(published.options["framing"], self.dictionary)
        model = self.build_model(cfg.model, from_checkpoint=True)
        transfer_weights(self, model, {"encoder": path, "decoder": path})
        directions = [f"{a}-{b}" for a in published.languages for b in published.languages if a != b]
        identity = self.identity() | {"lang_pairs": directions or ["-".join(self.inference_pair)]}
        return fairseq_checkpoint(cfg, model.state_dict()) | {"task_state": {"fairseq_xl": identity}}

    def options_without_effect(self, run: Any) -> dict[str, str]:
        """As the base class; -s and -t name the direction of generation, --lang-pairs those of a training."""
        unused = super().options_without_effect(run)
        if self.cfg.lang_pairs and self.cfg.source_lang:
            unused[f"-s {self.cfg.source_lang} -t {self.cfg.target_lang}"] = "--lang-pairs names the directions"
        return unused

    def check_architecture(self, cfg: Any) -> None:
        """As the base class; sets the length of training pairs, and raises `UserError` for a model of other tasks."""
        super().check_architecture(cfg)
        if not hasattr(cfg, "share_embeddings"):
            name = getattr(cfg, "_name", None) or cfg.arch
            raise UserError(
                f"--arch {name}: xl_translation runs encoder-decoders of xl_mt_* and xl_unmt_*, such as xl_mt_tiny"
            )
        limits = cfg.max_positions, run_option(self.cfg, "dataset.max_tokens", None)
        self.objective.cfg.length = min(filter(None, limits))

    def metrics(self) -> list[str]:
        """Names of the validation metrics: the criterion's and, with --eval-bleu, the scores of translations."""
        criterion = run_config(self.cfg).criterion
        smoothed = criterion._name != "cross_entropy" or criterion.sentence_avg
        accuracy = ["accuracy"] if criterion.get("report_accuracy") else []
        scores = self.scorer.metrics({"bleu": self.directions}) if self.scorer else []
        perplexities = [f"ppl_{name}" for name in self.directions] if self._has_own_criterion() else []
        return ["loss", *(["nll_loss"] if smoothed else []), "ppl", *perplexities, *accuracy, *scores]

    def dataset_class(self, trains: bool) -> type[PlannedBatches]:
        """The class of the data set of a split; fairseq's criterions need fairseq's samples."""
        return PlannedBatches if trains and self._has_own_criterion() else EvaluationDataset

    def _has_own_criterion(self) -> bool:
        return run_option(self.cfg, "criterion._name", self.criterion) == self.criterion
