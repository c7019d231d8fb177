"""Similarity of two texts as a number, trained by squared error (after Agirre et al. 2012). B: pairs, C: channels."""

import math
from dataclasses import dataclass

import torch

from fairseq_xl.data.labelled.labelled_examples import frame
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.task_files import labeled_lines, split_fields
from fairseq_xl.io.options import option
from fairseq_xl.objectives.labelled import FirstTokenConfig, LabelledObjective


@dataclass
class SimilarityConfig(FirstTokenConfig):
    """Options of similarity."""

    largest: float = option(5.0, "largest similarity; 0 is the smallest")


@dataclass(frozen=True)
class Pair:
    """Two texts and their similarity."""

    similarity: float
    texts: tuple
    language: str
    location: str


@LabelledObjective.register
class Similarity(LabelledObjective):
    """Predicts the similarity of two texts from the first token's last hidden state."""

    Config = SimilarityConfig
    name = "similarity"
    main_metric = "pearson"
    files = "SPLIT.LANGUAGE.tsv: similarity TAB text TAB text"
    statistics = ("x", "y", "xx", "yy", "xy")
    graph_output, transformers_head = "scores", "SequenceClassification"

    @classmethod
    def random_files(cls, text, count, length, candidates):
        """Pairs of random texts, for `fairseq-xl plan`."""
        return {"tsv": [f"{index % 6}\t{text(length)}\t{text(length)}" for index in range(count)]}

    def read(self, path, language):
        """The pairs of a file."""
        pairs = []
        for number, line in labeled_lines(path, language):
            similarity, *texts = line.split("\t")
            if len(texts) != 2 or not similarity.replace(".", "", 1).isdigit():
                raise UserError(f"{path}, line {number}: expected {self.files}")
            pairs.append(Pair(float(similarity), tuple(texts), language, f"{path}, line {number}"))
        return pairs

    def from_line(self, line, language, file, number):
        """An unlabeled pair, for `fairseq-xl predict`."""
        return Pair(0.0, tuple(split_fields(line, ("text", "text"), file, number)), language, f"{file}, line {number}")

    def inputs(self, example, encode):
        """One input: both texts, of which the longer is truncated first."""
        framed = frame([encode(text, example.language) for text in example.texts], self.framing, self.cfg.length)
        framed.target["similarity"] = example.similarity / self.cfg.largest
        return [framed]

    def targets(self, inputs):
        """{"similarity": (B,), from 0 to 1}."""
        return {"similarity": torch.tensor([item.target["similarity"] for item in inputs])}

    def num_outputs(self):
        return 1

    def outputs(self, model, batch):
        """Similarities (B,) from 0 to 1."""
        return model.heads[self.name](self.encode(model, batch)[:, 0]).squeeze(-1).sigmoid()

    def output_loss(self, outputs, batch):
        return ((outputs.float() - batch["target"]["similarity"]) ** 2).sum(), len(outputs)

    def predictions(self, outputs, batch, inputs):
        return (self.cfg.largest * outputs.float()).tolist()

    def is_labeled(self, example):
        return True

    def count(self, example, prediction):
        """Sums of which Pearson's correlation is a function."""
        x, y = prediction, example.similarity
        return {"x": x, "y": y, "xx": x * x, "yy": y * y, "xy": x * y}

    def metrics(self):
        """Pearson's correlation, in percent."""

        def pearson(sums):
            n, x, y = sums["examples"], sums["x"], sums["y"]
            spread = math.sqrt(max(n * sums["xx"] - x * x, 0) * max(n * sums["yy"] - y * y, 0))
            return 100 * (n * sums["xy"] - x * y) / spread if spread else 0.0

        return {"pearson": pearson}

    def format_prediction(self, example, prediction):
        return f"{example.similarity:g}\t{prediction:.4f}\n"

    def read_predictions(self, path, language):
        """The lines of `format_prediction`, for `fairseq-xl score labelled`."""
        for number, line in labeled_lines(path, language):
            similarity, prediction = map(float, split_fields(line, ("similarity", "prediction"), path, number))
            yield Pair(similarity, (), language, path), prediction
