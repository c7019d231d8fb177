"""Supervised translation from pre-trained encoders and decoders."""

import logging
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Optional

import numpy as np
import torch
from fairseq.tasks import register_task
from omegaconf import OmegaConf

from fairseq_xl.checkpoints import published
from fairseq_xl.criterions.translation import FairseqStatistics, XLTranslationCriterion
from fairseq_xl.data.back_translated import back_translated_prefix, note_path, parts_path, read_note
from fairseq_xl.data.framing import Framing
from fairseq_xl.data.indexed import files_of, is_begun
from fairseq_xl.data.length_order import LengthOrder
from fairseq_xl.data.mapped_translation import MappedTranslationDataset
from fairseq_xl.data.parallel import SentencePairs
from fairseq_xl.data.sampling import smoothed_shares
from fairseq_xl.data.symbols import check_direction
from fairseq_xl.data.tables import IN_MEMORY_LINES
from fairseq_xl.data.translation import TranslationDataset
from fairseq_xl.errors import UserError, names_of
from fairseq_xl.io.configuration import FAIRSEQ_CRITERIONS
from fairseq_xl.models.config import EncoderDecoderConfig
from fairseq_xl.options import option
from fairseq_xl.tasks.base import iterator_options, run_config
from fairseq_xl.tasks.seq2seq import XLSeq2SeqConfig, XLSeq2SeqTask, initial_weights
from fairseq_xl.tasks.translation_scores import TranslationScorer

logger = logging.getLogger(__name__)


@dataclass
class XLTranslationConfig(XLSeq2SeqConfig):
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
    back_translated: bool = option(
        False, "train on the pairs of `fairseq-xl back-translate` too, for each direction (Sennrich et al. 2016)"
    )
    tagged_back_translation: bool = option(False, "put <mask> in front of generated sources (Caswell et al. 2019)")
    random_cross_attention: bool = option(
        False,
        "leave cross-attention and its layer normalization random, though the checkpoint of "
        "--init-decoder-from has them: a control for models whose pre-training trains them",
    )
    upsample_primary: float = option(
        1,
        "read the parallel text N times in an epoch, back-translated pairs once; below 1 a random part of "
        "it is read, another one in each epoch",
        range="more than 0",
    )
    sampling_temperature: float = option(
        1,
        "sample directions with probability proportional to (n/N)^(1/temperature), where n of all N "
        "sentence pairs belong to the direction; with 1 each epoch reads every pair once (Arivazhagan et al. 2019)",
        range="1 or more",
    )


