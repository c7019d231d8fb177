"""Unsupervised translation: denoising and online back-translation (Lample & Conneau 2019, section 4.2)."""

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Optional

import numpy as np
import torch
from fairseq.dataclass import ChoiceEnum
from fairseq.logging import metrics
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks import register_task
from torch import Tensor

from fairseq_xl.checkpoints.stacks import LAYERS
from fairseq_xl.data import tokenizers
from fairseq_xl.data.dictionary import UNMARKED, XLDictionary
from fairseq_xl.data.monolingual import TokenStream
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.translations import LanguageGuess, Statistics, scores, statistics
from fairseq_xl.models.denoising import XLDenoisingModel
from fairseq_xl.objectives import build_objectives
from fairseq_xl.objectives.base import Batch
from fairseq_xl.tasks.base import run_config
from fairseq_xl.tasks.pretraining import XLPretrainingConfig, XLPretrainingTask
from fairseq_xl.tasks.seq2seq import InitialWeightsConfig, initial_weights

logger = logging.getLogger(__name__)

COUNTED_TOKENS = 1_000_000  # of each language's training text, for the frequencies of its pieces
#: kinds of translations that validation scores, and the names of their BLEU
BLEU_NAMES = {"translation": "bleu", "back_translation": "round_trip_bleu"}
#: noise, length and loss weights after the released command; differences: recipes/papers.md, X11
OBJECTIVE_OPTIONS = (
    "xdae.noise=shuffle+drop+mask xdae.sample_break_mode=eos xdae.length=100 xdae.alpha=0 "
    "xdae.weight=0:1,400000:0.1,1200000:0"
)


@dataclass
class XLUnsupervisedTranslationConfig(InitialWeightsConfig, XLPretrainingConfig):
    """Options of `xl_unsupervised_translation`."""

    objectives: str = field(
        default="xdae,back_translation",
        metadata={"help": "objectives, separated by commas; with translation, parallel text is used as well"},
    )
    objective_options: Any = field(
        default=None,
        metadata={
            "help": f"options of objectives, separated by spaces; the others default to '{OBJECTIVE_OPTIONS}' (the "
            "released command of Lample & Conneau 2019; its updates times 4, for two objectives and two languages)"
        },
    )
    init_decoder_layers: ChoiceEnum(LAYERS) = field(
        default="all",
        metadata={"help": "layers of a deeper checkpoint for the decoder: first or last (Luo et al. 2020)"},
    )


