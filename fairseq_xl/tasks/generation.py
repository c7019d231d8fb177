"""Fine-tuning for writing in the language of what is read, and denoising with a pre-trained model."""

import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

import numpy as np
import torch
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task

from fairseq_xl.checkpoints.surgery import LAYERS
from fairseq_xl.data import tokenisers
from fairseq_xl.data.corrupted_test import Lines, corrupted, filled
from fairseq_xl.data.generation import GenerationDataset, read_pairs, read_texts
from fairseq_xl.data.text import TextEncoder
from fairseq_xl.errors import UserError
from fairseq_xl.io.compressed import stored
from fairseq_xl.io.files import replacing
from fairseq_xl.models.denoising import XLDenoisingModel
from fairseq_xl.objectives import build_objectives
from fairseq_xl.objectives.base import OBJECTIVES, settings_as_text
from fairseq_xl.tasks.base import XLTaskConfig, named_languages
from fairseq_xl.tasks.writing import XLWritingTask

logger = logging.getLogger(__name__)

SHORTEST = 8  # tokens that --length must leave for a source


@dataclass
class XLGenerationConfig(XLTaskConfig):
    """Options of `xl_generation`."""

    task_files: Optional[str] = field(
        default=None,
        metadata={
            "help": "folder of raw text, SPLIT.LANGUAGE.src and SPLIT.LANGUAGE.tgt line by line; of several, joined by "
            "':', the first that has a source gives both"
        },
    )
    train_langs: str = field(default="en", metadata={"help": "languages to train on, separated by commas"})
    eval_langs: str = field(
        default="en", metadata={"help": "languages of every other split, separated by commas; one to generate"}
    )
    length: Optional[int] = field(
        default=None,
        metadata={
            "help": "most tokens of a source; the rest is cut off (default: as in the checkpoint's fine-tuning; in "
            "training --max-positions of the model, G5: 512)"
        },
    )
    examples_per_epoch: Optional[int] = field(
        default=None, metadata={"help": "examples drawn for an epoch (default: all, once)", "range": "1 or more"}
    )
    init_from: Optional[str] = field(
        default=None,
        metadata={"help": "checkpoint of an xDAE or xFNP that is fine-tuned (G7); an encoder is taken for both stacks"},
    )
    init_encoder_from: Optional[str] = field(
        default=None, metadata={"help": "checkpoint, or published XLM-R or XLM, whose encoder initialises the encoder"}
    )
    init_decoder_from: Optional[str] = field(
        default=None, metadata={"help": "the same for the decoder, whose cross-attention is new then"}
    )
    init_decoder_layers: ChoiceEnum(LAYERS) = field(
        default="all", metadata={"help": "which layers of a deeper checkpoint the decoder takes: first, last"}
    )
    denoise: Optional[str] = field(
        default=None,
        metadata={
            "help": "objective, xdae or xfnp, whose noise corrupts the lines of TASK_FILES/SPLIT.LANGUAGE, and whose "
            "pre-trained model writes the clean ones"
        },
    )
    objective_options: Optional[str] = field(
        default=None,
        metadata={
            "help": "settings of --denoise: 'xdae.noise=mask xdae.word_mask_prob=0.3'; what is not set is as in the "
            "checkpoint's pre-training"
        },
    )
    noised_to: Optional[str] = field(
        default=None,
        metadata={
            "help": "folder where --denoise writes SPLIT.LANGUAGE.src, the corrupted lines as text, and "
            "SPLIT.LANGUAGE.tgt, the clean ones"
        },
    )