@register_task("xl_translation", dataclass=XLTranslationConfig)
class XLTranslationTask(XLSeq2SeqTask):
    """Translation in one or several directions (Lample & Conneau 2019, section 4.3)."""

    criterion = "xl_translation"
    other_criterions = FAIRSEQ_CRITERIONS

    def __init__(self, cfg, dictionary):
        super().__init__(cfg, dictionary)
        if bool(cfg.source_lang) != bool(cfg.target_lang):
            raise UserError("give both --source-lang and --target-lang, or neither")
        single = f"{cfg.source_lang}-{cfg.target_lang}" if cfg.source_lang else None
        names = names_of("--lang-pairs", cfg.lang_pairs) if cfg.lang_pairs else [single] if single else []
        if not names:
            raise UserError("name the direction: -s en -t de, or --lang-pairs en-de,de-en")
        if wrong := [name for name in names if name.count("-") != 1]:
            raise UserError(f"--lang-pairs {cfg.lang_pairs}: {wrong[0]} is no pair such as en-de")
        if not cfg.back_translated:
            if cfg.tagged_back_translation:
                raise UserError("--tagged-back-translation needs --back-translated")
            if cfg.upsample_primary != 1:
                raise UserError(f"--upsample-primary {cfg.upsample_primary:g} needs --back-translated")
        if cfg.random_cross_attention and not cfg.init_decoder_from:
            raise UserError("--random-cross-attention needs --init-decoder-from")
        self.trained_directions = None  # of the checkpoint that was loaded for evaluation
        self.lang_pairs = [tuple(name.split("-")) for name in names]
        for language in sorted({language for pair in self.lang_pairs for language in pair}):
            dictionary.language_id(language)
        self.named_pair = (cfg.source_lang, cfg.target_lang) if single else self.lang_pairs[0]
        self.scorer = TranslationScorer(dictionary, self.folder(), names) if cfg.eval_bleu else None

    @property
    def inference_pair(self):
        """The direction of -s and -t, or else the first one."""
        return self.named_pair

    def identity(self):
        """Returns the base identity with the translation directions: of a loaded checkpoint, those of its training."""
        return super().identity() | {"lang_pairs": self.trained_directions or list(map("-".join, self.lang_pairs))}

    def load_state_dict(self, state_dict):
        """Checks a checkpoint's identity, and that it was trained for the directions of this run."""
        super().load_state_dict(state_dict)
        path = state_dict.get("path", "the checkpoint")
        trained = state_dict["fairseq_xl"].get("lang_pairs")
        if trained is None:
            raise UserError(f"{path} is not a translation model: train one from it with --init-encoder-from")
        self.trained_directions = trained
        for source, target in dict.fromkeys((self.inference_pair, *self.lang_pairs)):
            if not check_direction(trained, source, target, path):
                logger.warning("%s was not trained for %s-%s: zero-shot translation", path, source, target)

    def describe_batch(self, sample):
        """The task and the directions of a batch, for messages."""
        net_input, names = sample["net_input"], self.dictionary.languages
        targets = net_input["prev_output_tokens"][:, 0] - self.dictionary.first_language
        pairs = torch.stack((net_input["src_languages"], targets), dim=1).unique(dim=0).tolist()
        return f"{self.cfg._name} of {','.join(f'{names[source]}-{names[target]}' for source, target in pairs)}"

    # --- model -------------------------------------------------------------------------------------------------

    def build_model(self, cfg, from_checkpoint=False):
        """Builds the model; a new one starts from the weights of --init-*-from."""
        if not hasattr(cfg, "share_embeddings"):
            raise UserError("--arch: translation needs an encoder-decoder, such as xl_mt_tiny")
        model = super().build_model(cfg, from_checkpoint)
        self.transfer_initial_weights(model, initial_weights(self.cfg), from_checkpoint)
        return model

    def adapt_pretrained(self, pretrained, model):
        """Removes cross-attention from the decoder's checkpoint with --random-cross-attention."""
        if not self.cfg.random_cross_attention or pretrained.path != self.cfg.init_decoder_from:
            return pretrained
        state = {key: value for key, value in pretrained.state.items() if ".cross_attention" not in key}
        if len(state) == len(pretrained.state):
            raise UserError(
                f"--random-cross-attention: {pretrained.path} has no cross-attention, which is random anyway"
            )
        return replace(pretrained, state=state)

    def checkpoint_of(self, path):
        """Converts XLM's published translation model, the file `path`, to a checkpoint; None for any other file.

        Raises `UserError` for a published encoder without a decoder.
        """
        found = published.read(path) if Path(path).suffix == published.XLM_SUFFIX else None
        if not isinstance(found, published.Published):
            return None
        depths = {f"{stack}_layers": depth for stack, depth in found.depths.items()}
        if "decoder_layers" not in depths:
            raise UserError(f"{path} holds no decoder; use --init-encoder-from to start a translation model from it")
        options = {name: value for name, value in found.options.items() if name != "framing"}
        model_cfg = vars(EncoderDecoderConfig(_name="xl_mt_big", **options, **depths))
        cfg = OmegaConf.create({"task": OmegaConf.to_container(self.cfg), "model": model_cfg})
        self.framing = Framing.of(found.options["framing"], self.dictionary)
        model = self.build_model(cfg.model, from_checkpoint=True)
        self.transfer_weights(model, {"encoder": path, "decoder": path})
        directions = [f"{one}-{other}" for one in found.languages for other in found.languages if one != other]
        identity = self.identity() | {"lang_pairs": directions or ["-".join(self.inference_pair)]}
        return {"cfg": cfg, "model": model.state_dict(), "task_state": {"fairseq_xl": identity}}

    # --- validation --------------------------------------------------------------------------------------------

    def metrics(self):
        """Names of the validation metrics: the criterion's and, with --eval-bleu, the scores of translations."""
        criterion = run_config(self.cfg).criterion
        smoothed = criterion._name != "cross_entropy" or criterion.sentence_avg
        accuracy = ["accuracy"] if criterion.get("report_accuracy") else []
        scores = self.scorer.metrics({"bleu": self.scorer.directions}) if self.scorer else []
        return ["loss", *(["nll_loss"] if smoothed else []), "ppl", *accuracy, *scores]

    def valid_step(self, sample, model, criterion):
        """fairseq's, and with --eval-bleu the counts of greedy translations."""
        loss, sample_size, logged = super().valid_step(sample, model, criterion)
        return loss, sample_size, logged | (self._count(sample, model) if self.scorer else {})

    def _count(self, sample, model):
        net_input, codes = sample["net_input"], self.dictionary.languages
        tokens, starts = net_input["src_tokens"], net_input["prev_output_tokens"][:, :1]
        padding_mask = tokens.eq(self.dictionary.pad())
        batch = {
            "tokens": tokens,
            "padding_mask": padding_mask if padding_mask.any() else None,
            "languages": net_input["src_languages"][:, None],
        }
        allowed = torch.from_numpy(self.dictionary.is_output).to(tokens.device)
        translations = model.translate(batch, starts, allowed)
        targets = [codes[number] for number in (starts[:, 0] - self.dictionary.first_language).tolist()]
        pairs = [(codes[number], target) for number, target in zip(net_input["src_languages"].tolist(), targets)]
        compared = (translations, sample["target"], targets)
        return self.scorer.logging_output("translation", self.scorer.count(pairs, tokens, translations, compared))

    def log(self, metrics, logging_outputs, criterion):
        """Logs the losses and, in validation with --eval-bleu, the scores of translations."""
        if isinstance(criterion, XLTranslationCriterion):
            super().log(metrics, logging_outputs, criterion)
        else:
            super().log(metrics, logging_outputs, FairseqStatistics(criterion))
        if self.scorer:
            self.scorer.log(metrics, logging_outputs, {"translation": "bleu"})

    # --- data --------------------------------------------------------------------------------------------------

    def load_dataset(self, split, combine=False, task_cfg=None, epoch=1, **kwargs):
        """Opens the bitext of a split. Empty lines are left out of training and validation only."""
        self.open_other_shards(self._open_bitext, split, epoch)
        directions = self._directions(self.folder(epoch), split)
        if split == "train":
            self.inputs.check_complete(split)
        self.datasets[split] = (
            MappedTranslationDataset(directions, self.framing, self.dictionary.pad())
            if directions[0].order is not None
            else TranslationDataset(directions, self.framing, self.dictionary.pad(), split == "train")
        )

    def _open_bitext(self, folder, split):
        """The bitext of the directions of a split: a list of source, target, `SentencePairs`, back-translated ones."""
        named = self.cfg.source_lang and not split.startswith(("train", "valid"))
        generated = self.cfg.back_translated and split == "train"
        return [
            (*pair, self._bitext(folder, split, *pair), self._back_translated(folder, *pair) if generated else None)
            for pair in ([self.inference_pair] if named else self.lang_pairs)
        ]

    def _directions(self, folder, split):
        """The directions of a split; with more than `IN_MEMORY_LINES` training lines they have a `LengthOrder`."""
        bitext, found = self._open_bitext(folder, split), {}
        texts = [text for *_, real, generated in bitext for text in (real, generated) if text is not None]
        mapped = split == "train" and sum(text.lines for text in texts) > IN_MEMORY_LINES
        tag = self.dictionary.mask_index if self.cfg.tagged_back_translation else None
        for source, target, text, generated in bitext:
            real = self._direction_of(text, source, target, split, mapped)
            found[source, target] = [real]
            if generated is not None:
                real.upsampling = self.cfg.upsample_primary
                generated = self._direction_of(generated, source, target, split, mapped, tag)
                found[source, target].append(generated)
                self._log_pairs(f"{source}-{target}", real, generated)
        if split == "train" and self.cfg.sampling_temperature != 1:
            self._set_upsampling(list(found.values()))
        return list(chain.from_iterable(found.values()))

    def _direction_of(self, text, source, target, split, mapped, tag=None):
        """The `Direction` of `SentencePairs`, with a `LengthOrder` if its sizes are `mapped`."""
        swapped = text.codes[0] != source
        sides = text.sides[::-1] if swapped else text.sides
        if mapped:
            order = LengthOrder(text, swapped)
            return self.direction(*sides, None, range(text.lines), source, target, tag, order)
        sizes = text.sizes[:, ::-1] if swapped else text.sizes
        lines = text.filled if split.startswith(("train", "valid")) else np.arange(len(sizes))
        return self.direction(*sides, sizes, lines, source, target, tag)

    def _set_upsampling(self, groups):
        """Upsamples the directions, which are grouped by their languages, as --sampling-temperature says."""
        counts = np.array([sum(direction.num_examples for direction in group) for group in groups])
        shares = smoothed_shares(counts, 1 / self.cfg.sampling_temperature)
        for group, upsampling in zip(groups, shares * counts.sum() / counts):
            for direction in group:
                direction.upsampling *= float(upsampling)

    def _log_pairs(self, name, real, generated):
        """Logs once how many parallel and back-translated pairs of a direction there are, and how many are read."""
        if "train" not in self.datasets:
            logger.info(
                "%s: %d parallel and %d back-translated pairs; each epoch reads %d and %d of them, a ratio of %.3g",
                name,
                real.num_pairs,
                generated.num_pairs,
                real.num_examples,
                generated.num_examples,
                real.num_examples / generated.num_examples,
            )

    def _back_translated(self, folder, source, target):
        """The back-translated pairs of a direction.

        Raises `UserError` if there are none, or if they are not complete or have the ids of another dictionary.
        """
        prefix = back_translated_prefix(folder, source, target)
        command = f"`fairseq-xl back-translate CHECKPOINT {folder} -s {source} -t {target}`"
        if not is_begun(f"{prefix}.{source}"):
            raise UserError(f"--back-translated: no {prefix}.{source}; {command} writes it")
        note = read_note(prefix)
        if note is None:
            why = "is damaged" if note_path(prefix).exists() else "is missing"
            raise UserError(
                f"--back-translated: {prefix} is not complete, {note_path(prefix).name} {why}; run {command} again"
            )
        if note["made_with"].get("dictionary") != self.dictionary.digest():
            raise UserError(
                f"--back-translated: {prefix} was written with another dictionary than {folder / 'dict.txt'}; run "
                f"{command} again"
            )
        if parts_path(prefix).exists():
            logger.warning(
                "%s: training reads the pairs of an earlier back-translation, since a later one was interrupted; "
                "finish it with %s",
                prefix,
                command,
            )
        return self._pairs(folder, "train", prefix, source, target)

    def _pairs(self, folder, split, prefix, *codes):
        """The `SentencePairs` of a prefix, whose files are added to the inputs of the split."""
        pairs = SentencePairs(prefix, *codes, len(self.dictionary))
        self.add_texts(folder, split, *files_of(prefix.parent, [f"{prefix.name}.{code}" for code in codes]))
        return pairs

    def _bitext(self, folder, split, source, target):
        for name in (f"{source}-{target}", f"{target}-{source}"):
            prefix = folder / name / f"{split}.{name}"
            if any(is_begun(f"{prefix}.{language}") for language in (source, target)):
                return self._pairs(folder, split, prefix, *name.split("-"))
        raise UserError(
            f"{folder}: no bitext {source}-{target} or {target}-{source} for the split {split!r}: add it to the corpus "
            "description and run `python -m preprocess`"
        )

    def get_batch_iterator(self, dataset, max_positions=None, max_tokens=None, **kwargs):
        """fairseq hook: truncates long lines outside of training; raises `UserError` for a line above --max-tokens."""
        if isinstance(dataset, MappedTranslationDataset):
            more = {name: kwargs[name] for name in ("max_sentences", "seed", "num_shards") if name in kwargs}
            more |= {"micro_steps": self.micro_steps(), **iterator_options(kwargs)}
            return dataset.iterator(max_positions, max_tokens, **more)
        if dataset is not self.datasets.get("train") and max_positions is not None:
            cut, max_positions = dataset.cut_at(max_positions), None
            if len(cut):
                logger.warning(
                    "%d lines have more than %s tokens (source, target) and are truncated; the first: %s",
                    len(cut),
                    dataset.max_positions,
                    (cut[:10] + 1).tolist(),
                )
        longest = int(dataset.sizes.max(initial=0))
        if max_positions is None:
            if max_tokens is not None and longest > max_tokens:
                raise UserError(f"a line has {longest} tokens, more than --max-tokens {max_tokens}: raise it")
        elif not (dataset.sizes <= max_positions).all(axis=1).any():  # fairseq skips longer lines, with a warning
            raise UserError(
                f"no training pair fits {max_positions} tokens (source, target), the smaller of --max-tokens "
                f"{max_tokens} and --max-positions: raise the smaller one, the longest side has {longest} tokens"
            )
        return super().get_batch_iterator(dataset, max_positions=max_positions, max_tokens=max_tokens, **kwargs)
