"""Statistics of translations that are summed over batches and processes: BLEU, wrong languages, lengths."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from sacrebleu.metrics.bleu import BLEU

from fairseq_xl.evaluation.bleu import bleu_metric, tokenizer_name


class Statistics(NamedTuple):
    """Counts of n translations; to join batches or processes, add them field by field."""

    matches_1: float = 0  # n-grams of 1 to 4 of sacreBLEU's tokens that occur in the reference
    matches_2: float = 0
    matches_3: float = 0
    matches_4: float = 0
    ngrams_1: float = 0  # all n-grams
    ngrams_2: float = 0
    ngrams_3: float = 0
    ngrams_4: float = 0
    hypothesis_length: float = 0  # in sacreBLEU's tokens, as the next one
    reference_length: float = 0
    sentences: float = 0
    wrong_language: float = 0  # sentences in a wrong language
    pieces: float = 0
    source_pieces: float = 0


class LanguageGuess:
    """Guesses languages by the frequencies of pieces, {language: (V,)}, to each of which one is added."""

    def __init__(self, counts: dict[str, np.ndarray]):
        self.languages = list(counts)
        added = np.stack([count + 1.0 for count in counts.values()])
        self.log_shares = np.log(added / added.sum(axis=1, keepdims=True))  # (languages, V)

    def is_wrong(self, pieces: np.ndarray, language: str) -> bool:
        """Whether another language makes the pieces (n,) of a sentence more probable than `language`."""
        likelihoods = self.log_shares[:, pieces].sum(axis=1)
        return bool(likelihoods.max() > likelihoods[self.languages.index(language)])


@functools.cache
def _metric(language: str, lowercase: bool) -> BLEU:
    return bleu_metric(tokenizer_name(language), lowercase)


def bleu_counts(
    hypotheses: Sequence[str], references: Sequence[str], language: str, lowercase: bool = False
) -> Statistics:
    """Counts n hypotheses for BLEU with sacreBLEU's tokenizer of their language; the other fields are 0."""
    score = _metric(language, lowercase).corpus_score(hypotheses, [references])
    counted = [*score.counts, *score.totals, score.sys_len, score.ref_len]
    return Statistics(**dict(zip(Statistics._fields, counted)))


def _bleu(sums: Statistics) -> float:
    counts = [int(count) for count in sums]
    score = BLEU.compute_bleu(counts[:4], counts[4:8], counts[8], counts[9], smooth_method="exp")
    return round(score.score, 2)


#: name of a score -> function of summed statistics; the share of translations in a wrong language is in percent
SCORES: dict[str, Callable[[Statistics], float]] = {
    "bleu": _bleu,
    "wrong_language": lambda sums: round(100 * sums.wrong_language / max(sums.sentences, 1), 1),
    "length_ratio": lambda sums: round(sums.pieces / max(sums.source_pieces, 1), 2),
}
