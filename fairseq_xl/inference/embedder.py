"""Sentence embeddings of an encoder, and retrieval with them (Luo et al. 2020).

`B` batch, `T` time, `C` channels, `n` sentences. The command is `fairseq-xl search pairs`.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from fairseq_xl.checkpoints.identity import found_in
from fairseq_xl.checkpoints.layouts.sentence_transformers import SentenceSettings
from fairseq_xl.checkpoints.layouts.stored_origin import stored_origin
from fairseq_xl.data import Numbers
from fairseq_xl.data.framing import pad_rows
from fairseq_xl.data.labelled.labelled_examples import segments
from fairseq_xl.data.vocabulary.text_encoder import TextEncoder, truncate
from fairseq_xl.errors import UserError, named_values
from fairseq_xl.evaluation.retrieval_scores import cosine, evaluate_similarity, unit_length, write_best_matches
from fairseq_xl.inference.model_loading import load_model
from fairseq_xl.io.checkpoints import load_plain
from fairseq_xl.io.text import is_blank
from fairseq_xl.models.encoder import Encoder
from fairseq_xl.models.monotrans import XLMonoTransModel
from fairseq_xl.modules.pooling import pool

logger = logging.getLogger(__name__)

POOLINGS = ("mean", "first")
BATCH_TOKENS = 4096
Choice = tuple[int, str]  # layer and pooling


class Embedder:
    """The encoder of a checkpoint of any task, as a function from sentences to sentence embeddings.

    `data` is the data folder of the checkpoint or of the language module; the options `language_module` and `lang` of
    the task name another language module than the checkpoint's. If `fp16`, weights have 16 bits. Texts are truncated to
    the length in the `settings` of sentence-transformers in the checkpoint; `prompt` names one of theirs, None: their
    default one.
    """

    longest: int  # most tokens of a text

    def __init__(self, checkpoint: str, data: str, fp16: bool = False, prompt: str | None = None, **options: Any):
        model, task = load_model(checkpoint, data, **options)
        self._use(model, task, checkpoint, prompt)
        self.model.to("cuda" if torch.cuda.is_available() else "cpu", torch.float16 if fp16 else None)

    @classmethod
    def from_model(cls, model: Any, task: Any) -> "Embedder":
        """Returns the encoder of a loaded model, on the model's device."""
        embedder = cls.__new__(cls)
        embedder._use(model, task, "the model", None)
        return embedder

    def _use(self, model: Any, task: Any, name: str, prompt: str | None) -> None:
        self.model, self.task = model, task
        if not isinstance(getattr(model, "encoder", None), Encoder):
            raise UserError(f"{name}: expected a model with an encoder, found {type(model).__name__}")
        self.has_language_modules = isinstance(model, XLMonoTransModel)
        self.encoder = model.encoder
        self.settings = (task.origin and task.origin.settings) or SentenceSettings()
        self.prompt, positions = self.settings.prompt(prompt), self.encoder.embeddings.max_positions
        self.longest = min(positions, self.settings.max_length or positions)
        self.channels = self.encoder.embeddings.positions.embedding_dim
        self.encode = TextEncoder(task.folder(), task.dictionary)
        self.choices = [(layer, pooling) for layer in range(len(self.encoder.layers) + 1) for pooling in POOLINGS]

    @property
    def device(self) -> torch.device:
        return next(self.encoder.parameters()).device

    def choice(self, layer: int | None = None, pooling: str | None = None) -> Choice:
        """(layer, pooling), by default the last and that of the settings; `UserError` for one that the model lacks."""
        choice = len(self.encoder.layers) if layer is None else layer, pooling or self.settings.pooling
        if choice not in self.choices:
            layers = f"a layer from 0 to {len(self.encoder.layers)}"
            raise UserError(f"layer {layer}, pooling {choice[1]!r}: expected {layers} and {' or '.join(POOLINGS)}")
        return choice

    def rows(self, sentences: Iterable[str], language: str) -> list[Numbers]:
        """Sentences of a language -> framed token sequences, truncated to the model's positions."""
        ended = [self.encode(sentence, language) for sentence in sentences]
        self.encode.warn_of_unknown(f"text of {language}")
        too_long = sum(len(tokens) >= self.longest for tokens in ended)
        if too_long:
            logger.warning("%d sentences are truncated to %d tokens", too_long, self.longest)
        language_id = self.task.dictionary.language_id(language)
        return [self.task.framing.sentence(truncate(tokens, self.longest - 1), language_id) for tokens in ended]

    @torch.no_grad()
    def hidden_states(
        self,
        rows: Sequence[Numbers],
        language: str,
        batch_tokens: int = BATCH_TOKENS,
        causal: bool = False,
        batch_size: int | None = None,
    ) -> Iterator[tuple[list[int], Any, Tensor]]:
        """Yields the indices, hidden states and padding (B, T) of batches of framed texts of similar length.

        The hidden states are a list of (B, T, C): the embeddings, then the output of each layer. If `causal`, a
        position attends to itself and earlier ones only. A batch has at most `batch_size` texts, unless that is None.
        """
        dictionary = self.task.dictionary
        for batch in batches([len(row) for row in rows], batch_tokens, batch_size):
            padded = pad_rows([rows[index] for index in batch], dictionary.pad())
            tokens = torch.from_numpy(padded).to(self.device)
            padding = tokens.eq(dictionary.pad())
            # called by its class, since the encoder of a translation model overrides `forward`
            states = Encoder.forward(
                self.encoder,
                tokens,
                languages=torch.full_like(tokens[:, :1], dictionary.language_id(language)),
                padding_mask=padding if padding.any() and not causal else None,  # the causal mask hides padding
                segments=torch.from_numpy(segments(padded, dictionary.eos(), dictionary.pad())).to(self.device),
                causal=causal,
                all_layers=True,
            )
            yield batch, states, padding

    def __call__(
        self, sentences: Sequence[str], language: str, choices: Iterable[Choice], progress: bool = False, **limits: Any
    ) -> dict[Choice, np.ndarray]:
        """n sentences of one language -> {(layer, pooling): (n, C) float32} for each of `choices`.

        Layer 0 is the embeddings. The mean is over all tokens but padding. A blank sentence has a row of zeros, whose
        cosine is 0. `limits` of batches are those of `hidden_states`.
        """
        filled = np.flatnonzero([not is_blank(sentence) for sentence in sentences])
        rows = self.rows([sentences[index] for index in filled.tolist()], language)
        embeddings = {choice: np.zeros((len(sentences), self.channels), np.float32) for choice in choices}
        with tqdm(total=len(rows), unit=" sentences", disable=not progress) as progress_bar:
            for batch, states, padding in self.hidden_states(rows, language, **limits):
                for layer, pooling in choices:
                    pooled = pool(states[layer].float(), padding, pooling)
                    embeddings[layer, pooling][filled[batch]] = pooled.cpu().numpy()
                progress_bar.update(len(batch))
        return embeddings

    def sentence_embeddings(
        self,
        sentences: Sequence[str],
        language: str,
        choices: Iterable[Choice],
        prompt: str | None = None,
        normalize: bool | None = None,
        **batches: Any,
    ) -> dict[Choice, np.ndarray]:
        """As a call, behind the prompt of this name, and normalized to length 1; None: as the settings say."""
        text = self.prompt if prompt is None else self.settings.prompt(prompt)
        if text:
            sentences = [sentence if is_blank(sentence) else text + sentence for sentence in sentences]
        normalize = self.settings.normalize if normalize is None else normalize
        embeddings = self(sentences, language, choices, **batches)
        return {choice: unit_length(rows) if normalize else rows for choice, rows in embeddings.items()}


