"""Predictors: labels of a fine-tuned encoder and text of an encoder-decoder, for the lines that are not blank."""

import argparse
import copy
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from fairseq import utils
from fairseq.dataclass.configs import GenerationConfig

from fairseq_xl.data.labelled.labelled_examples import LabelledExamples
from fairseq_xl.data.vocabulary import tokenizers
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.text_encoder import TextEncoder
from fairseq_xl.errors import UserError
from fairseq_xl.inference.model_loading import load_model
from fairseq_xl.io.lines import STANDARD_INPUT
from fairseq_xl.io.options import option_name
from fairseq_xl.io.text import is_blank
from fairseq_xl.tasks.planned_batches import PlannedBatches
from fairseq_xl.tasks.same_language_generation import XLGenerationTask
from fairseq_xl.tasks.supervised_translation import XLTranslationConfig, XLTranslationTask
from fairseq_xl.tasks.training import TrainingTask

LISTED = 10  # line numbers that a warning shows

logger = logging.getLogger(__name__)

Record = dict[str, Any]  # prediction for a line, a JSON object


@dataclass(frozen=True)
class BatchLimits:
    """Sizes of a batch."""

    tokens: int = 4096  # with padding
    lines: int | None = None


class Predictor(ABC):
    """A function from lines of text to predictions, with limits of batches and a name of the input for messages."""

    def __init__(self, model: Any, task: Any, limits: BatchLimits, name: str):
        self.model, self.task, self.limits, self.name = model, task, limits, name
        self.encode = TextEncoder(task.folder(), task.dictionary)

    def __call__(self, lines: Sequence[str], first: int = 1) -> list[Record | None]:
        """Predicts for n lines, numbered from `first`: n records, None for a blank line."""
        filled = [index for index, line in enumerate(lines) if not is_blank(line)]
        results: list[Record | None] = [None] * len(lines)
        if filled:
            records = self.predict([lines[index] for index in filled], [first + index for index in filled])
            self.encode.warn_of_unknown(self.name)
            for index, record in zip(filled, records, strict=True):
                results[index] = record
        return results

    @abstractmethod
    def predict(self, lines: Sequence[str], numbers: Sequence[int]) -> list[Record]:
        """Predicts for lines that are not blank; `numbers`: their line numbers, for messages."""

    @abstractmethod
    def to_line(self, record: Record) -> str:
        """A record as a line of text."""

    def on_device(self, sample: Any) -> Any:
        """A sample on the model's device."""
        device = next(self.model.parameters()).device
        return utils.apply_to_sample(lambda tensor: tensor.to(device), sample) if device.type != "cpu" else sample

    def warn_of_truncation(self, numbers: Sequence[int], limit: str) -> None:
        """Warns of truncated lines; `numbers`: their line numbers, `limit`: their length, for the message."""
        if numbers:
            shown = ", ".join(map(str, numbers[:LISTED])) + (", …" if len(numbers) > LISTED else "")
            logger.warning("%s: %d lines are truncated to %s: %s", self.name, len(numbers), limit, shown)


