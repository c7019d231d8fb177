"""Exact match and F1 of answers: SQuAD's definition (Rajpurkar et al. 2016) and MLQA's (Lewis et al. 2020)."""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import bootstrap
from fairseq_xl.evaluation.bleu import primary_code
from fairseq_xl.evaluation.classification_scores import UnlabeledError

NORMALIZATIONS = {"squad": "SQuAD", "mlqa": "MLQA"}

#: articles that MLQA's normalization removes
ARTICLES = {
    "en": "a an the",
    "es": "un una unos unas el la los las",
    "vi": "của là cái chiếc những",
    "de": "ein eine einen einem eines einer der die das den dem des",
}
#: characters that are words: MLQA's range for Chinese; kana, Chinese characters and Thai for the other two
CHARACTERS = {"zh": re.compile(r"[\u4e00-\u9fa5]")}
CHARACTERS |= dict.fromkeys(("ja", "th"), re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\u0e00-\u0e7f]"))


def words(answer: str, normalization: str, language: str) -> list[str]:
    """The words of an answer in lower case, without punctuation and articles.

    The normalization `squad` removes ASCII punctuation and English articles, whatever the language. `mlqa` removes
    Unicode's punctuation and articles of the language; in Chinese, as here in Japanese and Thai, each character is a
    word.
    """
    text, language = "".join(c for c in answer.lower() if c not in string.punctuation), primary_code(language)
    if normalization == "squad":
        return re.sub(r"\b(a|an|the)\b", " ", text).split()
    text = "".join(c for c in text if not unicodedata.category(c).startswith("P"))
    if language in ARTICLES:
        text = re.sub(rf"\b({'|'.join(ARTICLES[language].split())})\b", " ", text)
    if language == "ar":
        text = text.replace("ال", " ")
    if language in CHARACTERS:
        text = CHARACTERS[language].sub(r" \g<0> ", text)
    return text.split()


def scores(answer: str, references: Iterable[str], normalization: str, language: str) -> tuple[float, float]:
    """Exact match (0 or 1) and F1 (0 to 1) of an answer; each is the maximum over the references."""
    answer_words = words(answer, normalization, language)
    exact, f1 = 0.0, 0.0
    for reference in references:
        reference_words = words(reference, normalization, language)
        common = (Counter(answer_words) & Counter(reference_words)).total()
        exact = max(exact, float(answer_words == reference_words))
        f1 = max(f1, 2 * common / (len(answer_words) + len(reference_words)) if common else 0.0)
    return exact, f1


def score(
    answers: dict[str, str], references: dict[str, list[str]], normalization: str, language: str, path: Path
) -> dict[str, Any]:
    """Exact match and F1 in percent, with intervals, of {id of a question: answer}, for questions with references.

    Raises `UserError` for a question without a prediction, `UnlabeledError` if no question has an answer.
    """
    asked = {name: expected for name, expected in references.items() if expected}
    missing = [name for name in asked if name not in answers]
    if not asked:
        raise UnlabeledError(f"{path}: no question has a reference answer")
    if missing:
        shown = ", ".join(missing[:3])
        raise UserError(f"{path}: {len(missing)} of {len(asked)} questions have no prediction: {shown}")
    pairs = [scores(answers[name], expected, normalization, language) for name, expected in asked.items()]
    result: dict[str, Any] = {"n": len(pairs)}
    for name, values in zip(("exact_match", "f1"), zip(*pairs)):
        measured = bootstrap.mean([100 * value for value in values])
        result |= {name: measured["score"], f"{name}_interval": measured["interval"]}
    return result
