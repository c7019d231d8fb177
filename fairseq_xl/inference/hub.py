"""A loaded model for use from Python: embeddings, masked words, scores, text and classes.

`n` sentences, `C` channels.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_xl.checkpoints.identity import found_in
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.inference import scoring
from fairseq_xl.inference.decoding_options import check_options, check_value
from fairseq_xl.inference.embedder import Embedder
from fairseq_xl.inference.model_loading import load_model
from fairseq_xl.inference.predictors import BatchLimits, LabelPredictor, Record, TextPredictor
from fairseq_xl.io.text import is_blank
from fairseq_xl.tasks.training import TrainingTask

INPUT = "the text"  # in messages
#: options of models that say how large one is
SIZES = ("layers", "encoder_layers", "decoder_layers", "embed_dim", "ffn_dim", "heads")


def load(checkpoint: str | Path, data: str | Path | None = None, **options: Any) -> "HubInterface":
    """Loads a checkpoint's model, in evaluation mode, and its task, for use from Python.

    Args:
        checkpoint: a file of fairseq-train, or a folder with one of `fairseq_xl.io.checkpoints.CHECKPOINTS`.
        data: data folder with dict.txt and its sub-words; None: the checkpoint's folder if it has a dict.txt, otherwise
            that of the training.
        options: options of the task or the model that replace the checkpoint's, such as ``lang="de"``.

    Raises `UserError` for a checkpoint that cannot be loaded, and for options that its task and its model lack.
    """
    return HubInterface(*load_model(checkpoint, data, **options), found_in(checkpoint)[0])


class HubInterface:
    """A model in evaluation mode, and its task; ``model, task = fairseq_xl.load(...)`` gives both.

    Methods compute on the model's device and raise `UserError` if the model cannot do what they do.
    """

    def __init__(self, model: Any, task: Any, checkpoint: Path):
        self.model, self.task, self.checkpoint = model, task, checkpoint
        self._predictors: dict[Any, Any] = {}

    def __iter__(self) -> Iterator[Any]:
        """The model and the task."""
        return iter((self.model, self.task))

    def __repr__(self) -> str:
        """Architecture, sizes and parameters of the model; task with objectives or directions; languages; file."""
        architecture, options = type(self.model), getattr(self.model, "cfg", {})
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        sizes = [f"{parameters:,} parameters", *(f"{name} {options[name]}" for name in SIZES if name in options)]
        names = self.task.identity().get("lang_pairs") or sorted(self.task.objectives)
        return (
            f"{architecture.__name__} ({architecture.__mro__[1].__name__}): {', '.join(sizes)}\n"
            f"task: {self.task.cfg._name} ({', '.join(names)})\n"
            f"languages: {', '.join(self.task.dictionary.languages) or 'any'}\n"
            f"checkpoint: {self.checkpoint}"
        )

    def to(self, *where: Any) -> "HubInterface":
        """Moves the model as `torch.nn.Module.to` does; returns the interface. `UserError` for a missing device."""
        try:
            self.model.to(*where)
        except (AssertionError, RuntimeError) as error:  # torch without CUDA; no GPU, no such one, no such type
            raise UserError(f"to({', '.join(map(repr, where))}): {str(error).splitlines()[0]}") from error
        self._predictors.clear()  # a generator may hold tensors on the earlier device
        return self

    @cached_property
    def embedder(self) -> Embedder:
        """The encoder as a function from sentences to all layers and poolings."""
        return Embedder.from_model(self.model, self.task)

    def encode(
        self,
        sentences: Sequence[str],
        lang: str,
        layer: int | None = None,
        pooling: str | None = None,
        *,
        prompt: str | None = None,
        batch_size: int | None = None,
        device: Any = None,
        normalize: bool | None = None,
        progress: bool = False,
    ) -> np.ndarray:
        """n sentences of a language -> sentence embeddings (n, C) float32; a blank sentence has a row of zeros.

        A model that came in as a folder of sentence-transformers has its pooling, prompts, length and normalization.

        Args:
            layer: layer whose hidden states are pooled, 0: the embeddings, None: the last layer.
            pooling: ``mean`` over the tokens, or ``first``, the first token; None: the model's, or the mean.
            prompt: name of the model's prompt in front of each sentence; None: its default one; empty: none.
            batch_size: most sentences in a batch, which has at most `BATCH_TOKENS` tokens; None: any number.
            device: where the model is moved to; None: where it is.
            normalize: whether embeddings have length 1, so that their products are cosines; None: as the model's.
            progress: whether to show a progress bar.

        Raises `UserError` for an unknown language, layer, pooling or prompt, and for a wrong batch size or device.
        """
        if batch_size is not None:
            check_value("batch_size", batch_size, int, "1 or more")
        choice = self.embedder.choice(layer, pooling)
        if device is not None:
            self.to(device)
        texts = _texts(sentences)
        batches = {"batch_size": batch_size, "progress": progress}
        return self.embedder.sentence_embeddings(texts, lang, [choice], prompt, normalize, **batches)[choice]

    def fill_mask(self, sentence: str, lang: str, top: int = 5) -> list[scoring.Filled]:
        """The most probable pieces for the only ``<mask>`` of a sentence: (probability, piece, whole sentence) each.

        For models pre-trained with a masked objective. ``<mask>`` stands for one piece, which may begin a word or
        continue the one before it; text behind it continues the word unless a space is between them. Raises `UserError`
        unless the sentence has exactly one ``<mask>`` and fits into the model's positions, and for a `top` below 1.
        """
        check_value("top", top, int, "1 or more")
        if not isinstance(sentence, str):
            raise UserError(f"sentence: expected text, found {quoted(sentence)}")
        return scoring.fill_mask(self.embedder, sentence, lang, top)

    def score(
        self,
        sentences: Sequence[str],
        targets: Sequence[str] | None = None,
        *,
        lang: str | None = None,
        source_lang: str | None = None,
        target_lang: str | None = None,
    ) -> np.ndarray:
        """n sentences -> scores (n,) float64 in nats.

        - A model pre-trained with `clm`: log P(sentence), ``</s>`` included.
        - A model pre-trained with a masked objective and without `clm`: the pseudo-log-likelihood, the sum over pieces
          of log P(piece | the sentence with this piece masked), without ``</s>`` (Salazar et al. 2020).
        - A translation model, with `targets`: log P(target | source), ``</s>`` included.

        Args:
            targets: translations of the sentences, for a translation model.
            lang: the language of the sentences.
            source_lang, target_lang: the two languages of a translation model; each defaults to `lang`.

        Longer sentences are truncated; without `targets`, a blank sentence has the score 0. Raises `UserError` for
        unequal numbers of sentences and targets.
        """
        if targets is not None:
            predictor = self._generator((source_lang or lang, target_lang or lang), {})
            return scoring.translation_log_likelihoods(predictor, _texts(sentences), _texts(targets, "targets"))
        if lang is None:
            raise UserError("score: name the sentences' language with lang, or give targets of a translation model")
        texts = _texts(sentences)
        totals = np.zeros(len(texts))
        filled = [index for index, text in enumerate(texts) if not is_blank(text)]
        is_causal = "clm" in getattr(self.task, "objectives", ())
        scores = scoring.log_likelihoods if is_causal else scoring.pseudo_log_likelihoods
        totals[filled] = scores(self.embedder, [texts[index] for index in filled], lang)
        return totals

    def translate(
        self, sentences: Sequence[str], source_lang: str, target_lang: str, beam: int = 5, **options: Any
    ) -> list[str]:
        """Translations of sentences by beam search; the translation of a blank sentence is empty.

        `options` are those of `fairseq_xl.inference.decoding_options.OPTIONS`, fields of fairseq's `GenerationConfig`.
        Raises `UserError` for another option, and for a value of another type or out of range.
        """
        options = {"beam": beam, **options}
        check_options(options)
        records = self._generator((source_lang, target_lang), options)(_texts(sentences))
        return [record["text"] if record else "" for record in records]

    def generate(self, sentences: Sequence[str], lang: str, beam: int = 5, **options: Any) -> list[str]:
        """As `translate`, by a model of `xl_generation`, which writes titles and the like in the same language."""
        return self.translate(sentences, lang, lang, beam, **options)

    def predict(self, lines: Sequence[str], lang: str, objective: str | None = None) -> list[Record | None]:
        """Predictions of a fine-tuned encoder, as `fairseq-xl predict --json` writes them; None for a blank line.

        Args:
            lines: fields separated by tabs, as `fairseq-xl predict` reads them.
            objective: name of one of several labelled objectives of the model.
        """
        if not (isinstance(self.task, TrainingTask) and self.task.labelled):
            raise UserError(f"expected a fine-tuned encoder, found a model trained by {self.task.cfg._name}")
        key = lang, objective
        if key not in self._predictors:
            self._predictors[key] = LabelPredictor(self.model, self.task, BatchLimits(), INPUT, lang, objective)
        return self._predictors[key](_texts(lines, "lines"))

    def _generator(self, pair: tuple[Any, Any], options: dict[str, Any]) -> TextPredictor:
        if None in pair:
            raise UserError("score: name the languages of sources and targets with source_lang and target_lang")
        key = pair, tuple(sorted(options.items()))
        if key not in self._predictors:
            self._predictors[key] = TextPredictor(self.model, self.task, BatchLimits(), INPUT, pair, options)
        return self._predictors[key]


def _texts(sentences: Sequence[str], argument: str = "sentences") -> Sequence[str]:
    """The sentences as a list; raises `UserError` for a single text and for items that are no text."""
    if isinstance(sentences, str):
        raise UserError(f"{argument}: expected a list of sentences, found the text {sentences[:40]!r}")
    if not isinstance(sentences, Iterable):
        raise UserError(f"{argument}: expected a list of sentences, found {quoted(sentences)}")
    texts = list(sentences)
    for index, sentence in enumerate(texts):
        if not isinstance(sentence, str):
            raise UserError(f"{argument}[{index}]: expected text, found {quoted(sentence)}")
    return texts