@register_task("xl_generation", dataclass=XLGenerationConfig)
class XLGenerationTask(XLWritingTask):
    """Writes a text of another one in the same language: titles, questions, summaries (G7, G8, G11, G12, G15).

    The decoder begins with the language's symbol, also of one that was not fine-tuned.
    """

    criterion = "xl_generation"

    def __init__(self, cfg, dictionary):
        super().__init__(cfg, dictionary)
        self.train_languages = named_languages("--train-langs", cfg.train_langs, dictionary)
        self.eval_languages = named_languages("--eval-langs", cfg.eval_langs, dictionary)
        if cfg.length is not None and cfg.length < SHORTEST:
            raise UserError(f"--length {cfg.length}: a source needs at least {SHORTEST} tokens")
        self.length = cfg.length  # None: as in the checkpoint's fine-tuning, or what the model can take
        self.denoiser = self._denoiser() if cfg.denoise else None
        if cfg.init_from and (cfg.init_encoder_from or cfg.init_decoder_from):
            raise UserError("--init-from gives encoder and decoder: leave out --init-encoder-from, --init-decoder-from")

    def _denoiser(self, trained=None):
        """The objective of --denoise, --objective-options laid over the options of pre-training."""
        names = [name for name, objective in OBJECTIVES.items() if issubclass(objective.model_class, XLDenoisingModel)]
        if self.cfg.denoise not in names:
            raise UserError(f"--denoise {self.cfg.denoise}: choose one of {', '.join(sorted(names))}")
        options = " ".join(filter(None, (trained, settings_as_text(self.cfg.objective_options))))
        return build_objectives(self.cfg.denoise, options, self.dictionary, self.framing)[self.cfg.denoise]

    # --- identity ----------------------------------------------------------------------------------------------

    def identity(self):
        """What every checkpoint says of itself, the languages that it was fine-tuned on, and the length of sources."""
        return super().identity() | {"writes": self.train_languages, "length": self.length}

    def load_state_dict(self, state_dict):
        """Checks the checkpoint's identity, and that it was fine-tuned, or pre-trained by the objective to denoise.

        Without --length sources are cut as in fine-tuning, of several models as in that with the shortest ones: later
        positions were not trained.
        """
        super().load_state_dict(state_dict)
        identity, path = state_dict["fairseq_xl"], state_dict.get("path", "the checkpoint")
        if self.denoiser is not None:
            trained = identity.get("objectives", "")
            if self.cfg.denoise not in trained.split(","):
                made = f"with {trained}" if trained else f"by {identity['task']}"
                raise UserError(f"{path} was trained {made}, not with {self.cfg.denoise}, which --denoise names")
            self.denoiser = self._denoiser(identity.get("objective_options"))  # in the checkpoint's framing
        elif "writes" not in identity:
            raise UserError(f"{path} was not fine-tuned by xl_generation; --init-from starts that from it")
        elif self.cfg.length is None:
            self.length = min(filter(None, (self.length, identity.get("length"))), default=None)

    def check_fits(self, state, path):
        """Raises `UserError` unless a checkpoint to go on from is one of this task."""
        super().check_fits(state, path)
        if "writes" not in state["task_state"]["fairseq_xl"]:
            raise UserError(f"{path} was not fine-tuned by xl_generation: name it as --init-from to start from it")

    # --- model -------------------------------------------------------------------------------------------------

    def metrics(self):
        """Names of what validation logs: `ppl`, that of each language, `loss`."""
        return ["ppl", "loss", *(f"ppl_{language}" for language in self.eval_languages)]

    def build_model(self, cfg, from_checkpoint=False):
        """Builds the model; a new one takes its weights from the checkpoints that --init-* name."""
        self.check_architecture(cfg)
        length = self.length or cfg.max_positions
        if length > cfg.max_positions:
            raise UserError(f"--length {length} is more than the model's --max-positions {cfg.max_positions}")
        model = super().build_model(cfg, from_checkpoint)
        if not isinstance(model, XLDenoisingModel):
            raise UserError(f"xl_generation needs {XLDenoisingModel.described}")
        if self.denoiser is not None and self.denoiser.input_length.positions > cfg.max_positions:
            raise UserError(
                f"{self.cfg.denoise}.length={self.denoiser.cfg.length} is more than the model's --max-positions "
                f"{cfg.max_positions}: lower it with --objective-options"
            )
        self.longest = length, cfg.max_positions
        encoder, decoder = self.cfg.init_encoder_from, self.cfg.init_decoder_from
        if self.cfg.init_from:
            encoder = decoder = self.cfg.init_from
        if (encoder or decoder) and self.starts_anew(from_checkpoint):
            self.initialise(model, encoder, decoder, layers=str(self.cfg.init_decoder_layers))
        return model

    # --- data --------------------------------------------------------------------------------------------------

    def load_dataset(self, split, combine=False, task_cfg=None, epoch=1, **kwargs):
        """Reads and encodes the files of a split in its languages, and cuts what is too long."""
        if self.denoiser is not None:
            self._load_noised(split)
            return
        languages = self.train_languages if split == "train" else self.eval_languages
        encode = TextEncoder(self.folder() / "sentencepiece.model", self.dictionary)
        directions = []
        for language in languages:
            sides = read_pairs(self._prefix(split, language), every=split.startswith(("train", "valid")))
            directions.append(self._encoded(sides, language, encode))
        dataset = GenerationDataset(
            directions, languages, self.framing, self.dictionary.pad(), split == "train", self.cfg.examples_per_epoch
        )
        cut = dataset.cut_at(self.longest)
        if len(cut):
            logger.warning(
                "%s: %d of %d examples have more than %d tokens of the source (--length) or %d of the target "
                "(--max-positions) and are cut there", split, len(cut), len(dataset), *self.longest,
            )  # fmt: skip
        self.datasets[split] = dataset
        if split == "train":
            self._check_test_files()

    def _check_test_files(self):
        """Raises `UserError` for a mistake in a test file that is there: now, and not when training is over."""
        for language in self.eval_languages:
            prefix = self._prefix("test", language)
            if stored(f"{prefix}.src").is_file():
                read_pairs(prefix, every=False)

    def _prefix(self, split, language, end=".src"):
        if not self.cfg.task_files:
            files = "SPLIT.LANGUAGE files" if self.denoiser else "SPLIT.LANGUAGE.src and SPLIT.LANGUAGE.tgt files"
            raise UserError(f"--task-files: name a folder of {files}")
        folders = [Path(folder) for folder in self.cfg.task_files.split(os.pathsep)]
        name = f"{split}.{language}"
        return next((folder for folder in folders if stored(folder / f"{name}{end}").is_file()), folders[0]) / name

    def _load_noised(self, split):
        """Reads and corrupts lines of text, but for those without a word or too long for the objective."""
        if split == "train":
            raise UserError("--denoise is for fairseq-generate; xl_pretraining trains what denoises")
        (language, _), objective = self.inference_pair, self.denoiser
        path = self._prefix(split, language, end="")
        encode = TextEncoder(self.folder() / "sentencepiece.model", self.dictionary)
        texts = [text for text in read_texts(path) if text.strip()]
        rows = [encode(text, language) for text in texts]
        longest = objective.input_length.text
        fitting = [number for number, row in enumerate(rows) if len(row) <= longest]
        if len(fitting) < len(rows):
            logger.warning("%s: %d of %d lines have more than %d tokens (%s.length) and are left out", path,
                           len(rows) - len(fitting), len(rows), longest, objective.name)  # fmt: skip
        if not fitting:
            raise UserError(f"{path}: no line of at most {longest} tokens ({objective.name}.length)")
        lines = Lines(rows, language)
        objective.check(lines)
        sources, positions = corrupted(objective, lines, fitting)
        texts, rows = ([side[number] for number in fitting] for side in (texts, rows))
        sizes = np.array([[len(source), len(row)] for source, row in zip(sources, rows)])
        direction = self.direction(sources, rows, sizes, np.arange(len(rows)), language, language)
        self.datasets[split] = GenerationDataset(
            [direction], [language], self.framing, self.dictionary.pad(), False, positions=positions
        )
        self.longest = (self.longest[1],) * 2  # nothing is cut: noise makes no line longer than the objective's length
        if self.cfg.noised_to:
            self._write_noised(f"{split}.{language}", sources, texts, language)

    def _write_noised(self, name, sources, texts, language):
        """The corrupted lines as text without <mask>: what copying the source comes to; and the clean lines."""
        special, tokeniser = {self.dictionary.mask_index}, tokenisers.named_in(self.folder()).get(language)
        copies = [
            tokenisers.detokenise(
                self.dictionary.string(torch.from_numpy(source), "sentencepiece", extra_symbols_to_ignore=special),
                tokeniser,
                language,
            )
            for source in sources
        ]
        folder = Path(self.cfg.noised_to)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for side, lines in (("src", copies), ("tgt", texts)):
                with replacing(folder / f"{name}.{side}") as file:
                    file.write("".join(f"{line}\n" for line in lines).encode("utf-8"))
        except OSError as error:
            raise UserError(f"--noised-to {folder}: {error.strerror}") from error

    def _encoded(self, sides, language, encode):
        """Raw sources and targets of a language -> `Direction`; an empty line is ``</s>`` alone."""
        nothing = np.array([self.dictionary.eos()], dtype=np.int32)
        rows = [[encode(text, language).astype(np.int32) if text.strip() else nothing for text in side]
                for side in sides]  # fmt: skip
        sizes = np.array([[len(row) for row in side] for side in rows]).T
        return self.direction(*rows, sizes, np.arange(len(sizes)), language, language)

    def get_batch_iterator(self, dataset, max_positions=None, max_tokens=None, **kwargs):
        """fairseq's iterator; what is too long for the model was cut. `UserError` for an example over --max-tokens."""
        dataset.cut_at(self.longest)  # what fairseq-interactive reads wasn't
        longest = int(dataset.sizes.max())
        if max_tokens is not None and longest > max_tokens:
            raise UserError(f"an example has {longest} tokens: raise --max-tokens {max_tokens} or lower --length")
        return super().get_batch_iterator(dataset, max_tokens=max_tokens, **kwargs)

    # --- generation --------------------------------------------------------------------------------------------

    def build_generator(self, models, args, *more, **options):
        """As there; the models have no pass of fairseq's kind, which scores references."""
        if getattr(args, "score_reference", False):
            raise UserError(
                "--score-reference is not supported by xl_generation: fairseq-validate gives the references' perplexity"
            )
        return super().build_generator(models, args, *more, **options)

    @property
    def inference_pair(self):
        """The language that is read and written; `UserError` if several are named."""
        if len(self.eval_languages) > 1:
            raise UserError(f"--eval-langs {self.cfg.eval_langs}: one language is generated at a time, name it alone")
        return self.eval_languages * 2

    def inference_step(self, generator, models, sample, prefix_tokens=None, constraints=None):
        """Beam search; where the decoder writes what was masked alone, its tokens are put into the source."""
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
    """Turns a hypothesis of the masked spans into one of the whole line; its scores stay those of the spans."""
    predicted = hypothesis["tokens"][:-1].cpu().numpy()  # without </s>
    return hypothesis | {"tokens": torch.from_numpy(filled(source, positions, predicted))}
