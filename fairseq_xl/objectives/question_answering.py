"""Extractive question answering (Rajpurkar et al. 2016; Liang et al. 2020, section 2.2). B: windows, T: time."""

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from fairseq.dataclass import ChoiceEnum
from torch import Tensor
from torch.nn import functional as F

from fairseq_xl.data.labelled.labelled_examples import Input
from fairseq_xl.data.vocabulary.text_encoder import truncate
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.question_answering_scores import NORMALIZATIONS, scores
from fairseq_xl.evaluation.squad import Question, read_questions
from fairseq_xl.evaluation.task_files import split_fields
from fairseq_xl.io.options import option
from fairseq_xl.objectives.base import Batch
from fairseq_xl.objectives.labelled import Encode, LabelledConfig, LabelledObjective, Metric

logger = logging.getLogger(__name__)

SYMBOLS = 4  # of <s> question </s> </s> context </s>
SHORTEST = 16  # minimum room of a window for the context, in tokens

Prediction = tuple[int, int, float]  # start character, end character (exclusive), score


@dataclass
class QuestionAnsweringConfig(LabelledConfig):
    """Options of question answering."""

    question_length: int = option(
        64, "maximum length of a question, in tokens; the rest is truncated", range="1 or more"
    )
    stride: int = option(
        128,
        "tokens between the starts of consecutive windows of a long context (doc_stride in BERT)",
        range="1 or more",
    )
    answer_length: int = option(30, "maximum length of a predicted answer, in tokens", range="1 or more")
    normalization: ChoiceEnum(NORMALIZATIONS) = option(  # type: ignore[valid-type]  # made at run time
        "squad",
        "normalization of answers before comparison: squad (removes English articles) or mlqa (removes "
        "those of the language; characters are words in Chinese, Japanese and Thai)",
    )


