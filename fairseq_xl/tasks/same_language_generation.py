"""Same-language generation: fine-tune on any languages, generate in any; denoise with a pre-trained model."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from fairseq.tasks import register_task

from fairseq_xl.data.corpora.text_pairs import TextPairs
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.engine.epochs import Epochs
from fairseq_xl.engine.interfaces import run_option
from fairseq_xl.errors import UserError
from fairseq_xl.io.options import option
from fairseq_xl.models.denoising import XLDenoisingModel
from fairseq_xl.objectives.base import OBJECTIVES
from fairseq_xl.objectives.corrupted_lines import fill_hypothesis, read_corrupted, write_corrupted
from fairseq_xl.objectives.data_folder import DataFolder
from fairseq_xl.objectives.generation import Generation
from fairseq_xl.objectives.objective_options import build_objectives, config_of, settings_as_text
from fairseq_xl.objectives.task_file_objectives import FilesOptions, named_languages
from fairseq_xl.tasks.planned_batches import EvaluationDataset, PlannedBatches
from fairseq_xl.tasks.seq2seq import XLSeq2SeqConfig, XLSeq2SeqTask

logger = logging.getLogger(__name__)


@dataclass
class XLGenerationConfig(FilesOptions, XLSeq2SeqConfig):
    """Options of `xl_generation`."""

    length: Optional[int] = option(
        None,
        "maximum length of a source, in tokens; the rest is truncated (default: as in the fine-tuning of "
        "the checkpoint; in training --max-positions of the model)",
    )
    init_from: Optional[str] = option(
        None, "fine-tune this xDAE or xFNP, or initialize encoder and decoder from this encoder"
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
    """Same-language generation of titles, questions and summaries (Liang et al. 2020, sections 2.2 and 6).

    The decoder starts from the language symbol; the language may be one without fine-tuning text.
    """

    criterion = "xl_generation"
    objective_name = "generation"

    def __init__(self, cfg: Any, dictionary: XLDictionary) -> None:
        super().__init__(cfg, dictionary)
        self.train_languages = named_languages("--train-langs", cfg.train_langs, dictionary)
        self.eval_languages = named_languages("--eval-langs", cfg.eval_langs, dictionary)
        self.valid_languages = self.eval_languages
        if cfg.valid_langs is not None:
            self.valid_languages = named_languages("--valid-langs", cfg.valid_langs, dictionary)
        self.length = cfg.length  # None: as in the fine-tuning of the checkpoint, or --max-positions
        self.denoiser: Any = self._denoiser() if cfg.denoise else None
        self.build_objectives()
        if cfg.init_from:
            self.weight_files |= {"encoder": cfg.init_from, "decoder": cfg.init_from}

    def build_objectives(self) -> None:
        """Builds the objective with the options of the task."""
        self.reset_plans()
        smoothing = run_option(self.cfg, "criterion.label_smoothing", 0.0)
        config = config_of(Generation, self.cfg, vars(FilesOptions()), length=self.length, label_smoothing=smoothing)
        self.objectives = {"generation": Generation(config, self.dictionary, self.framing, named=False)}

    def _denoiser(self, trained: str | None = None) -> Any:
        """The objective of --denoise, with the options of its pre-training and, over these, --objective-options."""
        names = [name for name, objective in OBJECTIVES.items() if objective.restores_text]
        if self.cfg.denoise not in names:
            raise UserError(f"--denoise {self.cfg.denoise}: choose one of {', '.join(sorted(names))}")
        options = " ".join(filter(None, (trained, settings_as_text(self.cfg.objective_options))))
        return build_objectives(self.cfg.denoise, options, self.dictionary, self.framing)[self.cfg.denoise]

    # --- identity ----------------------------------------------------------------------------------------------

    def identity(self) -> dict[str, Any]:
        """The base identity with the training languages and the maximum source length."""
        return super().identity() | {"writes": self.train_languages, "length": self.length}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Checks that the checkpoint was fine-tuned or, for --denoise, pre-trained with that objective.

        Without --length, sources are truncated as in fine-tuning, since later positions were not trained; with several
        models, to the shortest length.
        """
        super().load_state_dict(state_dict)
        identity, path = state_dict["fairseq_xl"], state_dict.get("path", "the checkpoint")
        if self.denoiser is not None:
            trained = identity.get("objectives", "")
            if self.cfg.denoise not in trained.split(","):
                training = f"with {trained}" if trained else f"by {identity['task']}"
                raise UserError(f"{path} was trained {training}, not with {self.cfg.denoise}, which --denoise names")
            self.denoiser = self._denoiser(identity.get("objective_options"))  # in the checkpoint's framing
        elif "writes" not in identity:
            raise UserError(f"{path} was not fine-tuned by xl_generation: start fine-tuning from it with --init-from")
        elif self.cfg.length is None:
            self.length = min(filter(None, (self.length, identity.get("length"))), default=None)
        self.build_objectives()

    def check_fits(self, state: dict[str, Any], path: str) -> None:
        """Raises `UserError` unless a checkpoint to resume from is of this task."""
        super().check_fits(state, path)
        if "writes" not in state["task_state"]["fairseq_xl"]:
            raise UserError(f"{path} was not fine-tuned by xl_generation: start fine-tuning from it with --init-from")

    # --- model -------------------------------------------------------------------------------------------------

    def metrics(self) -> list[str]:
        """Names of the validation metrics: `ppl`, `loss`, and the perplexity of each language."""
        return ["ppl", "loss", *(f"ppl_{language}" for language in self.valid_languages)]

    def check_architecture(self, cfg: Any) -> None:
        """As the base class; sets the lengths to which texts are truncated, and compares them with the model's."""
        super().check_architecture(cfg)
        self.objective.check_model(cfg)
        if self.denoiser is not None:
            self.denoiser.check_model(cfg)

    def check_model(self, model: Any) -> None:
        """Raises `UserError` unless objectives train the model."""
        if not isinstance(model, XLDenoisingModel):
            raise UserError(f"xl_generation needs {XLDenoisingModel.description}")

    # --- data --------------------------------------------------------------------------------------------------

    def load_dataset(self, split: str, *args: Any, **kwargs: Any) -> None:
        """Loads the text as the base class does; with --denoise, the corrupted lines of a file."""
        if self.denoiser is None:
            super().load_dataset(split, *args, **kwargs)
            return
        corpora = {"generation": self._corrupted(self.first_folder, split)}
        self.datasets[split] = EvaluationDataset(self.objectives, corpora, split)

    def _corrupted(self, folder: DataFolder, split: str) -> dict[str, TextPairs]:
        """{language: the corrupted lines of a file, with the clean ones}."""
        if split == "train":
            raise UserError("--denoise is for fairseq-generate; the task xl_pretraining trains the model")
        language, _ = self.inference_pair
        path = self.objective.path(split, language, "", "SPLIT.LANGUAGE files")
        corpus, texts = read_corrupted(self.denoiser, folder, path, language)
        if self.cfg.corrupted_to:
            write_corrupted(Path(self.cfg.corrupted_to, f"{split}.{language}"), folder, corpus, texts)
        return {language: corpus}

    def get_batch_iterator(
        self, dataset: PlannedBatches, *, max_positions: Any = None, max_tokens: int | None = None, **kwargs: Any
    ) -> Epochs:
        """The batches of the plan, of truncated examples; raises `UserError` for one longer than --max-tokens."""
        if dataset not in self.datasets.values():  # input of fairseq-interactive, not truncated yet
            self.truncate(dataset, self.objective.longest)
        self.check_longest(dataset, max_tokens, "an example", " or lower --length")
        return super().get_batch_iterator(dataset, max_tokens=max_tokens, **kwargs)

    # --- generation --------------------------------------------------------------------------------------------

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
        if len(self.eval_languages) > 1:
            raise UserError(f"--eval-langs {self.cfg.eval_langs}: fairseq-generate takes one language at a time")
        return self.eval_languages[0], self.eval_languages[0]

    def inference_step(
        self, generator: Any, models: Any, sample: Any, prefix_tokens: Any = None, constraints: Any = None
    ) -> Any:
        """Runs beam search; inserts predicted tokens into the source where the decoder predicts masked tokens only."""
        hypotheses = super().inference_step(generator, models, sample, prefix_tokens, constraints)
        if sample.get("positions") is None or sample["positions"][0] is None:
            return hypotheses
        tokens, pad = sample["net_input"]["src_tokens"].cpu().numpy(), self.dictionary.pad()
        sources = [row[row != pad][1:] for row in tokens]
        return [
            [fill_hypothesis(hypothesis, source, positions) for hypothesis in beam]
            for beam, source, positions in zip(hypotheses, sources, sample["positions"])
        ]