def has_settings(checkpoint: str) -> bool:
    """Whether a checkpoint says how texts become sentence embeddings; False for a file that is not there."""
    if not Path(checkpoint).exists():
        return False
    file, _ = found_in(checkpoint)
    content = load_plain(file, mapped=True)
    origin = stored_origin(content.get("task_state") or {}, file) if isinstance(content, dict) else None
    return origin is not None and origin.settings is not None


def embedder_of(options: Any, fp16: bool = False, prompt: str | None = None) -> Embedder:
    """The encoder of a command's arguments `checkpoint`, `data`, `language_module` and `lang`."""
    module = {"language_module": options.language_module, "lang": options.lang} if options.language_module else {}
    embedder = Embedder(options.checkpoint, options.data, fp16, prompt, **module)
    embedder.task.dictionary.language_id(options.lang)
    return embedder


class Embedders:
    """The encoder of a command's arguments `checkpoint`, `data` and `embedding_options` for several languages.

    Language modules, XX=DATA:MODULE, replace that of the checkpoint. Sentences are embedded as
    `Embedder.sentence_embeddings` does. Raises `UserError` for wrong modules, and for languages without one.
    """

    def __init__(self, options: Any, languages: set[str]):
        checkpoint, data, fp16, prompt = options.checkpoint, options.data, options.fp16, options.prompt
        replacements = _language_modules(options.language_module, languages)
        self.default = Embedder(checkpoint, data, fp16, prompt)
        if self.default.has_language_modules:
            supported = self.default.task.dictionary.languages
            for language in sorted(languages - replacements.keys() - set(supported)):
                remedy = f"--language-module {language}=DATA:MODULE gives the model a language module of {language}"
                raise UserError(f"{data} is of {', '.join(supported)}: {remedy}")
        elif replacements:
            raise UserError(
                f"--language-module: {checkpoint} is not an xl_monotrans_* model; only those have language modules"
            )
        for language in sorted(languages - replacements.keys()):  # before sentences of other languages are encoded
            self.default.task.dictionary.language_id(language)
        self.by_language = {
            language: Embedder(checkpoint, folder, fp16, prompt, language_module=module, lang=language)
            for language, (folder, module) in replacements.items()
        }

    def choices(self, layer: int | None = None, pooling: str | None = None, selects: bool = False) -> list[Choice]:
        """The choices (layer, pooling) of the model, only those with this `layer` and `pooling` unless None.

        A sentence encoder of sentence-transformers has one, that of its settings, unless one is selected.
        """
        if self.default.settings.files and not selects:
            return [self.default.choice(layer, pooling)]
        matching = [pair for pair in self.default.choices if layer in (None, pair[0]) and pooling in (None, pair[1])]
        if not matching:
            raise UserError(f"--layer {layer}: the model has the layers 0 to {len(self.default.encoder.layers)}")
        return matching

    def __call__(self, sentences: Sequence[str], language: str, choices: Iterable[Choice]) -> dict[Choice, np.ndarray]:
        """As `Embedder.sentence_embeddings`, with the language module of the language."""
        return self.by_language.get(language, self.default).sentence_embeddings(sentences, language, choices)