@LabelledObjective.register
class QuestionAnswering(LabelledObjective):
    """Predicts the start and the end token of the answer from the last hidden states (Devlin et al. 2019, section 4.2).

    A long context has several overlapping windows. In a window without the answer, start and end are <s>. Training
    shuffles windows, not questions. The prediction is the best answer of all windows of a question.
    """

    Config = QuestionAnsweringConfig
    name = "question_answering"
    main_metric = "f1"
    suffix = "json"
    files = "SPLIT.LANGUAGE.json in SQuAD's format"
    example_name = "a question with its context"
    graph_output, reads_every_token, transformers_head = "scores", True, "QuestionAnswering"
    truncation_option = "question_length"
    partly_labeled = True  # SQuAD 2.0 has questions without an answer
    statistics = ("f1", "exact")

    def __init__(self, cfg: Any, *args: Any, **kwargs: Any):
        super().__init__(cfg, *args, **kwargs)
        needed = cfg.question_length + SYMBOLS + SHORTEST
        if cfg.length < needed:
            small = f"length {cfg.length} is too small for question-length {cfg.question_length}"
            raise UserError(f"{small}: {needed} or more is needed")

    @classmethod
    def random_files(cls, text: Any, count: int, length: int, candidates: int) -> dict[str, Iterable[str]]:
        """Questions of eight words about contexts of one word as the answer, which fill an input."""
        paragraphs, length = [], length - 8 - 2 * SYMBOLS
        for index in range(count):
            context = text(length)
            answer = context.split(" ")[length // 2]
            answers = [{"text": answer, "answer_start": context.index(f" {answer}") + 1}]
            question = {"id": str(index), "question": text(8), "answers": answers}
            paragraphs.append({"context": context, "qas": [question]})
        return {cls.suffix: [json.dumps({"data": [{"paragraphs": paragraphs}]})]}

    def read(self, path: Any, language: str) -> list[Question]:
        return read_questions(path, language)

    def text(self, example: Question) -> str:
        """The question, whose language may differ from the context's."""
        return example.question

    def inputs(self, example: Question, encode: Encode) -> list[Input]:
        question = encode(example.question, example.language)
        truncated = truncate(question, self.cfg.question_length + 1)
        end = question[-1:]
        try:
            context, characters = encode.spans(example.context, example.language)
        except UserError as error:
            raise UserError(f"{example.location}: {error}") from None
        if not len(context):
            raise UserError(f"{example.location}: the context has no pieces")
        room = self.cfg.length - len(truncated) + 1 - SYMBOLS
        stride = min(self.cfg.stride, room)
        starts = range(0, max(1, len(context) - room + stride), stride)
        answer = answer_tokens(example.answers[0], characters) if example.answers else None
        parts, max_context = [], np.full(len(context), -1.0)
        for start in starts:
            stop = min(start + room, len(context))
            offset = len(truncated) + 2  # first token of the context
            tokens = self.framing.texts([truncated, np.append(context[start:stop], end)])
            span = (0, 0)
            if answer is not None and start <= answer[0] and answer[1] < stop:
                span = answer[0] + offset - start, answer[1] + offset - start
            # BERT's rule of maximum context: a token is predicted in the window with most context on its shorter side
            sizes = np.minimum(np.arange(stop - start), np.arange(stop - start)[::-1]) + 0.01 * (stop - start)
            max_context[start:stop] = np.maximum(max_context[start:stop], sizes)
            parts.append((tokens, {"span": span, "offset": offset, "characters": characters[start:stop]}, sizes, start))
        is_truncated = len(truncated) < len(question)
        return [
            Input(tokens, target | {"max_context": sizes >= max_context[start : start + len(sizes)]}, is_truncated)
            for tokens, target, sizes, start in parts
        ]

    def training_items(
        self, examples: list[Question], inputs: list[list[Input]]
    ) -> tuple[list[Question], list[list[Input]]]:
        """The windows as single examples; warns of answers that no window has as a whole, and of too long ones."""
        lost = sum(all(window.target["span"] == (0, 0) for window in windows) for windows in inputs)
        if lost:
            logger.warning(
                "the answer of %d of %d training questions is in no single window: they are trained as questions "
                "without an answer; a smaller stride or a larger length may help",
                *(lost, len(inputs)),
            )
        spans = ([window.target["span"] for window in windows] for windows in inputs)
        long = sum(any(end - start >= self.cfg.answer_length for start, end in question) for question in spans)
        if long:
            logger.warning(
                "%d of %d training questions have an answer of more than %d tokens (--answer-length), which is never "
                "predicted",
                *(long, len(inputs), self.cfg.answer_length),
            )
        pairs = [(example, [window]) for example, windows in zip(examples, inputs) for window in windows]
        return [example for example, _ in pairs], [windows for _, windows in pairs]

    def targets(self, inputs: list[Input]) -> dict[str, Any]:
        """ "start" and "end" (B,), and "context" (B, T) bool: its tokens, and <s>, which stands for no answer."""
        start, end = zip(*(window.target["span"] for window in inputs))
        context = np.zeros((len(inputs), max(len(window.tokens) for window in inputs)), dtype=bool)
        context[:, 0] = True
        for row, window in enumerate(inputs):
            offset = window.target["offset"]
            context[row, offset : offset + len(window.target["characters"])] = True
        return {"start": torch.tensor(start), "end": torch.tensor(end), "context": torch.from_numpy(context)}

    def num_outputs(self) -> int:
        return 2

    def outputs(self, model: Any, batch: Batch) -> Tensor:
        """Logits (B, T, 2) of the start and the end of the answer; -inf outside of the context and <s>."""
        logits = model.heads[self.name](self.encode(model, batch)).float()
        return logits.masked_fill(~batch["target"]["context"][..., None], -torch.inf)

    def output_loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, int]:
        """Mean of the cross-entropies of start and end, summed over windows."""
        sides = enumerate(("start", "end"))
        losses = [F.cross_entropy(outputs[..., i], batch["target"][name], reduction="sum") for i, name in sides]
        return torch.stack(losses).mean(), len(outputs)

    def predictions(self, outputs: Tensor, batch: Batch, inputs: list[list[Input]]) -> list[Prediction]:
        """For each question: start and end character of the answer, and its score."""
        logits = iter(outputs.cpu().numpy())
        spans = [[best_span(next(logits), window, self.cfg.answer_length) for window in group] for group in inputs]
        return [max(group, key=lambda span: span[-1]) for group in spans]

    def answer(self, example: Question, prediction: Prediction) -> str:
        return example.context[prediction[0] : prediction[1]].strip()

    def is_labeled(self, example: Question) -> bool:
        return bool(example.answers)

    def count(self, example: Question, prediction: Prediction) -> dict[str, float]:
        references = [text for text, _ in example.answers]
        answer = self.answer(example, prediction)
        exact, f1 = scores(answer, references, str(self.cfg.normalization), example.language)
        return {"f1": f1, "exact": exact}

    def metrics(self) -> dict[str, Metric]:
        """F1 and exact match, in percent."""
        return {
            "f1": lambda sums: 100 * sums["f1"] / sums["examples"],
            "exact_match": lambda sums: 100 * sums["exact"] / sums["examples"],
        }

    def format_prediction(self, example: Question, prediction: Prediction) -> str:
        return ": ".join(json.dumps(t, ensure_ascii=False) for t in (example.id, self.answer(example, prediction)))

    def prediction_file(self, rows: list[tuple[Question, Prediction]]) -> str:
        """One JSON object {id: answer}, the input of SQuAD's program."""
        return "{\n" + ",\n".join(self.format_prediction(example, prediction) for example, prediction in rows) + "\n}\n"

    def from_line(self, line: str, language: str, file: str, line_number: int) -> Question:
        """A question about a context, from a line ``context TAB question``."""
        context, question = split_fields(line, ("context", "question"), file, line_number)
        return Question(f"line {line_number}", question, context, (), language, file)

    def to_record(self, example: Question, prediction: Prediction) -> dict[str, Any]:
        """The answer, its first character in the context, and the sum of its two logits or None."""
        start, end, score = prediction
        spaces = len(example.context[start:end]) - len(example.context[start:end].lstrip())
        return {
            "answer": self.answer(example, prediction),
            "start": start + spaces,
            "score": score if np.isfinite(score) else None,
        }

    def to_line(self, record: dict[str, Any]) -> str:
        return str(record["answer"])


