"""Base of translation and generation: raw input and beam search."""

import logging
import math
import os
import types
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Optional

import numpy as np
import torch
from fairseq.dataclass import ChoiceEnum
from fairseq.sequence_generator import SequenceGeneratorWithAlignment
from omegaconf import OmegaConf

from fairseq_xl.checkpoints.stacks import LAYERS
from fairseq_xl.data import tokenizers
from fairseq_xl.data.mixed import MixedCorpus
from fairseq_xl.data.monolingual import piece_counts, training_texts
from fairseq_xl.data.subwords import in_folder, vocabulary_kind
from fairseq_xl.data.text import place_of_subwords
from fairseq_xl.data.text_pairs import TextPairs
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.prediction_folders import Origin, write_origin
from fairseq_xl.models.generation_options import check_generation, check_run
from fairseq_xl.models.generator import XLSequenceGenerator
from fairseq_xl.options import option, option_name
from fairseq_xl.tasks.base import XLTask, XLTaskConfig, run_config
from fairseq_xl.tasks.planned_batches import EvaluationDataset, PlannedTask
from fairseq_xl.tasks.subwords import XLSubwords

logger = logging.getLogger(__name__)

#: for --target-pieces-only: minimum share of a piece in the target language's text, relative to its share in any other
#: language's. On LibreOffice help, with German as the target, it bans 0.4 % of German running text and 63 % of English
MIN_RATIO = 0.05


@dataclass
class InitialWeightsConfig:
    """Options of tasks with encoder-decoders: the initial weights of encoder, decoder and token embeddings."""

    init_encoder_from: Optional[str] = option(
        None,
        "initialize the encoder from the encoder of this checkpoint, or of published weights "
        "(Lample & Conneau 2019, sections 4.2 and 4.3)",
    )
    init_decoder_from: Optional[str] = option(
        None,
        "initialize the decoder from the decoder of this checkpoint, or from its encoder if it has no "
        "decoder; cross-attention is random if the checkpoint has none",
    )
    init_embeddings_from: Optional[str] = option(
        None,
        "initialize the token embeddings of encoder and decoder from this checkpoint, or from word vectors "
        "of pieces: .vec, .txt or .npz (Lample & Conneau 2019, section 4.2: EMB)",
    )


def initial_weights(cfg):
    """{"embeddings", "encoder", "decoder": file or None}; raises `UserError` if one is given beside --init-from."""
    parts = ("embeddings", "encoder", "decoder")
    files = {part: getattr(cfg, f"init_{part}_from") for part in parts}
    if getattr(cfg, "init_from", None) and any(files.values()):
        raise UserError(
            "--init-from initializes encoder, decoder and embeddings: leave out --init-encoder-from, "
            "--init-decoder-from and --init-embeddings-from"
        )
    return files


@dataclass
class XLSeq2SeqConfig(InitialWeightsConfig, XLTaskConfig):
    """Options of tasks that generate with fairseq's generator."""

    target_pieces_only: bool = option(
        False,
        "in generation, write only pieces of the target language: those that occur in its training text, "
        "with at least 1/20 of their share in the text of any other language",
    )
    init_decoder_layers: ChoiceEnum(LAYERS) = option(
        "all", "layers of a deeper checkpoint for the decoder: first or last (Luo et al. 2020)"
    )


