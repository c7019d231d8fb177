"""Scores of translations in training and validation, by direction: BLEU, wrong languages, lengths.

Text that is generated in the language of its source counts as a translation; its direction is the language.

Legend: B batch, S source time, T time of the translation, U of the hypothesis, R of the reference.
"""

import itertools
import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Optional

import numpy as np
import torch
from torch import Tensor

from fairseq_xl.data.corpora.token_stream import piece_counts
from fairseq_xl.data.store.manifest import is_begun
from fairseq_xl.data.store.plain_folder import indices
from fairseq_xl.data.vocabulary import tokenizers
from fairseq_xl.data.vocabulary.joint_dictionary import UNMARKED, XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.translations import SCORES, LanguageGuess, Statistics, bleu_counts
from fairseq_xl.objectives.base import Sums, Term

#: objectives whose translations are scored, and the names of their BLEU
BLEU_NAMES = {"translation": "bleu", "generation": "bleu", "back_translation": "round_trip_bleu"}
COUNTED_TOKENS = 1_000_000  # tokens read of each language, for the frequencies of its pieces

logger = logging.getLogger(__name__)


class TranslationScorer:
    """Counts translations by direction, and computes scores from the sums over batches and processes.

    The manifest of the data folder names the tokenizers, its training text gives the frequencies of pieces. Directions
    are ``en-de`` or ``de``; the mean BLEU of `zero_shot` ones, which training lacks, is logged too. Raises `UserError`
    if the pieces of the dictionary cannot be joined to words.
    """

    def __init__(
        self,
        dictionary: XLDictionary,
        folder: Path,
        directions: Sequence[str],
        lowercase: bool = False,
        zero_shot: Sequence[str] = (),
    ):
        if dictionary.word_mark is None:
            raise UserError(f"{folder / 'dict.txt'}: {UNMARKED}, so validation cannot write text for BLEU")
        self.dictionary, self.folder, self.directions = dictionary, folder, list(directions)
        self.lowercase, self.zero_shot = lowercase, zero_shot

    # --- counts ------------------------------------------------------------------------------------------------

    @property
    def keys(self) -> list[tuple[str, str]]:
        """(field of `Statistics`, direction) of each number of `counted`."""
        return list(itertools.product(Statistics._fields, self.directions))

    def counted(
        self,
        batch: Mapping[str, Tensor],
        translations: Tensor,
        hypotheses: Optional[Tensor] = None,
        side: str = "other_languages",
    ) -> Term:
        """Counts the translations of a batch: a `Term` of the counts of `keys`, which is not part of the loss.

        The batch has ``tokens`` (B, S), ``languages`` and ``other_languages`` (B, 1), and ``target`` (B, R), with which
        hypotheses (B, U), in the languages under the key `side`, are compared for BLEU; None: without BLEU.
        """
        codes = {
            key: [self.dictionary.languages[language_id] for language_id in batch[key][:, 0].tolist()]
            for key in ("languages", "other_languages")
        }
        compared = None if hypotheses is None else (hypotheses, batch["target"], codes[side])
        pairs = list(zip(codes["languages"], codes["other_languages"], strict=True))
        counts = self.count(pairs, batch["tokens"], translations, compared)
        values = [[getattr(counts.get(code), field, 0.0) for code in self.directions] for field in Statistics._fields]
        return Term(torch.tensor(values, dtype=torch.double, device=translations.device).flatten(), 0, 0.0)

    def count(
        self,
        pairs: Sequence[tuple[str, str]],
        sources: Tensor,
        translations: Tensor,
        compared: Optional[tuple[Tensor, Tensor, Sequence[str]]] = None,
    ) -> dict[str, Statistics]:
        """{direction: `Statistics`} of B sentences, (B, S), with their translations (B, T) and language pairs.

        `compared` are hypotheses (B, U), references (B, R) and the B languages of both, for BLEU; None: without BLEU.
        """
        source_pieces, pieces = self._pieces(sources), self._pieces(translations)
        texts = self._texts(*compared) if compared else [("", "", "")] * len(pairs)
        statistics = {}
        for source, target in sorted(set(pairs)):
            rows = [row for row, pair in enumerate(pairs) if pair == (source, target)]
            hypotheses, references, languages = zip(*(texts[row] for row in rows))
            counts = bleu_counts(hypotheses, references, languages[0], self.lowercase) if compared else Statistics()
            guess = self.guess
            statistics["-".join(dict.fromkeys((source, target)))] = counts._replace(
                sentences=len(rows),
                wrong_language=sum(guess.is_wrong(pieces[row], target) for row in rows) if guess else 0,
                pieces=sum(len(pieces[row]) for row in rows),
                source_pieces=sum(len(source_pieces[row]) for row in rows),
            )
        return statistics

    def _pieces(self, tokens: Tensor) -> list[np.ndarray]:
        """Rows (B, T) -> B arrays of their pieces, without special symbols."""
        return [row[self.dictionary.is_piece[row]] for row in tokens.cpu().numpy()]

    def _texts(self, hypotheses: Tensor, references: Tensor, codes: Sequence[str]) -> list[tuple[str, str, str]]:
        return list(zip(self._plain(hypotheses, codes), self._plain(references, codes), codes))

    def _plain(self, tokens: Tensor, codes: Sequence[str]) -> list[str]:
        """Rows (B, T) and their languages -> B lines of raw text, without ``<unk>``."""
        names, mark = self._tokenizers, self.dictionary.word_mark
        texts = [self.dictionary.string(torch.from_numpy(row), mark) for row in self._pieces(tokens)]
        return [tokenizers.detokenize(text, names.get(code), code) for text, code in zip(texts, codes)]

    @cached_property
    def _tokenizers(self) -> dict[str, str]:
        return tokenizers.named_in(self.folder)

    @cached_property
    def guess(self) -> Optional[LanguageGuess]:
        """Guesses languages by the training text; None, with a warning, if a language has none."""
        counts, size = {}, len(self.dictionary)
        for code in sorted({code for direction in self.directions for code in direction.split("-")}):
            texts = training_texts(self.folder, code)
            if not texts:
                logger.warning("%s has no training text of %s: wrong_language is not logged", self.folder, code)
                return None
            counts[code] = piece_counts(texts[0], code, size, COUNTED_TOKENS)
        return LanguageGuess(counts)

    def prepare(self) -> None:
        """Reads the training text for `count`, so that errors are raised before training."""
        _ = self.guess

    @property
    def reference_free(self) -> list[str]:
        """Names of the scores without references."""
        return ["wrong_language", "length_ratio"] if self.guess else ["length_ratio"]

    # --- log ---------------------------------------------------------------------------------------------------

    def values(self, sums: Mapping[str, Sums]) -> dict[str, Optional[float]]:
        """{name in the log: score}: BLEU of each objective in `BLEU_NAMES`, other scores of all translations."""
        scores: dict[str, Optional[float]] = {}
        statistics = {
            name: {
                code: Statistics(*(sums.get(name, {}).get(key, {}).get(code, (0.0,))[0] for key in Statistics._fields))
                for code in self.directions
            }
            for name in BLEU_NAMES
        }
        for direction in self.directions:
            counts = Statistics(*map(sum, zip(*(row[direction] for row in statistics.values()), strict=True)))
            if counts.sentences:
                scores |= {f"{name}_{direction}": SCORES[name](counts) for name in self.reference_free}
        for name, by_direction in statistics.items():
            bleu = {code: SCORES["bleu"](row) for code, row in by_direction.items() if row.reference_length}
            means = {"": list(bleu), "_zero-shot": [code for code in self.zero_shot if code in bleu]}
            scores |= {f"{BLEU_NAMES[name]}_{direction}": score for direction, score in bleu.items()}
            for suffix, codes in means.items():
                if codes:
                    scores[f"{BLEU_NAMES[name]}{suffix}"] = round(sum(bleu[code] for code in codes) / len(codes), 2)
        return scores

    def metrics(self, directions: Mapping[str, Sequence[str]]) -> list[str]:
        """Names of the scores in the log; `directions`: {name of a kind of BLEU: directions that have it}."""
        scored = [code for code in self.directions if any(code in codes for codes in directions.values())]
        mean = ["zero-shot"] if self.zero_shot else []
        bleu = [[name, *(f"{name}_{code}" for code in [*codes, *mean])] for name, codes in directions.items() if codes]
        free = [f"{name}_{direction}" for name in self.reference_free for direction in scored]
        return [*itertools.chain.from_iterable(bleu), *free]


def training_texts(folder: str | Path, language: str) -> list[Path]:
    """Path prefixes of the binarized training texts of a language: the monolingual text, then its sides of bitexts."""
    pairs = [path.with_suffix("") for path in indices(folder) if path.match(f"*-*/train.*.{language}.idx")]
    return list(filter(is_begun, [Path(folder) / language / "train", *pairs]))
