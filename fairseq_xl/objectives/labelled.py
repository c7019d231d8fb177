"""Objectives whose corpus is labelled: classification, ranking, tagging, question answering and further task types.

B: inputs, T: time, S: statistics, L: languages.
"""

import itertools
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np
import torch
from torch import Tensor, nn

from fairseq_xl.data.corpora.mixed_corpus import MIXED
from fairseq_xl.data.framing import Framing, InputLength, pad_rows
from fairseq_xl.data.labelled.labelled_examples import Input, LabelledExamples, segments
from fairseq_xl.data.plan.epoch_plan import BatchSpec, Lengths
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError, check_ranges
from fairseq_xl.finetuning import TASK_TYPES
from fairseq_xl.finetuning.base import TaskType, camel_case
from fairseq_xl.finetuning.file_checks import TaskFile, count, warn_of_files
from fairseq_xl.io.compressed import without_suffix
from fairseq_xl.io.fingerprints import text_fingerprint
from fairseq_xl.modules.packing import find_packing
from fairseq_xl.objectives.base import OBJECTIVES, STATISTICS, Batch, Sums, Term
from fairseq_xl.objectives.data_folder import DataFolder
from fairseq_xl.objectives.task_file_objectives import FilesConfig, FilesObjective

logger = logging.getLogger(__name__)

SHORTEST = 8  # minimum length of an input, in tokens
COLLAPSED = 98.0  # percent of the predictions in one class from which on a model counts as collapsed
UNKNOWN = 0.1  # share of <unk> among the tokens of a language above which there is a warning


@dataclass
class LabelledConfig(FilesConfig):
    """Options of labelled objectives in addition to those of their task type."""

    head_dropout: float = 0.1  # dropout in front of the output layer

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("length", self.length >= SHORTEST, f"at least {SHORTEST} tokens")
        self.require("head_dropout", 0 <= self.head_dropout < 1, "from 0 to below 1")
        check_ranges(type(self), self, field_name=str)


