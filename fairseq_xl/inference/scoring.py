"""Words in place of <mask>, and log-probabilities of sentences under a language or translation model.

`B` batch, `T` time, `C` channels, `V` vocabulary, `N` predictions, `n` sentences. Log-probabilities are in nats.
"""

import string
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairseq_xl.data import Numbers
from fairseq_xl.data.vocabulary.special_symbols import MASK
from fairseq_xl.data.vocabulary.text_encoder import TextEncoder, truncate
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.inference.embedder import Embedder
from fairseq_xl.inference.predictors import TextPredictor, text_of
from fairseq_xl.io.text import text_of_line
from fairseq_xl.models.encoder import XLEncoderModel
from fairseq_xl.modules.output import OutputLayer
from fairseq_xl.objectives.mlm import MaskedObjective

SENTENCES = 64  # sentences whose masked copies are in memory at a time
LOGITS = 2**24  # logits in memory at a time: 64 MB in float32
#: letters that are put in place of the mask: the first one is in no vocabulary, so that no piece joins it with the text
#: beside it; but it may make the whole word unknown, and then one of the others is needed
LETTERS = "\ua66e" + string.ascii_lowercase


class Filled(NamedTuple):
    """A piece in place of <mask>."""

    probability: float
    token: str  # the piece, as it is in the dictionary
    text: str  # the sentence with the piece


def language_model(embedder: Embedder, masked: bool) -> Any:
    """An embedder's encoder with its output layer; `UserError` unless trained with MLM or, without `masked`, `clm`."""
    objectives = getattr(embedder.task, "objectives", {})
    kinds = [isinstance(value, MaskedObjective) if masked else name == "clm" for name, value in objectives.items()]
    if not isinstance(embedder.model, XLEncoderModel) or not any(kinds):
        trained = f" with {','.join(objectives)}" if objectives else ""
        expected = "a masked language model (mlm, tlm, veco_mono, …)" if masked else "a causal language model (clm)"
        raise UserError(f"expected {expected}, found a model trained by {embedder.task.cfg._name}{trained}")
    return embedder.model


@torch.no_grad()
def fill_mask(embedder: Embedder, sentence: str, language: str, top: int) -> list[Filled]:
    """The `top` most probable pieces for the only <mask> of a sentence (`around_mask`), in descending order.

    Special symbols are left out, but the probabilities are over the whole vocabulary.
    """
    model, dictionary = language_model(embedder, masked=True), embedder.task.dictionary
    sides = sentence.split(MASK)
    if len(sides) != 2:
        raise UserError(f"{quoted(sentence)}: expected one {MASK}, found {len(sides) - 1}")
    left, right = around_mask(embedder.encode, sides[0], sides[1], language)
    row = embedder.task.framing.sentence(np.concatenate((left, [dictionary.mask_index], right, [dictionary.eos()])))
    if len(row) > embedder.longest:
        raise UserError(f"{quoted(sentence)}: expected at most {embedder.longest} tokens, found {len(row)}")
    ((_, states, _),) = embedder.hidden_states([row], language)
    probabilities = model.output(states[-1][0, len(left) + 1]).float().softmax(-1).cpu()
    pieces = torch.from_numpy(dictionary.pieces)
    best = probabilities[pieces].topk(min(top, len(pieces)))
    filled = []
    for value, token_id in zip(best.values.tolist(), pieces[best.indices].tolist()):
        text = text_of(torch.tensor([*left, token_id, *right]), dictionary, embedder.encode, language)
        filled.append(Filled(value, dictionary[token_id], text))
    return filled


def around_mask(encode: TextEncoder, left: str, right: str, language: str) -> tuple[Numbers, Numbers]:
    """Text left and right of a mask -> the ids (t,) of each side, without ``</s>``.

    The mask stands for one piece, which may begin a word or continue the one before it: a ▁ in front of it is on
    neither side. The text on the right continues the word of the mask, unless it begins with a space, so that `the
    house is <mask>.` has the same full stop as the sentence with a word.
    """
    for letter in LETTERS:
        sides = _around(encode, left, letter, right, language)
        if sides is not None:
            return sides
    raise UserError(f"{quoted(left + MASK + right)}: the vocabulary has no letter that can stand for {MASK} in it")


