"""Beam search with an exported encoder-decoder, the reference for servers, with the results of fairseq's generator.

It has a loop of its own, since servers need neither torch nor fairseq, which this module does not import.
Shapes: S source time, R hypotheses, V vocabulary, H heads, t target time, D channels of a head.
"""

from dataclasses import dataclass

import numpy as np

from fairseq_xl.data.vocabulary.special_symbols import check_direction
from fairseq_xl.errors import UserError
from fairseq_xl.serving.runtime import Arrays, Exported


@dataclass
class Hypothesis:
    """A finished output."""

    tokens: list[int]  # y </s>
    score: float  # log-probability / length ** length penalty, where the length counts </s>


class BeamSearch:
    """Translates sentences with an exported folder, to `max_length` tokens without ``</s>`` and the model's longest."""

    def __init__(self, exported: Exported, beam: int = 4, length_penalty: float = 1.0, max_length: int = 200):
        kind = exported.description["kind"]
        if kind != "encoder-decoder":
            raise UserError(f"{exported.path}: beam search needs an encoder-decoder, found {kind}")
        self.exported, self.description = exported, exported.description
        self.encoder, self.decoder = exported.graphs["encoder"], exported.graphs["decoder"]
        self.beam, self.length_penalty = beam, length_penalty
        self.max_length = min(max_length, self.description["longest_output"] - 1)
        self.pad, self.end = (self.description["symbols"][name] for name in ("pad", "end"))

    def __call__(self, tokens: list[int], source: str, target: str) -> list[Hypothesis]:
        """The best `beam` hypotheses of a framed sentence, in order; `UserError` for an unknown direction."""
        language, _ = self.exported.language(target), self.exported.language(source)
        if "directions" in self.description:
            check_direction(self.description["directions"], source, target, self.exported.path)
        state = self._encode(tokens, source) | {"languages": np.array([[language["id"]]])}
        outputs, scores = np.array([[language["symbol"]]]), np.zeros(1)
        finished: list[Hypothesis] = []
        for length in range(self.max_length + 1):
            step = self.decoder(state | {"tokens": outputs[:, -1:]})
            totals = scores[:, None] + self._mask(log_softmax(step["logits"]), length)  # (R, V)
            rows, symbols, best_totals = self._best(totals)
            ends = symbols == self.end
            for rank in np.flatnonzero(ends[: self.beam]).tolist():
                score = float(best_totals[rank]) / (length + 1) ** self.length_penalty
                finished.append(Hypothesis([*outputs[rows[rank], 1:].tolist(), self.end], score))
            if len(finished) >= self.beam or length == self.max_length:
                break
            live = np.flatnonzero(~ends)[: self.beam]
            rows, scores = rows[live], best_totals[live]
            outputs = np.concatenate((outputs[rows], symbols[live, None]), axis=1)
            state |= {f"past_{name}": value for name, value in step.items() if name != "logits"}
            state = {name: value[rows] for name, value in state.items()}
        return sorted(finished[: self.beam], key=lambda hypothesis: -hypothesis.score)

    def _encode(self, tokens: list[int], source: str) -> Arrays:
        """The decoder's inputs at the first step without the token and its language: one hypothesis, empty caches."""
        longest = self.description["longest_input"]
        if len(tokens) > longest:
            raise UserError(f"a sentence has {len(tokens)} tokens, more than the model's {longest}")
        row = np.array([tokens])
        padding, language = row == self.pad, np.array([[self.exported.language(source)["id"]]])
        encoded = self.encoder({"tokens": row, "padding_mask": padding, "languages": language})
        memory = {name: value for name, value in encoded.items() if name.startswith("memory_")}
        empty = {name.replace("memory", "past"): value[:, :, :0] for name, value in memory.items()}
        return {"padding_mask": padding, **memory, **empty}

    def _mask(self, log_probabilities: np.ndarray, length: int) -> np.ndarray:
        """Sets log-probabilities (R, V) of symbols that cannot follow `length` tokens to -inf."""
        log_probabilities[:, self.pad] = -np.inf
        if length == 0:  # no empty output
            log_probabilities[:, self.end] = -np.inf
        if length == self.max_length:
            log_probabilities[:, : self.end] = log_probabilities[:, self.end + 1 :] = -np.inf
        return log_probabilities

    def _best(self, totals: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, symbols and scores of the best 2 * beam candidates among scores (R, V): at most `beam` of them end."""
        flat = totals.ravel()
        count = min(2 * self.beam, len(flat) - 1)
        candidates = np.argpartition(-flat, count - 1)[:count]
        candidates = candidates[np.argsort(-flat[candidates], kind="stable")]
        candidates = candidates[flat[candidates] > -np.inf]
        return candidates // totals.shape[1], candidates % totals.shape[1], flat[candidates]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """(R, V) -> (R, V) float64."""
    shifted = logits - logits.max(axis=1, keepdims=True).astype(np.float64)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))