def _language_modules(arguments: Sequence[str], languages: set[str]) -> dict[str, tuple[str, str]]:
    """XX=DATA:MODULE -> {language: (data folder, language module's file)}, each of one of `languages`."""
    modules, form = {}, "XX=DATA:MODULE, the folder of its dict.txt and its file"
    for language, value in named_values("--language-module", arguments, form).items():
        data, _, module = value.partition(":")
        if not data or not module:
            raise UserError(f"--language-module {language}={value}: expected {form}")
        if language not in languages:
            raise UserError(f"--language-module {language}={value}: there are no sentences of {language}")
        modules[language] = data, module
    return modules


def batches(lengths: Sequence[int] | Numbers, most_tokens: int, most_rows: int | None = None) -> Iterator[list[int]]:
    """Indices of sentences of similar length, in lists of at most `most_tokens` tokens with padding, or of one."""
    batch = []
    for index in np.argsort(lengths, kind="stable").tolist():
        if batch and (lengths[index] * (len(batch) + 1) > most_tokens or len(batch) == most_rows):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def retrieve(
    embed: Embedder | Embedders,
    texts: Mapping[str, Sequence[Sequence[str]]],
    choices: Collection[Choice],
    found_to: str | Path | None = None,
) -> dict[Choice, dict[str, Any]]:
    """Sentences {pair: two lists} -> {choice: {pair: scores of `evaluate_similarity`, with "pairs", their number}}.

    With `found_to`, for a single choice, a folder gets a file PAIR.tsv of each pair (`write_best_matches`).
    """
    results: dict[Choice, dict[str, Any]] = {choice: {} for choice in choices}
    for pair, sides in texts.items():
        source, target = (embed(side, language, choices) for side, language in zip(sides, pair.split("-")))
        for choice in choices:
            similarity = cosine(source[choice], target[choice])
            results[choice][pair] = {"pairs": len(sides[0])} | evaluate_similarity(similarity)
            if found_to is not None:
                write_best_matches(similarity, Path(found_to) / f"{pair}.tsv")
    return results
