"""`fairseq-xl score` for tagging, ranking and question answering, from files; values worked out by hand."""

import gzip
import json
import math

import numpy as np
import pytest

import fairseq_xl
from fairseq_xl.commands import score_classification, score_question_answering, score_ranking, score_tagging
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import bootstrap

TAGS = "a\tB-X\tB-X\nb\tI-X\tO\n\nc\tO\tO\nd\tB-Y\tB-Y\n\n"
QUERIES = "1\tq\t2\t0.1\n2\tq\t0\t0.9\n3\tr\t0\t1\n4\ts\t1\t0.5\n"
SQUAD = {
    "data": [
        {
            "paragraphs": [
                {
                    "context": "Die Katze schläft.",
                    "qas": [
                        {"id": "1", "question": "Wer?", "answers": [{"text": "Die Katze", "answer_start": 0}]},
                        {"id": "2", "question": "Was?", "answers": [{"text": "schläft", "answer_start": 10}]},
                        {"id": "3", "question": "Wo?", "answers": []},
                    ],
                }
            ]
        }
    ]
}


@pytest.fixture
def folders(tmp_path):
    for name in ("found", "right"):
        (tmp_path / name).mkdir()
    (tmp_path / "right/test.de.json").write_text(json.dumps(SQUAD), encoding="utf-8")
    (tmp_path / "found/test.de.json").write_text(json.dumps({"1": "Katze", "2": "Schläft."}), encoding="utf-8")
    return tmp_path


def printed(capsys, main, *arguments):
    main([str(argument) for argument in arguments])
    return json.loads(capsys.readouterr().out)


def test_tagging(tmp_path, capsys, caplog):
    (tmp_path / "test.en.tsv").write_text(TAGS, encoding="utf-8")
    result = printed(capsys, score_tagging.main, tmp_path, "--langs", "en")
    # spans X(0, 1), Y(1, 1); predicted X(0, 0), Y(1, 1)
    assert (result["f1"], result["accuracy"], result["missing"]) == (50, 75, [])
    entry = result["languages"]["en"]
    assert (entry["n"], entry["words"]) == (2, 4)
    assert entry["f1_interval"] == [0, 100] and entry["accuracy_interval"] == [50, 100]
    assert result["majority"] == 25
    result = printed(capsys, score_tagging.main, tmp_path, "--langs", "en,de")
    assert result["missing"] == ["de"] and "f1" not in result
    assert "no file of de, so there are no averages" in caplog.text


def test_ranking(tmp_path, capsys):
    (tmp_path / "valid.en.tsv").write_text(QUERIES, encoding="utf-8")
    result = printed(capsys, score_ranking.main, tmp_path, "--langs", "en", "--split", "valid")
    second = 1 / math.log2(3)  # the discount of rank 2
    assert result["ndcg"] == pytest.approx(100 * second, abs=0.01)
    assert result["chance"] == pytest.approx(100 * (1 + second) / 2, abs=0.01)
    entry = result["languages"]["en"]
    assert (entry["n"], entry["gain"]) == (1, "linear")  # r and s have a single text


@pytest.mark.parametrize(
    "main, name, text, expected",
    [
        (score_classification.main, "test.de.tsv", "1\ta\ta\t0.5\n", "metric:accuracy|"),
        (score_tagging.main, "test.de.tsv", TAGS, "metric:span-f1|scheme:seqeval-0.0.12|"),
        (score_ranking.main, "test.de.tsv", QUERIES, "metric:ndcg|gain:linear|"),
    ],
)
def test_signatures(tmp_path, capsys, main, name, text, expected):
    (tmp_path / name).write_text(text, encoding="utf-8")
    version = fairseq_xl.__version__
    assert (
        printed(capsys, main, tmp_path, "--langs", "de")["signature"] == f"{expected}bs:1000|seed:1|version:{version}"
    )


@pytest.mark.parametrize(
    "main, labeled, unlabeled",
    [
        (score_classification.main, "1\ta\ta\t0.5\n", "1\t_\ta\t0.5\n"),
        (score_ranking.main, "1\tq\t1\t3\n2\tq\t0\t2\n", "1\tq\t_\t3\n"),
        (score_tagging.main, TAGS, "a\t_\tO\n\n"),
    ],
)
def test_files_without_labels_are_left_out_and_named(tmp_path, capsys, caplog, main, labeled, unlabeled):
    for code, content in (("en", labeled), ("de", unlabeled)):
        (tmp_path / f"test.{code}.tsv").write_text(content, encoding="utf-8")
    result = printed(capsys, main, tmp_path, "--langs", "en,de")
    assert list(result["languages"]) == ["en"] and result["missing"] == ["de"]
    assert "no labels of de" in caplog.text and "no file of" not in caplog.text


@pytest.mark.parametrize(
    "main, content",
    [
        (score_classification.main, "1\ta\ta\t0.5\n2\t_\ta\t0.5\n"),
        (score_ranking.main, "1\tq\t1\t3\n2\tq\t_\t2\n"),
    ],
)
def test_labels_in_a_part_of_a_file(tmp_path, main, content):
    (tmp_path / "test.de.tsv").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match="test.de.tsv, line 2: no (label|relevance)"):
        main([str(tmp_path), "--langs", "de"])


