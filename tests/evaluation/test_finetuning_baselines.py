"""Baselines of tagging, question answering and ranking: by hand, against scikit-learn, and their scores."""

import gzip
import json

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import ndcg_score
from sklearn.metrics.pairwise import cosine_similarity

from fairseq_xl.commands import score_baselines, score_question_answering, score_ranking, score_tagging
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.baselines import (
    answers,
    build_dictionary,
    most_frequent_type,
    similarities,
    split_context,
    tag,
    tag_capitals,
)
from fairseq_xl.evaluation.task_files import TaggedSentence


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def sentence(text):
    """A sentence of "word/tag"; a word without a tag is outside."""
    words = [word.partition("/") for word in text.split()]
    tags = tuple(found or "O" for _, _, found in words)
    return TaggedSentence(tuple(word for word, _, _ in words), tags, "en", "file", 1)


def column(*texts):
    """The file of these sentences."""
    return "".join("".join(map("{}\t{}\n".format, sentence(text).words, sentence(text).tags)) + "\n" for text in texts)


# Tagging


def test_spans_of_training_text_are_the_dictionary():
    training = ["Click OK/B-UI and Insert/B-UI -/I-UI Frame/I-UI", "Press F2,/B-KEY then F2/B-UI or F2./B-UI"]
    found = build_dictionary(map(sentence, training))
    assert found == {("OK",): "UI", ("Insert", "-", "Frame"): "UI", ("F2",): "UI"}


@pytest.mark.parametrize("unmarked, kept", [(1, True), (2, True), (3, False)])
def test_a_span_that_is_mostly_no_span_is_left_out(unmarked, kept):
    training = ["Text/B-UI and Text/B-UI", *["the Text now"] * unmarked]
    assert build_dictionary(map(sentence, training)) == ({("Text",): "UI"} if kept else {})


@pytest.mark.parametrize(
    "text, expected",
    [
        ("Choose Insert - Frame. Then", "O B-UI I-UI I-UI O"),
        ("Choose Insert - Table", "O B-UI O O"),
        ("Insert Insert - Frame F2 insert", "B-UI B-UI I-UI I-UI B-KEY O"),
        ("Insert -", "B-UI O"),
    ],
)
def test_the_longest_span_is_tagged(text, expected):
    dictionary = {("Insert", "-", "Frame"): "UI", ("Insert",): "UI", ("F2",): "KEY"}
    assert " ".join(tag(text.split(), dictionary)) == expected
    assert tag(text.split(), {}) == ["O"] * len(text.split())


@pytest.fixture
def tagged(tmp_path):
    files = tmp_path / "files"
    write(files / "train.en.tsv", column("Click OK/B-UI now", "Press F2/B-KEY or OK/B-UI"))
    write(files / "more/train.de.tsv", column("Klicken Sie Hilfe/B-UI"))
    write(files / "test.en.tsv", column('"OK/B-UI or F2./B-KEY', "Click Help/B-UI"))
    write(files / "test.de.tsv", column("OK/B-UI und Hilfe/B-UI"))
    return files


