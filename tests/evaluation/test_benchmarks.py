"""`fairseq-xl score xglue` and `xtreme`: small files in the layouts of their submissions, values worked out by hand."""

import json

import pytest

from fairseq_xl.commands import score_xglue, score_xtreme, submission
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import xglue, xtreme

QUESTIONS = {
    "data": [
        {
            "paragraphs": [
                {
                    "context": "Der Fluss heißt Elbe.",
                    "qas": [
                        {"id": "a", "question": "Wie?", "answers": [{"text": "Elbe", "answer_start": 16}]},
                        {"id": "b", "question": "Was?", "answers": [{"text": "Der Fluss", "answer_start": 0}]},
                    ],
                }
            ]
        }
    ]
}
ANSWERS = {"a": "Elbe.", "b": "Fluss"}  # exact without articles of German; else F1 2/3

XGLUE = {  # task -> (labeled file of German, predictions, figure)
    "NER": ("xde.test", "New B-LOC\nYork I-LOC\n\nan O\n\n", "B-LOC\nI-LOC\n\nB-PER\n\n", 66.67),
    "POS": ("", "an NOUN\nis VERB\nbig ADJ\n\nx NOUN\n\n", "NOUN\nNOUN\nADJ\n\nNOUN\n\n", 66.67),
    "NC": ("", "q\tt\tsports\nq\tt\tnews\n", "sports\nsports\n", 50),
    "MLQA": ("", json.dumps(QUESTIONS), json.dumps(ANSWERS), 100),
    "XNLI": ("", "a\tb\tneutral\na\tb\tentailment\n", "neutral\nneutral\n", 50),
    "PAWSX": ("", "id\tsentence1\tsentence2\tlabel\n1\ta\tb\t0\n2\ta\tb\t1\n", "0\n1\n", 100),
    "QADSM": ("", "q\ta\td\tGood\n", "Bad\n", 0),
    "WPR": ("", "q\tt\ts\t4\nq\tt\ts\t0\nr\tt\ts\t1\nq\tt\ts\t0\nq\tt\ts\t1\n", "0\n4\n2\n0.1\n0.7\n", 81.55),
    "QAM": ("", "q\ta\t1\n", "1\n", 100),
    "QG": ("", "Was ist das für ein Haus ?\n", "was ist das für ein haus ?\n", 100),
    "NTG": ("", "Was ist das für ein Haus ?\n", "anderes\n", 0),
}


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def printed(capsys, main, folder, *more):
    main(["--predictions", str(folder / "found"), "--references", str(folder / "right"), *map(str, more)])
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def xglue_files(tmp_path):
    for name, task in xglue.tasks().items():
        _, labeled, predicted, _ = XGLUE[name]
        for language in task.languages:
            write(tmp_path / "right" / task.references.format(language=language, split="dev"), labeled)
            write(tmp_path / "found" / task.predictions.format(language=language, split="dev"), predicted)
    return tmp_path


def test_every_task_of_xglue(xglue_files, capsys):
    """The figures are those of XGLUE's program: precision of runs for POS, and consecutive lines as queries for WPR."""
    result = printed(capsys, score_xglue.main, xglue_files, "--split", "dev", "--table", xglue_files / "table.md")
    assert result["missing"] == []
    for name, entry in result["tasks"].items():
        expected = XGLUE[name][3]
        german = entry["languages"]["de"]
        metric = xglue.tasks()[name].metrics[0]
        assert german[metric] == pytest.approx(expected, abs=0.01), name
        assert len(german[f"{metric}_interval"]) == 2
        if name != "MLQA":  # whose normalization depends on the language
            assert entry["average"] == pytest.approx(expected, abs=0.01)
    values = [entry["average"] for entry in result["tasks"].values()]
    assert result["understanding"] == pytest.approx(sum(values[:9]) / 9, abs=0.01)
    assert result["generation"] == pytest.approx(sum(values[9:]) / 2, abs=0.01) and result["complete"] == 11
    table = (xglue_files / "table.md").read_text(encoding="utf-8").splitlines()
    assert table[0] == "| task | metric | average | Unicoder | xDAE | xFNP | by language |"
    assert table[2] == "| NER | F1 of spans, as seqeval | 66.7 | 79.7 |  |  | de 66.7, en 66.7, es 66.7, nl 66.7 |"
    assert len(table) == 2 + 11


