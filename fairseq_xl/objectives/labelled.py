"""The base of objectives on labelled examples: task types such as classification, ranking and tagging.

The file of a task type says how its files are read, what it predicts, and how predictions are scored
(`fairseq_xl/README.md`). B: inputs, T: time, C: channels, S: statistics, L: languages.
"""

import itertools
import logging
from abc import ABC, abstractmethod
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Optional

import numpy as np
import torch
from torch import Tensor, nn

from fairseq_xl.data.corpora.mixed_corpus import MIXED
from fairseq_xl.data.framing import Framing, InputLength, pad_rows
from fairseq_xl.data.labelled.labelled_examples import Input, LabelledExamples, segments
from fairseq_xl.data.plan.epoch_plan import BatchSpec, Lengths
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError, check_ranges
from fairseq_xl.io.compressed import without_suffix
from fairseq_xl.io.configuration import check_values
from fairseq_xl.io.fingerprints import text_fingerprint
from fairseq_xl.io.options import option
from fairseq_xl.modules.embeddings import init_weights
from fairseq_xl.objectives.base import OBJECTIVES, STATISTICS, Batch, Sums, Term
from fairseq_xl.objectives.data_folder import DataFolder
from fairseq_xl.objectives.nsp import Pooler
from fairseq_xl.objectives.task_file_checks import TaskFile, count, warn_of_files
from fairseq_xl.objectives.task_file_objectives import FilesConfig, FilesObjective

logger = logging.getLogger(__name__)

SHORTEST = 8  # minimum length of an input, in tokens
COLLAPSED = 98.0  # percent of the predictions in one class from which on a model counts as collapsed
UNKNOWN = 0.1  # share of <unk> among the tokens of a language above which there is a warning
NO_CLASS = -100  # class of unlabeled text, which torch's cross-entropy ignores
Encode = Any  # `fairseq_xl.data.vocabulary.text_encoder.TextEncoder`
POOLER_ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}
#: maps a language's summed statistics, with "examples", to a value, or to None if it has none
Metric = Callable[[dict[str, float]], float | None]


@dataclass
class LabelledConfig(FilesConfig):
    """Options of labelled objectives."""

    head_dropout: float = 0.1  # dropout in front of the output layer

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("length", self.length >= SHORTEST, f"at least {SHORTEST} tokens")
        self.require("head_dropout", 0 <= self.head_dropout < 1, "from 0 to below 1")
        check_ranges(type(self), self, field_name=str)


@dataclass
class FirstTokenConfig(LabelledConfig):
    """Options of labelled objectives whose head reads the first token."""

    pooler: bool = option(
        False,
        "BERT's linear layer and activation before the output layer; its weights are those of next-sentence "
        "prediction if the checkpoint of --init-from has them",
    )
    pooler_activation: str = option("tanh", "activation of --pooler: tanh (BERT, XLM-R), or relu (DistilBERT)")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("pooler_activation", self.pooler_activation in POOLER_ACTIVATIONS, "tanh or relu")
        self.require("pooler_activation", self.pooler or self.pooler_activation == "tanh", "tanh without --pooler")