class LabelPredictor(Predictor):
    """A fine-tuned encoder as a function of lines of text; `UserError` unless `objective` names one of several."""

    def __init__(
        self, model: Any, task: Any, limits: BatchLimits, name: str, language: str, objective: str | None = None
    ):
        super().__init__(model, task, limits, name)
        if objective is None and len(task.labelled) == 1:
            (objective,) = task.labelled
        if objective not in task.labelled:
            problem = f"--objective {objective}" if objective else "--objective is missing"
            raise UserError(f"{problem}: expected one of {', '.join(task.labelled)}")
        self.objective, self.language = task.labelled[objective], language
        self.objective.cfg.batch_tokens = self.objective.cfg.batch_sentences = None  # those of the command apply
        task.dictionary.language_id(language)

    @torch.no_grad()
    def predict(self, lines: Sequence[str], numbers: Sequence[int]) -> list[Record]:
        examples = [self.objective.from_line(line, self.language, self.name, n) for line, n in zip(lines, numbers)]
        inputs = [self.objective.inputs(example, self.encode) for example in examples]
        truncated = [n for n, group in zip(numbers, inputs) if any(item.truncated for item in group)]
        self.warn_of_truncation(truncated, f"{self.objective.truncation_limit} tokens")
        corpus = LabelledExamples(examples, inputs)
        self.objective.check_longest(corpus, self.limits.tokens)
        predicted: dict[int, Any] = {}
        dataset = PlannedBatches(self.task.objectives, {self.objective.name: {self.language: corpus}})
        epochs = self.task.get_batch_iterator(dataset, max_tokens=self.limits.tokens, max_sentences=self.limits.lines)
        for sample in map(self.on_device, epochs.next_epoch_itr(shuffle=False)):
            outputs, ids = self.model(self.objective.outputs, sample["batch"]), sample["id"].cpu().numpy()
            predictions = self.objective.predictions(outputs, sample["batch"], corpus.inputs_of(ids))
            predicted |= zip(ids.tolist(), predictions, strict=True)
        return [self.objective.to_record(example, predicted[index]) for index, example in enumerate(examples)]

    def to_line(self, record: Record) -> str:
        return self.objective.to_line(record)


class TextPredictor(Predictor):
    """A translation or generation model as a function from lines to text.

    `pair` is source and target language; `options` are those of `fairseq_xl.inference.decoding_options`.
    """

    def __init__(
        self, model: Any, task: Any, limits: BatchLimits, name: str, pair: tuple[str, str], options: dict[str, Any]
    ):
        super().__init__(model, task_of_pair(task, pair), limits, name)
        self.pair = pair
        self.longest = self.task.objective.longest or model.max_positions()  # source and target, in tokens
        self.generator = self.task.build_generator([model], GenerationConfig(**options))

    def predict(self, lines: Sequence[str], numbers: Sequence[int]) -> list[Record]:
        """The best hypothesis of each line: text, and score as fairseq-generate prints it, in base 2."""
        sources = [self.encode(line, self.pair[0]) for line in lines]
        longest = self.longest[0]
        truncated = [n for n, source in zip(numbers, sources) if len(source) >= longest]  # with <s>
        self.warn_of_truncation(truncated, f"{longest} tokens")
        size = 1 + max(min(len(source), longest - 1) for source in sources)
        if size > self.limits.tokens:
            raise UserError(f"{self.name}: a line has {size} tokens, more than --max-tokens {self.limits.tokens}")
        generated = {}
        for sample in self.batches(sources):
            beams = self.task.inference_step(self.generator, [self.model], sample)
            for index, (best, *_) in zip(sample["id"].tolist(), beams):
                generated[index] = {
                    "text": text_of(best["tokens"], self.task.dictionary, self.encode, self.pair[1]),
                    "score": float(best["score"]) / math.log(2),
                }
        return [generated[index] for index in range(len(lines))]

    def batches(self, sources: list[np.ndarray], targets: list[np.ndarray] | None = None) -> Iterator[dict[str, Any]]:
        """Batches, on the model's device, of sentences that end in ``</s>``, and of their targets if there are any."""
        dataset = self.task.build_dataset(sources, targets, self.pair, longest=self.longest)
        epochs = self.task.get_batch_iterator(dataset, max_tokens=self.limits.tokens, max_sentences=self.limits.lines)
        return map(self.on_device, epochs.next_epoch_itr(shuffle=False))

    def to_line(self, record: Record) -> str:
        return str(record["text"])


def text_of(tokens: torch.Tensor, dictionary: XLDictionary, encode: TextEncoder, language: str) -> str:
    """The text of tokens (T,), without special symbols."""
    special = {dictionary.mask_index, *range(dictionary.first_language, len(dictionary))}
    joined = dictionary.string(tokens.cpu(), dictionary.word_mark, extra_symbols_to_ignore=special)
    return tokenizers.detokenize(joined, encode.tokenizers.get(language), language)


def directions_of(task: Any) -> list[str]:
    """The translation directions of a task's model, such as en-de; empty for other models."""
    return task.identity().get("lang_pairs", [])