def test_the_languages_and_figures_of_the_papers():
    counts = {name: len(task.languages) for name, task in xglue.tasks().items()}
    assert counts == dict(NER=4, POS=18, NC=5, MLQA=7, XNLI=15, PAWSX=4, QADSM=3, WPR=6, QAM=3, QG=3, NTG=5)
    counts = {name: len(task.languages) for name, task in xtreme.tasks().items()}
    assert counts == dict(xnli=15, pawsx=7, udpos=33, panx=40, xquad=11, mlqa=7, tydiqa=9, bucc2018=4, tatoeba=36)
    assert sum(xglue.PAPER[name]["Unicoder"] for name in list(xglue.PAPER)[:9]) / 9 == pytest.approx(76.1, abs=0.05)
    assert sum(xtreme.PAPER.values()) / 9 == pytest.approx(73.3, abs=0.05)  # the paper prints 73.1


def test_xtreme(tmp_path, capsys):
    files = {
        "bucc2018": ("de-1\ten-1\nde-2\ten-2\n", "de-1\ten-1\nde-2\ten-3\nde-4\ten-4\n", 40.0),  # 1 of 3, of 2
        "tatoeba": ("0\n1\n2\n3\n", "0\n1\n2\n2\n", 75.0),
        "udpos": ("NOUN\nVERB\n\nADJ\n\n", "NOUN\nNOUN\n\nADJ\n\n", 40.0),  # runs: 1 right of 2 and 3
        "mlqa": (json.dumps(QUESTIONS), json.dumps(ANSWERS), 100.0),
    }
    for name, (labeled, predicted, _) in files.items():
        suffix = "json" if name == "mlqa" else "tsv"
        write(tmp_path / f"right/{name}/test-de.{suffix}", labeled)
        write(tmp_path / f"found/{name}/test-de.{suffix}", predicted)
    result = printed(capsys, score_xtreme.main, tmp_path)
    assert set(result["tasks"]) == set(files) and "average" not in result and len(result["missing"]) == 9
    for name, entry in result["tasks"].items():
        german, task = entry["languages"]["de"], xtreme.tasks()[name]
        figure = sum(german[metric] for metric in task.metrics) / len(task.metrics)
        assert figure == pytest.approx(files[name][2], abs=0.01), name
        assert (
            "average" not in entry and "de" not in entry["missing"] and len(entry["missing"]) == len(task.languages) - 1
        )


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("NER/de.prediction", "O\n\n", "1 sentences of 2"),
        ("NER/de.prediction", "O\nO\nO\n\nO\n\n", "sentence 1: 3 tags of 2 words"),
        ("NC/de.prediction", "sports\n", "expected 2 predictions, one for each label, found 1"),
        ("WPR/de.prediction", "0\n4\n2\n0.1\nbad\n", "expected a rating or score on each line"),
        ("WPR/de.prediction", "0\n", "expected 5 predictions, one for each line, found 1"),
        ("MLQA/de.prediction", "[]", "expected one JSON object of answers by id"),
        ("NTG/de.prediction", "a\nb\n", "2 hypotheses but 1 references"),
    ],
)
def test_predictions_that_do_not_fit(xglue_files, capsys, name, content, message):
    (xglue_files / "found" / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        printed(capsys, score_xglue.main, xglue_files, "--split", "dev")


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("XNLI/de.dev", "a\tb\n", "line 1: no label; expected 3 columns, found 2"),
        ("NER/de.dev", "New\n", "line 1: no tag; expected 2 columns, found 1"),
        ("WPR/xglue.wpr.de.dev", "q\tt\ts\n", "line 1: no label; expected 4 columns, found 3"),
    ],
)
def test_references_without_labels(xglue_files, capsys, name, content, message):
    (xglue_files / "right" / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        printed(capsys, score_xglue.main, xglue_files, "--split", "dev")


def test_files_that_are_missing(xglue_files, capsys):
    (xglue_files / "found/NER/nl.prediction").unlink()
    more = ["--split", "dev", "--tasks", "NER,QAM"]
    result = printed(capsys, score_xglue.main, xglue_files, *more)
    assert result["tasks"]["NER"]["missing"] == ["nl"] and "average" not in result["tasks"]["NER"]
    assert "average" in result["tasks"]["QAM"] and "understanding" not in result and result["complete"] == 1
    (xglue_files / "right/NER/de.dev").unlink()
    with pytest.raises(UserError, match=r"NER/de\.dev: no such file: the references of .*de\.prediction"):
        printed(capsys, score_xglue.main, xglue_files, *more)
    with pytest.raises(UserError, match="--tasks NERD: NERD is none of NER, POS"):
        printed(capsys, score_xglue.main, xglue_files, "--tasks", "NERD")
    with pytest.raises(UserError, match=r"no predictions of NER; expected files such as NER/de\.prediction"):
        score_xglue.main(["--predictions", "x", "--references", f"{xglue_files}/right", "--tasks", "NER"])


PREDICTED = {  # what fairseq-validate writes -> what submissions have
    ("xglue", "NC", "tsv"): ("1\tsports\tnews\t0.9\n2\t_\tsports\t0.8\n", "NC/de.prediction", "news\nsports\n"),
    ("xglue", "NER", "tsv"): ("a b\tO\tB-X\nc\tO\tO\n\nd\tO\tO\n\n", "NER/de.prediction", "B-X\nO\n\nO\n\n"),
    ("xglue", "WPR", "tsv"): (
        *("1\tq\t2\t0.5\n3\tq\t0\t0.25\n2\tr\t_\t-1\n10\tr\t1\t7\n", "WPR/de.prediction"),
        "0.5\n-1\n0.25\n7\n",
    ),
    ("xglue", "MLQA", "json"): ('{\n"a": "x\ty"\n}\n', "MLQA/de.prediction", '{\n"a": "x\ty"\n}\n'),
    ("xtreme", "panx", "tsv"): ("c\tO\tB-X\n\n", "panx/test-de.tsv", "B-X\n\n"),
    ("xtreme", "xquad", "json"): ('{\n"a": "x"\n}\n', "xquad/test-de.json", '{\n"a": "x"\n}\n'),
}


@pytest.mark.parametrize("benchmark, task, suffix", PREDICTED)
def test_submissions(tmp_path, benchmark, task, suffix):
    written, name, expected = PREDICTED[benchmark, task, suffix]
    write(tmp_path / f"in/test.de.{suffix}", written)
    submission.main([benchmark, task, str(tmp_path / "in"), str(tmp_path / "out")])
    assert [str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.*")] == [name]
    assert (tmp_path / "out" / name).read_text(encoding="utf-8") == expected


def test_a_submission_names_the_languages_that_it_lacks(tmp_path, caplog):
    """WPR's Spanish, which is not averaged, is one of them."""
    for language in ("de", "en", "fr", "zh"):
        write(tmp_path / f"in/test.{language}.tsv", "1\tq\t2\t0.5\n")
    submission.main(["xglue", "WPR", str(tmp_path / "in"), str(tmp_path / "out")])
    assert f"{tmp_path}/in: no predictions of it, pt, es, which the submission lacks" in caplog.text
    caplog.clear()
    for language in ("it", "pt", "es"):
        write(tmp_path / f"in/test.{language}.tsv", "1\tq\t2\t0.5\n")
    submission.main(["xglue", "WPR", str(tmp_path / "in"), str(tmp_path / "out")])
    assert "lacks" not in caplog.text


def test_submissions_that_cannot_be_written(tmp_path):
    with pytest.raises(UserError, match="NTG is none of xglue's NER, POS"):
        submission.main(["xglue", "NTG", str(tmp_path), str(tmp_path)])
    with pytest.raises(UserError, match="no file test.LANGUAGE of de, en, es, nl"):
        submission.main(["xglue", "NER", str(tmp_path), str(tmp_path)])
    write(tmp_path / "test.de.tsv", "word\ttag\n")
    with pytest.raises(UserError, match=r"test\.de\.tsv is not a file of predictions: expected 3 columns"):
        submission.main(["xglue", "NER", str(tmp_path), str(tmp_path)])
