"""Baselines: values worked out by hand, tasks with obvious answers, and scores of the files that they write."""

import json
import math

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from fairseq_xl.commands import score_baselines, score_classification, score_generation
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.baselines import first_words, overlap_and_lengths, similarity, titles
from fairseq_xl.evaluation.bleu import read_generated
from fairseq_xl.evaluation.classification_scores import read_predictions
from fairseq_xl.evaluation.retrieval_scores import evaluate_similarity
from tests.builders import write


def test_similarity_by_hand():
    """ab, with a blank on either side, has 6 n-grams of 2 to 4 characters, abc has 9, and they share 3.

    Shared n-grams weigh 1, the others ln(3 / 2) + 1.
    """
    other = (math.log(3 / 2) + 1) ** 2
    expected = 3 / math.sqrt(3 + 3 * other) / math.sqrt(3 + 6 * other)
    assert similarity(["ab"], ["ABC"]) == pytest.approx(np.array([[expected]]))
    assert similarity(["ab", "cd"], ["cd", "ab"]) == pytest.approx(np.array([[0.0, 1.0], [1.0, 0.0]]))


def test_retrieval_finds_what_is_spelled_alike(tmp_path, capsys):
    sides = [
        ["press the alt key", "a macro named basic", "insert a table"],
        ["taste alt wählen", "das makro basic", "tabelle in text"],
    ]
    write(tmp_path / "test.en", *sides[0], "")
    write(tmp_path / "test.de", *sides[1], "")
    to = ["--found-to", str(tmp_path / "found"), "--output", str(tmp_path / "scores.json")]
    score_baselines.main(["retrieval", f"en-de={tmp_path / 'test'}", *to])
    result = json.loads((tmp_path / "scores.json").read_text())
    assert "margin" in capsys.readouterr().out
    assert result["test"] == {"en-de": {"pairs": 3} | evaluate_similarity(similarity(*sides))}
    assert result["test"]["en-de"]["margin"]["forward"]["accuracy"] == 100
    assert result["average"]["margin"] == 100
    assert (tmp_path / "found/en-de.tsv").read_text() == "1\t1\t1\n2\t2\t2\n3\t3\t3\n"


def test_overlap_and_lengths_by_hand():
    """3 of the 6 n-grams of ab are in abc, and all of those of cd in cd cd; a text without letters shares none."""
    expected = [[3 / 6, math.log(2), math.log(3)], [1, math.log(2), math.log(5)], [0, math.log(1), math.log(2)]]
    found = overlap_and_lengths([["ab", "ABC"], ["cd", "cd cd"], ["-", "ab"]])
    assert found == pytest.approx(np.array(expected))


TOPICS = {"en": ("a chart of sales", "a slide with text"), "de": ("diagramm der zahlen", "folie mit bild")}


@pytest.fixture
def topics(tmp_path):
    for code, texts in TOPICS.items():
        rows = [f"{label}\t{text}" for label, text in zip(("calc", "impress"), texts)]
        write(tmp_path / f"files/{'more/' * (code == 'de')}train.{code}.tsv", *rows, *rows, *rows[:1])
        write(tmp_path / f"files/test.{code}.tsv", *reversed(rows))
    write(tmp_path / "files/test.fr.tsv", "calc\tun chart", "impress\tune slide", "calc\t123 789")
    return tmp_path / "files"


def test_a_classifier_of_each_language_and_one_of_english_alone(topics, tmp_path, capsys):
    def scores(*arguments):
        score_baselines.main(["classification", *arguments])
        score_classification.main([arguments[1], "--langs", "en,de"])
        return json.loads(capsys.readouterr().out)["languages"]

    each = scores(f"{topics}:{topics}/more", str(tmp_path / "each"), "--langs", "en,de")
    assert [each[code]["accuracy"] for code in ("en", "de")] == [100, 100]
    shot = scores(str(topics), str(tmp_path / "en"), "--langs", "en,de,fr", "--train-langs", "en")
    assert shot["en"]["accuracy"] == 100 and shot["de"]["accuracy"] == 50  # all of German is one class
    assert read_predictions(tmp_path / "en/test.fr.tsv")[1][:2] == ["calc", "impress"]


