"""The base class of objectives, and their common options.

An objective names the class of its corpus, collates examples into a batch of inputs and targets, and computes its loss
as named terms. Adding one takes one file in this package or in another one (`fairseq_xl/README.md`).
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Optional, TypeVar

import numpy as np
import torch
from fairseq.utils import get_perplexity
from torch import Tensor, nn

from fairseq_xl.data.corpora.base import BREAK_MODES, Corpus, Texts
from fairseq_xl.data.corpora.mixed_corpus import MIXED, MixedCorpus
from fairseq_xl.data.framing import Framing, InputLength, find_padding, pad_rows
from fairseq_xl.data.plan.epoch_plan import BatchSpec, Lengths
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.io.bounds import LARGEST
from fairseq_xl.io.options import option_name
from fairseq_xl.models.encoder import XLEncoderModel
from fairseq_xl.modules.packing import find_packing
from fairseq_xl.objectives.data_folder import DataFolder

#: name -> class of every registered objective
OBJECTIVES: dict[str, type["Objective"]] = {}

#: tensors and other inputs of a loss, by name
Batch = dict[str, Any]
ObjectiveClass = TypeVar("ObjectiveClass", bound=type["Objective"])
#: name of the term that holds statistics instead of a loss
STATISTICS = "statistics"
#: of an objective: {name of a term or statistic: {corpus: (sum, count)}}
Sums = dict[str, dict[str, tuple[float, ...]]]


class Term(NamedTuple):
    """One part of a loss: the sum, in nats, over `count` predictions (tokens or pairs).

    A term of weight 0 is logged only. Its sum may be a vector, of all statistics of the objective.
    """

    sum: Tensor
    count: int  # type: ignore[assignment]  # hides the method of tuples
    weight: float = 1.0


@dataclass
class ObjectiveConfig:
    """Options of every objective; `--objective-options 'mlm.length=256 tlm.weight=0.5'` sets them."""

    # factor of the objective's loss; or UPDATE:FACTOR, separated by commas, linear in between: 0:1,100000:0.1,300000:0
    weight: str = "1.0"
    # maximum length, in tokens, of a block of text, or of each text of a pair (Lample & Conneau 2019, section 3.5: 256)
    length: int = 256
    # exponent of the sampling shares of languages and pairs (Lample & Conneau 2019, section 3.5: 0.7); 0: equal shares
    # (Huang et al. 2019, section 4)
    alpha: float = 0.7
    # in training, sample a language or pair for each example (Liang et al. 2020, section 3), not for each batch
    mixed: bool = False
    # maximum number of tokens in a batch, counting all texts of its examples, padded to the longest example
    batch_tokens: Optional[int] = None
    # maximum number of examples in a batch; if neither limit is set, --max-tokens and --batch-size apply
    batch_sentences: Optional[int] = None
    # languages or pairs that this objective does not read, separated by commas
    leave_out: Optional[str] = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, (int, float)):
                self.require(field.name, math.isfinite(value) and abs(value) < LARGEST, f"a number below {LARGEST}")
        expected = "0 or more, or UPDATE:FACTOR,… with increasing updates"
        self.require("weight", _weight_schedule(self.weight) != [], expected)
        self.require("length", self.length is None or self.length > 1, "more than 1 token")
        self.require_exponent("alpha")
        for name in ("batch_tokens", "batch_sentences"):
            self.require(name, getattr(self, name) is None or getattr(self, name) > 0, "more than 0")

    def require(self, key: str, fulfilled: bool, expected: str) -> None:
        """Raises `UserError` with the `expected` values of `key` unless a condition is `fulfilled`."""
        if not fulfilled:
            raise UserError(f"{key}={getattr(self, key)} should be {expected}")

    def require_exponent(self, key: str) -> None:
        """Raises `UserError` for an exponent of frequencies outside 0 to 10: its powers could be 0 or infinite."""
        self.require(key, 0 <= getattr(self, key) <= 10, "from 0 to 10")


@dataclass
class BlockConfig(ObjectiveConfig):
    """Options of objectives that read blocks of monolingual text."""

    # as in fairseq: none cuts text into blocks of `length` tokens (Lample & Conneau 2019, section 3.5); complete makes
    # blocks of whole sentences (RoBERTa's FULL-SENTENCES, Liu et al. 2019, section 4.2); eos: each sentence is a block,
    # and longer ones are left out
    sample_break_mode: str = "none"
    # maximum length of a block, in tokens, at the beginning of training: short inputs first (Press et al. 2021)
    warmup_length: Optional[int] = None
    warmup_length_updates: int = 0  # `warmup_length` holds in epochs that begin before this update

    def __post_init__(self) -> None:
        super().__post_init__()
        short = self.warmup_length is None or 3 < self.warmup_length <= self.length
        self.require("warmup_length", short, f"more than 3 tokens and at most length, {self.length}")
        together = (self.warmup_length is None) == (self.warmup_length_updates == 0)
        self.require("warmup_length_updates", self.warmup_length_updates >= 0 and together, "set with warmup_length")
        self.require("sample_break_mode", self.sample_break_mode in BREAK_MODES, " or ".join(BREAK_MODES))


class Objective:
    """Base class of all objectives, with the options `cfg`, a merged `Config`.

    An objective that is `named` stands in --objectives, as `name` (None: that of the class), which is part of its
    metrics, options and folders; otherwise it is the only objective of its task.
    """

    #: dataclass of the options
    Config: type[ObjectiveConfig] = ObjectiveConfig
    #: name in --objectives and in the log
    name: str
    #: class of the corpus that it reads; an option `sample_break_mode` selects another one
    corpus_class: type[Corpus]
    #: class of its models
    model_class: type = XLEncoderModel
    #: whether it restores corrupted text, which `xl_generation --denoise` scores
    restores_text = False
    #: the logged metric that `score` averages over objectives, if any
    main_metric: Optional[str] = None
    #: statistics of validation beside the loss: a `TranslationScorer`, which objectives may share, or another object
    #: with `keys` and `values`; None: none
    scorer: Any = None

    def __init__(
        self, cfg: Any, dictionary: XLDictionary, framing: Framing, name: Optional[str] = None, named: bool = True
    ) -> None:
        self.cfg, self.dictionary, self.framing = cfg, dictionary, framing
        self.name, self.named = name or self.name, named
        self.weight_schedule = _weight_schedule(cfg.weight)
        if hasattr(cfg, "sample_break_mode"):
            self.corpus_class = BREAK_MODES[cfg.sample_break_mode]

    @classmethod
    def register(cls, objective: ObjectiveClass) -> ObjectiveClass:
        """Class decorator that registers the objective under its `name`."""
        if objective.name in OBJECTIVES:
            raise ValueError(f"objective {objective.name!r} is registered twice")
        OBJECTIVES[objective.name] = objective
        return objective

    @classmethod
    def class_for(cls, cfg: Any) -> type["Objective"]:
        """The class of an objective with these options: a subclass for some of them."""
        return cls

    def option(self, key: str) -> str:
        """The name of an option on the command line, for messages."""
        return f"--objective-options {self.name}.{key}" if self.named else option_name(key)

    @property
    def input_length(self) -> InputLength:
        """`InputLength` of the longest example.

        Sentences end in ``</s>`` already. Of a stream, `length` counts all tokens and ``<s>``. Of a pair, it counts the
        tokens of each text with its ``</s>``; framing adds one more symbol to each text.
        """
        length, texts = self.cfg.length, self.corpus_class.num_texts
        return InputLength(text=length + texts - 2, symbols=texts, positions=length + texts - 1)

    def input_length_at(self, update: int) -> InputLength:
        """`input_length` in an epoch of training that begins at an update, counted from 0."""
        cfg = self.cfg
        if getattr(cfg, "warmup_length", None) is None or update >= cfg.warmup_length_updates:
            return self.input_length
        shorter = cfg.length - cfg.warmup_length
        return self.input_length._replace(text=self.input_length.text - shorter, positions=cfg.warmup_length)

    @property
    def mixes(self) -> bool:
        """Whether training batches mix languages or pairs."""
        return bool(self.cfg.mixed)

    def weight(self, update: int) -> float:
        """Factor of the loss at an update, counted from 0."""
        updates, factors = zip(*self.weight_schedule)
        return float(np.interp(update, updates, factors))

    @property
    def full_weight(self) -> float:
        """The largest factor of the schedule, by which the loss counts in validation."""
        return max(factor for _, factor in self.weight_schedule)

    @property
    def is_trained(self) -> bool:
        """Whether the weight is above 0 at any update; other objectives are computed in validation only."""
        return self.full_weight > 0

    def check_model(self, model_cfg: Any) -> None:
        """Raises `UserError` if a model's config has fewer positions than an example."""
        if self.input_length.positions > model_cfg.max_positions:
            raise UserError(
                f"{self.name}.length={self.cfg.length} needs {self.input_length.positions} positions, the model has "
                f"--max-positions {model_cfg.max_positions}"
            )

    def heads(self, model_cfg: Any) -> dict[str, nn.Module]:
        """Output modules of this loss alone, by the objective's name; the task adds them to `model.heads`."""
        return {}

    def set_languages(self, codes: Sequence[str]) -> None:
        """Sets the languages of the run; raises `UserError` if the objective cannot be trained with them."""

    def corpora(self, folder: DataFolder, split: Optional[str] = None) -> list[str]:
        """Names of its corpora of a split, languages or pairs; None: of any split."""
        return folder.names(self.corpus_class, split, self.name, self.cfg.leave_out)

    def open(self, folder: DataFolder, split: str, trains: bool, mixes: bool = False) -> dict[str, Corpus]:
        """Opens the corpora of a split, on which the model is trained or not: {language or pair: corpus}.

        `mixes`: whether their examples are mixed in batches, whatever the option `mixed` says. Raises `UserError` if
        there are none, unless it is computed in validation only, and as `check` does.
        """
        corpora = {name: folder.open(self.corpus_class, split, name) for name in self.corpora(folder, split)}
        if not corpora and self.is_trained:
            raise UserError(
                f"{folder.folder}: no {self.corpus_class.described_text} for the split {split!r} (it has "
                f"{', '.join(folder.splits) or 'none'}), which the objective {self.name} reads: {folder.how_to_add}, "
                f"or leave the objective out with --objective-options {self.name}.weight=0"
            )
        for corpus in corpora.values():
            self.check(corpus)
        return {MIXED: MixedCorpus(corpora, self.cfg.alpha)} if trains and (mixes or self.cfg.mixed) else corpora

    def repeats(self, corpora: dict[str, Corpus]) -> dict[str, float]:
        """{training corpus, or part of the mixed one: number of times that a pass reads it}; {}: each once."""
        return {}

    def check_files(self, folder: DataFolder, splits: Iterable[str]) -> None:
        """Reads the files with labels or targets of these splits before a training; raises `UserError` for errors."""

    def check(self, corpus: Texts) -> None:
        """Raises `UserError`, before training, if a corpus does not suit the objective."""

    def collated_lengths(self, examples: np.ndarray, sizes: np.ndarray, corpus: Corpus) -> np.ndarray:
        """Maximum length (n,), before framing, of each of the examples (n,) of these sizes (n,) when it is collated."""
        return sizes

    def lengths(self, examples: np.ndarray, sizes: np.ndarray, corpus: Corpus) -> Lengths:
        """The `Lengths` of examples (n,) of these sizes (n,), by which they are sorted and cut into batches."""
        return Lengths((self.collated_lengths(examples, sizes, corpus) + self.input_length.symbols)[:, None])

    def collate(self, batch_spec: BatchSpec, corpus: Texts) -> Batch:
        """Makes a dict of tensors, inputs and targets, of a `BatchSpec` of B examples and their `Corpus`.

        The key ``tokens`` is required: the token ids that the model reads, (B, T).
        """
        raise NotImplementedError(f"{type(self).__name__}.collate")

    def num_tokens(self, batch: Batch) -> int:
        """The number of tokens of a batch in the log."""
        return int(batch["tokens"].ne(self.dictionary.pad()).sum())

    def net_input(self, batch: Batch) -> dict[str, Any]:
        """The batch as entries of a sample of fairseq's commands: "net_input", "target" and "batch"."""
        raise NotImplementedError(f"{type(self).__name__}.net_input")

    def masked_positions(self, batch_spec: BatchSpec, corpus: Texts) -> Optional[np.ndarray]:
        """Positions of the encoder's input that the decoder predicts, (B, S) bool; None if it predicts the whole text.

        An objective whose decoder predicts masked tokens only needs this for `xl_generation --denoise`.
        """
        return None

    def texts(self, batch_spec: BatchSpec, corpus: Texts) -> list[tuple[np.ndarray, ...]]:
        """Token arrays of the texts of each example: a list of B tuples."""
        return corpus.texts(batch_spec.examples, batch_spec.length or self.input_length.text)

    def language_codes(self, batch_spec: BatchSpec, corpus: Texts) -> list[tuple[str, ...]]:
        """Language codes of the texts of each example: a list of B tuples."""
        return corpus.languages(batch_spec.examples, batch_spec.length or self.input_length.text)

    def languages(self, batch_spec: BatchSpec, corpus: Texts) -> Tensor:
        """Language ids (k·B, 1) of B examples of k texts each: those of all first texts, then of all second texts."""
        sides = zip(*self.language_codes(batch_spec, corpus))
        return torch.tensor([[self.dictionary.language_id(code)] for side in sides for code in side])

    def token_inputs(self, tokens: np.ndarray) -> Batch:
        """Entries of a batch: ``tokens``, an array (B, T), with their ``padding_mask`` and ``packing``."""
        pad = self.dictionary.pad()
        masks = {"padding_mask": find_padding(tokens, pad), "packing": find_packing(tokens, pad)}
        return {"tokens": torch.from_numpy(tokens)} | masks

    def joined(
        self, pairs: Sequence[tuple[np.ndarray, ...]], codes: Sequence[tuple[str, ...]], orders: Iterable[int]
    ) -> tuple[list[np.ndarray], Tensor, Tensor]:
        """Frames B pairs of sentences as one sequence each (Lample & Conneau 2019, section 3.4).

        Positions start from 0 again in the second half, which has the language of its own sentence.

        Args:
            pairs, codes: (first, second) of each pair: the sentences, (n,) and (m,), and their language codes.
            orders: 1 for a pair whose second sentence comes first, else 0.

        Returns: the B sequences (n+m+2,), where n and m count the ``</s>``, positions (B, T), language ids (B, T).
        """
        rows, positions, languages = [], [], []
        for pair, sides, order in zip(pairs, codes, orders):
            tokens, half = self.framing.pair(pair[order], pair[1 - order])
            ids = [self.dictionary.language_id(sides[side]) for side in (order, 1 - order)]
            rows.append(tokens)
            positions.append(np.concatenate((np.arange(half), np.arange(len(tokens) - half))))
            languages.append(np.repeat(ids, (half, len(tokens) - half)))
        return rows, torch.from_numpy(pad_rows(positions, 0)), torch.from_numpy(pad_rows(languages, 0))

    def loss(self, model: Any, batch: Batch) -> dict[str, Term]:
        """Computes the loss of a batch of `collate`: {name: `Term`} with names of `terms`.

        A term without gradient may be missing in training; the log has a count of 0 for it.
        """
        raise NotImplementedError(f"{type(self).__name__}.loss")

    def evaluate(self, model: Any, sample: dict[str, Any]) -> dict[str, Term]:
        """The terms of a sample of `PlannedBatches` in validation: the loss and, of some objectives, statistics."""
        terms: dict[str, Term] = model(compute=self.loss, batch=sample["batch"])
        return terms | self.scored(model, sample["batch"])

    def scored(self, model: Any, batch: Batch) -> dict[str, Term]:
        """{"statistics": counts of the `scorer` in validation}, or {}."""
        return {}

    def encode(self, model: Any, batch: Batch, **inputs: Any) -> Tensor:
        """Hidden states (B, T, C) of a batch's tokens, with its positions, segments, languages and padding."""
        names = ("positions", "segments", "languages", "padding_mask", "packing")
        return model.encode(batch["tokens"], **{name: batch[name] for name in names if name in batch}, **inputs)

    def predict(self, model: Any, hidden: Tensor, batch: Batch) -> Term:
        """`Term` of the cross-entropy of `target` (N,) at the flat `predicted_positions` (N,) of hidden (B, T, C)."""
        selected = hidden.flatten(0, 1).index_select(0, batch["predicted_positions"])  # (N, C)
        return Term(model.output.cross_entropy(selected, batch["target"]), len(batch["target"]))

    # --- log ---------------------------------------------------------------------------------------------------

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the terms that `loss` returns."""
        return (self.name,)

    @property
    def language_modeling(self) -> tuple[str, ...]:
        """The terms whose perplexities `ppl` averages; if no objective has any, those of all logged terms."""
        return self.terms

    def logged_keys(self, corpora: Iterable[str]) -> list[tuple[str, str]]:
        """(statistic or term, corpus) of all sums that are logged, statistics first; the same on every rank."""
        statistics = [] if self.scorer is None else self.scorer.keys
        return statistics + [(term, corpus) for term in self.logged_terms for corpus in corpora]

    @property
    def logged_terms(self) -> tuple[str, ...]:
        """The terms that are summed by corpus and logged in every update (default: all)."""
        return self.terms

    def values(self, sums: Sums) -> dict[str, Any]:
        """{name in the log: value} from sums: bits per prediction and perplexity of each term, by corpus and of all.

        TERM_mean_ppl is the mean of the perplexities over corpora, which stops XLM's pre-training if the term is mlm.
        """
        losses, perplexities = {}, {}
        for term in [term for term in self.logged_terms if term in sums]:
            by_corpus = sums[term]
            total = tuple(map(sum, zip(*by_corpus.values(), strict=True)))
            named_sums = {f"{term}_{corpus}": pair for corpus, pair in by_corpus.items()} | {term: total}
            means = {name: mean for name, pair in named_sums.items() if (mean := bits(pair)) is not None}
            losses |= {f"{name}_loss": round(mean, 3) for name, mean in means.items()}
            perplexities |= {f"{name}_ppl": get_perplexity(mean, round=3) for name, mean in means.items()}
            perplexities |= {f"{term}_mean_ppl": round(mean, 3) for mean in self.perplexities(sums, [term])}
        return losses | perplexities

    def metric_names(self, corpora: Iterable[str]) -> list[str]:
        """Names of the values for --best-checkpoint-metric."""
        codes = list(corpora)
        names = dict.fromkeys(name for term in self.terms for corpus in codes for name in (term, f"{term}_{corpus}"))
        means = [f"{term}_mean_ppl" for term in self.terms if codes]
        return [*(f"{name}_{kind}" for name in names for kind in ("ppl", "loss")), *means]

    def perplexities(self, sums: Sums, terms: Iterable[str]) -> Iterator[float]:
        """Yields the perplexity of each of the terms that has predictions: the mean over its corpora."""
        for term in terms:
            means = [bits(pair) for pair in sums.get(term, {}).values()]
            # fairseq's is infinite where the power overflows
            perplexities = [get_perplexity(mean, round=9) for mean in means if mean is not None]
            if perplexities:
                yield sum(perplexities) / len(perplexities)


def bits(sums: Optional[tuple[float, ...]]) -> Optional[float]:
    """Bits per prediction from (nats, predictions); None without predictions."""
    return sums[0] / sums[1] / math.log(2) if sums and sums[1] else None


def _weight_schedule(text: Any) -> list[tuple[int, float]]:
    """``0:1,1000:0.5`` -> [(0, 1.0), (1000, 0.5)], ``0.5`` -> [(0, 0.5)]; [] if it is neither."""
    try:
        points = [point.rpartition(":") for point in str(text).split(",")]
        schedule = [(int(update or 0), float(factor)) for update, _, factor in points]
    except ValueError:
        return []
    growing = all(before < after for (before, _), (after, _) in itertools.pairwise(schedule))
    valid = schedule[0][0] >= 0 and all(0 <= factor < LARGEST for _, factor in schedule)
    return schedule if growing and valid else []