def answer_tokens(answer: tuple[str, int], characters: np.ndarray) -> tuple[int, int] | None:
    """First and last token that overlap an answer (text, first character) in `characters` (t, 2); None without one."""
    text, start = answer
    begins, ends = characters[:, 0], characters[:, 1]
    (inside,) = np.nonzero((begins < start + len(text)) & (ends > start) & (ends > begins))
    return (int(inside[0]), int(inside[-1])) if len(inside) else None


def best_span(logits: np.ndarray, window: Input, longest: int) -> tuple[int, int, float]:
    """The best answer in a window: (start character, end character, sum of its two logits).

    Starts and ends have logits (T, 2). It has at most `longest` tokens, from one of which it has most context.
    """
    characters, offset = window.target["characters"], window.target["offset"]
    starts, ends = logits[offset : offset + len(characters)].T
    empty = characters[:, 0] == characters[:, 1]
    starts = np.where(window.target["max_context"] & ~empty, starts, -np.inf)
    ends = np.where(empty, -np.inf, ends)
    after = np.append(ends, np.full(longest - 1, -np.inf))
    # (start, tokens of the answer - 1)
    sums = starts[:, None] + np.lib.stride_tricks.sliding_window_view(after, longest)
    start, extra = np.unravel_index(sums.argmax(), sums.shape)
    end = min(start + extra, len(ends) - 1)  # where no answer is possible, all are -inf
    return int(characters[start, 0]), int(characters[end, 1]), float(sums[start, extra])
