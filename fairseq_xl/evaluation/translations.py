"""Statistics of translations that are summed over batches and processes: BLEU, wrong languages, lengths."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from sacrebleu.metrics.bleu import BLEU

from fairseq_xl.evaluation.bleu import metric_of, tokenizer_of

#: entries of `statistics`: BLEU's matches and n-grams of 1 to 4 words, its lengths; sentences, those in a wrong
#: language; pieces of the translations and of their sources
SIZE = 4 + 4 + 2 + 2 + 2


class LanguageGuess:
    """Guesses languages of sentences by the frequencies of their pieces.

    Args:
        counts: {language: how often each symbol occurs in its text, (V,)}; one is added to each.
    """

    def __init__(self, counts: dict[str, np.ndarray]):
        self.languages = list(counts)
        added = np.stack([count + 1.0 for count in counts.values()])
        self.log_shares = np.log(added / added.sum(axis=1, keepdims=True))  # (languages, V)

    def is_wrong(self, pieces: np.ndarray, language: str) -> bool:
        """Whether another language makes the pieces (n,) of a sentence more probable than `language`."""
        likelihoods = self.log_shares[:, pieces].sum(axis=1)
        return bool(likelihoods.max() > likelihoods[self.languages.index(language)])


def statistics(
    hypotheses: Sequence[str], references: Sequence[str], language: str, pieces: int, source_pieces: int, wrong: int
) -> np.ndarray:
    """The sums of n translations, (SIZE,) float.

    Args:
        hypotheses, references: n lines of text each.
        language: code of their language, for sacreBLEU's tokenizer.
        pieces, source_pieces: numbers of pieces of the translations and of their sources.
        wrong: number of translations in a wrong language.
    """
    score = metric_of(tokenizer_of(language)).corpus_score(hypotheses, [references])
    lengths = (score.sys_len, score.ref_len)
    return np.array([*score.counts, *score.totals, *lengths, len(hypotheses), wrong, pieces, source_pieces], float)


def scores(sums: ArrayLike) -> dict[str, float]:
    """The scores of summed statistics: BLEU, the share of translations in a wrong language and the length ratio."""
    sums = np.asarray(sums)
    matches, ngrams = sums[:4].tolist(), sums[4:8].tolist()
    words, reference_words, sentences, wrong, pieces, source_pieces = sums[8:]
    bleu = BLEU.compute_bleu(matches, ngrams, int(words), int(reference_words), smooth_method="exp")
    return {
        "bleu": round(bleu.score, 2),
        "wrong_language": round(100 * wrong / sentences, 1),
        "length_ratio": round(pieces / max(source_pieces, 1), 2),
    }