def test_the_classifier_is_scikit_learns(topics, tmp_path):
    rows = [line.split("\t") for line in (topics / "train.en.tsv").read_text().splitlines()]
    vectorizer = TfidfVectorizer(
        analyzer="char_wb", ngram_range=(2, 5), min_df=2, max_features=200_000, sublinear_tf=True
    )
    model = LogisticRegression(C=30, max_iter=300, class_weight="balanced")
    model.fit(vectorizer.fit_transform([text for _, text in rows]), [label for label, _ in rows])
    shares = model.predict_proba(vectorizer.transform(["un chart", "une slide", "123 789"]))
    expected = [
        f"{number}\t{label}\t{model.classes_[share.argmax()]}\t{share.max():.4f}"
        for number, (label, share) in enumerate(zip(("calc", "impress", "calc"), shares), start=1)
    ]
    score_baselines.main(["classification", str(topics), str(tmp_path / "out"), "--langs", "fr", "--train-langs", "en"])
    assert (tmp_path / "out/test.fr.tsv").read_text().splitlines() == expected


def test_pairs_are_classified_by_what_they_share_in_a_language_without_training_text(tmp_path, capsys):
    words = "sheet cell row page style font".split(), "лист ячейка строка страница стиль шрифт".split()
    for name, own in zip(("train.en", "test.ru"), words):
        rows = [f"1\t{word}\tabc {word} abc" for word in own]
        rows += [f"0\t{word}\tabc {other} abc" for word, other in zip(own, own[1:] + own[:1])]
        write(tmp_path / f"{name}.tsv", *rows)
    score_baselines.main(["pairs", str(tmp_path), str(tmp_path / "out"), "--langs", "ru", "--train-langs", "en"])
    score_classification.main([str(tmp_path / "out"), "--langs", "ru"])
    assert json.loads(capsys.readouterr().out)["accuracy"] == 100


def test_titles_are_as_many_words_as_score_best_on_validation_text(tmp_path, capsys):
    """Two words in English; in Chinese three characters."""
    write(tmp_path / "valid.en.src", "Text Styles are for text", "Cell Names are for cells")
    write(tmp_path / "valid.en.tgt", "Text Styles", "Cell Names")
    write(tmp_path / "test.en.src", "Page Styles are for pages", "Macro")
    write(tmp_path / "test.en.tgt", "Page Styles", "Macro")
    write(tmp_path / "valid.zh.src", "工具栏的按钮")
    write(tmp_path / "valid.zh.tgt", "工具栏")
    write(tmp_path / "test.zh.src", "样式表在这里")
    write(tmp_path / "test.zh.tgt", "样式表")
    out = tmp_path / "out"
    score_baselines.main(["titles", str(tmp_path), str(out), "--langs", "en,zh"])
    assert capsys.readouterr().out == "en: the first 2 words\nzh: the first 3 characters\n"
    assert read_generated(out / "en/generate-test.txt")[0] == ["Page Styles", "Macro"]
    assert titles(tmp_path, "zh", "test") == (["样式表"], 3)
    score_generation.main([str(out), "--references", str(tmp_path), "--langs", "en,zh", "--bootstrap", "0"])
    assert json.loads(capsys.readouterr().out)["average"]["rouge_l"] == 100
    assert first_words("Ein  Text hier", 2, "de") == "Ein Text" and first_words("工具 栏", 3, "zh") == "工具 "


@pytest.mark.parametrize(
    "command, changed, sentence",
    [
        ("classification", {}, r"test.es.tsv: no such file of labeled text in language 'es'"),
        (
            "classification",
            {"train.en.tsv": ["calc\ta chart"] * 3},
            "the training text of en has one label only, 'calc'",
        ),
        (
            "classification",
            {"train.en.tsv": ["calc\tx", "draw\ty"]},
            "nothing is learned from the training text of en: ",
        ),
        ("pairs", {}, "train.en.tsv, line 1: expected label TAB text TAB text, found 2 fields"),
        ("titles", {"valid.es.src": ["a b"], "valid.es.tgt": []}, "valid.es: expected as many titles as .* 0 of 1"),
    ],
)
def test_mistakes_are_one_sentence(topics, tmp_path, command, changed, sentence):
    for name, lines in changed.items():
        write(topics / name, *lines)
    trained = [] if command == "titles" else ["--train-langs", "en"]
    with pytest.raises(UserError, match=sentence):
        score_baselines.main([command, str(topics), str(tmp_path / "out"), "--langs", "es", *trained])
