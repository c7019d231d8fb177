"""Classification of sentences, pairs and triples (Lample & Conneau 2019, section 4.1). B: examples, C: channels."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from fairseq_xl.data.labelled.labelled_examples import Input, frame
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import task_files
from fairseq_xl.evaluation.classification_scores import UNLABELED
from fairseq_xl.io.options import option
from fairseq_xl.modules.pooling import POOLINGS, pool
from fairseq_xl.objectives.base import Batch
from fairseq_xl.objectives.labelled import NO_CLASS, Encode, FirstTokenConfig, LabelledObjective, Metric
from fairseq_xl.objectives.task_file_checks import plain

logger = logging.getLogger(__name__)


class Prediction(NamedTuple):
    """The most probable class of an example."""

    label: int
    probability: float
    probabilities: list[float]  # of all classes


@dataclass
class ClassificationConfig(FirstTokenConfig):
    """Options of `classification`."""

    pooling: str = option(
        "first",
        "last hidden states that the head reads: `first`, the first token's; `mean` or `max`, their mean or maximum "
        "over the text, which were no better on XNLI (Lample & Conneau 2019, section 4.1)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("pooling", self.pooling in POOLINGS, "first, mean or max")


@LabelledObjective.register
class Classification(LabelledObjective):
    """The class of a sentence, pair or triple, from the first token's last hidden state, or pooled ones."""

    Config = ClassificationConfig
    name = "classification"
    main_metric = "accuracy"
    files = f"SPLIT.LANGUAGE.tsv: {task_files.ANY_LABELED}"
    state: ClassVar[dict[str, Any]] = {"labels": list[str], "num_texts": int}
    training_statistics = ("correct",)
    graph_output, transformers_head = "logits", "SequenceClassification"
    labels: Sequence[str] = ()  # the classes in order
    num_texts = 0  # texts of an example; 0: one to three, in a published classifier

    @property
    def statistics(self) -> tuple[str, ...]:
        return ("correct", *(f"{kind} {label}" for kind in ("predicted", "gold") for label in range(len(self.labels))))

    @classmethod
    def random_files(cls, text: Any, count: int, length: int, candidates: int) -> dict[str, Iterable[str]]:
        return {cls.suffix: (f"{i % 3}\t{text(length)}\t{text(length)}" for i in range(count))}

    def read(self, path: Any, language: str) -> list[task_files.LabeledExample]:
        return task_files.read_examples(path, language)

    def classes(self, example: task_files.LabeledExample) -> Iterator[tuple[str, int]]:
        yield example.label, example.line

    def text(self, example: task_files.LabeledExample) -> str:
        return " ".join(example.texts)

    def learn(self, examples: list[task_files.LabeledExample]) -> None:
        self.labels = sorted({example.label for example in examples} - {UNLABELED})
        self.num_texts = len(examples[0].texts)
        texts = {example.texts[-1] for example in examples}
        task_files.check_columns(examples[0].file, self.labels, texts, "label TAB text")
        if len(self.labels) < 2:
            problem = f"one label only: {self.labels[0]!r}" if self.labels else "no label"
            raise UserError(f"{Path(examples[0].file).parent}: the training files have {problem}")
        counts = Counter(example.label for example in examples)
        logger.info("classes: %s", ", ".join(f"{label} ({counts[label]} examples)" for label in self.labels))

    def check_examples(self, examples: list[task_files.LabeledExample]) -> None:
        """Raises `UserError` for another number of texts than in training, and an unknown label."""
        for example in examples:
            if self.num_texts and len(example.texts) != self.num_texts:
                raise UserError(
                    f"{example.file}: expected {task_files.LABELED[self.num_texts]} as in the other files, "
                    f"found {len(example.texts) + 1} fields"
                )
            if example.label not in (*self.labels, UNLABELED):
                swapped = ": are the columns swapped?" if example.texts[-1] in self.labels else ""
                similar = [label for label in self.labels if plain(label) == plain(example.label)]
                if similar:
                    raise UserError(
                        f"{example.location}: label {example.label!r} differs only in case or blanks from "
                        f"{similar[0]!r}"
                    )
                raise UserError(
                    f"{example.file}, line {example.line}: label {example.label!r} is not one of the classes "
                    f"{', '.join(self.labels)}{swapped}"
                )

    def inputs(self, example: task_files.LabeledExample, encode: Encode) -> list[Input]:
        """One input with all texts; the longest text is truncated first."""
        framed = frame([encode(text, example.language) for text in example.texts], self.framing, self.cfg.length)
        class_index = NO_CLASS if example.label == UNLABELED else self.labels.index(example.label)
        return [Input(framed.tokens, {"class": class_index}, framed.truncated)]

    def targets(self, inputs: list[Input]) -> dict[str, Any]:
        """{"class": (B,), "labeled": number of labeled inputs}."""
        classes = torch.tensor([item.target["class"] for item in inputs])
        return {"class": classes, "labeled": int((classes != NO_CLASS).sum())}

    def num_outputs(self) -> int:
        return len(self.labels)

    def outputs(self, model: Any, batch: Batch) -> Tensor:
        """Logits (B, classes) of the pooled last hidden states."""
        return model.heads[self.name](pool(self.encode(model, batch), batch.get("padding_mask"), self.cfg.pooling))

    def output_loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, int]:
        target = batch["target"]
        loss = F.cross_entropy(outputs.float(), target["class"], ignore_index=NO_CLASS, reduction="sum")
        return loss, target["labeled"]

    def predictions(self, outputs: Tensor, batch: Batch, inputs: list[list[Input]]) -> list[Prediction]:
        probabilities = outputs.float().softmax(-1)
        best = probabilities.max(-1)
        return list(map(Prediction, best.indices.tolist(), best.values.tolist(), probabilities.tolist()))

    def is_labeled(self, example: task_files.LabeledExample) -> bool:
        return example.label != UNLABELED

    def count(self, example: task_files.LabeledExample, prediction: Prediction) -> dict[str, float]:
        predicted, gold = prediction.label, self.labels.index(example.label)
        return {"correct": predicted == gold, f"predicted {predicted}": 1, f"gold {gold}": 1}

    def count_in_training(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Labeled examples and right answers (2, B)."""
        gold = batch["target"]["class"]
        return torch.stack((gold != NO_CLASS, outputs.argmax(-1) == gold)).float()

    def metrics(self) -> dict[str, Metric]:
        """Accuracy, in percent."""
        return {"accuracy": lambda sums: 100 * sums["correct"] / sums["examples"]}

    def class_shares(self, sums: dict[str, float]) -> Iterator[tuple[str, float, float]]:
        for index, label in enumerate(self.labels):
            predicted, gold = (100 * sums[f"{kind} {index}"] / sums["examples"] for kind in ("predicted", "gold"))
            yield label, predicted, gold

    def format_prediction(self, example: task_files.LabeledExample, prediction: Prediction) -> str:
        """Line, label, prediction, probability."""
        predicted = self.labels[prediction.label]
        return f"{example.line}\t{example.label}\t{predicted}\t{prediction.probability:.6f}\n"

    def from_line(self, line: str, language: str, file: str, line_number: int) -> task_files.LabeledExample:
        """An example of one to three texts, as many as in training."""
        count = self.num_texts or min(line.count("\t") + 1, max(task_files.LABELED))
        texts = task_files.split_fields(line, ["text"] * count, file, line_number)
        return task_files.LabeledExample(UNLABELED, tuple(texts), language, file, line_number)

    def to_record(self, example: task_files.LabeledExample, prediction: Prediction) -> dict[str, Any]:
        """The class, its probability, and the probabilities of all classes, in descending order."""
        classes = sorted(zip(self.labels, prediction.probabilities), key=lambda pair: -pair[1])
        label = self.labels[prediction.label]
        return {"label": label, "probability": prediction.probability, "probabilities": dict(classes)}

    def to_line(self, record: dict[str, Any]) -> str:
        return f"{record['label']}\t{record['probability']:.6f}"
