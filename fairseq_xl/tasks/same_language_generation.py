"""Same-language generation: fine-tune on any languages, generate in any; denoise with a pre-trained model."""

from dataclasses import dataclass
from typing import Any, Optional

from fairseq.tasks import register_task

from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.io.options import option, option_name, run_option
from fairseq_xl.models.denoising import XLDenoisingModel
from fairseq_xl.objectives.corrupted_lines import DenoisedGeneration
from fairseq_xl.objectives.generation import Generation
from fairseq_xl.objectives.objective_options import config_of
from fairseq_xl.objectives.task_file_objectives import FilesOptions, check_languages
from fairseq_xl.objectives.translation_scores import TranslationScorer
from fairseq_xl.tasks.seq2seq import XLSeq2SeqConfig, XLSeq2SeqTask


@dataclass
class XLGenerationConfig(FilesOptions, XLSeq2SeqConfig):
    """Options of `xl_generation`."""

    length: Optional[int] = option(
        None,
        "maximum length of a source, in tokens; the rest is truncated (default: as in the fine-tuning of "
        "the checkpoint; in training --max-positions of the model)",
    )
    eval_bleu: bool = option(
        False,
        "in validation, generate greedily; log lower-cased BLEU of each language, their mean `bleu`, `bleu_zero-shot`, "
        "the mean of the languages that are not in train_langs, the percentage of outputs in a wrong language and the "
        "length ratio",
    )
    best_by_language: bool = option(
        False,
        "also save checkpoint_best_LANGUAGE.pt, with the best --best-checkpoint-metric of each validated language; of "
        "bleu also checkpoint_best_zero-shot.pt, with the best bleu_zero-shot",
    )
    denoise: Optional[str] = option(
        None,
        "objective, xdae or xfnp: corrupt the lines of TASK_FILES/SPLIT.LANGUAGE with its noise, and "
        "restore them with a model pre-trained by it",
    )
    objective_options: Optional[str] = option(
        None,
        "options of the objective of --denoise: 'xdae.noise=mask xdae.word_mask_prob=0.3' (default: as in "
        "the pre-training of the checkpoint)",
    )
    corrupted_to: Optional[str] = option(
        None,
        "folder for the text of --denoise: SPLIT.LANGUAGE.src, the corrupted lines, and "
        "SPLIT.LANGUAGE.tgt, the clean lines",
    )


@register_task("xl_generation", dataclass=XLGenerationConfig)
class XLGenerationTask(XLSeq2SeqTask):
    """Writes titles, questions and summaries in the text's language (Liang et al. 2020, sections 2.2 and 6)."""

    criterion = "xl_generation"
    objective_name = "generation"
    model_class = XLDenoisingModel

    def __init__(self, cfg: Any, dictionary: XLDictionary) -> None:
        super().__init__(cfg, dictionary)
        check_languages(cfg, option_name, dictionary)
        self.length = cfg.length  # None: as in the fine-tuning of the checkpoint, or --max-positions
        self.build_objectives()

    def build_objectives(self, noise_options: str | None = None) -> None:
        """Builds the objective with the options of the task; `noise_options`: of the pre-training, for --denoise."""
        self.reset_plans()
        smoothing = run_option(self.cfg, "criterion.label_smoothing", 0.0)
        config = config_of(Generation, self.cfg, vars(FilesOptions()), length=self.length, label_smoothing=smoothing)
        arguments = config, self.dictionary, self.framing
        if self.cfg.denoise:
            settings = self.cfg.denoise, self.cfg.objective_options, noise_options, self.cfg.corrupted_to
            self.objectives = {"generation": DenoisedGeneration(*arguments, *settings)}
        else:
            self.objectives = {"generation": Generation(*arguments, named=False)}
        if self.cfg.eval_bleu:
            languages, trained = (self.objective.languages_of(split) for split in ("valid", "train"))
            self.objective.scorer = TranslationScorer(
                *(self.dictionary, self.folder(), languages),
                lowercase=True,
                zero_shot=[code for code in languages if code not in trained],
            )

    def identity(self) -> dict[str, Any]:
        """The base identity with the training languages and the maximum source length."""
        return super().identity() | {"writes": self.objective.languages_of("train"), "length": self.length}

    def check_trained(self, identity: dict[str, Any], path: str) -> None:
        """Raises `UserError` unless a checkpoint was fine-tuned or, for --denoise, pre-trained with that objective."""
        if not self.cfg.denoise and "writes" not in identity:
            raise UserError(f"{path} was not fine-tuned by xl_generation: start fine-tuning from it with --init-from")
        trained = identity.get("objectives", "")
        if self.cfg.denoise and self.cfg.denoise not in trained.split(","):
            training = f"with {trained}" if trained else f"by {identity['task']}"
            raise UserError(f"{path} was trained {training}, not with {self.cfg.denoise}, which --denoise names")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As the base class; without --length, sources are truncated as in fine-tuning.

        Later positions were not trained. With several models, they are truncated to the shortest length.
        """
        super().load_state_dict(state_dict)
        identity = state_dict["fairseq_xl"]
        if self.cfg.length is None and not self.cfg.denoise:
            self.length = min(filter(None, (self.length, identity.get("length"))), default=None)
        self.build_objectives(identity.get("objective_options"))  # in the checkpoint's framing

    def metrics(self) -> list[str]:
        """Names of the validation metrics: `ppl`, `loss`, and those of the objective."""
        languages, scorer = self.objective.languages_of("valid"), self.objective.scorer
        scores = scorer.metrics({"bleu": languages}) if scorer else []
        return ["ppl", "loss", *self.objective.metric_names(languages), *scores]

    def check_architecture(self, cfg: Any) -> None:
        """As the base class; sets the lengths to which texts are truncated, and compares them with the model's."""
        super().check_architecture(cfg)
        self.objective.check_model(cfg)

    def build_generator(self, models: Any, args: Any, *generator_args: Any, **options: Any) -> Any:
        """The generator of the base class; raises `UserError` for --score-reference."""
        if getattr(args, "score_reference", False):
            raise UserError(
                "--score-reference is not supported by xl_generation: fairseq-validate logs the perplexity of the "
                "references"
            )
        return super().build_generator(models, args, *generator_args, **options)

    @property
    def inference_pair(self) -> tuple[str, str]:
        """The language of input and output, twice; raises `UserError` if --eval-langs names several."""
        return self.pair or (self.objective.generated_language,) * 2