class LabelledObjective(FilesObjective, ABC):
    """Reads labelled examples, computes loss, predictions and metrics; the task and criterion are `xl_{name}`."""

    Config: type[LabelledConfig] = LabelledConfig
    corpus_class = LabelledExamples
    #: the metric that `score` averages over labelled objectives; of an instance, its name in the log
    main_metric: str
    #: ending of its files
    suffix = "tsv"
    #: names and format of its files, for messages
    files: str
    #: the part of an example that must fit into --max-tokens, for messages
    example_name = "an input"
    #: the option with the maximum length of a text, for messages about truncated examples
    truncation_option = "length"
    #: whether some examples of a file may lack labels
    partly_labeled = False
    #: attributes learned from the training files, which checkpoints store, with their types
    state: ClassVar[dict[str, Any]] = {}
    #: the statistics that training logs too, enough for all metrics; None: training logs no metric
    training_statistics: tuple[str, ...] | None = None
    #: name of the outputs in an exported graph, `logits` of classes or other `scores`; None: they are not exported
    graph_output: str | None = None
    #: the head of transformers that computes the same, as its class name ends: SequenceClassification; None: none does
    transformers_head: str | None = None
    #: whether the graph's outputs are those of every token, (B, T, outputs); otherwise (B, outputs), or (B,) of one
    reads_every_token = False

    def __init__(
        self, cfg: Any, dictionary: XLDictionary, framing: Framing, name: Optional[str] = None, named: bool = True
    ):
        super().__init__(cfg, dictionary, framing, name, named)
        self.metric_suffix = f"_{self.name}" if named else ""
        self.main_metric += self.metric_suffix
        self.training_examples: dict[str, list[Any]] = {}  # by language, from `learn_files` to `open`
        self.training_files: list[TaskFile] = []
        self.evaluated: dict[str, dict[str, LabelledExamples]] = {}  # by split and language
        #: is called with sample, indices (n,) and predictions of each evaluated batch; None: they are only counted
        self.collect: Optional[Callable[[dict[str, Any], np.ndarray, list[Any]], None]] = None
        trained = self.training_statistics
        if trained is not None and self.summed_statistics[: 1 + len(trained)] != ("examples", *trained):
            raise ValueError(f"{type(self).name}: `statistics` must begin with `training_statistics`")

    # --- examples ----------------------------------------------------------------------------------------------

    @abstractmethod
    def read(self, path: Any, language: str) -> list[Any]:
        """The examples of a file; each has `language` and `location`. Raises `UserError` that names file and line."""

    def classes(self, example: Any) -> Iterable[tuple[str, int]]:
        """Yields the classes of a labeled example with their lines, to compare files; by default, none."""
        return ()

    def text(self, example: Any) -> str:
        """The text of an example, to check its language; by default, none."""
        return ""

    def learn(self, examples: list[Any]) -> None:
        """Sets the attributes of `state` from the training examples."""
        assert not self.state, "an objective with a state learns it"

    def check_examples(self, examples: list[Any]) -> None:
        """Raises `UserError` for the first example that does not fit the training examples; by default, all fit."""
        return None

    @abstractmethod
    def inputs(self, example: Any, encode: Encode) -> list[Input]:
        """The inputs of an example, of at most `length` tokens."""

    def training_items(self, examples: list[Any], inputs: list[list[Input]]) -> tuple[list[Any], list[list[Input]]]:
        """The examples that training shuffles, and their inputs."""
        return examples, inputs

    @abstractmethod
    def targets(self, inputs: list[Input]) -> dict[str, Any]:
        """The targets of a batch: tensors."""

    @abstractmethod
    def is_labeled(self, example: Any) -> bool:
        """Whether the label of an example is known; otherwise it can only be predicted."""

    # --- outputs and loss --------------------------------------------------------------------------------------

    @abstractmethod
    def num_outputs(self) -> int:
        """Number of outputs of the head for a hidden state."""

    def heads(self, model_cfg: Any) -> dict[str, nn.Module]:
        """{name: dropout and a linear layer, (…, C) -> (…, outputs)}; with `pooler` (C, C) and activation before."""
        channels, dropout = model_cfg.embed_dim, nn.Dropout(self.cfg.head_dropout)
        head = nn.Sequential(dropout, nn.Linear(channels, self.num_outputs()))
        if getattr(self.cfg, "pooler", False):
            pooler = {
                "pooler": Pooler(channels, channels),
                "activation": POOLER_ACTIVATIONS[self.cfg.pooler_activation](),
            }
            head = nn.Sequential(OrderedDict(pooler | {"dropout": dropout, "output": head[1]}))
        head.apply(lambda module: init_weights(module, model_cfg.init_std))
        return {self.name: head}

    @abstractmethod
    def outputs(self, model: Any, batch: Batch) -> Tensor:
        """The head's outputs, such as (B, classes), (N, tags) or (B, T, 2); called inside `model.forward`."""

    @abstractmethod
    def output_loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, int]:
        """The sum of the losses in nats, and their number."""

    # --- predictions and scores --------------------------------------------------------------------------------

    @abstractmethod
    def predictions(self, outputs: Tensor, batch: Batch, inputs: list[list[Input]]) -> list[Any]:
        """Predictions of the examples of a batch, with the inputs of each."""

    @property
    @abstractmethod
    def statistics(self) -> tuple[str, ...]:
        """Names of the values of `count`, which may also return "examples" (default 1)."""

    @abstractmethod
    def count(self, example: Any, prediction: Any) -> dict[str, float]:
        """`statistics` of a labeled example: numbers that are summed over a language."""

    def count_in_training(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Counts "examples" and `training_statistics` of each of B inputs: (1 + S, B), on the batch's device."""
        raise NotImplementedError(f"{type(self).__name__}.count_in_training")

    @abstractmethod
    def metrics(self) -> dict[str, Metric]:
        """The metrics by name."""

    def class_shares(self, sums: dict[str, float]) -> Iterable[tuple[str, float, float]]:
        """Yields (class, percent of the predictions, percent of the gold labels), to warn of a collapsed model."""
        return ()

    @abstractmethod
    def format_prediction(self, example: Any, prediction: Any) -> str:
        """Text of an example in the file of --predictions-to."""

    def prediction_file(self, rows: list[tuple[Any, Any]]) -> str:
        """The file of --predictions-to, from (example, prediction) in the order of the examples."""
        return "".join(self.format_prediction(example, prediction) for example, prediction in rows)

    def read_predictions(self, path: Any, language: str) -> Iterable[tuple[Any, Any]]:
        """Examples and predictions of such a file, for `fairseq-xl score labelled`; `UserError` for another form."""
        raise UserError(f"{type(self).name}: its files of predictions are not read, it has no `read_predictions`")

    # --- unlabeled text ----------------------------------------------------------------------------------------

    def from_line(self, line: str, language: str, file: str, line_number: int) -> Any:
        """The unlabeled example of a line of text, which is not blank.

        Args:
            line: fields separated by tabs.
            file, line_number: the file and the line's number in it, from 1 on, for messages.

        Raises `UserError` for other fields, and for an objective that reads no lines.
        """
        raise UserError(f"{type(self).name}: this task type reads no lines of unlabeled text, it has no `from_line`")

    def to_record(self, example: Any, prediction: Any) -> dict[str, Any]:
        """A prediction as a JSON object."""
        return {"prediction": prediction}

    def to_line(self, record: dict[str, Any]) -> str:
        """A record of `to_record` as a line of text; by default its values, separated by tabs."""
        return "\t".join(map(str, record.values()))

    # --- state -------------------------------------------------------------------------------------------------

    @property
    def learned(self) -> bool:
        """Whether `state` has been learned, from the training files or a checkpoint."""
        return all(getattr(self, name) for name in self.state if name != "num_texts")

    def learned_state(self) -> dict[str, Any]:
        """`state` with its values: plain Python."""
        return {name: getattr(self, name) for name in self.state}

    def load_state(self, state: dict[str, Any], path: Any) -> None:
        """Restores the state from a checkpoint, the file `path`; raises `UserError` for a damaged one."""
        check_values(state, self.state, "task_state.fairseq_xl.type_state", path, self.state)
        for name in self.state:
            setattr(self, name, state[name])

    # --- batches -----------------------------------------------------------------------------------------------

    #: its labels are those of the training files
    reads_training_files = True

    @property
    def input_length(self) -> InputLength:
        return InputLength(text=self.cfg.length, symbols=0, positions=self.cfg.length)

    def check_model(self, model_cfg: Any) -> None:
        """Raises `UserError` if a model's config has fewer positions than `length`."""
        if self.named:
            super().check_model(model_cfg)
        elif self.cfg.length > model_cfg.max_positions:
            longest = f"--max-positions {model_cfg.max_positions}"
            raise UserError(f"--length {self.cfg.length} is more than the model's {longest}")

    def lengths(self, examples: np.ndarray, sizes: np.ndarray, corpus: Any) -> Lengths:
        counts = corpus.input_counts[examples]
        longest = corpus.longest[examples][:, None]
        return Lengths(longest, None if (counts == 1).all() else counts, sizes)

    def collate(self, batch_spec: BatchSpec, corpus: Any) -> Batch:
        """The inputs of the examples: tokens, segments, padding_mask (B, T), languages (B, 1) and the `targets`."""
        return self.batch(corpus, batch_spec.examples)

    def batch(self, corpus: LabelledExamples, indices: np.ndarray) -> Batch:
        """The batch of examples (n,)."""
        groups, pad = corpus.inputs_of(indices), self.dictionary.pad()
        inputs, counts = list(itertools.chain.from_iterable(groups)), list(map(len, groups))
        tokens = pad_rows([item.tokens for item in inputs], pad)
        ids = [self.dictionary.language_id(corpus.examples[index].language) for index in indices]
        return self.token_inputs(tokens) | {
            "segments": torch.from_numpy(segments(tokens, self.dictionary.eos(), pad)),
            "languages": torch.from_numpy(np.repeat(ids, counts))[:, None],
            "inputs_per_example": counts,
            "target": self.targets(inputs),
        }

    # --- files -------------------------------------------------------------------------------------------------

    def paths(self, split: str) -> dict[str, Path]:
        """{language: file} of a split."""
        suffix, description = f".{self.suffix}", f"files {self.files}"
        return {code: self.path(split, code, suffix, description) for code in self.languages_of(split)}

    def files_of(self, split: str) -> list[Path]:
        return list(self.paths(split).values())

    def _read(self, folder: DataFolder, split: str) -> Iterator[tuple[str, Path, list[Any]]]:
        """Yields language, path and examples of each file of a split, and adds the files to the run's inputs."""
        for language, path in self.paths(split).items():
            yield language, path, self.read(path, language)
            name = without_suffix(self.input_name(path))
            folder.inputs.add(split, name, path, text_fingerprint(path))

    def learn_files(self, folder: DataFolder) -> None:
        """Reads the training files, and sets `state` from them."""
        self.training_examples, self.training_files = {}, []
        for language, path, examples in self._read(folder, "train"):
            self.training_files.append(count("train", path, examples, self))
            self.training_examples[language] = examples
        self.learn([example for examples in self.training_examples.values() for example in examples])

    def check_files(self, folder: DataFolder, splits: Iterable[str]) -> None:
        """Reads the files of other splits, and compares all files. Test files may be missing."""
        files = list(self.training_files)
        for split in dict.fromkeys((*splits, "test")):
            for language, path in self.paths(split).items():
                if split == "test" and not path.is_file():
                    continue
                examples = self.read(path, language)
                if split == "test":  # the rest is checked when it is opened
                    self.check_examples(examples)
                files.append(count(split, path, examples, self))
        warn_of_files(files)

    def open(self, folder: DataFolder, split: str, trains: bool, mixes: bool = False) -> dict[str, Any]:
        """Reads and encodes the files of a split: {language, or "mixed" for several in training: corpus}."""
        stored = self.training_examples if split == "train" else {}
        by_language = stored or {language: examples for language, _, examples in self._read(folder, split)}
        self.training_examples = {} if stored else self.training_examples
        examples = [example for language_examples in by_language.values() for example in language_examples]
        self.check_examples(examples)
        inputs = [self.inputs(example, folder.encode) for example in examples]
        self._warn_of_inputs(split, examples, inputs)
        if trains:
            examples, inputs = self.training_items(examples, inputs)
            return {MIXED if len(by_language) > 1 else next(iter(by_language)): LabelledExamples(examples, inputs)}
        ends = np.cumsum([0, *map(len, by_language.values())]).tolist()
        parts = zip(by_language, itertools.pairwise(ends), strict=True)
        self.evaluated[split] = {code: LabelledExamples(examples[a:b], inputs[a:b]) for code, (a, b) in parts}
        return dict(self.evaluated[split])

    def _warn_of_inputs(self, split: str, examples: list[Any], inputs: list[list[Input]]) -> None:
        """Warns of truncated examples, and if more than a share `UNKNOWN` of the tokens of a language are <unk>."""
        truncated = sum(any(item.truncated for item in example_inputs) for example_inputs in inputs)
        if truncated:
            limit = self.truncation_limit
            logger.warning("%s: %d of %d examples are truncated to %s tokens", split, truncated, len(inputs), limit)
        counts: Any = defaultdict(lambda: np.zeros(2, dtype=np.int64))  # language -> tokens that are <unk>, all tokens
        for example, example_inputs in zip(examples, inputs, strict=True):
            for item in example_inputs:
                counts[example.language] += (item.tokens == self.dictionary.unk()).sum(), item.tokens.size
        for language, (unknown, total) in counts.items():
            if unknown > UNKNOWN * total:
                logger.warning(
                    "%s.%s: %.0f %% of the tokens are <unk>: the vocabulary lacks characters of this text",
                    *(split, language, 100 * unknown / total),
                )

    @property
    def truncation_limit(self) -> str:
        """The option that truncates texts, with its value, for messages."""
        key = self.truncation_option
        return f"{self.option(key)}{'=' if self.named else ' '}{getattr(self.cfg, key)}"

    def check_longest(self, corpus: LabelledExamples, max_tokens: Optional[int]) -> None:
        """Raises `UserError` if an example needs more than `max_tokens`; None: any number is allowed."""
        longest = int((corpus.longest * corpus.input_counts).max())
        if max_tokens is not None and longest > max_tokens:
            advice = f"more than --max-tokens {max_tokens}: raise --max-tokens or lower {self.option('length')}"
            raise UserError(f"{self.example_name} needs {longest} tokens with padding, {advice}")

    # --- loss --------------------------------------------------------------------------------------------------

    def loss(self, model: Any, batch: Batch) -> dict[str, Term]:
        """{name: `Term` over the losses}, and the statistics that training logs."""
        outputs = self.outputs(model, batch)
        terms = self.terms_of(outputs, batch)
        if self.training_statistics is not None:
            values = self.count_in_training(outputs.detach(), batch)
            sums = values.new_zeros(len(values), len(self.dictionary.text_languages))
            terms[STATISTICS] = Term(sums.index_add_(1, batch["languages"][:, 0], values).flatten(), 0, 0.0)
        return terms

    def evaluate(self, model: Any, sample: dict[str, Any]) -> dict[str, Term]:
        batch, indices = sample["batch"], sample["id"].cpu().numpy()
        corpus = self.evaluated[sample["split"]][sample["corpus"]]
        outputs = model(compute=self.outputs, batch=batch)
        terms = self.terms_of(outputs, batch)
        predictions = self.predictions(outputs, batch, corpus.inputs_of(indices))
        if self.collect is not None:
            self.collect(sample, indices, predictions)
        return terms | {STATISTICS: self.statistics_term(corpus, indices, predictions, outputs.device)}

    def terms_of(self, outputs: Tensor, batch: Batch) -> dict[str, Term]:
        """{name: `Term`} from the outputs of the head."""
        return {self.name: Term(*self.output_loss(outputs, batch))}

    def statistics_term(
        self, corpus: LabelledExamples, indices: np.ndarray, predictions: list[Any], device: Any
    ) -> Term:
        """The statistics of labelled examples (n,) with their predictions, by language: (S · L,)."""
        rows = {name: row for row, name in enumerate(self.summed_statistics)}
        sums = np.zeros((len(rows), len(self.dictionary.text_languages)))
        for index, prediction in zip(indices.tolist(), predictions, strict=True):
            example = corpus.examples[index]
            if self.is_labeled(example):
                column = self.dictionary.language_id(example.language)
                for name, value in ({"examples": 1} | self.count(example, prediction)).items():
                    sums[rows[name], column] += value
        return Term(torch.from_numpy(sums.ravel()).to(device), 0, 0.0)

    # --- log ---------------------------------------------------------------------------------------------------

    @property
    def language_modeling(self) -> tuple[str, ...]:
        return ()

    @property
    def summed_statistics(self) -> tuple[str, ...]:
        """Names of the numbers that are summed by language: "examples" and `statistics`."""
        return tuple(dict.fromkeys(("examples", *self.statistics)))

    def logged_keys(self, corpora: Iterable[str]) -> list[tuple[str, str]]:
        """(statistic, language) of all languages, statistics of training first; the loss of each corpus."""
        counted = [(name, code) for name in self.summed_statistics for code in self.dictionary.text_languages]
        return [*counted, *((self.name, corpus) for corpus in corpora)]

    def by_language(self, sums: Sums) -> Iterator[tuple[str, dict[str, float]]]:
        """(language, its statistics) of each language with examples."""
        for code in self.dictionary.text_languages:
            statistics = {name: sums.get(name, {}).get(code, (0.0, 0.0))[0] for name in self.summed_statistics}
            if statistics["examples"]:
                yield code, statistics

    def values(self, sums: Sums) -> dict[str, float]:
        """The loss, the metrics of each language, and their means over languages (Liang et al. 2020, section 6.1)."""
        logged: dict[str, float] = {}
        if self.name in sums:
            logged = super().values({self.name: sums[self.name]})
        by_language = dict(self.by_language(sums))
        for name, function in self.metrics().items():
            values = {code: function(statistics) for code, statistics in by_language.items()}
            rounded = {code: round(value, 2) for code, value in values.items() if value is not None}
            logged |= {f"{name}{self.metric_suffix}_{code}": value for code, value in rounded.items()}
            if rounded:
                logged[name + self.metric_suffix] = round(sum(rounded.values()) / len(rounded), 3)
        return logged

    def metric_names(self, languages: Iterable[str]) -> list[str]:
        names = [name + self.metric_suffix for name in self.metrics()]
        return names + [f"{name}_{code}" for name in names for code in languages]

    def warn_of_collapse(self, sums: Sums) -> None:
        """Warns of languages in which nearly all predictions are the same class."""
        for code, statistics in self.by_language(sums):
            for label, predicted, gold in self.class_shares(statistics):
                if predicted >= COLLAPSED > gold:
                    logger.warning(
                        "the model has collapsed in %s: %.1f %% of its predictions are %r, which is right for %.1f %%; "
                        "a lower --lr, more updates or a warm-up that is shorter than the training may help",
                        *(f"{code} (objective {self.name})" if self.named else code, predicted, label, gold),
                    )


def labelled_objectives() -> dict[str, type[LabelledObjective]]:
    """{name: class} of the registered objectives on labelled examples."""
    return {name: kind for name, kind in OBJECTIVES.items() if issubclass(kind, LabelledObjective)}


def camel_case(name: str) -> str:
    """The name of an objective as in names of classes: question_answering -> QuestionAnswering."""
    return "".join(part.capitalize() for part in name.split("_"))
