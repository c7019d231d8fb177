"""Scores of generated text: sacreBLEU, ROUGE-L, and the share of outputs in a wrong language."""

import copy
import functools
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sacrebleu.metrics.bleu import BLEU

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.bleu import bleu, primary_code, tokenizer_name
from fairseq_xl.evaluation.bootstrap import accuracy, mean
from fairseq_xl.evaluation.language_identification import language_model
from fairseq_xl.io.text import is_blank
from fairseq_xl.io.versions import version

AVERAGED = ("bleu", "bleu_lower", "rouge_l", "wrong_language")


class WordTokenizer:
    """Splits text into lower-case words for ROUGE, as rouge-score on ASCII; Chinese and the like as sacreBLEU."""

    def __init__(self, language: str):
        self.name = tokenizer_name(language)
        self.divide = str if self.name == "13a" else BLEU(tokenize=self.name).tokenizer

    def tokenize(self, text: str) -> list[str]:
        text = self.divide(text).lower()
        return "".join(c if c.isalnum() or unicodedata.category(c).startswith("M") else " " for c in text).split()


def rouge_l(hypotheses: Sequence[str], references: Sequence[str], language: str, resamples: int = 0) -> dict[str, Any]:
    """Mean F1 of longest common subsequences, in percent, of n hypotheses and references (Liang et al. 2020, table 12).

    Returns: {"score", "signature"} and, with `resamples`, the 95 % bootstrap "interval".
    """
    values = rouge_l_by_example(hypotheses, references, language)
    name = WordTokenizer(language).name
    words = "words" if name == "13a" else name
    return mean(values, resamples) | {"signature": f"rouge-score {version('rouge-score')} rougeL F1 {words}"}


def rouge_l_by_example(hypotheses: Sequence[str], references: Sequence[str], language: str) -> list[float]:
    """F1 of the longest common subsequence of each of n hypotheses with its reference, in percent."""
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        raise UserError("ROUGE needs the package rouge-score: pip install rouge-score") from None
    scorer = RougeScorer(["rougeL"], tokenizer=WordTokenizer(language))
    pairs = zip(references, hypotheses, strict=True)
    return [100 * scorer.score(reference, hypothesis)["rougeL"].fmeasure for reference, hypothesis in pairs]


@functools.cache
def identifier(candidates: tuple[str, ...]) -> Callable[[str], str]:
    """Returns a deterministic function text -> the most probable of `candidates`, codes of languages."""
    model = copy.copy(language_model())
    unknown = [code for code in candidates if code not in model.labels]
    if unknown:
        raise UserError(f"py3langid does not know {', '.join(unknown)}: name other languages in --among")
    model.set_languages(candidates)
    return lambda text: model.classify(text)[0]


def wrong_language(
    texts: Sequence[str], language: str, candidates: Sequence[str], resamples: int = 0
) -> dict[str, Any]:
    """Percent of texts, those with a letter, that are identified as another of `candidates` than `language`.

    Returns: {"score", "n", "signature"} and, with `resamples`, "interval"; the score is None without text or with one
    language only.
    """
    candidates = tuple(sorted({primary_code(code) for code in (*candidates, language)}))
    identify = identifier(candidates)
    with_letters = [text for text in texts if any(map(str.isalpha, text))]
    details = {"n": len(with_letters), "signature": f"py3langid {version('py3langid')} {','.join(candidates)}"}
    if not with_letters or len(candidates) < 2:
        return {"score": None} | details
    share = accuracy([identify(text) != primary_code(language) for text in with_letters])
    return {"score": share["accuracy"]} | ({"interval": share["interval"]} if resamples else {}) | details


def score(
    hypotheses: Sequence[str], references: Sequence[str], language: str, candidates: Sequence[str], resamples: int = 0
) -> dict[str, Any]:
    """All scores of one language's n hypotheses, and the share of references identified as another language."""
    tokenize = tokenizer_name(language)
    both = {
        name: bleu(hypotheses, references, lowercase=lower, tokenize=tokenize, bootstrap=resamples)
        for name, lower in (("bleu", False), ("bleu_lower", True))
    }
    return {
        "n": len(hypotheses),
        "empty": sum(map(is_blank, hypotheses)),
        **both,
        "rouge_l": rouge_l(hypotheses, references, language, resamples),
        "wrong_language": wrong_language(hypotheses, language, candidates, resamples),
        "references_wrong_language": wrong_language(references, language, candidates),
    }


def averages(scores: Mapping[str, Any]) -> dict[str, float]:
    """{language: scores} -> {name: mean over the languages}. Names with a missing score are left out."""
    columns = {name: [entry[name]["score"] for entry in scores.values()] for name in AVERAGED}
    return {name: round(sum(values) / len(values), 2) for name, values in columns.items() if None not in values}
