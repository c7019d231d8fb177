"""Tagging of words (Liang et al. 2020, section 2.2). B: inputs, T: time, C: channels, N: words."""

import itertools
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fairseq_xl.data.labelled.labelled_examples import Input
from fairseq_xl.errors import LISTED, UserError
from fairseq_xl.evaluation.classification_scores import UNLABELED
from fairseq_xl.evaluation.spans import f1, labeled_words, spans
from fairseq_xl.evaluation.task_files import TaggedSentence, check_columns, format_tags, read_sentences
from fairseq_xl.io.text import is_blank
from fairseq_xl.objectives.base import Batch
from fairseq_xl.objectives.labelled import NO_CLASS, Encode, LabelledObjective, Metric

logger = logging.getLogger(__name__)

Prediction = list[str]  # a tag for each word


@LabelledObjective.register
class Tagging(LabelledObjective):
    """The tag of each word, from the last hidden state of its first piece (Devlin et al. 2019, section 5.3).

    A sentence that is too long has several inputs, divided between words.
    """

    name = "tagging"
    main_metric = "f1"
    files = "SPLIT.LANGUAGE.tsv: word TAB tag, an empty line after each sentence"
    example_name = "a sentence"
    graph_output, reads_every_token, transformers_head = "logits", True, "TokenClassification"
    partly_labeled = True  # Universal Dependencies has words without a tag
    state: ClassVar[dict[str, Any]] = {"labels": list[str]}
    labels: Sequence[str] = ()  # the tags in order
    statistics = ("words", "correct_words", "correct_spans", "predicted_spans", "gold_spans")

    @classmethod
    def random_files(cls, text: Any, count: int, length: int, candidates: int) -> dict[str, Iterable[str]]:
        words = text(length).split(" ")
        return {cls.suffix: [*map("\t".join, zip(words, itertools.cycle(("O", "B-X", "I-X")))), ""] * count}

    def read(self, path: Any, language: str) -> list[TaggedSentence]:
        return read_sentences(path, language)

    def classes(self, example: TaggedSentence) -> Iterator[tuple[str, int]]:
        return ((tag, line) for line, tag in enumerate(example.tags, start=example.line) if tag != UNLABELED)

    def text(self, example: TaggedSentence) -> str:
        return " ".join(example.words)

    def learn(self, examples: list[TaggedSentence]) -> None:
        self.labels = sorted({tag for example in examples for tag in example.tags} - {UNLABELED})
        if not self.labels:
            raise UserError(f"{Path(examples[0].file).parent}: the training files have no tag")
        words = {word for example in examples for word in example.words}
        check_columns(examples[0].file, self.labels, words, "word TAB tag")

    def check_examples(self, examples: list[TaggedSentence]) -> None:
        """Warns of tags that are not in the training sentences."""
        tags, unknown = {*self.labels, UNLABELED}, {}
        for example in examples:
            lines = unknown.setdefault(example.file, {})
            for line, tag in enumerate(example.tags, start=example.line):
                if tag not in tags:
                    lines.setdefault(tag, line)
        for file, lines in unknown.items():
            if lines:
                rest = f" and {len(lines) - LISTED} more" if len(lines) > LISTED else ""
                unseen = ", ".join(f"{tag} (line {line})" for tag, line in sorted(lines.items())[:LISTED]) + rest
                logger.warning("%s: no training sentence has the tags %s; they count as errors", file, unseen)

    def inputs(self, example: TaggedSentence, encode: Encode) -> list[Input]:
        """Inputs of whole words; a word that does not fit into an input is truncated."""
        room = self.cfg.length - 2  # <s> and </s>
        indices = {label: index for index, label in enumerate(self.labels)}
        encoded = [encode(word, example.language) for word in example.words]
        end, groups = encoded[0][-1:], [[]]
        for ended, tag in zip(encoded, example.tags):
            pieces = ended[:-1][:room]
            if sum(len(tokens) for tokens, _ in groups[-1]) + len(pieces) > room:
                groups.append([])
            groups[-1].append((pieces, indices.get(tag, NO_CLASS)))
        truncated = any(len(ended) > room + 1 for ended in encoded)
        inputs = []
        for group in groups:
            words, tags = zip(*group)
            first = 1 + np.cumsum([0, *map(len, words[:-1])])  # after <s>
            tokens = self.framing.sentence(np.concatenate([*words, end]))
            inputs.append(Input(tokens, {"first": first, "tags": np.array(tags)}, truncated))
        return inputs

    def targets(self, inputs: list[Input]) -> dict[str, Any]:
        """{"positions": first pieces of the words in the flat batch (N,), "tags": (N,), "labeled": tagged words}."""
        longest = max(len(item.tokens) for item in inputs)
        positions = [row * longest + item.target["first"] for row, item in enumerate(inputs)]
        tags = np.concatenate([item.target["tags"] for item in inputs])
        return {
            "positions": torch.from_numpy(np.concatenate(positions)),
            "tags": torch.from_numpy(tags),
            "labeled": int((tags != NO_CLASS).sum()),
        }

    def num_outputs(self) -> int:
        return len(self.labels)

    def outputs(self, model: Any, batch: Batch) -> Tensor:
        """Logits (N, tags) of the words."""
        hidden = self.encode(model, batch)
        return model.heads[self.name](hidden.flatten(0, 1)[batch["target"]["positions"]])

    def output_loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, int]:
        target = batch["target"]
        loss = F.cross_entropy(outputs.float(), target["tags"], ignore_index=NO_CLASS, reduction="sum")
        return loss, target["labeled"]

    def predictions(self, outputs: Tensor, batch: Batch, inputs: list[list[Input]]) -> list[Prediction]:
        predicted = iter(outputs.argmax(-1).tolist())
        counts = [sum(len(item.target["tags"]) for item in sentence_inputs) for sentence_inputs in inputs]
        return [[self.labels[next(predicted)] for _ in range(count)] for count in counts]

    def is_labeled(self, example: TaggedSentence) -> bool:
        return any(tag != UNLABELED for tag in example.tags)

    def count(self, example: TaggedSentence, prediction: Prediction) -> dict[str, float]:
        """Counts of words with a tag, of correct tags, and of correct, predicted and gold spans."""
        tags, predicted_tags = labeled_words(example.tags, prediction)
        gold, predicted = set(spans(tags)), set(spans(predicted_tags))
        correct = sum(predicted_tag == tag for predicted_tag, tag in zip(predicted_tags, tags))
        sizes = {"correct_spans": len(gold & predicted), "predicted_spans": len(predicted), "gold_spans": len(gold)}
        return {"words": len(tags), "correct_words": correct, **sizes}

    def metrics(self) -> dict[str, Metric]:
        """F1 of spans (`fairseq_xl.evaluation.spans`) and accuracy of words, in percent."""
        return {
            "f1": lambda sums: f1(sums["correct_spans"], sums["predicted_spans"], sums["gold_spans"]),
            "accuracy": lambda sums: 100 * sums["correct_words"] / sums["words"],
        }

    def format_prediction(self, example: TaggedSentence, prediction: Prediction) -> str:
        return format_tags(example, prediction)

    def from_line(self, line: str, language: str, file: str, line_number: int) -> TaggedSentence:
        """A sentence, from its words, separated by spaces or tabs; other white space is part of a word."""
        words = tuple(word for word in re.split("[ \t]", line) if not is_blank(word))
        return TaggedSentence(words, (UNLABELED,) * len(words), language, file, line_number)

    def to_record(self, example: TaggedSentence, prediction: Prediction) -> dict[str, Any]:
        return {"words": list(example.words), "tags": prediction}

    def to_line(self, record: dict[str, Any]) -> str:
        return " ".join(record["tags"])
