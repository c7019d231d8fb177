"""Same-language generation: fine-tune on any languages, generate in any; denoise with a pre-trained model."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import numpy as np
import torch
from fairseq.tasks import register_task

from fairseq_xl.data import tokenizers
from fairseq_xl.data.dictionary import SENTENCEPIECE, named_languages
from fairseq_xl.data.mixed import MixedCorpus
from fairseq_xl.data.text import TextEncoder
from fairseq_xl.data.text_pairs import TextPairs
from fairseq_xl.engine.initial_weights import initial_weights, transfer_initial_weights
from fairseq_xl.engine.inputs import text_fingerprint
from fairseq_xl.engine.interfaces import run_config
from fairseq_xl.engine.selection import check_selection
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.languages import LineSample, described, other_languages
from fairseq_xl.evaluation.task_files import read_pairs, read_texts
from fairseq_xl.io.compressed import stored
from fairseq_xl.io.files import write_lines
from fairseq_xl.io.text import is_blank
from fairseq_xl.models.denoising import XLDenoisingModel
from fairseq_xl.objectives import build_objectives
from fairseq_xl.objectives.base import OBJECTIVES, settings_as_text
from fairseq_xl.objectives.corrupted_test import Lines, corrupted, filled
from fairseq_xl.objectives.sequence import Generation, GenerationConfig
from fairseq_xl.options import option
from fairseq_xl.tasks.planned_batches import MIXED, EvaluationDataset, PlannedBatches
from fairseq_xl.tasks.seq2seq import XLSeq2SeqConfig, XLSeq2SeqTask

logger = logging.getLogger(__name__)

SHORTEST = 8  # minimum --length of a source, in tokens


@dataclass
class XLGenerationConfig(XLSeq2SeqConfig):
    """Options of `xl_generation`."""

    task_files: Optional[str] = option(
        None,
        "folder of raw text, SPLIT.LANGUAGE.src and SPLIT.LANGUAGE.tgt, aligned line by line; several "
        "folders, separated by ':', are searched in order for the source",
    )
    train_langs: str = option("en", "languages to train on, separated by commas")
    eval_langs: str = option(
        "en", "languages of every split but `train`, separated by commas; a single one to generate"
    )
    valid_langs: Optional[str] = option(
        None, "languages of the split `valid`, separated by commas (default: --eval-langs)"
    )
    length: Optional[int] = option(
        None,
        "maximum length of a source, in tokens; the rest is truncated (default: as in the fine-tuning of "
        "the checkpoint; in training --max-positions of the model)",
    )
    examples_per_epoch: Optional[int] = option(
        None, "random examples in each epoch (default: all, once)", range="1 or more"
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

    def __init__(self, cfg, dictionary):
        super().__init__(cfg, dictionary)
        self.train_languages = named_languages("--train-langs", cfg.train_langs, dictionary)
        self.eval_languages = named_languages("--eval-langs", cfg.eval_langs, dictionary)
        self.valid_languages = self.eval_languages
        if cfg.valid_langs is not None:
            self.valid_languages = named_languages("--valid-langs", cfg.valid_langs, dictionary)
        if cfg.length is not None and cfg.length < SHORTEST:
            raise UserError(f"--length {cfg.length}: a source needs at least {SHORTEST} tokens")
        self.files_unchecked = False  # whether a training has begun and `_check_files` has not been called
        self.length = cfg.length  # None: as in the fine-tuning of the checkpoint, or --max-positions
        self.denoiser = self._denoiser() if cfg.denoise else None
        self._build_objectives()
        self.weight_files = initial_weights(cfg)
        if cfg.init_from:
            self.weight_files |= {"encoder": cfg.init_from, "decoder": cfg.init_from}

    def _build_objectives(self):
        self.forget_plans()
        self.objectives = {self.objective_name: Generation(GenerationConfig(), self.dictionary, self.framing)}

    def _denoiser(self, trained=None):
        """The objective of --denoise, with the options of its pre-training and, over these, --objective-options."""
        names = [name for name, objective in OBJECTIVES.items() if objective.restores_text]
        if self.cfg.denoise not in names:
            raise UserError(f"--denoise {self.cfg.denoise}: choose one of {', '.join(sorted(names))}")
        options = " ".join(filter(None, (trained, settings_as_text(self.cfg.objective_options))))
        return build_objectives(self.cfg.denoise, options, self.dictionary, self.framing)[self.cfg.denoise]

    # --- identity ----------------------------------------------------------------------------------------------

    def identity(self):
        """Returns the base identity with the training languages and the maximum source length."""
        return super().identity() | {"writes": self.train_languages, "length": self.length}

    def load_state_dict(self, state_dict):
        """Checks that the checkpoint was fine-tuned or, for --denoise, pre-trained with that objective.

        Without --length, sources are truncated as in fine-tuning, since later positions were not trained; of several
        models the one with the shortest sources counts.
        """
        super().load_state_dict(state_dict)
        self._build_objectives()
        identity, path = state_dict["fairseq_xl"], state_dict.get("path", "the checkpoint")
        if self.denoiser is not None:
            trained = identity.get("objectives", "")
            if self.cfg.denoise not in trained.split(","):
                made = f"with {trained}" if trained else f"by {identity['task']}"
                raise UserError(f"{path} was trained {made}, not with {self.cfg.denoise}, which --denoise names")
            self.denoiser = self._denoiser(identity.get("objective_options"))  # in the checkpoint's framing
        elif "writes" not in identity:
            raise UserError(f"{path} was not fine-tuned by xl_generation: start fine-tuning from it with --init-from")
        elif self.cfg.length is None:
            self.length = min(filter(None, (self.length, identity.get("length"))), default=None)

    def check_fits(self, state, path):
        """Raises `UserError` unless a checkpoint to resume from is of this task."""
        super().check_fits(state, path)
        if "writes" not in state["task_state"]["fairseq_xl"]:
            raise UserError(f"{path} was not fine-tuned by xl_generation: start fine-tuning from it with --init-from")

    # --- model -------------------------------------------------------------------------------------------------

    def corpora_of_objectives(self):
        """The languages, and those of training as one corpus."""
        languages = dict.fromkeys((*self.train_languages, *self.eval_languages, *self.valid_languages))
        return {self.objective_name: [*languages, MIXED]}

    def metrics(self):
        """Names of the validation metrics: `ppl`, `loss`, and the perplexity of each language."""
        return ["ppl", "loss", *(f"ppl_{language}" for language in self.valid_languages)]

    def build_model(self, cfg, from_checkpoint=False):
        """Builds the model, with the weights of the --init-* checkpoints at the start of a run."""
        self.check_architecture(cfg)
        length = self.length or cfg.max_positions
        if length > cfg.max_positions:
            raise UserError(f"--length {length} is more than the model's --max-positions {cfg.max_positions}")
        model = super().build_model(cfg, from_checkpoint)
        self.files_unchecked = not from_checkpoint and run_config(self.cfg) is not None
        if not isinstance(model, XLDenoisingModel):
            raise UserError(f"xl_generation needs {XLDenoisingModel.described}")
        if self.denoiser is not None and self.denoiser.input_length.positions > cfg.max_positions:
            raise UserError(
                f"{self.cfg.denoise}.length={self.denoiser.cfg.length} is more than the model's --max-positions "
                f"{cfg.max_positions}: lower it with --objective-options"
            )
        self.longest = length, cfg.max_positions
        transfer_initial_weights(self, model, self.weight_files, from_checkpoint)
        return model

    # --- data --------------------------------------------------------------------------------------------------

    def load_dataset(self, split, combine=False, task_cfg=None, epoch=1, **kwargs):
        """Reads, encodes and truncates the files of a split in its languages."""
        if self.denoiser is not None:
            self._load_corrupted(split)
            return
        if self.files_unchecked:
            self._check_files()
            self.files_unchecked = False
        languages = self._languages(split)
        encode = TextEncoder(self.folder(), self.dictionary)
        corpora = {}
        for language in languages:
            prefix = self._prefix(split, language)
            sides = read_pairs(prefix, every=split.startswith(("train", "valid")))
            for path in (Path(f"{prefix}.{side}") for side in ("src", "tgt")):
                self.inputs.add(split, path.name, path, text_fingerprint(path))
            # an empty line is </s> alone
            rows = [[encode(text, language).astype(np.int32) for text in side] for side in sides]
            sizes = np.array([[len(row) for row in side] for side in rows]).T
            corpora[language] = TextPairs(*rows, sizes, (language, language))
        trains = split == "train" and not self.evaluates
        kind = PlannedBatches if trains else EvaluationDataset
        dataset = kind(self.objectives, {self.objective_name: corpora}, split)
        cut = self.truncate(dataset, self.longest)
        if len(cut):
            logger.warning(
                "%s: %d of %d examples have more than %d tokens of the source (--length) or %d of the target "
                "(--max-positions) and are truncated",
                *(split, len(cut), len(dataset), *self.longest),
            )
        if trains:
            self.inputs.check_complete(split)
            if self.cfg.examples_per_epoch:
                self.repeats = {self.objective_name: dict.fromkeys(corpora, self.cfg.examples_per_epoch / len(dataset))}
            if len(corpora) > 1:
                dataset.corpora = {self.objective_name: {MIXED: MixedCorpus(corpora, self.objective.cfg.alpha)}}
        self.datasets[split] = dataset

    def _languages(self, split):
        return {"train": self.train_languages, "valid": self.valid_languages}.get(split, self.eval_languages)

    def _check_files(self):
        """Reads all files of a training before any is encoded; raises `UserError` for their errors.

        Test files may be missing. Warns of files that look like another language.
        """
        check_selection(run_config(self.cfg), self)
        dataset, languages_of_files = run_config(self.cfg).dataset, {}
        validated = [] if dataset.disable_validation else dataset.valid_subset.split(",")
        for split in dict.fromkeys(("train", *validated, "test")):
            for language in self._languages(split):
                prefix = self._prefix(split, language)
                if split != "test" or stored(f"{prefix}.src").is_file():
                    for end, lines in zip(("src", "tgt"), read_pairs(prefix, every=split != "test")):
                        sample = LineSample()
                        sample.add([line.encode() for line in lines])
                        languages_of_files[f"{prefix}.{end}"] = language, sample.languages()
        for path, (other, _) in other_languages(languages_of_files).items():
            language, counts = languages_of_files[path]
            logger.warning(
                "%s %s instead of %s, first line %d", path, described(counts, other), language, counts[other][1]
            )

    def _prefix(self, split, language, end=".src"):
        if not self.cfg.task_files:
            files = "SPLIT.LANGUAGE files" if self.denoiser else "SPLIT.LANGUAGE.src and SPLIT.LANGUAGE.tgt files"
            raise UserError(f"--task-files: name a folder of {files}")
        folders = [Path(folder) for folder in self.cfg.task_files.split(os.pathsep)]
        name = f"{split}.{language}"
        return next((folder for folder in folders if stored(folder / f"{name}{end}").is_file()), folders[0]) / name

    def _load_corrupted(self, split):
        """Reads and corrupts lines of text; leaves out empty lines and lines that are too long for the objective."""
        if split == "train":
            raise UserError("--denoise is for fairseq-generate; the task xl_pretraining trains the model")
        (language, _), objective = self.inference_pair, self.denoiser
        path = self._prefix(split, language, end="")
        encode = TextEncoder(self.folder(), self.dictionary)
        texts = [text for text in read_texts(path) if not is_blank(text)]
        rows = [encode(text, language) for text in texts]
        longest = objective.input_length.text
        fitting = [number for number, row in enumerate(rows) if len(row) <= longest]
        if len(fitting) < len(rows):
            logger.warning(
                "%s: %d of %d lines have more than %d tokens (%s.length) and are left out",
                path,
                len(rows) - len(fitting),
                len(rows),
                longest,
                objective.name,
            )
        if not fitting:
            raise UserError(f"{path}: no line of at most {longest} tokens ({objective.name}.length)")
        lines = Lines(rows, language)
        objective.check(lines)
        sources, positions = corrupted(objective, lines, fitting)
        texts, rows = ([side[number] for number in fitting] for side in (texts, rows))
        sizes = np.array([[len(source), len(row)] for source, row in zip(sources, rows)])
        corpus = TextPairs(sources, rows, sizes, (language, language), positions=positions)
        self.datasets[split] = EvaluationDataset(self.objectives, {self.objective_name: {language: corpus}})
        self.longest = (self.longest[1],) * 2  # nothing is truncated: noise makes no line longer
        if self.cfg.corrupted_to:
            self._write_corrupted(f"{split}.{language}", sources, texts, language)

    def _write_corrupted(self, name, sources, texts, language):
        """Writes the clean lines and the corrupted ones as text without <mask>, the baseline of copying the source."""
        special, tokenizer = {self.dictionary.mask_index}, tokenizers.named_in(self.folder()).get(language)
        copies = [
            tokenizers.detokenize(
                self.dictionary.string(torch.from_numpy(source), SENTENCEPIECE, extra_symbols_to_ignore=special),
                tokenizer,
                language,
            )
            for source in sources
        ]
        folder = Path(self.cfg.corrupted_to)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for side, lines in (("src", copies), ("tgt", texts)):
                write_lines(folder / f"{name}.{side}", lines)
        except OSError as error:
            raise UserError(f"--corrupted-to {folder}: {error.strerror}") from error

    def get_batch_iterator(self, dataset, max_positions=None, max_tokens=None, **kwargs):
        """The batches of the plan, of truncated examples; raises `UserError` for one longer than --max-tokens."""
        if dataset not in self.datasets.values():  # what fairseq-interactive reads is not truncated yet
            self.truncate(dataset, self.longest)
        self.check_longest(dataset, max_tokens, "an example", " or lower --length")
        return super().get_batch_iterator(dataset, max_tokens=max_tokens, **kwargs)

    # --- generation --------------------------------------------------------------------------------------------

    def build_generator(self, models, args, *more, **options):
        """The generator of the base class; raises `UserError` for --score-reference."""
        if getattr(args, "score_reference", False):
            raise UserError(
                "--score-reference is not supported by xl_generation: fairseq-validate logs the perplexity of the "
                "references"
            )
        return super().build_generator(models, args, *more, **options)

    @property
    def inference_pair(self):
        """The language of input and output, twice; raises `UserError` if --eval-langs names several."""
        if len(self.eval_languages) > 1:
            raise UserError(f"--eval-langs {self.cfg.eval_langs}: fairseq-generate takes one language at a time")
        return self.eval_languages * 2

    def inference_step(self, generator, models, sample, prefix_tokens=None, constraints=None):
        """Beam search; where the decoder predicts only masked tokens, they are put in their positions of the source."""
        hypotheses = super().inference_step(generator, models, sample, prefix_tokens, constraints)
        if sample.get("positions") is None or sample["positions"][0] is None:
            return hypotheses
        tokens, pad = sample["net_input"]["src_tokens"].cpu().numpy(), self.dictionary.pad()
        sources = [row[row != pad][1:] for row in tokens]
        return [
            [_whole(hypothesis, source, positions) for hypothesis in beam]
            for beam, source, positions in zip(hypotheses, sources, sample["positions"])
        ]


def _whole(hypothesis, source, positions):
    """Turns a hypothesis of the masked spans into one of the whole line, with the scores of the spans."""
    predicted = hypothesis["tokens"][:-1].cpu().numpy()  # without </s>
    return hypothesis | {"tokens": torch.from_numpy(filled(source, positions, predicted))}
