"""Baselines without a pre-trained model: tf-idf and shared n-grams, first words, a dictionary of spans, capitals."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import task_files
from fairseq_xl.evaluation.bleu import tokenizer_name
from fairseq_xl.evaluation.generation_scores import rouge_l
from fairseq_xl.evaluation.question_answering_scores import words
from fairseq_xl.evaluation.spans import spans
from fairseq_xl.evaluation.squad import read_questions
from fairseq_xl.io.lines import read_lines

NGRAMS = {"analyzer": "char_wb", "ngram_range": (2, 4)}  # within words, with the spaces around them
MOST_WORDS = 20  # maximum number of words of a title
OUTSIDE = "O"
# last characters of a word after which a run of capitals, or a sentence, ends
CLAUSE_END, SENTENCE_ENDS = tuple(",;.!?:"), tuple(".!?:")
EDGES = re.compile(r"^\W+|\W+$")  # punctuation around a word
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
#: baseline -> method -> what it does; the first one is the default
METHODS = {
    "tagging": {
        "dictionary": "spans of the training text",
        "capitals": "runs of capitalized words within a sentence",
        "outside": "all O",
    },
    "question-answering": {
        "overlap": "the paragraph with the largest share of the question's words",
        "tf-idf": "the most similar paragraph",
        "first": "the first paragraph",
    },
    "ranking": {"tf-idf": "similarity of character n-grams", "overlap": "share of the query's words that the text has"},
}

Dictionary = dict[tuple[str, ...], str]  # words of a span -> its type


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
        example
        for code in languages
        for example in task_files.read_examples(task_files.file_in(folders, f"{split}.{code}.tsv"), code)
    ]
    if name == "pairs" and (wrong := next((example for example in examples if len(example.texts) != 2), None)):
        raise UserError(f"{wrong.location}: expected {task_files.LABELED[2]}, found {1 + len(wrong.texts)} fields")
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


def build_dictionary(sentences: Iterable[task_files.TaggedSentence]) -> Dictionary:
    """Collects the spans of training sentences; the words of each are a span in at least half of their occurrences.

    A span that has several types gets the most frequent one. Punctuation around words is ignored.
    """
    marked: dict[tuple[str, ...], Counter[str]] = {}
    read = [(_bare(sentence.words), sentence.tags) for sentence in sentences]
    for bare, tags in read:
        for kind, first, last in spans(tags):
            marked.setdefault(tuple(bare[first : last + 1]), Counter())[kind] += 1
    lengths = sorted({len(span) for span in marked})
    occurring = Counter(
        span
        for bare, _ in read
        for start in range(len(bare))
        for length in lengths
        if (span := tuple(bare[start : start + length])) in marked and len(span) == length
    )
    return {span: kinds.most_common(1)[0][0] for span, kinds in marked.items() if 2 * kinds.total() >= occurring[span]}


def tag(sentence: Sequence[str], dictionary: Dictionary) -> list[str]:
    """Tags of a sentence's words, B-, I- and O: from left to right the longest span of the dictionary at each word."""
    bare, tags, position = _bare(sentence), [OUTSIDE] * len(sentence), 0
    longest = max(map(len, dictionary), default=0)
    while position < len(bare):
        ends = range(min(position + longest, len(bare)), position, -1)
        end = next((end for end in ends if tuple(bare[position:end]) in dictionary), None)
        if end is None:
            position += 1
            continue
        kind = dictionary[tuple(bare[position:end])]
        tags[position:end] = [f"B-{kind}", *[f"I-{kind}"] * (end - position - 1)]
        position = end
    return tags


def most_frequent_type(sentences: Iterable[task_files.TaggedSentence]) -> str:
    """The most frequent type of the spans of sentences; raises `UserError` if there is no span."""
    kinds = Counter(kind for sentence in sentences for kind, _, _ in spans(sentence.tags))
    if not kinds:
        raise UserError("the training text has no span")
    return kinds.most_common(1)[0][0]


def tag_capitals(sentence: Sequence[str], kind: str) -> list[str]:
    """Tags of a sentence's words: each run of capitalized words, but not at its beginning, is a span of `kind`.

    A word without letters and digits between two words of a run, such as the hyphen of a menu path, belongs to it.
    """
    bare, tags, inside = _bare(sentence), [OUTSIDE] * len(sentence), False
    for position in range(1, len(sentence)):
        capital = bare[position][:1].isupper() and not sentence[position - 1].endswith(SENTENCE_ENDS)
        following = bare[position + 1][:1].isupper() if position + 1 < len(bare) else False
        joins = inside and following and not any(map(str.isalnum, sentence[position]))
        if capital or joins:
            tags[position] = f"{'I' if inside else 'B'}-{kind}"
        inside = (capital or joins) and not sentence[position].endswith(CLAUSE_END)
    return tags