def task_of_pair(task: Any, pair: tuple[str, str]) -> Any:
    """The task that runs a loaded model for a pair of languages; `UserError` if the model was not trained for them."""
    source, target = pair
    if isinstance(task, XLGenerationTask):
        task.dictionary.language_id(target)
        if source != target:
            raise UserError(f"{source}-{target}: xl_generation writes the language of the source")
        task = copy.copy(task)
        task.pair = source, target
        return task
    if not directions_of(task):
        raise UserError(f"a model of {task.cfg._name} generates no text: expected one of translation or xl_generation")
    cfg = XLTranslationConfig(data=task.cfg.data, source_lang=source, target_lang=target)
    cfg.target_pieces_only = getattr(task.cfg, "target_pieces_only", False)
    pair_task = XLTranslationTask(cfg, task.dictionary)
    pair_task.load_state_dict({"fairseq_xl": task.identity(), "path": "the model"})
    return pair_task


def choose(options: argparse.Namespace, generation: dict[str, Any]) -> Predictor:
    """Makes the predictor of the checkpoint of `fairseq-xl predict` or `translate`.

    Raises `UserError` for options of another model, and for a model of the other command.
    """
    translates = "source_lang" in options
    module = {}
    if not translates and options.language_module:
        module = {"language_module": options.language_module, "lang": options.lang}
    model, task = load_model(options.checkpoint, options.data, **module)
    model.to("cuda" if torch.cuda.is_available() else "cpu", torch.float16 if options.fp16 else None)
    common = model, task, BatchLimits(options.max_tokens, options.batch_size), options.input or STANDARD_INPUT
    writes = bool(directions_of(task)) or isinstance(task, XLGenerationTask)
    labelled = isinstance(task, TrainingTask) and bool(task.labelled)
    if not writes and not labelled:
        if "writes" in task.identity():
            raise UserError(
                f"{options.checkpoint} was trained by xl_pretraining: text is written by `fairseq-interactive "
                f"{task.cfg.data} --user-dir fairseq_xl --task xl_generation --path {options.checkpoint} --eval-langs "
                "LANGUAGE`"
            )
        raise UserError(
            f"{options.checkpoint} was trained by {task.cfg._name}: expected a fine-tuned model, or one that "
            "translates or generates text"
        )
    if translates:
        if not directions_of(task):
            raise UserError(f"{options.checkpoint} does not translate: use `fairseq-xl predict`")
        return TextPredictor(*common, _direction(options, task), generation)
    writes = writes and not (labelled and options.objective)
    _check(options, generation, writes)
    if writes and directions_of(task):
        raise UserError(f"{options.checkpoint} translates: use `fairseq-xl translate`")
    if labelled:
        return LabelPredictor(*common, _language(options, task), options.objective)
    return TextPredictor(*common, (_language(options, task),) * 2, generation)


def _check(options: argparse.Namespace, generation: dict[str, Any], writes: bool) -> None:
    """Raises `UserError` for options of text generation if the model predicts classes, and vice versa."""
    if writes:
        unexpected = ["--objective"] * bool(options.objective) + ["--probabilities"] * options.probabilities
        expected = "predicts classes"
    else:
        unexpected, expected = [option_name(name) for name in generation], "translates or generates text"
    if unexpected:
        raise UserError(f"{', '.join(unexpected)}: expected a model that {expected}, found {options.checkpoint}")


def _language(options: argparse.Namespace, task: Any) -> str:
    languages: list[str] = task.dictionary.languages or ["und"]  # undetermined: the model reads any language
    if not options.lang and len(languages) > 1:
        raise UserError(f"--lang is missing: name the language of the text, one of {', '.join(languages)}")
    return options.lang or languages[0]


def _direction(options: argparse.Namespace, task: Any) -> tuple[str, str]:
    trained = directions_of(task)
    if options.source_lang and options.target_lang:
        return options.source_lang, options.target_lang
    if options.source_lang or options.target_lang or len(trained) > 1:
        raise UserError(f"give --source-lang and --target-lang; {options.checkpoint} has {', '.join(trained)}")
    source, target = trained[0].split("-")
    return source, target
