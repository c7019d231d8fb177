"""Baselines without a pre-trained model, for classification, title generation and retrieval."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.bleu import tokenizer_name
from fairseq_xl.evaluation.generation_scores import rouge_l
from fairseq_xl.evaluation.task_files import LABELED, file_in, read_examples
from fairseq_xl.io.lines import read_lines

NGRAMS = {"analyzer": "char_wb", "ngram_range": (2, 4)}  # within words, with the spaces around them
MOST_WORDS = 20  # maximum number of words of a title


def similarity(source: list[str], target: list[str]) -> np.ndarray:
    """Sentences (N) and (M) -> cosines (N, M) of the tf-idf of their character n-grams, counted over both sides."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(**NGRAMS).fit(source + target)
    return (vectorizer.transform(source) @ vectorizer.transform(target).T).toarray()


def overlap_and_lengths(pairs: Sequence[Sequence[str]]) -> np.ndarray:
    """(n) pairs of texts -> (n, 3): share of the first one's n-grams that the second has, log lengths in characters."""
    from sklearn.feature_extraction.text import CountVectorizer

    counts = CountVectorizer(**NGRAMS, binary=True).fit_transform([text for pair in pairs for text in pair])
    first, second = counts[::2], counts[1::2]
    shared = first.multiply(second).sum(axis=1) / np.maximum(first.sum(axis=1), 1)
    lengths = np.log([[len(text) for text in pair] for pair in pairs])
    return np.hstack([np.asarray(shared).reshape(-1, 1), lengths])


def tfidf_classifier() -> Any:
    """An untrained classifier of rows of texts: logistic regression on tf-idf of character n-grams."""
    from sklearn import feature_extraction, linear_model, pipeline, preprocessing

    return pipeline.make_pipeline(
        preprocessing.FunctionTransformer(lambda rows: [" ".join(row) for row in rows]),
        feature_extraction.text.TfidfVectorizer(
            analyzer="char_wb", ngram_range=(2, 5), min_df=2, max_features=200_000, sublinear_tf=True
        ),
        linear_model.LogisticRegression(C=30, max_iter=300, class_weight="balanced"),
    )


def pair_classifier() -> Any:
    """An untrained classifier of pairs of texts: logistic regression on `overlap_and_lengths`."""
    from sklearn import linear_model, pipeline, preprocessing

    return pipeline.make_pipeline(
        preprocessing.FunctionTransformer(overlap_and_lengths),
        preprocessing.StandardScaler(),
        linear_model.LogisticRegression(),
    )


CLASSIFIERS = {"classification": tfidf_classifier, "pairs": pair_classifier}


def labels_and_texts(
    name: str, folders: Sequence[Any], split: str, languages: Iterable[str]
) -> tuple[list[str], list[list[str]]]:
    """Labels and texts of the lines of a split; raises `UserError` for lines without two texts if `name` is `pairs`."""
    examples = [
        example for code in languages for example in read_examples(file_in(folders, f"{split}.{code}.tsv"), code)
    ]
    if name == "pairs" and (wrong := next((example for example in examples if len(example.texts) != 2), None)):
        raise UserError(f"{wrong.location}: expected {LABELED[2]}, found {1 + len(wrong.texts)} fields")
    return [example.label for example in examples], [list(example.texts) for example in examples]


def classify(
    name: str, folders: Sequence[Any], languages: list[str], train_languages: list[str], split: str
) -> dict[str, tuple[list[str], list[str], list[float]]]:
    """{language: labels, predictions and probabilities of its test lines} of the baseline `name` of `CLASSIFIERS`.

    `train_languages`: languages to train one classifier on; if empty, each language gets a classifier.
    """
    predictions, groups = {}, [(train_languages, languages)] if train_languages else [([c], [c]) for c in languages]
    for train_codes, test_codes in groups:
        labels, rows = labels_and_texts(name, folders, "train", train_codes)
        if len(set(labels)) < 2:
            raise UserError(f"the training text of {','.join(train_codes)} has one label only, {labels[0]!r}")
        try:
            model = CLASSIFIERS[name]().fit(rows, labels)
        except ValueError as error:  # from scikit-learn, for texts too short to hold n-grams
            raise UserError(f"nothing is learned from the training text of {','.join(train_codes)}: {error}") from None
        for code in test_codes:
            labels, rows = labels_and_texts(name, folders, split, [code])
            probabilities = model.predict_proba(rows)
            predictions[code] = labels, model.classes_[probabilities.argmax(1)].tolist(), probabilities.max(1).tolist()
    return predictions


def title_unit(language: str) -> str:
    """`words`, or `characters` if sacreBLEU has a tokenizer for the language (Chinese)."""
    return "words" if tokenizer_name(language) == "13a" else "characters"


def first_words(text: str, count: int, language: str) -> str:
    """The first words of a text, or its first characters (`title_unit`)."""
    return " ".join(text.split()[:count]) if title_unit(language) == "words" else text[:count]


def titles(folder: str | Path, language: str, split: str) -> tuple[list[str], int]:
    """Returns the first words of each source of a split as titles, and their number: the best by validation ROUGE-L."""
    sources, references = (read_lines(Path(folder) / f"valid.{language}.{side}") for side in ("src", "tgt"))
    if not sources or len(sources) != len(references):
        raise UserError(
            f"{folder}/valid.{language}: expected as many titles as sources, found {len(references)} of {len(sources)}"
        )

    def score(count: int) -> float:
        return rouge_l([first_words(text, count, language) for text in sources], references, language)["score"]

    count = max(range(1, MOST_WORDS + 1), key=score)
    test_sources = read_lines(Path(folder) / f"{split}.{language}.src")
    return [first_words(text, count, language) for text in test_sources], count