def _bare(sentence: Sequence[str]) -> list[str]:
    return [EDGES.sub("", word) or word for word in sentence]


def similarities(method: str, pairs: Sequence[tuple[str, str]], language: str) -> np.ndarray:
    """Similarities (n,) of n pairs of a query and a text.

    `method` is overlap: share of the query's words, each counted once, that the text has, with the words of MLQA's
    normalization (a character in Chinese, Japanese and Thai); or tf-idf: cosine of the tf-idf of character n-grams,
    with document frequencies over all different queries and texts.
    """
    if method == "overlap":
        sets = [[set(words(text, "mlqa", language)) for text in pair] for pair in pairs]
        return np.array([len(query & text) / max(len(query), 1) for query, text in sets])
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = sorted({text for pair in pairs for text in pair})
    try:
        vectors = TfidfVectorizer(**NGRAMS).fit_transform(texts)
    except ValueError as error:  # from scikit-learn, for texts too short to hold n-grams
        raise UserError(f"tf-idf of the texts in {language} cannot be computed: {error}") from None
    rows = {text: row for row, text in enumerate(texts)}
    left, right = (vectors[[rows[pair[side]] for pair in pairs]] for side in (0, 1))
    return np.asarray(left.multiply(right).sum(axis=1)).ravel()


def split_context(context: str) -> list[str]:
    """The lines of a context; its sentences if it has one line only."""
    lines = [line.strip() for line in context.split("\n") if line.strip()]
    return lines if len(lines) > 1 else [part for part in SENTENCE_END.split(context.strip()) if part.strip()]


def answers(path: Any, language: str, method: str) -> dict[str, str]:
    """{id: answer} for a file in SQuAD's format: a paragraph of the context, or a sentence if it has no line ends.

    `method` is `first`, or one of `similarities`: the part most similar to the question, the first of equal ones.
    """
    questions = [(question, split_context(question.context)) for question in read_questions(path, language)]
    if method == "first":
        return {question.id: parts[0] for question, parts in questions}
    scores = iter(
        similarities(method, [(question.question, part) for question, parts in questions for part in parts], language)
    )
    return {question.id: parts[int(np.argmax([next(scores) for _ in parts]))] for question, parts in questions}


def predict(
    name: str, method: str, folders: Sequence[Any], languages: list[str], train_languages: list[str], split: str
) -> Iterator[tuple[str, str]]:
    """Yields for each language the name and the content of a file of predictions, as fairseq-validate writes it.

    `name` and `method` are a key of `METHODS` and one of its values, `folders` are searched in order. The training
    files of `train_languages` train one tagger; if there are none, each language gets a tagger.
    """
    tagger = _tagger(method, folders, train_languages) if name == "tagging" and train_languages else None
    for code in languages:
        file = f"{split}.{code}.{'json' if name == 'question-answering' else 'tsv'}"
        path = task_files.file_in(folders, file)
        if name == "question-answering":
            content = json.dumps(answers(path, code, method), ensure_ascii=False, indent=0) + "\n"
        elif name == "ranking":
            queries = task_files.read_queries(path, code)
            pairs = [(query.query, " ".join(texts)) for query in queries for texts in query.texts]
            scores = iter(similarities(method, pairs, code).tolist())
            content = "".join(task_files.format_ranking(item, [next(scores) for _ in item.texts]) for item in queries)
        else:
            tag_words = tagger or _tagger(method, folders, [code])
            sentences = task_files.read_sentences(path, code)
            content = "".join(task_files.format_tags(sentence, tag_words(sentence.words)) for sentence in sentences)
        yield file, content


def _tagger(method: str, folders: Sequence[Any], languages: list[str]) -> Callable[[Sequence[str]], list[str]]:
    """Returns the tagging function of `method`, trained on the training files of the languages."""
    if method == "outside":
        return lambda sentence: [OUTSIDE] * len(sentence)
    sentences = [
        sentence
        for code in languages
        for sentence in task_files.read_sentences(task_files.file_in(folders, f"train.{code}.tsv"), code)
    ]
    if method == "capitals":
        return partial(tag_capitals, kind=most_frequent_type(sentences))
    return partial(tag, dictionary=build_dictionary(sentences))