def test_tagging_of_each_language_and_from_english(tagged, tmp_path, capsys):
    """English: two of three spans are found. German: one of two, another one with either dictionary."""

    def scores(*arguments):
        score_baselines.main(["tagging", *arguments, "--langs", "en,de"])
        score_tagging.main([arguments[1], "--langs", "en,de"])
        return json.loads(capsys.readouterr().out)["languages"]

    zero, own, none = (str(tmp_path / name) for name in ("zero", "own", "none"))
    found = scores(str(tagged), zero, "--train-langs", "en")
    assert [found[code]["f1"] for code in ("en", "de")] == pytest.approx([80, 200 / 3], abs=0.01)
    assert (tmp_path / "zero/test.de.tsv").read_text() == "OK\tB-UI\tB-UI\nund\tO\tO\nHilfe\tB-UI\tO\n\n"
    assert scores(f"{tagged}:{tagged}/more", own)["de"]["f1"] == pytest.approx(200 / 3, abs=0.01)
    assert (tmp_path / "own/test.de.tsv").read_text() == "OK\tB-UI\tO\nund\tO\tO\nHilfe\tB-UI\tB-UI\n\n"
    found = scores(str(tagged), none, "--method", "outside")
    assert found["en"]["f1"] == 0 and found["en"]["accuracy"] == pytest.approx(40)
    found = scores(str(tagged), none, "--train-langs", "en", "--method", "capitals")
    assert [found[code]["f1"] for code in ("en", "de")] == pytest.approx([40, 200 / 3], abs=0.01)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("Choose Insert - Frame and OK.", "O B-UI I-UI I-UI O B-UI"),
        ("Open it. Choose New, Old - then", "O O O B-UI B-UI O O"),
        ('See "Text Box": Then "Open" 「Ä', "O B-UI I-UI O B-UI I-UI"),
        ("a - B", "O O B-UI"),
        ("OK", "O"),
    ],
)
def test_runs_of_capitalized_words_are_spans(text, expected):
    assert " ".join(tag_capitals(text.split(), "UI")) == expected


def test_the_most_frequent_type():
    assert most_frequent_type(map(sentence, ["OK/B-UI F1/B-KEY", "F2/B-KEY Ctrl/B-KEY F3/I-KEY"])) == "KEY"


# Question answering

CONTEXT = "The sheet has rows.\nRows are deleted with a key.\nDelete rows, rows and rows."


def squad(*questions, context=CONTEXT):
    """A file with these (question, answer)."""
    asked = [
        {"id": f"q{place}", "question": question, "answers": [{"text": text, "answer_start": context.index(text)}]}
        for place, (question, text) in enumerate(questions)
    ]
    return json.dumps({"data": [{"paragraphs": [{"context": context, "qas": asked}]}]}, ensure_ascii=False)


def test_overlap_is_the_share_of_the_query():
    pairs = [("Deleting the rows", "Rows and rows"), ("A key", "the key a"), ("?", "any"), ("Rows", "none")]
    assert similarities("overlap", pairs, "en").tolist() == [1 / 2, 1, 0, 0]
    assert similarities("overlap", [("删除行", "行的删")], "zh").tolist() == [2 / 3]


def test_tf_idf_is_scikit_learns():
    pairs = [("deleting rows", "rows are deleted"), ("insert", "delete"), ("insert", "an insertion")]
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4)).fit({text for pair in pairs for text in pair})
    expected = np.diag(cosine_similarity(*(vectorizer.transform(column) for column in zip(*pairs))))
    assert similarities("tf-idf", pairs, "en") == pytest.approx(expected)


@pytest.mark.parametrize(
    "method, expected",
    [("overlap", [1, 0, 0]), ("first", [0, 0, 0]), ("tf-idf", [1, 0, 0])],
)
def test_the_most_similar_paragraph_is_the_answer(tmp_path, method, expected):
    """A word of the question counts once; the first of equal paragraphs is the answer."""
    path = tmp_path / "test.en.json"
    write(path, squad(("Are rows deleted?", "rows"), ("sheet", "rows"), ("Zzz", "rows")))
    paragraphs = CONTEXT.split("\n")
    assert answers(path, "en", method) == {f"q{place}": paragraphs[each] for place, each in enumerate(expected)}


def test_a_context_of_one_line_has_sentences():
    assert split_context("One. Two? \n") == ["One.", "Two?"] and split_context("打开。保存") == ["打开。", "保存"]
    assert split_context("One. Two.\n\nThree. ") == ["One. Two.", "Three."]


def test_answers_are_scored(tmp_path, capsys):
    """In the first question the answer is a whole paragraph, in the second a word of the one that is found."""
    files, out = tmp_path / "files", tmp_path / "out"
    write(files / "test.de.json", squad(("deleted key", "Rows are deleted with a key."), ("sheet", "sheet")))
    score_baselines.main(["question-answering", str(files), str(out), "--langs", "de"])
    score_question_answering.main([str(out), "--references", str(files), "--langs", "de"])
    scores = json.loads(capsys.readouterr().out)["languages"]["de"]
    assert scores["exact_match"] == 50 and scores["f1"] == pytest.approx(100 * (1 + 2 / 4) / 2)


