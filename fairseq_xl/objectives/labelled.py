"""Objectives whose corpus is labelled: classification, ranking, tagging, question answering and further task types.

B: inputs, T: time, S: statistics, L: languages.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, make_dataclass
from typing import Any, Optional

import numpy as np
import torch
from torch import Tensor, nn

from fairseq_xl.data.dictionary import XLDictionary
from fairseq_xl.data.framing import Framing, InputLength, pad_rows
from fairseq_xl.data.labelled import LabelledExamples, segments
from fairseq_xl.data.plan import BatchSpec, Lengths
from fairseq_xl.errors import check_ranges
from fairseq_xl.finetuning import TASK_TYPES
from fairseq_xl.finetuning.base import TaskType, camel_case
from fairseq_xl.modules.packing import find_packing
from fairseq_xl.objectives.base import OBJECTIVES, Batch, Objective, ObjectiveConfig, Sums, Term

SHORTEST = 8  # minimum length of an input, in tokens
STATISTICS = "statistics"  # name of the term that holds statistics instead of a loss


@dataclass
class LabelledConfig(ObjectiveConfig):
    """Options of labelled objectives in addition to those of their task type."""

    # folder of SPLIT.LANGUAGE files; several folders, separated by ":", are searched in order
    task_files: Optional[str] = None
    train_langs: str = "en"  # languages to train on, separated by commas
    eval_langs: str = "en"  # languages of every other split, separated by commas
    head_dropout: float = 0.1  # dropout in front of the output layer

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("length", self.length >= SHORTEST, f"at least {SHORTEST} tokens")
        self.require("head_dropout", 0 <= self.head_dropout < 1, "from 0 to below 1")
        for name in ("alpha", "mixed", "leave_out"):  # they are for text without labels
            default = ObjectiveConfig.__dataclass_fields__[name].default
            self.require(name, getattr(self, name) == default, "left out: batches mix the examples of train_langs")
        check_ranges(type(self), self)


class LabelledObjective(Objective):
    """The loss of a task type, and the statistics from which its metrics are computed.

    Args:
        cfg: the `ObjectiveConfig`; one of `LabelledConfig` and of the type's options makes the task type.
        dictionary, framing: as in `Objective`.
        name: the name of the objective; None: the type's.
        task_type: the task type; None: a new one.
        named: whether its metrics have its name: accuracy_NAME in place of accuracy.
    """

    corpus_type = "labelled"
    #: class of the task type
    type_class: type[TaskType]

    def __init__(
        self,
        cfg: ObjectiveConfig,
        dictionary: XLDictionary,
        framing: Framing,
        name: Optional[str] = None,
        task_type: Optional[TaskType] = None,
        named: bool = True,
    ):
        super().__init__(cfg, dictionary, framing)
        self.type = task_type or self.type_class(cfg, framing, name or self.type_class.name)
        self.type.framing = framing
        self.name = name or self.type.name
        self.suffix = f"_{self.name}" if named else ""
        trained = self.type.training_statistics
        if trained is not None and self.statistics[: 1 + len(trained)] != ("examples", *trained):
            raise ValueError(f"{self.type.name}: `statistics` must begin with `training_statistics`")

    @property
    def input_length(self) -> InputLength:
        """`InputLength` of an input, which is framed and truncated already."""
        return InputLength(text=self.cfg.length, symbols=0, positions=self.cfg.length)

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

    def batch(self, corpus: LabelledExamples, numbers: np.ndarray) -> Batch:
        """The batch of examples (n,)."""
        of_examples, pad = corpus.inputs_of(numbers), self.dictionary.pad()
        inputs, counts = [each for of_one in of_examples for each in of_one], list(map(len, of_examples))
        tokens = pad_rows([each.tokens for each in inputs], pad)
        padding = torch.from_numpy(tokens == pad)
        ids = [self.dictionary.language_id(corpus.examples[number].language) for number in numbers]
        return {
            "tokens": torch.from_numpy(tokens),
            "segments": torch.from_numpy(segments(tokens, self.dictionary.eos(), pad)),
            "languages": torch.from_numpy(np.repeat(ids, counts))[:, None],
            "padding_mask": padding if padding.any() else None,
            "packing": find_packing(tokens, pad),
            "inputs_per_example": counts,
            "target": self.type.collate(inputs),
        }

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

    def terms_of(self, outputs: Tensor, batch: Batch) -> dict[str, Term]:
        """{name: `Term`} from the outputs of the head."""
        return {self.name: Term(*self.type.loss(outputs, batch))}

    def counted(self, corpus: LabelledExamples, numbers: np.ndarray, predictions: list[Any], device: Any) -> Term:
        """The statistics of labelled examples (n,) with their predictions, by language: (S · L,)."""
        rows = {name: row for row, name in enumerate(self.statistics)}
        sums = np.zeros((len(rows), len(self.dictionary.languages)))
        for number, prediction in zip(numbers.tolist(), predictions, strict=True):
            example = corpus.examples[number]
            if self.type.is_labeled(example):
                column = self.dictionary.language_id(example.language)
                for name, value in ({"examples": 1} | self.type.count(example, prediction)).items():
                    sums[rows[name], column] += value
        return Term(torch.from_numpy(sums.ravel()).to(device), 0, 0.0)

    # --- log ---------------------------------------------------------------------------------------------------

    @property
    def language_modeling(self) -> tuple[str, ...]:
        """None of its terms."""
        return ()

    @property
    def statistics(self) -> tuple[str, ...]:
        """The statistics, which are summed by language: "examples" and the type's."""
        return tuple(dict.fromkeys(("examples", *self.type.statistics)))

    def logged_keys(self, corpora: Iterable[str]) -> list[tuple[str, str]]:
        """(statistic, language) of all languages, statistics of training first; the loss of each corpus."""
        counted = [(name, code) for name in self.statistics for code in self.dictionary.languages]
        return [*counted, *((self.name, corpus) for corpus in corpora)]

    def by_language(self, sums: Sums) -> Iterator[tuple[str, dict[str, float]]]:
        """(language, its statistics) of each language with examples."""
        for code in self.dictionary.languages:
            found = {name: sums.get(name, {}).get(code, (0.0, 0.0))[0] for name in self.statistics}
            if found["examples"]:
                yield code, found

    def values(self, sums: Sums) -> dict[str, float]:
        """The metrics of each language, and their means over languages (Liang et al. 2020, section 6.1)."""
        logged: dict[str, float] = {}
        if self.name in sums:
            logged = super().values({self.name: sums[self.name]})
        by_language = dict(self.by_language(sums))
        for name, function in self.type.metrics().items():
            measured = {code: function(each) for code, each in by_language.items()}
            rounded = {code: round(value, 2) for code, value in measured.items() if value is not None}
            logged |= {f"{name}{self.suffix}_{code}": value for code, value in rounded.items()}
            if rounded:
                logged[name + self.suffix] = round(sum(rounded.values()) / len(rounded), 3)
        return logged

    def metric_names(self, languages: Iterable[str]) -> list[str]:
        """Names of the metrics in the log: of all languages together, then of each."""
        names = [name + self.suffix for name in self.type.metrics()]
        return names + [f"{name}_{code}" for name in names for code in languages]

    @property
    def main_metric(self) -> str:
        """The name of the main metric in the log."""
        return self.type.main_metric + self.suffix

    def shares(self, sums: Sums) -> Iterator[tuple[str, str, float, float]]:
        """Yields (language, class, percent of the predictions, percent of the labels), to warn of a collapsed model."""
        for code, found in self.by_language(sums):
            for label, predicted, gold in self.type.class_shares(found):
                yield code, f"{self.name}: {label}" if self.suffix else label, predicted, gold


def define_objectives() -> None:
    """Registers an objective for each task type that has none yet."""
    for name, task_type in TASK_TYPES.items():
        if name not in OBJECTIVES:
            described = {"__doc__": f"Options of `{name}`.", "__module__": __name__}
            bases = (LabelledConfig, task_type.Config)
            config = make_dataclass(f"{camel_case(name)}ObjectiveConfig", [], bases=bases, namespace=described)
            members = {"__doc__": task_type.__doc__, "name": name, "Config": config, "type_class": task_type}
            OBJECTIVES[name] = type(camel_case(name), (LabelledObjective,), members)


define_objectives()