class XLSeq2SeqTask(PlannedTask, XLTask):
    """Base of the tasks with encoder-decoders, which fairseq's generator runs; they have a single objective."""

    generates = True
    #: name of the objective
    objective_name: str
    #: whether `_warn_of_unknown` has warned already
    warned_of_unknown = False
    #: origins of the checkpoints of fairseq-generate, with --results-path
    models = ()

    @property
    def objective(self):
        """The objective."""
        return self.objectives[self.objective_name]

    def build_criterion(self, cfg, from_checkpoint=False):
        """Builds the criterion; the objective gets its --label-smoothing."""
        criterion = super().build_criterion(cfg, from_checkpoint)
        self.objective.cfg.label_smoothing = getattr(cfg, "label_smoothing", 0.0)
        return criterion

    def validation_limit(self, objective):
        """Maximum number of examples of a corpus that validation in training reads; 0: all, as elsewhere."""
        return super().validation_limit(objective) if self.training_begun else 0

    @property
    def inference_pair(self):
        """Source and target language of fairseq-generate and fairseq-interactive."""
        raise NotImplementedError(f"{type(self).__name__}.inference_pair")

    def load_state_dict(self, state_dict):
        """As the base class; with --results-path, notes the origin of the checkpoint."""
        super().load_state_dict(state_dict)
        run = run_config(self.cfg)
        if run is not None and OmegaConf.select(run, "common_eval.results_path") and "path" in state_dict:
            self.models = (*self.models, Origin.of_checkpoint(state_dict["path"], self.cfg._name))

    def _write_origin(self, run):
        """Names the checkpoints of fairseq-generate in a file beside its output."""
        origin = self.models[0]
        if len(self.models) > 1:  # an ensemble
            names, digests = (os.pathsep.join(map(str, parts)) for parts in zip(*(model[:2] for model in self.models)))
            origin = Origin(names, digests, origin.task)
        write_origin(os.path.join(run.common_eval.results_path, f"generate-{run.dataset.gen_subset}.txt"), origin)

    # --- data --------------------------------------------------------------------------------------------------

    def get_batch_iterator(self, dataset, **kwargs):
        """The batches of the plan; in fairseq-generate those of --shard-id, every one of --num-shards."""
        if not self.evaluates:
            return super().get_batch_iterator(dataset, **kwargs)
        run = run_config(self.cfg)
        if any(corpus.targets is None for corpus in dataset.corpora[self.objective_name].values()):
            for name in ("prefix_size", "score_reference"):
                if run.generation[name]:
                    raise UserError(f"{option_name(name)}: the text has no targets")
        shards, shard = (OmegaConf.select(run, f"dataset.{name}") for name in ("num_shards", "shard_id"))
        if shards in (None, 1):  # None: a checkpoint without this section
            return super().get_batch_iterator(dataset, **kwargs)
        epochs = super().get_batch_iterator(dataset, **kwargs | {"num_shards": shards, "shard_id": shard})
        if shard >= len(epochs.specs):
            raise UserError(f"--shard-id {shard}: the text has {len(epochs.specs)} batches only")
        return epochs

    def check_longest(self, dataset, max_tokens, described, advice=""):
        """Raises `UserError` if a source with its ``<s>``, or a target, has more than `max_tokens` (None: no limit)."""
        corpora = dataset.corpora[self.objective_name].values()
        parts = [part for each in corpora for part in (each.corpora if isinstance(each, MixedCorpus) else [each])]
        longest = max(int(each.sides_of(each.numbers).max(initial=0)) for each in parts)
        if max_tokens is not None and longest > max_tokens:
            found = f"{described} has {longest} tokens, more than --max-tokens {max_tokens}"
            raise UserError(f"{found}: raise it{advice}")

    # --- generation --------------------------------------------------------------------------------------------

    def build_generator(self, models, args, seq_gen_cls=None, extra_gen_cls_kwargs=None, prefix_allowed_tokens_fn=None):
        """Builds fairseq's generator; language symbols and <mask> are stripped from its output.

        --print-alignment gives the attention of the decoder's last layer, averaged over heads. Raises `UserError` for
        options without effect (`fairseq_xl.models.generation_options`).
        """
        check_generation(args, len(self.dictionary))
        run = args._get_parent() if OmegaConf.is_config(args) else None
        if run is not None and OmegaConf.select(run, "common_eval.path"):  # a command, not the run of a checkpoint
            check_run(run, interactive=extra_gen_cls_kwargs is None)  # fairseq-generate passes a language model
            if self.models:
                self._write_origin(run)
        scores = getattr(args, "score_reference", False)
        if getattr(args, "print_alignment", None):
            if scores:
                raise UserError("--print-alignment does not work with --score-reference")
            seq_gen_cls = seq_gen_cls or AligningGenerator
            extra_gen_cls_kwargs = {"print_alignment": args.print_alignment} | (extra_gen_cls_kwargs or {})
            for model in models:
                model.decoder.keep_attention()
        if not scores:
            seq_gen_cls = seq_gen_cls or XLSequenceGenerator
            symbols = set(range(self.dictionary.first_language, len(self.dictionary)))
            hidden = symbols | {self.dictionary.mask_index, self.dictionary.eos()}
            extra_gen_cls_kwargs = {"symbols_to_strip_from_output": hidden} | (extra_gen_cls_kwargs or {})
        generator = super().build_generator(models, args, seq_gen_cls, extra_gen_cls_kwargs, prefix_allowed_tokens_fn)
        if self.cfg.target_pieces_only and not scores:
            if getattr(args, "constraints", None):
                raise UserError("--target-pieces-only does not work with --constraints, which may need other pieces")
            restrict(generator, self.pieces_of(self.inference_pair[1]))
        return generator

    def pieces_of(self, language):
        """Bool (V,): the pieces of a language by its training text.

        A piece belongs to the language if its share of the text is above 0, and at least `MIN_RATIO` times its share of
        the text of each other language of the data folder. So names, numbers and punctuation belong to several
        languages; a word of another language that is quoted now and then does not.
        """
        counts = self._piece_counts
        if not counts[language].any():
            raise UserError(f"--target-pieces-only: {self.cfg.data} has no training text of language {language!r}")
        shares = {code: count / max(count.sum(), 1) for code, count in counts.items()}
        highest = np.max(list(shares.values()), axis=0)
        return (counts[language] > 0) & (shares[language] >= MIN_RATIO * highest)

    @cached_property
    def _piece_counts(self):
        """{language: number of occurrences (V,) of each piece in all its training text, monolingual and parallel}."""
        counts = {code: np.zeros(len(self.dictionary), dtype=np.int64) for code in self.dictionary.languages}
        for folder, language in product(self.cfg.data.split(os.pathsep), counts):
            for prefix in training_texts(folder, language):
                counts[language] += piece_counts(prefix, language, len(self.dictionary))
        return {language: np.where(self.dictionary.is_piece, count, 0) for language, count in counts.items()}

    def build_tokenizer(self, args):
        """Builds the tokenizer of raw source lines and the detokenizer of hypotheses.

        Both are those that the data folder's manifest names; --tokenizer is used if it names none. A line that already
        consists of pieces is not tokenized.
        """
        chosen = tokenizers.named_in(self.folder())
        source, target = self.inference_pair
        if not {source, target} & chosen.keys():
            return super().build_tokenizer(args)
        if args is not None:
            raise UserError(
                f"--tokenizer: leave it out, the tokenizers of {self.folder() / 'manifest.json'} are applied"
            )
        run, default = run_config(self.cfg), self.default_bpe
        always = run is None or run.bpe is not None

        def encode(line):
            raw = always or (default is not None and not default.is_in_pieces(line))
            return tokenizers.tokenize(line, chosen.get(source) if raw else None, source)

        return types.SimpleNamespace(
            encode=encode,
            decode=lambda line: tokenizers.detokenize(line, chosen.get(target), target),
        )

    @cached_property
    def default_bpe(self):
        """The data folder's sub-words, for fairseq-interactive without --bpe; None if the folder has none."""
        run, (source, _) = run_config(self.cfg), self.inference_pair
        if run is None or not run.interactive.buffer_size:  # fairseq-interactive sets it to 1 or more
            return None
        place, _ = place_of_subwords(self.folder(), source)
        if not all(file.exists() for file in in_folder(place, vocabulary_kind(place)).files):
            return None
        return XLSubwords(None, self.folder(), self.dictionary, source, keeps_pieces=True)

    def build_dataset_for_inference(self, src_tokens, src_lengths, constraints=None, **kwargs):
        """Makes the dataset of fairseq-interactive from source sentences that end in ``</s>``.

        Args:
            constraints: packed as fairseq does, for --constraints; None without.
        """
        self._warn_of_unknown(src_tokens)
        return self.dataset_of(src_tokens, None, self.inference_pair, constraints)

    def dataset_of(self, sources, targets, pair, constraints=None):
        """The dataset of source sentences and, if there are any, their targets, which end in ``</s>``.

        Args:
            pair: the codes of their languages.
            constraints: as in `build_dataset_for_inference`.
        """
        sizes = np.ones((len(sources), 2), dtype=np.int64)
        for side, sentences in enumerate((sources, targets or ())):
            sizes[: len(sentences), side] = [len(sentence) for sentence in sentences]
        corpus = TextPairs(sources, targets, sizes, pair, constraints=constraints)
        return EvaluationDataset(self.objectives, {self.objective_name: {"-".join(pair): corpus}})

    @staticmethod
    def truncate(dataset, max_positions):
        """Truncates the texts of a dataset to positions of encoder and decoder; returns those that are longer: (k,)."""
        found = []
        for corpora in dataset.corpora.values():
            for corpus in corpora.values():
                corpus.longest = max_positions[0] - 1, max_positions[1]  # the encoder reads <s> too
                found.append(corpus.truncated())
        return np.concatenate(found)

    def _warn_of_unknown(self, src_tokens):
        """Warns once if half or more of the input is ``<unk>``."""
        unknown = sum(int((tokens == self.dictionary.unk()).sum()) for tokens in src_tokens)
        total = sum(len(tokens) - 1 for tokens in src_tokens)  # without </s>
        if self.warned_of_unknown or 2 * unknown < max(total, 1):
            return
        self.warned_of_unknown = True
        logger.warning("%d of %d tokens of the input are <unk>", unknown, total)

    def inference_step(self, generator, models, sample, prefix_tokens=None, constraints=None):
        """Runs beam search from the symbol of the target language; an empty source line gives an empty hypothesis."""
        search = getattr(generator, "search", None)  # --score-reference has none
        if constraints is None and getattr(search, "supports_constraints", False):
            raise UserError("--constraints: only fairseq-interactive reads constraints, after a TAB in its input lines")
        source, target = self.inference_pair
        net_input = sample["net_input"]
        tokens = net_input["src_tokens"]
        if constraints is not None:
            _check_constraints(constraints, generator.limits(tokens, net_input["src_lengths"]))
        languages = torch.full_like(tokens[:, 0], self.dictionary.language_id(source))
        sample["net_input"] = {"src_languages": languages} | net_input
        with torch.no_grad():
            hypotheses = generator.generate(
                models,
                sample,
                prefix_tokens=prefix_tokens,
                constraints=constraints,
                bos_token=self.dictionary.language_symbol(target),
            )
        empty = tokens.ne(self.dictionary.pad()).sum(1).le(2).tolist()  # <s> </s>
        return [
            [_empty(hypothesis, self.dictionary.eos()) for hypothesis in beam] if nothing else beam
            for beam, nothing in zip(hypotheses, empty)
        ]