class LabelledObjective(FilesObjective):
    """The loss of a task type, and the statistics of its metrics.

    Args: as of `Objective`; the options are those of `LabelledConfig` and of the task type.
    """

    corpus_class = LabelledExamples
    #: class of the task type
    type_class: type[TaskType]

    def __init__(
        self, cfg: Any, dictionary: XLDictionary, framing: Framing, name: Optional[str] = None, named: bool = True
    ):
        super().__init__(cfg, dictionary, framing, name, named)
        self.type = self.type_class(cfg, framing, self.name)
        self.suffix = f"_{self.name}" if named else ""
        self.training_examples: dict[str, list[Any]] = {}  # by language, from `learn` to `open`
        self.files: list[TaskFile] = []  # of the training files
        self.evaluated: dict[str, dict[str, LabelledExamples]] = {}  # by split and language
        #: is called with sample, indices (n,) and predictions of each evaluated batch; None: they are only counted
        self.collect: Optional[Callable[[dict[str, Any], np.ndarray, list[Any]], None]] = None
        trained = self.type.training_statistics
        if trained is not None and self.statistics[: 1 + len(trained)] != ("examples", *trained):
            raise ValueError(f"{self.type.name}: `statistics` must begin with `training_statistics`")

    #: its labels are those of the training files
    reads_training_files = True

    @property
    def input_length(self) -> InputLength:
        """`InputLength` of a framed and truncated input."""
        return InputLength(text=self.cfg.length, symbols=0, positions=self.cfg.length)

    def check_model(self, model_cfg: Any) -> None:
        """Raises `UserError` if a model's config has fewer positions than `length`."""
        if self.named:
            super().check_model(model_cfg)
        elif self.cfg.length > model_cfg.max_positions:
            longest = f"--max-positions {model_cfg.max_positions}"
            raise UserError(f"--length {self.cfg.length} is more than the model's {longest}")

    def heads(self, model_cfg: Any) -> dict[str, nn.Module]:
        """The head of the task type."""
        return self.type.heads(model_cfg)

    def lengths(self, examples: np.ndarray, sizes: np.ndarray, corpus: Any) -> Lengths:
        """The `Lengths` of examples of several inputs each."""
        counts = corpus.input_counts[examples]
        longest = corpus.longest[examples][:, None]
        return Lengths(longest, None if (counts == 1).all() else counts, sizes)

    def collate(self, batch_spec: BatchSpec, corpus: Any) -> Batch:
        """The inputs of the examples: tokens, segments, padding_mask (B, T), languages (B, 1) and the type's target."""
        return self.batch(corpus, batch_spec.examples)

    def batch(self, corpus: LabelledExamples, indices: np.ndarray) -> Batch:
        """The batch of examples (n,)."""
        groups, pad = corpus.inputs_of(indices), self.dictionary.pad()
        inputs, counts = list(itertools.chain.from_iterable(groups)), list(map(len, groups))
        tokens = pad_rows([item.tokens for item in inputs], pad)
        padding = torch.from_numpy(tokens == pad)
        ids = [self.dictionary.language_id(corpus.examples[index].language) for index in indices]
        return {
            "tokens": torch.from_numpy(tokens),
            "segments": torch.from_numpy(segments(tokens, self.dictionary.eos(), pad)),
            "languages": torch.from_numpy(np.repeat(ids, counts))[:, None],
            "padding_mask": padding if padding.any() else None,
            "packing": find_packing(tokens, pad),
            "inputs_per_example": counts,
            "target": self.type.collate(inputs),
        }

    # --- files -------------------------------------------------------------------------------------------------

    def paths(self, split: str) -> dict[str, Path]:
        """{language: file} of a split."""
        suffix, description = f".{self.type.suffix}", f"files {self.type.files}"
        return {code: self.path(split, code, suffix, description) for code in self.languages_of(split)}

    def files_of(self, split: str) -> list[Path]:
        """The files of a split, which need not exist."""
        return list(self.paths(split).values())

    def _read(self, folder: DataFolder, split: str) -> Iterator[tuple[str, Path, list[Any]]]:
        """Yields language, path and examples of each file of a split, and adds the files to the run's inputs."""
        for language, path in self.paths(split).items():
            yield language, path, self.type.read(path, language)
            name = without_suffix(self.input_name(path))
            folder.inputs.add(split, name, path, text_fingerprint(path))

    def _task_file(self, split: str, path: Path, examples: list[Any]) -> TaskFile:
        return count(split, path, examples, self.type, self.suffix.removeprefix("_"))

    def learn(self, folder: DataFolder) -> None:
        """Reads the training files, and sets the task type's state from them."""
        self.training_examples, self.files = {}, []
        for language, path, examples in self._read(folder, "train"):
            self.files.append(self._task_file("train", path, examples))
            self.training_examples[language] = examples
        self.type.learn([example for examples in self.training_examples.values() for example in examples])

    def check_files(self, folder: DataFolder, splits: Iterable[str]) -> None:
        """Reads the files of other splits, and compares all files. Test files may be missing."""
        files = list(self.files)
        for split in dict.fromkeys((*splits, "test")):
            for language, path in self.paths(split).items():
                if split == "test" and not path.is_file():
                    continue
                examples = self.type.read(path, language)
                if split == "test":  # the rest is checked when it is opened
                    self.type.check(examples)
                files.append(self._task_file(split, path, examples))
        warn_of_files(files)

    def open(self, folder: DataFolder, split: str, trains: bool, mixes: bool = False) -> dict[str, Any]:
        """Reads and encodes the files of a split: {language, or "mixed" for several in training: corpus}."""
        stored = self.training_examples if split == "train" else {}
        by_language = stored or {language: examples for language, _, examples in self._read(folder, split)}
        self.training_examples = {} if stored else self.training_examples
        examples = [example for language_examples in by_language.values() for example in language_examples]
        self.type.check(examples)
        inputs = [self.type.inputs(example, folder.encode) for example in examples]
        self._warn_of_inputs(split, examples, inputs)
        if trains:
            examples, inputs = self.type.training_items(examples, inputs)
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
        key = self.type.truncation_option
        return f"{self.option(key)}{'=' if self.named else ' '}{getattr(self.cfg, key)}"

    def check_longest(self, corpus: LabelledExamples, max_tokens: Optional[int]) -> None:
        """Raises `UserError` if an example needs more than `max_tokens`; None: any number is allowed."""
        longest = int((corpus.longest * corpus.input_counts).max())
        if max_tokens is not None and longest > max_tokens:
            advice = f"more than --max-tokens {max_tokens}: raise --max-tokens or lower {self.option('length')}"
            raise UserError(f"{self.type.example_name} needs {longest} tokens with padding, {advice}")

    # --- loss --------------------------------------------------------------------------------------------------

    def outputs(self, model: Any, batch: Batch) -> Tensor:
        """The outputs of the head, inside `model.forward`."""
        return self.type.outputs(model, batch)

    def loss(self, model: Any, batch: Batch) -> dict[str, Term]:
        """{name: `Term` over the type's losses}, and the statistics that training logs."""
        outputs = self.outputs(model, batch)
        terms = self.terms_of(outputs, batch)
        if self.type.training_statistics is not None:
            values = self.type.count_in_training(outputs.detach(), batch)
            sums = values.new_zeros(len(values), len(self.dictionary.languages))
            terms[STATISTICS] = Term(sums.index_add_(1, batch["languages"][:, 0], values).flatten(), 0, 0.0)
        return terms

    def evaluate(self, model: Any, sample: dict[str, Any]) -> dict[str, Term]:
        """The loss, and the statistics of the predictions, by language."""
        batch, indices = sample["batch"], sample["id"].cpu().numpy()
        corpus = self.evaluated[sample["split"]][sample["corpus"]]
        outputs = model(compute=self.outputs, batch=batch)
        terms = self.terms_of(outputs, batch)
        predictions = self.type.predict(outputs, batch, corpus.inputs_of(indices))
        if self.collect is not None:
            self.collect(sample, indices, predictions)
        return terms | {STATISTICS: self.statistics_term(corpus, indices, predictions, outputs.device)}

    def terms_of(self, outputs: Tensor, batch: Batch) -> dict[str, Term]:
        """{name: `Term`} from the outputs of the head."""
        return {self.name: Term(*self.type.loss(outputs, batch))}

    def statistics_term(
        self, corpus: LabelledExamples, indices: np.ndarray, predictions: list[Any], device: Any
    ) -> Term:
        """The statistics of labelled examples (n,) with their predictions, by language: (S · L,)."""
        rows = {name: row for row, name in enumerate(self.statistics)}
        sums = np.zeros((len(rows), len(self.dictionary.languages)))
        for index, prediction in zip(indices.tolist(), predictions, strict=True):
            example = corpus.examples[index]
            if self.type.is_labeled(example):
                column = self.dictionary.language_id(example.language)
                for name, value in ({"examples": 1} | self.type.count(example, prediction)).items():
                    sums[rows[name], column] += value
        return Term(torch.from_numpy(sums.ravel()).to(device), 0, 0.0)

    # --- log ---------------------------------------------------------------------------------------------------

    @property
    def language_modeling(self) -> tuple[str, ...]:
        """No terms."""
        return ()

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics, which are summed by language: "examples" and the type's."""
        return tuple(dict.fromkeys(("examples", *self.type.statistics)))

    def logged_keys(self, corpora: Iterable[str]) -> list[tuple[str, str]]:
        """(statistic, language) of all languages, statistics of training first; the loss of each corpus."""
        counted = [(name, code) for name in self.statistics for code in self.dictionary.languages]
        return [*counted, *((self.name, corpus) for corpus in corpora)]

    def by_language(self, sums: Sums) -> Iterator[tuple[str, dict[str, float]]]:
        """(language, its statistics) of each language with examples."""
        for code in self.dictionary.languages:
            statistics = {name: sums.get(name, {}).get(code, (0.0, 0.0))[0] for name in self.statistics}
            if statistics["examples"]:
                yield code, statistics

    def values(self, sums: Sums) -> dict[str, float]:
        """The loss, the metrics of each language, and their means over languages (Liang et al. 2020, section 6.1)."""
        logged: dict[str, float] = {}
        if self.name in sums:
            logged = super().values({self.name: sums[self.name]})
        by_language = dict(self.by_language(sums))
        for name, function in self.type.metrics().items():
            values = {code: function(statistics) for code, statistics in by_language.items()}
            rounded = {code: round(value, 2) for code, value in values.items() if value is not None}
            logged |= {f"{name}{self.suffix}_{code}": value for code, value in rounded.items()}
            if rounded:
                logged[name + self.suffix] = round(sum(rounded.values()) / len(rounded), 3)
        return logged

    def metric_names(self, languages: Iterable[str]) -> list[str]:
        """Names of the metrics in the log: of all languages together, then of each."""
        names = [name + self.suffix for name in self.type.metrics()]
        return names + [f"{name}_{code}" for name in names for code in languages]

    @property
    def main_metric(self) -> str:  # type: ignore[override]
        """The name of the main metric in the log."""
        return self.type.main_metric + self.suffix

    def warn_of_collapse(self, sums: Sums) -> None:
        """Warns of languages in which nearly all predictions are the same class."""
        for code, statistics in self.by_language(sums):
            for label, predicted, gold in self.type.class_shares(statistics):
                if predicted >= COLLAPSED > gold:
                    logger.warning(
                        "the model has collapsed in %s: %.1f %% of its predictions are %r, which is right for %.1f %%; "
                        "a lower --lr, more updates or a warm-up that is shorter than the training may help",
                        *(code, predicted, f"{self.name}: {label}" if self.suffix else label, gold),
                    )


def define_objectives() -> None:
    """Registers an objective for each task type that has none yet."""
    for name, task_type in TASK_TYPES.items():
        if name not in OBJECTIVES:
            namespace = {"__doc__": f"Options of `{name}`.", "__module__": __name__}
            bases = (LabelledConfig, task_type.Config)
            config = make_dataclass(f"{camel_case(name)}ObjectiveConfig", [], bases=bases, namespace=namespace)
            members = {"__doc__": task_type.__doc__, "name": name, "Config": config, "type_class": task_type}
            OBJECTIVES[name] = type(camel_case(name), (LabelledObjective,), members)


define_objectives()