@register_task("xl_unsupervised_translation", dataclass=XLUnsupervisedTranslationConfig)
class XLUnsupervisedTranslationTask(XLPretrainingTask):
    """Trains translation between all languages of --langs in one model, without parallel text.

    Validation translates the text. `bleu` is the mean BLEU of the directions for which the data folder has parallel
    validation text; `round_trip_bleu` compares monolingual validation sentences with their round trips and needs no
    parallel text (Lample et al. 2018a, section 4.3). For each direction it also logs the share
    of translations in a wrong language and the ratio of their length to that of the source.
    """

    splits_of_pairs = ("train", "valid")
    default_objective_options = OBJECTIVE_OPTIONS
    objectives: dict[str, Any]  # Any: validation calls a method of `BackTranslation`

    def __init__(self, cfg: Any, dictionary: XLDictionary):
        super().__init__(cfg, dictionary)
        if dictionary.word_mark is None:
            raise UserError(f"{self.folder() / 'dict.txt'}: {UNMARKED}, so validation cannot write text for BLEU")
        self.weight_files = initial_weights(cfg)

    def _build_objectives(self) -> None:
        self.codes = self._languages()
        if len(self.codes) < 2:
            found = ", ".join(self.codes) or "none"
            where = "--langs names" if self.cfg.langs else f"{self.folder()} has text of"
            raise UserError(f"unsupervised translation needs text of two languages or more; {where} {found}")
        super()._build_objectives()
        self.directions = ["-".join(pair) for pair in itertools.permutations(self.codes, 2)]
        self.added = [name for name in BLEU_NAMES if name not in self.objectives]  # for validation only
        if "translation" in self.added and not self.language_pairs("valid"):
            self.added.remove("translation")
        for name in self.added:
            options = " ".join(filter(None, (self.cfg.objective_options, f"{name}.weight=0")))
            self.objectives |= build_objectives(name, options, self.dictionary, self.framing)
            self.objectives[name].set_languages(self.codes)

    def identity(self) -> dict[str, Any]:
        """The identity of pre-training, and the directions that the model is trained for, as in `xl_translation`."""
        return super().identity() | {"lang_pairs": self.directions}

    def language_pairs(self, split: Optional[str] = "train") -> list[str]:
        """The language pairs of the data folder whose two languages are both trained."""
        return [pair for pair in super().language_pairs(split) if set(pair.split("-")) <= set(self.codes)]

    # --- model -------------------------------------------------------------------------------------------------

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> XLDenoisingModel:
        """Builds the model; a new one starts from the weights of --init-*-from."""
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
        self.transfer_initial_weights(model, self.weight_files, from_checkpoint)
        return model

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
        """Opens the corpora of a split; warns of directions that the mean BLEU of validation leaves out."""
        try:
            super().load_dataset(split, *args, **kwargs)
        except UserError as error:
            if split != "test":
                raise
            raise UserError(f"{error}. fairseq-generate translates with --task xl_translation -s en -t de") from None
        if split == "train":
            return
        corpora = self.datasets[split].corpora
        pairs, languages = (corpora.get(name, {}) for name in BLEU_NAMES)
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
        names = [BLEU_NAMES[name] for name in self.objectives if name in BLEU_NAMES]
        kinds = (*names, "wrong_language", "length_ratio")
        scored = [f"{kind}_{direction}" for kind in kinds for direction in self.directions]
        return [*super().metrics(), *names, *scored]

    def valid_step(self, sample: dict[str, Any], model: Any, criterion: Any) -> tuple[Any, Any, dict[str, Any]]:
        """Computes the loss, and the statistics of the translations of a batch."""
        objective, batch = sample["objective"], sample["batch"]
        log = {f"{kind} {direction}": Statistics() for kind in BLEU_NAMES for direction in self.directions}
        if objective in BLEU_NAMES:
            translated = model(self.objectives["back_translation"].translated, batch)
            counted = self._statistics(objective, batch, translated, model)
            log |= {f"{objective} {direction}": counts for direction, counts in counted}
            if objective == "back_translation":
                sample = sample | {"batch": batch | {"source": translated}}
        loss, sample_size, logged = super().valid_step(sample, model, criterion)
        flat = {f"{key} {name}": count for key, counts in log.items() for name, count in counts._asdict().items()}
        return loss, sample_size, logged | flat

    def _statistics(
        self, objective: str, batch: Batch, translated: Batch, model: Any
    ) -> Iterator[tuple[str, Statistics]]:
        """Yields each direction of a batch and the `Statistics` of its translations.

        Args:
            translated: the batch with its translations as ``tokens``. Those of `back_translation` are translated back
                for BLEU; the other statistics are of the first translations.
        """
        names, judged, into = self.dictionary.languages, translated, batch["other_languages"]
        if objective == "back_translation":
            back = {"other_languages": batch["languages"]}
            judged, into = model(self.objectives["back_translation"].translated, translated | back), batch["languages"]
        into = [names[number] for number in into[:, 0].tolist()]
        hypotheses, references = self._plain(judged["tokens"], into), self._plain(batch["target"], into)
        sides = [[names[number] for number in batch[key][:, 0].tolist()] for key in ("languages", "other_languages")]
        sources, translations = (self._pieces(each["tokens"]) for each in (batch, translated))
        pairs = list(zip(*sides))
        for source, target in sorted(set(pairs)):
            rows = [row for row, pair in enumerate(pairs) if pair == (source, target)]
            yield (
                f"{source}-{target}",
                statistics(
                    [hypotheses[row] for row in rows],
                    [references[row] for row in rows],
                    into[rows[0]],
                    sum(len(translations[row]) for row in rows),
                    sum(len(sources[row]) for row in rows),
                    sum(self._guess.is_wrong(translations[row], target) for row in rows),
                ),
            )

    def _pieces(self, tokens: Tensor) -> list[np.ndarray]:
        """Rows (B, T) -> B arrays of their pieces, without special symbols."""
        return [row[self.dictionary.is_piece[row]] for row in tokens.cpu().numpy()]

    @cached_property
    def _tokenizers(self) -> dict[str, str]:
        return tokenizers.named_in(self.folder())

    def _plain(self, tokens: Tensor, codes: Sequence[str]) -> list[str]:
        """Rows (B, T) and their languages -> B lines of raw text, without ``<unk>``."""
        chosen = self._tokenizers
        mark = self.dictionary.word_mark
        texts = [self.dictionary.string(torch.from_numpy(row), mark) for row in self._pieces(tokens)]
        return [tokenizers.detokenize(text, chosen.get(code), code) for text, code in zip(texts, codes)]

    @cached_property
    def _guess(self) -> LanguageGuess:
        counts, size = {}, len(self.dictionary)
        for code in self.codes:
            stream = TokenStream(self.folder() / code / "train", code, size)
            counts[code] = np.bincount(stream.read(0, min(stream.size, COUNTED_TOKENS)), minlength=size)
        return LanguageGuess(counts)

    def reduce_metrics(self, logging_outputs: list[dict[str, Any]], criterion: Any) -> None:
        """Logs the losses and, in validation, the scores of translations."""
        super().reduce_metrics(logging_outputs, criterion)
        for kind, direction in itertools.product(BLEU_NAMES, self.directions):
            keys = [f"{kind} {direction} {name}" for name in Statistics._fields]
            sums = np.array([float(sum(log.get(key, 0) for log in logging_outputs)) for key in keys])
            if sums.any():
                metrics.log_scalar(f"_{kind} {direction}", sums)  # fairseq adds up the batches
                self._log_scores(kind, direction)

    def _log_scores(self, kind: str, direction: str) -> None:
        """Logs the scores of a direction, and the mean BLEU over all directions."""

        def score(meters: dict[str, Any], direction: str, key: str) -> float:
            return scores(Statistics(*meters[f"_{kind} {direction}"].sum))[key]

        def found(key: str) -> Callable[[dict[str, Any]], float]:
            return lambda meters: score(meters, direction, key)

        def mean(meters: dict[str, Any]) -> float:
            scored = [other for other in self.directions if f"_{kind} {other}" in meters]
            return round(float(np.mean([score(meters, other, "bleu") for other in scored])), 2)

        metrics.log_derived(f"{BLEU_NAMES[kind]}_{direction}", found("bleu"))
        metrics.log_derived(BLEU_NAMES[kind], mean)
        if kind == "back_translation":
            metrics.log_derived(f"wrong_language_{direction}", found("wrong_language"))
            metrics.log_derived(f"length_ratio_{direction}", found("length_ratio"))
