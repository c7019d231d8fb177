"""Probing of a frozen encoder: words in context and masked tokens (Artetxe et al. 2020).

`B` batch, `T` time, `C` channels, `n` texts. The commands are `fairseq-xl probe wic`, `scws` and `minimal-pairs`.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from tqdm import tqdm

from fairseq_xl.data.labelled.labelled_examples import frame
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.probing_tasks import MinimalPair, WordInText, WordPair
from fairseq_xl.inference.embedder import Embedder
from fairseq_xl.models.encoder import XLEncoderModel


def last_hidden_states(
    embedder: Embedder, rows: Sequence[np.ndarray], language: str
) -> Iterator[tuple[int, torch.Tensor]]:
    """Yields the index of each framed text (t,) of `rows` and the last layer's hidden states of its tokens, (t, C)."""
    for batch, states, _ in embedder.hidden_states(rows, language):
        for index, hidden in zip(batch, states[-1]):
            yield index, hidden[: len(rows[index])]


def word_tokens(embedder: Embedder, word: WordInText, language: str) -> tuple[np.ndarray, np.ndarray]:
    """A word's framed text (t,), truncated around it, and the positions of its pieces; `UserError` if it has none."""
    ids, characters = embedder.encode.spans(word.text, language)
    begin = word.begin - word.text[: word.begin].endswith(" ")  # a piece may be the space before the word alone
    positions = np.flatnonzero((characters[:, 0] < word.end) & (characters[:, 1] > begin))
    room = embedder.longest - 2  # <s> and </s>
    if not 0 < len(positions) <= room:
        raise UserError(f"{word.location}: the word has {len(positions)} pieces, expected 1 to {room}")
    first = max(0, min((positions[0] + positions[-1] + 1 - room) // 2, len(ids) - room))
    ended = np.append(ids[first : first + room], embedder.task.dictionary.eos())
    return embedder.task.framing.sentence(ended), positions - first + 1


def both_words(embedder: Embedder, pairs: Sequence[WordPair], language: str) -> tuple[np.ndarray, np.ndarray]:
    """(n, C) float32 of the first and of the second words: the mean over a word's pieces of the last hidden states."""
    sides = []
    for side in (0, 1):
        framed = [word_tokens(embedder, pair.words[side], language) for pair in pairs]
        states = [np.empty(0)] * len(pairs)
        for index, hidden in last_hidden_states(embedder, [tokens for tokens, _ in framed], language):
            states[index] = hidden[framed[index][1]].mean(0).float().cpu().numpy()
        sides.append(np.stack(states))
    return sides[0], sides[1]


def pair_hidden_states(embedder: Embedder, pairs: Sequence[WordPair], language: str) -> np.ndarray:
    """(n, C) float32: the last layer's first hidden state of each pair of texts, framed as one sequence."""
    encoded = [[embedder.encode(word.text, language) for word in pair.words] for pair in pairs]
    rows = [frame(texts, embedder.task.framing, embedder.longest).tokens for texts in encoded]
    states = [np.empty(0)] * len(rows)
    for index, hidden in last_hidden_states(embedder, rows, language):
        states[index] = hidden[0].float().cpu().numpy()
    return np.stack(states)


@torch.no_grad()
def word_embeddings(embedder: Embedder, pairs: Sequence[WordPair], language: str) -> tuple[np.ndarray, np.ndarray]:
    """(n, C) float32 of the first and of the second words: the mean of the token embeddings of each word's pieces."""
    sides = []
    for side in (0, 1):
        framed = [word_tokens(embedder, pair.words[side], language) for pair in pairs]
        pieces = [torch.from_numpy(tokens[positions]).to(embedder.device) for tokens, positions in framed]
        rows = [embedder.encoder.token_embeddings(ids[None])[0].mean(0) for ids in pieces]
        sides.append(torch.stack(rows).float().cpu().numpy())
    return sides[0], sides[1]


@torch.no_grad()
def masked_log_probabilities(
    embedder: Embedder, pairs: Sequence[MinimalPair], language: str
) -> dict[int, tuple[float, float]]:
    """Log-probabilities, in nats, of the pieces in which the two sentences of a pair differ, in place of <mask>.

    A sentence that ends in a letter or digit gets a full stop, as in Goldberg's (2019) code.

    Returns: {index of the pair: (of the grammatical sentence, of the ungrammatical one)}; pairs that differ in more
    than one piece are left out, as in Artetxe et al. (2020). Raises `UserError` for a model without an output layer,
    and for a sentence that is longer than the model's positions.
    """
    model, dictionary = embedder.model, embedder.task.dictionary
    if not isinstance(model, XLEncoderModel):
        raise UserError(f"minimal pairs need a masked language model, found {type(model).__name__}")
    masked_pairs = []  # index, masked sentence, position of the mask, pieces of the two sentences there
    for index, pair in enumerate(tqdm(pairs, "encode", unit=" pairs", disable=None)):
        sides = [embedder.encode(f"{text}." if text[-1].isalnum() else text, language) for text in pair[1:]]
        if len(sides[0]) != len(sides[1]) or (sides[0] != sides[1]).sum() != 1:
            continue
        if len(sides[0]) + 1 > embedder.longest:
            raise UserError(f"{pair.grammatical[:60]!r} has more than {embedder.longest - 2} pieces")
        (position,) = np.flatnonzero(sides[0] != sides[1]).tolist()
        row = embedder.task.framing.sentence(np.where(sides[0] == sides[1], sides[0], dictionary.mask_index))
        masked_pairs.append((index, row, position + 1, [int(side[position]) for side in sides]))
    rows, pair_scores = [row for _, row, _, _ in masked_pairs], {}
    states = last_hidden_states(embedder, rows, language) if rows else ()
    for number, hidden in tqdm(states, "score", len(rows), unit=" pairs", disable=None):
        index, _, position, pieces = masked_pairs[number]
        first, second = model.output(hidden[position]).float().log_softmax(-1)[pieces].tolist()
        pair_scores[index] = first, second
    return dict(sorted(pair_scores.items()))
