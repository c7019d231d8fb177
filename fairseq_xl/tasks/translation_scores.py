"""Scores of translations in training and validation, by direction: BLEU, wrong languages, lengths.

Legend: B batch, S source time, T time of the translation, U of the hypothesis, R of the reference.
"""

import itertools
import logging
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Optional

import numpy as np
import torch
from torch import Tensor

from fairseq_xl.data import tokenizers
from fairseq_xl.data.dictionary import UNMARKED, XLDictionary
from fairseq_xl.data.monolingual import piece_counts, training_texts
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.translations import SCORES, LanguageGuess, Statistics, bleu_counts

COUNTED_TOKENS = 1_000_000  # tokens read of each language, for the frequencies of its pieces

logger = logging.getLogger(__name__)


class TranslationScorer:
    """Counts translations by direction, and logs the scores of the counts.

    Counts are added over batches and processes, and scores are computed from the sums.

    Args:
        dictionary: the joint dictionary.
        folder: the data folder: its manifest names the tokenizers, its training text gives the frequencies of pieces.
        directions: names of all directions, ``en-de``.

    Raises `UserError` if the pieces of the dictionary cannot be joined to words.
    """

    def __init__(self, dictionary: XLDictionary, folder: Path, directions: Sequence[str]):
        if dictionary.word_mark is None:
            raise UserError(f"{folder / 'dict.txt'}: {UNMARKED}, so validation cannot write text for BLEU")
        self.dictionary, self.folder, self.directions = dictionary, folder, list(directions)

    # --- counts ------------------------------------------------------------------------------------------------

    def count(
        self,
        pairs: Sequence[tuple[str, str]],
        sources: Tensor,
        translations: Tensor,
        compared: Optional[tuple[Tensor, Tensor, Sequence[str]]] = None,
    ) -> dict[str, Statistics]:
        """Counts a batch: {direction: its `Statistics`}.

        Args:
            pairs: source and target language of each of the B sentences.
            sources, translations: (B, S) and (B, T) tokens.
            compared: hypotheses (B, U), references (B, R) and the B languages of both, for BLEU; None: without BLEU.
        """
        source_pieces, pieces = self._pieces(sources), self._pieces(translations)
        texts = self._texts(*compared) if compared else [("", "", "")] * len(pairs)
        found = {}
        for source, target in sorted(set(pairs)):
            rows = [row for row, pair in enumerate(pairs) if pair == (source, target)]
            hypotheses, references, languages = zip(*(texts[row] for row in rows))
            counts = bleu_counts(hypotheses, references, languages[0]) if compared else Statistics()
            guess = self.guess
            found[f"{source}-{target}"] = counts._replace(
                sentences=len(rows),
                wrong_language=sum(guess.is_wrong(pieces[row], target) for row in rows) if guess else 0,
                pieces=sum(len(pieces[row]) for row in rows),
                source_pieces=sum(len(source_pieces[row]) for row in rows),
            )
        return found

    def _pieces(self, tokens: Tensor) -> list[np.ndarray]:
        """Rows (B, T) -> B arrays of their pieces, without special symbols."""
        return [row[self.dictionary.is_piece[row]] for row in tokens.cpu().numpy()]

    def _texts(self, hypotheses: Tensor, references: Tensor, codes: Sequence[str]) -> list[tuple[str, str, str]]:
        return list(zip(self._plain(hypotheses, codes), self._plain(references, codes), codes))

    def _plain(self, tokens: Tensor, codes: Sequence[str]) -> list[str]:
        """Rows (B, T) and their languages -> B lines of raw text, without ``<unk>``."""
        chosen, mark = self._tokenizers, self.dictionary.word_mark
        texts = [self.dictionary.string(torch.from_numpy(row), mark) for row in self._pieces(tokens)]
        return [tokenizers.detokenize(text, chosen.get(code), code) for text, code in zip(texts, codes)]

    @cached_property
    def _tokenizers(self) -> dict[str, str]:
        return tokenizers.named_in(self.folder)

    @cached_property
    def guess(self) -> Optional[LanguageGuess]:
        """Guesses languages by the training text; None, with a warning, where a language has none."""
        counts, size = {}, len(self.dictionary)
        for code in sorted({code for direction in self.directions for code in direction.split("-")}):
            texts = training_texts(self.folder, code)
            if not texts:
                logger.warning("%s has no training text of %s: wrong_language is not logged", self.folder, code)
                return None
            counts[code] = piece_counts(texts[0], code, size, COUNTED_TOKENS)
        return LanguageGuess(counts)

    def prepare(self) -> None:
        """Reads the text that `count` needs: an error is then raised before training, not in its first update."""
        _ = self.guess

    @property
    def reference_free(self) -> list[str]:
        """Names of the scores that need no reference."""
        return ["wrong_language", "length_ratio"] if self.guess else ["length_ratio"]

    # --- log ---------------------------------------------------------------------------------------------------

    def logging_output(self, kind: str, counts: Mapping[str, Statistics]) -> dict[str, float]:
        """Logging output of counts: {"KIND DIRECTION FIELD": number} for all directions."""
        every = {direction: counts.get(direction, Statistics()) for direction in self.directions}
        return {
            f"{kind} {direction} {name}": float(number)
            for direction, found in every.items()
            for name, number in found._asdict().items()
        }

    def log(self, metrics: Any, logging_outputs: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> None:
        """Logs the scores of translations.

        BLEU is logged for each kind, `translation` and `back_translation`, the other scores for both together.

        Args:
            metrics: `fairseq_xl.engine.metrics.Metrics`.
            logging_outputs: of all processes, with the entries of `logging_output`.
            names: {kind: name of its BLEU in the log}.
        """
        meters = list(itertools.product(names.items(), self.directions))
        keys = [f"{kind} {direction} {name}" for (kind, _), direction in meters for name in Statistics._fields]
        numbers = _read([sum(log.get(key, 0) for log in logging_outputs) for key in keys])
        for ((kind, _), direction), sums in zip(meters, numbers.reshape(len(meters), -1), strict=True):
            if sums.any():
                metrics.average(f"_translations {direction}", sums)
            if Statistics(*sums).reference_length:
                metrics.average(f"_{kind} {direction}", sums)
        metrics.derived("translations", partial(self._scores, names))

    def _scores(self, names: Mapping[str, str], meters: Mapping[str, Any]) -> dict[str, Optional[float]]:
        """{name in the log: score}, from meters; None if nothing was counted since they were reset."""
        scores = {}
        for direction in self.directions:
            if f"_translations {direction}" in meters:
                sums = meters[f"_translations {direction}"].sum
                scores |= {f"{name}_{direction}": _score(name, sums) for name in self.reference_free}
        for kind, bleu in names.items():
            kinds = {direction: meters.get(f"_{kind} {direction}") for direction in self.directions}
            by_direction = {code: _score("bleu", meter.sum) for code, meter in kinds.items() if meter}
            counted = [score for score in by_direction.values() if score is not None]
            if by_direction:
                scores |= {f"{bleu}_{direction}": score for direction, score in by_direction.items()}
                scores[bleu] = round(sum(counted) / len(counted), 2) if counted else None
        return scores

    def metrics(self, directions: Mapping[str, Sequence[str]]) -> list[str]:
        """Names of the scores in the log.

        Args:
            directions: {name of a kind of BLEU: directions that have it}.
        """
        scored = [direction for direction in self.directions if any(direction in each for each in directions.values())]
        bleu = [[name, *(f"{name}_{direction}" for direction in each)] for name, each in directions.items() if each]
        free = [f"{name}_{direction}" for name in self.reference_free for direction in scored]
        return [*itertools.chain.from_iterable(bleu), *free]


def _read(numbers: Sequence[Any]) -> np.ndarray:
    """Numbers (n,), some of them scalars on a device, as a float64 array; the scalars are read from it together."""
    scalars = [number for number in numbers if isinstance(number, Tensor)]
    values = iter(torch.stack(scalars).tolist() if scalars else ())
    return np.array([next(values) if isinstance(number, Tensor) else number for number in numbers], dtype=np.float64)


def _score(name: str, sums: Any) -> Optional[float]:
    """A score from the sums of `Statistics`; None if nothing was counted."""
    return SCORES[name](Statistics(*sums)) if np.ndim(sums) else None
