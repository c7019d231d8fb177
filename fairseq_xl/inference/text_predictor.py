"""Translations, titles and other text that an encoder-decoder generates for lines of text."""

import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from fairseq.dataclass.configs import GenerationConfig

from fairseq_xl.data.vocabulary import tokenizers
from fairseq_xl.errors import UserError
from fairseq_xl.inference.predictor import BatchLimits, Predictor, Record
from fairseq_xl.tasks.same_language_generation import XLGenerationTask
from fairseq_xl.tasks.supervised_translation import XLTranslationConfig, XLTranslationTask


class TextPredictor(Predictor):
    """A translation or generation model with fairseq's generator, as a function from lines to text.

    `pair` is source and target language, twice the same one for same-language generation; `options` are fields of
    fairseq's `GenerationConfig`, which `fairseq_xl.inference.decoding_options` checks.
    """

    def __init__(
        self,
        model: Any,
        task: Any,
        limits: BatchLimits,
        name: str,
        pair: tuple[str, str],
        options: dict[str, Any] | None = None,
    ):
        super().__init__(model, task_of_pair(task, pair), limits, name)
        self.pair = pair
        self.longest = self.task.objective.longest or model.max_positions()  # source and target, in tokens
        self.generator = self.task.build_generator([model], GenerationConfig(**(options or {})))

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
                generated[index] = {"text": self.text_of(best["tokens"]), "score": float(best["score"]) / math.log(2)}
        return [generated[index] for index in range(len(lines))]

    def batches(self, sources: list[np.ndarray], targets: list[np.ndarray] | None = None) -> Iterator[dict[str, Any]]:
        """Batches, on the model's device, of sentences that end in ``</s>``, and of their targets if there are any."""
        dataset = self.task.build_dataset(sources, targets, self.pair, longest=self.longest)
        epochs = self.task.get_batch_iterator(dataset, max_tokens=self.limits.tokens, max_sentences=self.limits.lines)
        return map(self.on_device, epochs.next_epoch_itr(shuffle=False))

    def text_of(self, tokens: Any) -> str:
        """The text of generated tokens (T,), without special symbols."""
        dictionary, language = self.task.dictionary, self.pair[1]
        special = {dictionary.mask_index, *range(dictionary.first_language, len(dictionary))}
        joined = dictionary.string(tokens.cpu(), dictionary.word_mark, extra_symbols_to_ignore=special)
        return tokenizers.detokenize(joined, self.encode.tokenizers.get(language), language)

    def to_line(self, record: Record) -> str:
        return str(record["text"])


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
