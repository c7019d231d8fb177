"""Supervised translation from pre-trained encoders and decoders."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional

import numpy as np
import torch
from fairseq.tasks import register_task
from omegaconf import OmegaConf

from fairseq_xl.checkpoints import published
from fairseq_xl.criterions.combined import XLTranslationCriterion
from fairseq_xl.criterions.fairseqs import FairseqStatistics
from fairseq_xl.data.back_translated import back_translated_prefix, note_path, parts_path, read_note
from fairseq_xl.data.framing import Framing
from fairseq_xl.data.indexed import files_of, is_begun
from fairseq_xl.data.mixed import MixedCorpus
from fairseq_xl.data.passes import AUTO
from fairseq_xl.data.sampling import smoothed_shares
from fairseq_xl.data.shards import open_other_shards
from fairseq_xl.data.symbols import check_direction
from fairseq_xl.data.text_pairs import DirectedPairs, TextPairs
from fairseq_xl.engine.initial_weights import initial_weights, transfer_initial_weights, transfer_weights
from fairseq_xl.engine.interfaces import run_config
from fairseq_xl.errors import UserError, names_of
from fairseq_xl.io.configuration import FAIRSEQ_CRITERIONS
from fairseq_xl.models.config import EncoderDecoderConfig
from fairseq_xl.objectives import build_objectives
from fairseq_xl.options import option
from fairseq_xl.tasks.planned_batches import MIXED, EvaluationDataset, PlannedBatches
from fairseq_xl.tasks.seq2seq import XLSeq2SeqConfig, XLSeq2SeqTask
from fairseq_xl.tasks.translation_scores import TranslationScorer

logger = logging.getLogger(__name__)

LONGEST = 1 << 30  # tokens of a side without a limit


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
    objective_name, group_name = "translation", "direction"

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
        self.named_truncations = []  # datasets whose truncated lines a warning has named
        self.trained_directions = None  # of the checkpoint that was loaded for evaluation
        self.lang_pairs = [tuple(name.split("-")) for name in names]
        for language in sorted({language for pair in self.lang_pairs for language in pair}):
            dictionary.language_id(language)
        self.named_pair = (cfg.source_lang, cfg.target_lang) if single else self.lang_pairs[0]
        self.scorer = TranslationScorer(dictionary, self.folder(), names) if cfg.eval_bleu else None
        self._build_objectives()

    def _build_objectives(self):
        self.forget_plans()
        options = f"translation.both_directions=false translation.alpha={1 / self.cfg.sampling_temperature}"
        self.objectives = build_objectives(self.objective_name, options, self.dictionary, self.framing)

    def corpora_of_objectives(self):
        """The directions, and those of training as one corpus."""
        return {self.objective_name: [*dict.fromkeys(map("-".join, (*self.lang_pairs, self.named_pair))), MIXED]}

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
        self._build_objectives()
        for source, target in dict.fromkeys((self.inference_pair, *self.lang_pairs)):
            if not check_direction(trained, source, target, path):
                logger.warning("%s was not trained for %s-%s: zero-shot translation", path, source, target)

    def describe_batch(self, sample):
        """The task and the directions of a batch, for messages."""
        batch, names = sample["batch"], self.dictionary.languages
        pairs = torch.cat((batch["languages"], batch["other_languages"]), dim=1).unique(dim=0).tolist()
        return f"{self.cfg._name} of {','.join(f'{names[source]}-{names[target]}' for source, target in pairs)}"

    # --- model -------------------------------------------------------------------------------------------------

    def build_model(self, cfg, from_checkpoint=False):
        """Builds the model; a new one starts from the weights of --init-*-from."""
        if not hasattr(cfg, "share_embeddings"):
            raise UserError("--arch: translation needs an encoder-decoder, such as xl_mt_tiny")
        model = super().build_model(cfg, from_checkpoint)
        transfer_initial_weights(self, model, initial_weights(self.cfg), from_checkpoint)
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
        transfer_weights(self, model, {"encoder": path, "decoder": path})
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
        perplexities = [f"ppl_{'-'.join(pair)}" for pair in self.lang_pairs] if self._has_own_criterion() else []
        return ["loss", *(["nll_loss"] if smoothed else []), "ppl", *perplexities, *accuracy, *scores]

    def valid_step(self, sample, model, criterion):
        """fairseq's, and with --eval-bleu the counts of greedy translations."""
        loss, sample_size, logged = super().valid_step(sample, model, criterion)
        return loss, sample_size, logged | (self._count(sample, model) if self.scorer else {})

    def _count(self, sample, model):
        batch, codes = sample["batch"], self.dictionary.languages
        allowed = torch.from_numpy(self.dictionary.is_output).to(batch["tokens"].device)
        translations = model.translate(batch, batch["prev_output_tokens"][:, :1], allowed)
        sources, targets = (
            [codes[number] for number in batch[name][:, 0].tolist()] for name in ("languages", "other_languages")
        )
        compared = (translations, batch["target"], targets)
        counts = self.scorer.count(list(zip(sources, targets)), batch["tokens"], translations, compared)
        return self.scorer.logging_output("translation", counts)

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
        open_other_shards(self.cfg.data, epoch, split, self.datasets, self._corpora)
        corpora, trains = self._corpora(self.folder(epoch), split), self._trains(split)
        if trains:
            self.inputs.check_complete(split)
            self._set_repeats(corpora)
            if len(corpora) > 1:
                corpora = {MIXED: MixedCorpus(corpora, self.objective.cfg.alpha)}
        kind = PlannedBatches if trains and self._has_own_criterion() else EvaluationDataset
        self.datasets[split] = kind(self.objectives, {self.objective_name: corpora}, split)

    def _trains(self, split):
        return split == "train" and not self.evaluates

    def _has_own_criterion(self):
        run = run_config(self.cfg)
        return run is None or run.criterion._name == self.criterion

    def _corpora(self, folder, split):
        """The pairs of the directions of a split, {name: corpus}; generated ones are named ``back en-de``."""
        named, found = self.cfg.source_lang and not split.startswith(("train", "valid")), {}
        for pair in [self.inference_pair] if named else self.lang_pairs:
            name = "-".join(pair)
            found[name] = self._bitext(folder, split, *pair)
            if self.cfg.back_translated and self._trains(split):
                found[f"back {name}"] = self._back_translated(folder, *pair)
        return found if self._trains(split) else {name: _in_memory(pairs, split) for name, pairs in found.items()}

    def _set_repeats(self, corpora):
        """Sets how often an epoch reads the pairs: --upsample-primary and --sampling-temperature."""
        factor, generated = self.cfg.upsample_primary, {name for name in corpora if name.startswith("back ")}
        repeats = {name: factor if f"back {name}" in generated else 1 for name in corpora}
        sizes = {name: repeats[name] * corpus.sentences for name, corpus in corpora.items()}
        if self.cfg.sampling_temperature != 1:
            names = [name for name in corpora if name not in generated]
            counts = np.array([sizes[name] + sizes.get(f"back {name}", 0) for name in names])
            shares = smoothed_shares(counts, 1 / self.cfg.sampling_temperature)
            for name, more in zip(names, (shares * counts.sum() / counts).tolist(), strict=True):
                for each in {name, f"back {name}"} & repeats.keys():
                    repeats[each] *= more
        if "train" not in self.datasets and self.cfg.updates_per_epoch == AUTO:
            for name in generated:
                self._log_pairs(name.removeprefix("back "), name, corpora, repeats)
        self.repeats = {self.objective_name: repeats}

    @staticmethod
    def _log_pairs(real, generated, corpora, repeats):
        """Logs how many parallel and back-translated pairs of a direction there are, and how many are read."""
        every = [corpora[name].sentences for name in (real, generated)]
        read = [max(1, round(repeats[name] * count)) for name, count in zip((real, generated), every, strict=True)]
        logger.info(
            "%s: %d parallel and %d back-translated pairs; each epoch reads %d and %d of them, a ratio of %.3g",
            *(real, *every, *read, read[0] / read[1]),
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
        return self._pairs(folder, "train", prefix, source, target, self.cfg.tagged_back_translation)

    def _pairs(self, folder, split, prefix, source, target, tagged=False):
        """The pairs of a prefix from source to target, whose files are added to the inputs of the split."""
        tag = self.dictionary.mask_index if tagged else None
        pairs = DirectedPairs(tag, prefix, source, target, len(self.dictionary))
        files = files_of(prefix.parent, [f"{prefix.name}.{code}" for code in prefix.parent.name.split("-")])
        self.add_texts(split, *files)
        return pairs

    def _bitext(self, folder, split, source, target):
        for name in (f"{source}-{target}", f"{target}-{source}"):
            prefix = folder / name / f"{split}.{name}"
            if any(is_begun(f"{prefix}.{language}") for language in (source, target)):
                return self._pairs(folder, split, prefix, source, target)
        raise UserError(
            f"{folder}: no bitext {source}-{target} or {target}-{source} for the split {split!r}: add it to the corpus "
            "description and run `python -m preprocess`"
        )

    def get_batch_iterator(self, dataset, max_positions=None, max_tokens=None, **kwargs):
        """fairseq hook: the batches of the plan, of pairs of at most `max_positions` tokens on each side.

        Longer pairs of training text are left out, other text is truncated; a warning says how many. Raises `UserError`
        for a line above --max-tokens, or if no training pair is short enough.
        """
        corpora = dataset.corpora[self.objective_name].values()
        if not all(isinstance(corpus, TextPairs) for corpus in corpora):
            self.objective.cfg.length = min(max_positions or (LONGEST, LONGEST))
            for corpus in corpora:
                self._check_lengths(corpus, max_positions, max_tokens)
            return super().get_batch_iterator(dataset, max_tokens=max_tokens, **kwargs)
        cut = [] if max_positions is None else self.truncate(dataset, max_positions)
        if len(cut) and dataset not in self.named_truncations:
            self.named_truncations.append(dataset)
            logger.warning(
                "%d lines have more than %s tokens (source, target) and are truncated; the first: %s",
                *(len(cut), tuple(max_positions), (cut[:10] + 1).tolist()),
            )
        self.check_longest(dataset, max_tokens, "a line")
        return super().get_batch_iterator(dataset, max_tokens=max_tokens, **kwargs)

    def _check_lengths(self, corpus, max_positions, max_tokens):
        """Raises `UserError` if no pair is short enough; the corpus warns of longer ones."""
        for each in corpus.parts.values() if isinstance(corpus, MixedCorpus) else [corpus]:
            try:
                each.mean_size(self.objective.cfg.length)
            except UserError as error:
                raise UserError(
                    f"no training pair fits {max_positions} tokens (source, target), the smaller of --max-tokens "
                    f"{max_tokens} and --max-positions: raise the smaller one ({error})"
                ) from None


def _in_memory(pairs, split):
    """The pairs of a split for validation, without those with an empty side, or for tests."""
    lines = pairs.filled if split.startswith(("train", "valid")) else None
    return TextPairs(*pairs.sides, pairs.sizes, pairs.codes, lines)