def test_a_query_may_be_an_underscore(tmp_path, capsys):
    """The readers write it in place of an empty query; it is not a missing relevance."""
    (tmp_path / "test.de.tsv").write_text("1\t_\t2\t0.5\n2\t_\t0\t0.1\n", encoding="utf-8")
    assert printed(capsys, score_ranking.main, tmp_path, "--langs", "de")["ndcg"] == 100


def test_answers(folders, capsys):
    more = ["--references", folders / "right", "--langs", "de"]
    result = printed(capsys, score_question_answering.main, folders / "found", *more)
    assert (result["exact_match"], result["normalization"]) == (50, "squad")
    assert result["signature"].startswith("metric:f1+em|norm:squad|bs:1000|")
    assert result["f1"] == pytest.approx(100 * (2 / 3 + 1) / 2, abs=0.01)
    result = printed(capsys, score_question_answering.main, folders / "found", *more, "--normalization", "mlqa")
    assert (result["exact_match"], result["f1"], result["languages"]["de"]["n"]) == (100, 100, 2)


@pytest.mark.parametrize(
    "main, name, content, message",
    [
        (score_tagging.main, "test.de.tsv", TAGS[:-1], "is not complete: there is no empty line at its end"),
        (score_tagging.main, "test.de.tsv", "a\tO\n\n", "line 1: expected word TAB tag TAB prediction"),
        (score_tagging.main, "test.de.tsv", "\n", "holds no predictions"),
        (score_ranking.main, "test.de.tsv", "1\tq\t2\n", "line 1: expected line TAB query TAB relevance TAB score"),
        (score_ranking.main, "test.de.tsv", "1\tq\ttwo\t3\n", "line 1: expected line TAB query"),
        (score_ranking.main, "test.de.tsv", "1\tq\t1\tnan\n", "line 1: expected a relevance of 0 or more and a finite"),
        (score_ranking.main, "test.de.tsv", "1\tq\t-1\t3\n", "line 1: expected a relevance of 0 or more and a finite"),
        (score_ranking.main, "test.de.tsv", "1\tq\t1\t3\n", "test.de.tsv: no query has two texts to rank"),
        (score_tagging.main, "test.de.tsv", "a\t_\tO\n\n", "has predictions of words without tags \\(_\\) only"),
        (score_ranking.main, "test.de.tsv", "1\tq\t_\t3\n", "has predictions of texts without relevance"),
        (score_classification.main, "test.de.tsv", "1\t_\tx\t0.5\n", "has predictions of text without labels"),
        (score_question_answering.main, "test.de.json", "{", "line 1: not JSON: Expecting property name"),
        (
            score_question_answering.main,
            "test.de.json",
            '{"1": "Katze"}',
            "json: 1 of 2 questions have no prediction: 2",
        ),
    ],
)
def test_files_that_are_wrong(folders, main, name, content, message):
    (folders / "found" / name).write_text(content, encoding="utf-8")
    more = ["--references", str(folders / "right")] if main is score_question_answering.main else []
    with pytest.raises(UserError, match=message):
        main([str(folders / "found"), "--langs", "de", *more])


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_a_reference_file_replaces_that_of_the_folder(folders, capsys, packed):
    """The file in --references has other answers. Without the option it is read."""
    right = folders / "right/test.de.json"
    content = right.read_bytes()
    name, written = ("other.json.gz", gzip.compress(content)) if packed else ("other.json", content)
    (folders / name).write_bytes(written)
    other_answers = json.loads(content)
    other_answers["data"][0]["paragraphs"][0]["qas"][1]["answers"][0]["text"] = "Katze"
    right.write_text(json.dumps(other_answers), encoding="utf-8")
    more = [folders / "found", "--references", folders / "right", "--langs", "de"]
    assert printed(capsys, score_question_answering.main, *more)["exact_match"] == 0
    named = ["--reference-file", f"de={folders}/other.json"]
    assert printed(capsys, score_question_answering.main, *more, *named)["exact_match"] == 50


@pytest.mark.parametrize(
    "named, message",
    [
        (["de"], "--reference-file de: expected XX=FILE, a language and its file"),
        (["de=a", "de=b"], "--reference-file de=b: de is named twice"),
        (["fr=a"], "--reference-file: fr is not in --langs de"),
        (["de=a.json"], "a.json"),
    ],
)
def test_a_reference_file_that_is_wrong(folders, named, message):
    more = [f"--reference-file={argument}" for argument in named]
    with pytest.raises(UserError, match=message):
        score_question_answering.main([str(folders / "found"), "--references", "none", "--langs", "de", *more])


def test_no_language_has_a_file(tmp_path):
    with pytest.raises(UserError, match=r"no prediction file test\.LANGUAGE\.tsv of en,de"):
        score_tagging.main([str(tmp_path), "--langs", "en,de"])


def test_the_bootstrap_of_sums_is_that_of_means():
    """A measure that is a mean has the interval of `bootstrap.mean`, within the error of 1,000 resamples."""
    values = np.random.default_rng(2).uniform(0, 100, 300)
    of_sums = bootstrap.corpus_metrics(values[:, None], {"mean": lambda sums: sums[..., 0] / 300})
    of_mean = bootstrap.mean(values)
    assert of_sums["mean"] == of_mean["score"]
    assert of_sums["mean_interval"] == pytest.approx(of_mean["interval"], abs=0.5)