def _around(encode: TextEncoder, left: str, letter: str, right: str, language: str) -> tuple[Numbers, Numbers] | None:
    """`around_mask` with a letter in place of the mask; None if a piece has the letter and text beside it."""
    raw = text_of_line(left + letter + right)
    text = encode.tokenized(raw, language)
    positions = [position for position, char in enumerate(text) if char == letter]
    if len(positions) != raw.count(letter):  # the tokenizer has changed letters
        return None
    position = positions[left.count(letter)]
    subwords, indices = encode.subwords_of(language)
    pieces, spans = subwords.spans(text)
    if any(text[begin:end].strip() != letter for begin, end in spans if begin <= position < end):
        return None
    before = [index for index, (_, end) in enumerate(spans) if end <= position]
    while before and not text[slice(*spans[before[-1]])].strip():  # the space in front of the mask
        before.pop()
    behind = [index for index, (begin, _) in enumerate(spans) if begin > position]
    first, second = (indices[np.array([pieces[index] for index in side], np.int64)] for side in (before, behind))
    return first, second


@torch.no_grad()
def pseudo_log_likelihoods(embedder: Embedder, sentences: Sequence[str], language: str) -> np.ndarray:
    """(n,) float64: the sum over a sentence's pieces of log P(piece | the sentence with this piece masked).

    Salazar et al. (2020), eq. 1. The ``</s>`` is not scored; too long sentences are truncated. A model reads as many
    copies of a sentence as it has pieces.
    """
    model, dictionary = language_model(embedder, masked=True), embedder.task.dictionary
    totals = np.zeros(len(sentences))
    for first in range(0, len(sentences), SENTENCES):
        rows = enumerate(embedder.rows(sentences[first : first + SENTENCES], language), start=first)
        pieces = [(index, row, position) for index, row in rows for position in range(1, len(row) - 1)]
        copies = [np.where(np.arange(len(row)) == position, dictionary.mask_index, row) for _, row, position in pieces]
        for batch, states, _ in embedder.hidden_states(copies, language):
            masked = [pieces[copy] for copy in batch]
            hidden = states[-1][range(len(batch)), [position for _, _, position in masked]]
            target = torch.tensor([int(row[position]) for _, row, position in masked], device=hidden.device)
            scores = token_log_probabilities(model.output, hidden, target)
            np.add.at(totals, [index for index, _, _ in masked], scores.double().cpu().numpy())
    return totals


def token_log_probabilities(output: OutputLayer, hidden: Tensor, target: Tensor) -> Tensor:
    """Log-probabilities (N,) float32 of target (N,) at hidden (N, C), with at most `LOGITS` logits in memory."""
    rows = max(1, LOGITS // len(output.token_embeddings.output_matrix))
    chunks = []
    for states, tokens in zip(hidden.split(rows), target.split(rows)):
        logits = output(states).float()
        chunks.append(logits.gather(1, tokens[:, None]).squeeze(1) - logits.logsumexp(1))
    return torch.cat(chunks)


@torch.no_grad()
def log_likelihoods(embedder: Embedder, sentences: Sequence[str], language: str) -> np.ndarray:
    """(n,) float64: the sum of log P(token | tokens before it), ``</s>`` included, by a causal language model."""
    model = language_model(embedder, masked=False)
    rows = embedder.rows(sentences, language)
    totals = np.zeros(len(rows))
    for batch, states, _ in embedder.hidden_states(rows, language, causal=True):
        for index, hidden in zip(batch, states[-1]):
            following = torch.from_numpy(np.asarray(rows[index][1:], dtype=np.int64)).to(hidden.device)
            scores = token_log_probabilities(model.output, hidden[: len(following)], following)
            totals[index] = float(scores.double().sum())
    return totals


@torch.no_grad()
def translation_log_likelihoods(predictor: TextPredictor, sources: Sequence[str], targets: Sequence[str]) -> np.ndarray:
    """(n,) float64: log P(target | source), summed over the tokens of the target, ``</s>`` included."""
    if len(sources) != len(targets):
        raise UserError(f"expected a target for each source, found {len(targets)} targets of {len(sources)} sources")
    model, limits = predictor.model, predictor.model.max_positions()
    sides = [
        [truncate(predictor.encode(text, language), limit - (side == 0)) for text in texts]
        for side, (texts, language, limit) in enumerate(zip((sources, targets), predictor.pair, limits))
    ]
    totals = np.zeros(len(sources))
    pad = predictor.task.dictionary.pad()
    for sample in predictor.batches(*sides):
        net_input, target = sample["net_input"], sample["target"]
        encoder_out = model.encoder(net_input["src_tokens"], None, net_input["src_languages"])
        hidden, _ = model.decoder.extract_features(net_input["prev_output_tokens"], encoder_out)
        is_token, scores = target != pad, torch.zeros(target.shape, dtype=torch.float64, device=target.device)
        scores[is_token] = token_log_probabilities(model.decoder.output, hidden[is_token], target[is_token]).double()
        totals[sample["id"].cpu().numpy()] = scores.sum(1).cpu().numpy()
    return totals
