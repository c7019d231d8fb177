"""Unsupervised translation: denoising and online back-translation (Lample & Conneau 2019, section 4.2)."""

import itertools
import logging
from dataclasses import dataclass
from typing import Any

from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks import register_task

from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.engine.initial_weights import InitialWeightsConfig, initial_weights, transfer_initial_weights
from fairseq_xl.errors import UserError
from fairseq_xl.io.options import option, run_config
from fairseq_xl.models.denoising import XLDenoisingModel
from fairseq_xl.objectives import build_objectives
from fairseq_xl.objectives.data_folder import DataFolder
from fairseq_xl.objectives.translation import DirectedTranslation
from fairseq_xl.objectives.translation_scores import TranslationScorer
from fairseq_xl.tasks.pretraining import XLPretrainingConfig, XLPretrainingTask

logger = logging.getLogger(__name__)

SCORED = ("translation", "back_translation")  # objectives whose translations are scored in validation
#: noise, length and loss weights after the released command; differences: recipes/papers.md, X11
OBJECTIVE_OPTIONS = (
    "xdae.noise=shuffle+drop+mask xdae.sample_break_mode=eos xdae.length=100 xdae.alpha=0 "
    "xdae.weight=0:1,400000:0.1,1200000:0"
)


@dataclass
class XLUnsupervisedTranslationConfig(InitialWeightsConfig, XLPretrainingConfig):
    """Options of `xl_unsupervised_translation`."""

    objectives: str = option(
        "xdae,back_translation", "objectives, separated by commas; with translation, parallel text is used as well"
    )
    objective_options: Any = option(
        None,
        f"options of objectives, separated by spaces; the others default to '{OBJECTIVE_OPTIONS}' (the "
        "released command of Lample & Conneau 2019; its updates times 4, for two objectives and two languages)",
    )


@register_task("xl_unsupervised_translation", dataclass=XLUnsupervisedTranslationConfig)
class XLUnsupervisedTranslationTask(XLPretrainingTask):
    """Trains translation between all languages of --langs in one model, without parallel text.

    Validation translates the text. `bleu` is the mean BLEU of the directions for which the data folder has parallel
    validation text; `round_trip_bleu` compares monolingual validation sentences with their round trips and needs no
    parallel text (Lample et al. 2018a, section 4.3). For each direction training and validation log the share of
    translations in a wrong language and the ratio of their length to that of the source.
    """

    pair_splits = ("train", "valid")
    default_objective_options = OBJECTIVE_OPTIONS

    def __init__(self, cfg: Any, dictionary: XLDictionary):
        super().__init__(cfg, dictionary)
        self.weight_files = initial_weights(cfg)

    def build_objectives(self) -> None:
        """Builds the objectives and those of validation, which share a `TranslationScorer`."""
        self.codes = self.first_folder.languages()
        if len(self.codes) < 2:
            codes = ", ".join(self.codes) or "none"
            where = "--langs names" if self.cfg.langs else f"{self.folder()} has text of"
            raise UserError(f"unsupervised translation needs text of two languages or more; {where} {codes}")
        super().build_objectives()
        if any(isinstance(objective, DirectedTranslation) for objective in self.objectives.values()):
            raise UserError("--objective-options translation.directions: leave it out, all are trained")
        self.directions = ["-".join(pair) for pair in itertools.permutations(self.codes, 2)]
        self.scorer = TranslationScorer(self.dictionary, self.folder(), self.directions)
        self.added = [name for name in SCORED if name not in self.objectives]  # for validation only
        if "translation" in self.added and not self.first_folder.pairs("valid"):
            self.added.remove("translation")
        for name in self.added:
            options = " ".join(filter(None, (self.cfg.objective_options, f"{name}.weight=0")))
            self.objectives |= build_objectives(name, options, self.dictionary, self.framing)
            self.objectives[name].set_languages(self.codes)
        for name in SCORED:
            if name in self.objectives:
                self.objectives[name].scorer = self.scorer

    def data_folder(self, epoch: int = 1, folder: Any = None) -> DataFolder:
        """The data folder, with the pairs of trained languages."""
        data_folder = super().data_folder(epoch, folder)
        data_folder.pair_languages = data_folder.languages()
        return data_folder

    def identity(self) -> dict[str, Any]:
        """The identity of pre-training with the translation directions, as in `xl_translation`."""
        return super().identity() | {"lang_pairs": self.directions}

    # --- model -------------------------------------------------------------------------------------------------

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> XLDenoisingModel:
        """As the base class; raises `UserError` for an architecture that objectives do not train."""
        if not from_checkpoint:
            self._check_selection()
        self.check_architecture(cfg)
        name = getattr(cfg, "_name", None) or cfg.arch
        if not issubclass(ARCH_MODEL_REGISTRY[name], XLDenoisingModel):
            raise UserError(
                f"--arch {name}: unsupervised translation needs an encoder-decoder that objectives train, such as "
                "xl_unmt_tiny"
            )
        for name in self.added:
            settings = self.objectives[name].cfg
            settings.length = min(settings.length, cfg.max_positions - 1)
        model: XLDenoisingModel = super().build_model(cfg, from_checkpoint)
        return model

    def initialize(self, model: Any, from_checkpoint: bool) -> None:
        """Copies the weights of --init-* to a new model."""
        self.language_module.set_trains_body(model)
        transfer_initial_weights(self, model, self.weight_files, from_checkpoint)

    def _check_selection(self) -> None:
        """Raises `UserError` if --best-checkpoint-metric is `bleu` and there is no parallel validation text."""
        run = run_config(self.cfg)
        if run is None or run.dataset.disable_validation or "bleu" in self.metrics():
            return
        if run.checkpoint.best_checkpoint_metric == "bleu":
            codes = ",".join(self.codes)
            raise UserError(
                f"--best-checkpoint-metric bleu: {self.folder()} has no parallel validation text of {codes}; use "
                "--best-checkpoint-metric round_trip_bleu"
            )

    # --- validation --------------------------------------------------------------------------------------------

    def load_dataset(self, split: str, *args: Any, **kwargs: Any) -> None:
        """Opens the corpora of a split; warns of directions without BLEU in validation."""
        try:
            super().load_dataset(split, *args, **kwargs)
        except UserError as error:
            if split != "test":
                raise
            raise UserError(f"{error}. fairseq-generate translates with --task xl_translation -s en -t de") from None
        if split == "train":
            self.scorer.prepare()
            return
        corpora = self.datasets[split].corpora
        pairs, languages = (corpora.get(name, {}) for name in SCORED)
        lacking: dict[str, list[str]] = {"bleu": [], "round_trip_bleu": []}
        for source, target in itertools.permutations(self.codes, 2):
            if pairs and not {f"{source}-{target}", f"{target}-{source}"} & pairs.keys():
                lacking["bleu"].append(f"{source}-{target}")
            if source not in languages:
                lacking["round_trip_bleu"].append(f"{source}-{target}")
        parts = [f"{name} of {', '.join(names)}" for name, names in lacking.items() if names]
        if parts:
            logger.warning("the split %r has no text for %s", split, " and ".join(parts))

    def metrics(self) -> list[str]:
        """Names of the validation metrics: those of pre-training, and the scores of translations."""
        pairs, languages = self.first_folder.pairs("valid"), self.first_folder.languages("valid")
        parallel = [name for pair in pairs for name in (pair, "-".join(reversed(pair.split("-"))))]
        scored = {
            "bleu": [name for name in self.directions if name in parallel],
            "round_trip_bleu": [name for name in self.directions if name.split("-")[0] in languages],
        }
        return [*super().metrics(), *self.scorer.metrics(scored)]