class AligningGenerator(SequenceGeneratorWithAlignment, XLSequenceGenerator):
    """The generator with alignments that count source tokens after ``<s>``."""

    def __init__(self, models, dictionary, **options):
        super().__init__(models, dictionary, **options)
        extract = self.extract_alignment

        def without_start(attention, source, *others):
            return extract(attention[:, 1:], source[1:], *others)

        self.extract_alignment = without_start


def restrict(generator, allowed):
    """Lets a generator choose only symbols that are `allowed`, (V,) bool, and ``</s>``."""
    banned = torch.from_numpy(~allowed).to(next(generator.model.parameters()).device)
    banned[generator.eos] = False
    step = generator.search.step

    def restricted(number, log_probabilities, *others, **more):
        return step(number, log_probabilities.masked_fill(banned, -math.inf), *others, **more)

    generator.search.step = restricted


def _check_constraints(constraints, limits):
    """Raises `UserError` if the packed constraints (B, N) of a line have more pieces than its output may have, (B,)."""
    found = constraints[:, 1:].ne(0).sum(1).tolist()  # the first column is their number, 0 separates them
    for pieces, longest in zip(found, limits, strict=True):
        if pieces > longest:
            raise UserError(
                f"--constraints: the constraints of a line have {pieces} pieces, and a hypothesis has at most "
                f"{longest}: raise --max-len-b"
            )


def _empty(hypothesis, eos):
    tokens = hypothesis["tokens"].new_tensor([eos])
    scores = hypothesis["positional_scores"].new_zeros(1)
    return hypothesis | {"tokens": tokens, "positional_scores": scores, "score": scores.sum()}