# Ranking

RANKING = "1\tdelete rows\tDelete\tthe rows\n0\tdelete rows\tInsert\trows\n0\tkey\tA key\n2\tkey\tkey of rows\n"


def test_ranking_is_scored(tmp_path, capsys):
    files, out = tmp_path / "files", tmp_path / "out"
    write(files / "test.en.tsv", RANKING)
    for method in ("overlap", "tf-idf"):
        score_baselines.main(["ranking", str(files), str(out), "--langs", "en", "--method", method])
        score_ranking.main([str(out), "--langs", "en"])
        found = [float(line.split("\t")[3]) for line in (out / "test.en.tsv").read_text().splitlines()]
        expected = np.mean([ndcg_score([[1, 0]], [found[:2]]), ndcg_score([[0, 2]], [found[2:]])])
        assert json.loads(capsys.readouterr().out)["ndcg"] == pytest.approx(100 * expected, abs=0.01)
        if method == "overlap":
            assert found == [1, 0.5, 1, 1]
    assert (out / "test.en.tsv").read_text().startswith("1\tdelete rows\t1\t")


def test_compressed_files_and_texts_without_labels_are_read(tmp_path):
    write(tmp_path / "test.de.tsv", "_\tkey\tA key\n_\tkey\tB\n")
    (tmp_path / "test.en.tsv.gz").write_bytes(gzip.compress(RANKING.encode()))
    score_baselines.main(["ranking", str(tmp_path), str(tmp_path / "out"), "--langs", "en,de"])
    assert (tmp_path / "out/test.de.tsv").read_text().startswith("1\tkey\t_\t")
    assert len((tmp_path / "out/test.en.tsv").read_text().splitlines()) == 4


# Mistakes


@pytest.mark.parametrize(
    "name, files, sentence",
    [
        ("tagging", {}, r"train.en.tsv: no such file of labeled text in language 'en'"),
        ("tagging", {"train.en.tsv": "a\tO\n"}, r"test.de.tsv: no such file of labeled text"),
        ("tagging", {"train.en.tsv": "a\tO\n\nword\n"}, "train.en.tsv, line 3: expected word TAB tag, found 'word'"),
        ("question-answering", {}, r"test.de.json: no such file of questions"),
        ("ranking", {}, r"test.de.tsv: no such file of labeled text"),
        ("ranking", {"test.de.tsv": ""}, "test.de.tsv, line 1: the file is empty"),
        ("ranking", {"test.de.tsv": "1\t \t \n"}, "line 1: expected relevance TAB query TAB text"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, name, files, sentence):
    for path, content in files.items():
        (tmp_path / "files").mkdir(exist_ok=True)
        (tmp_path / "files" / path).write_text(content, encoding="utf-8")
    trained = ["--train-langs", "en"] if name == "tagging" else []
    with pytest.raises(UserError, match=sentence):
        score_baselines.main([name, str(tmp_path / "files"), str(tmp_path / "out"), "--langs", "de", *trained])
    assert not (tmp_path / "out").exists()


def test_training_text_without_spans_has_no_type(tagged, tmp_path):
    write(tagged / "train.en.tsv", "a\tO\n")
    with pytest.raises(UserError, match="^the training text has no span$"):
        score_baselines.main(
            [
                *["tagging", str(tagged), str(tmp_path / "out"), "--langs", "de", "--train-langs", "en"],
                *["--method", "capitals"],
            ]
        )


def test_texts_without_n_grams_are_no_basis_of_tf_idf(tmp_path):
    with pytest.raises(UserError, match="^tf-idf of the texts in de cannot be computed: "):
        similarities("tf-idf", [(" ", "\n")], "de")


def test_unknown_methods_are_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        score_baselines.main(["ranking", str(tmp_path), str(tmp_path), "--langs", "en", "--method", "first"])
    assert "invalid choice: 'first'" in capsys.readouterr().err
