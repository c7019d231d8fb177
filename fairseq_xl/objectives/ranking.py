"""Ranking of a query's texts by relevance (Liang et al. 2020, section 2.2). B: texts of all queries of a batch."""

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fairseq_xl.data.labelled.labelled_examples import Input, frame
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.ranking_scores import ndcg
from fairseq_xl.evaluation.task_files import NO_RELEVANCE, RANKED, Query, format_ranking, read_queries, split_fields
from fairseq_xl.objectives.base import Batch
from fairseq_xl.objectives.labelled import Encode, FirstTokenConfig, LabelledObjective, Metric

Prediction = np.ndarray  # a score for each text


@LabelledObjective.register
class Ranking(LabelledObjective):
    """A score of each text of a query, from the first token's last hidden state, trained on whole queries.

    The loss is ListNet's (Cao et al. 2007): the cross-entropy between the softmax of the relevances and the softmax of
    the scores. The paper does not name its loss.
    """

    Config = FirstTokenConfig
    name = "ranking"
    main_metric = "ndcg"
    files = f"SPLIT.LANGUAGE.tsv: {RANKED}"
    example_name = "a query with all its texts"
    statistics = ("ndcg",)
    graph_output, transformers_head = "scores", "SequenceClassification"
    state: ClassVar[dict[str, Any]] = {"num_texts": int}
    num_texts = 0  # texts of a line, with the query; 0: two or three, in a published cross-encoder

    @classmethod
    def random_files(cls, text: Any, count: int, length: int, candidates: int) -> dict[str, Iterable[str]]:
        rows: list[str] = []
        for _ in range(count):
            query = text(4)
            rows += [f"{relevance}\t{query}\t{text(length)}" for relevance in range(candidates)]
        return {cls.suffix: rows}

    def read(self, path: Any, language: str) -> list[Query]:
        return read_queries(path, language)

    def classes(self, example: Query) -> Iterator[tuple[str, int]]:
        """The relevances that are integers: grades."""
        return ((f"{value:g}", line) for value, line in zip(example.relevance, example.lines) if value.is_integer())

    def text(self, example: Query) -> str:
        return " ".join((example.query, *example.texts[0]))

    def learn(self, examples: list[Query]) -> None:
        self.num_texts = 1 + len(examples[0].texts[0])

    def check_examples(self, examples: list[Query]) -> None:
        """Raises `UserError` for a line with another number of texts than in training."""
        for example in examples:
            for line, texts in zip(example.lines, example.texts):
                if self.num_texts not in (0, 1 + len(texts)):
                    raise UserError(
                        f"{example.file}, line {line}: expected {self.num_texts} texts as in training, the query "
                        f"included, found {1 + len(texts)}"
                    )

    def inputs(self, example: Query, encode: Encode) -> list[Input]:
        """An input for each text of a query; the longest text is truncated first."""
        encoded = [[encode(text, example.language) for text in (example.query, *texts)] for texts in example.texts]
        framed = [frame(texts, self.framing, self.cfg.length) for texts in encoded]
        rows = zip(framed, example.relevance)
        return [Input(item.tokens, {"relevance": value}, item.truncated) for item, value in rows]

    def targets(self, inputs: list[Input]) -> dict[str, Any]:
        """{"relevance": (B,), "labeled": whether it is known, a NumPy array (B,)}."""
        relevance = torch.tensor([item.target["relevance"] for item in inputs])
        return {"relevance": relevance, "labeled": (relevance != NO_RELEVANCE).numpy()}

    def num_outputs(self) -> int:
        return 1

    def outputs(self, model: Any, batch: Batch) -> Tensor:
        """Scores (B,) from the first token's last hidden state."""
        return model.heads[self.name](self.encode(model, batch)[:, 0]).squeeze(-1)

    def output_loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, int]:
        """Sum of the cross-entropies of the labeled queries, in nats, and their number."""
        scores, relevance = (  # (queries, most texts of a query)
            pad_sequence(values.float().split(batch["inputs_per_example"]), batch_first=True, padding_value=-torch.inf)
            for values in (outputs, batch["target"]["relevance"])
        )
        labeled = (relevance != NO_RELEVANCE).all(1)
        products = relevance.softmax(1) * scores.log_softmax(1).masked_fill(relevance == -torch.inf, 0)
        queries = split_by_example(batch["target"]["labeled"], batch["inputs_per_example"])
        return -products.sum(1).masked_fill(~labeled, 0).sum(), sum(bool(is_labeled.all()) for is_labeled in queries)

    def predictions(self, outputs: Tensor, batch: Batch, inputs: list[list[Input]]) -> list[Prediction]:
        return split_by_example(outputs.float().cpu().numpy(), batch["inputs_per_example"])

    def is_labeled(self, example: Query) -> bool:
        return NO_RELEVANCE not in example.relevance

    def count(self, example: Query, prediction: Prediction) -> dict[str, float]:
        """nDCG of a query with linear gains; a query of a single text is left out."""
        return {"ndcg": ndcg(example.relevance, prediction)} if len(example.texts) > 1 else {"examples": 0}

    def metrics(self) -> dict[str, Metric]:
        """nDCG, in percent."""
        return {"ndcg": lambda sums: 100 * sums["ndcg"] / sums["examples"]}

    def format_prediction(self, example: Query, prediction: Prediction) -> str:
        return format_ranking(example, np.asarray(prediction).tolist())

    def from_line(self, line: str, language: str, file: str, line_number: int) -> Query:
        """A query with a single text; the scores of the texts of a query do not depend on each other."""
        count = self.num_texts or 2 + (line.count("\t") > 1)
        query, *texts = split_fields(line, ["query", *["text"] * (count - 1)], file, line_number)
        return Query(query, (tuple(texts),), (NO_RELEVANCE,), (line_number,), language, file)

    def to_record(self, example: Query, prediction: Prediction) -> dict[str, Any]:
        return {"score": float(prediction[0])}

    def to_line(self, record: dict[str, Any]) -> str:
        return f"{record['score']:.6f}"


def split_by_example(values: np.ndarray, inputs_per_example: list[int]) -> list[np.ndarray]:
    """Splits values (B, …) of a batch's inputs into one array (inputs of the example, …) per example."""
    return np.split(values, np.cumsum(inputs_per_example)[:-1])
