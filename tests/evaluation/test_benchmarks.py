"""`fairseq-xl score xglue` and `xtreme`: small files in the layouts of their submissions, values worked out by hand."""

import json
import math

import pytest
import sacrebleu

from fairseq_xl import __version__
from fairseq_xl.commands import score_submission, score_xglue, score_xtreme
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import bootstrap, prediction_folders, xglue, xtreme
from fairseq_xl.evaluation.benchmarks import accuracy_scores, answer_scores
from fairseq_xl.evaluation.prediction_folders import Origin
from tests.builders import squad
from tests.evaluation.builders import ANSWERS, QUESTIONS, XGLUE, write

TAB = "\t"
RESAMPLES = bootstrap.RESAMPLES


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(bootstrap, "RESAMPLES", 20)


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
        task = xglue.tasks()[name]
        (metric,) = task.variants[entry["variant"]].metrics
        assert entry["variant"] == task.official
        assert german[metric] == pytest.approx(expected, abs=0.01), name
        assert len(german[f"{metric}_interval"]) == 2
        if name != "MLQA":  # whose normalization depends on the language
            assert entry["average"] == pytest.approx(expected, abs=0.01)
    signatures = {name: entry["signature"] for name, entry in result["tasks"].items()}
    ours = f"bs:20|seed:1|version:{__version__}"
    assert signatures["NER"] == f"metric:span-f1|scheme:seqeval-0.0.12|{ours}"
    assert signatures["POS"] == f"metric:span-precision|scheme:seqeval-0.0.12|{ours}"
    assert signatures["XNLI"] == f"metric:accuracy|{ours}" and signatures["MLQA"] == f"metric:f1|norm:mlqa|{ours}"
    assert signatures["WPR"] == f"metric:ndcg|gain:linear|{ours}"
    theirs = "nrefs:1|bs:1000|seed:12345|case:lc|eff:no|tok:13a|smooth:exp"
    assert signatures["QG"] == signatures["NTG"] == f"metric:bleu|{theirs}|version:{sacrebleu.__version__}"
    assert (RESAMPLES, bootstrap.SEED) == (1000, 1)
    values = [entry["average"] for entry in result["tasks"].values()]
    assert result["understanding"] == pytest.approx(sum(values[:9]) / 9, abs=0.01)
    assert result["generation"] == pytest.approx(sum(values[9:]) / 2, abs=0.01) and result["complete"] == 11
    table = (xglue_files / "table.md").read_text(encoding="utf-8").splitlines()
    published = "published: test, not comparable"
    assert table[0] == f"| task | metric | average | {published} | by language (95 % interval) | signature |"
    low, high = result["tasks"]["NER"]["languages"]["de"]["f1_interval"]
    languages = ", ".join(f"{code} 66.7 ({low:.1f}–{high:.1f})" for code in ("de", "en", "es", "nl"))
    signature = rf"`metric:span-f1\|scheme:seqeval-0.0.12\|bs:20\|seed:1\|version:{__version__}`"
    assert table[2] == f"| NER | F1 of spans (seqeval) | 66.7 | Unicoder 79.7 | {languages} | {signature} |"
    assert "| precision of spans (seqeval); the benchmark calls this accuracy | 66.7 |" in table[3]
    assert table[-2].startswith("| understanding | mean of 9 tasks | ")
    assert table[-1].endswith(" | 50.0 | xDAE 9.5, xFNP 7.8, mBERT 6.4 |  |  |")
    assert len(table) == 2 + 11 + 2


def test_the_languages_and_figures_of_the_papers():
    counts = {name: len(task.languages) for name, task in xglue.tasks().items()}
    assert counts == dict(NER=4, POS=18, NC=5, MLQA=7, XNLI=15, PAWSX=4, QADSM=3, WPR=6, QAM=3, QG=3, NTG=5)
    counts = {name: len(task.languages) for name, task in xtreme.tasks().items()}
    assert counts == dict(xnli=15, pawsx=7, udpos=33, panx=40, xquad=11, mlqa=7, tydiqa=9, bucc2018=4, tatoeba=36)


def test_published_averages_are_the_means_of_published_scores():
    """VECO's paper prints another one for transfer; both tagging tasks of translate-train-all are those of transfer."""
    for benchmark in (xglue.BENCHMARK, xtreme.BENCHMARK):
        for group, papers in benchmark.papers.items():
            for system, figures in papers.items():
                scores = [benchmark.tasks[name].papers.get(system) for name in benchmark.groups[group]]
                if None in scores:
                    assert figures["average"] in (75.6, 71.9, 68.1, 77.2)  # we have the tasks of VECO's only
                elif (group, system) != ("average", "VECO"):
                    expected = sum(score["average"] for score in scores) / len(scores)
                    assert figures["average"] == pytest.approx(expected, abs=0.06), (group, system)
    published = {name: task.papers for name, task in xtreme.tasks().items()}
    scores = {name: papers["VECO"]["average"] for name, papers in published.items()}
    assert sum(scores.values()) / 9 == pytest.approx(73.3, abs=0.05)  # the paper prints 73.1
    joint = {
        name: papers["VECO, translate-train-all"]["average"]
        for name, papers in published.items()
        if "VECO, translate-train-all" in papers
    }
    assert sum((scores | joint).values()) / 9 == pytest.approx(77.2, abs=0.05)
    ntg = xglue.tasks()["NTG"].papers["xDAE"]
    assert sum(ntg["languages"].values()) / 5 == pytest.approx(ntg["average"], abs=0.05)
    assert set(ntg["languages"]) == set(xglue.tasks()["NTG"].languages)
    mlqa = published["mlqa"]["VECO"]
    assert mlqa | {"f1": 71.7, "exact_match": 53.2} == mlqa and mlqa["average"] == pytest.approx((71.7 + 53.2) / 2)


#: benchmark, task, variant -> labeled file of German, predictions, the variant's score and the benchmark's
TAGS = "NOUN\nVERB\nADJ\n\nNOUN\n\n", "NOUN\nNOUN\nADJ\n\nNOUN\n\n"  # 3 of 4 words; 2 spans of 3 are right, of 4
WORDS = TAGS[0].replace("\nV", "\nb V").replace("\nA", "\nc A").replace("N", "a N", 1).replace("\n\nN", "\n\nd N")
RANKED = "q\tt\ts\t4\nq\tt\ts\t0\nq\tt\ts\t1\n", "0.5\n0.9\n0.1\n"  # ratings in the predicted order: 0, 4, 1
SECOND = 1 / math.log2(3)  # discount of rank 2; that of rank 3 is 1/2
ASKED = QUESTIONS, json.dumps(ANSWERS)  # SQuAD's normalization keeps "der": F1 is 1 and 2/3
VARIANTS = {
    ("xglue", "POS", "accuracy"): (WORDS, TAGS[1], 75, 200 / 3),
    ("xglue", "POS", "f1"): (WORDS, TAGS[1], 400 / 7, 200 / 3),
    ("xglue", "WPR", "exponential"): (
        *RANKED,
        100 * (15 * SECOND + 1 / 2) / (15 + SECOND),
        100 * (4 * SECOND + 1 / 2) / (4 + SECOND),
    ),
    ("xglue", "MLQA", "squad"): (*ASKED, 250 / 3, 100),
    ("xtreme", "udpos", "accuracy"): (*TAGS, 75, 400 / 7),
    ("xtreme", "mlqa", "squad"): (*ASKED, (250 / 3 + 50) / 2, 100),
    ("xtreme", "xquad", "mlqa"): (*ASKED, 100, (250 / 3 + 50) / 2),
}
MAINS = {"xglue": score_xglue.main, "xtreme": score_xtreme.main}


def test_the_leaderboard_of_xtreme_averages_nine_tasks(tmp_path, capsys):
    """German articles count as words in the answers of other languages, and in SQuAD's normalization."""
    answers = (250 / 3 + 50) / 2
    content = dict.fromkeys(("xnli", "pawsx"), ("a\nb\n", "a\na\n", 50))
    content |= dict.fromkeys(("udpos", "panx"), (*TAGS, 400 / 7))
    content |= dict.fromkeys(("xquad", "tydiqa"), (*ASKED, answers))
    content |= {"mlqa": (*ASKED, (100 + 6 * answers) / 7)}
    content |= {"bucc2018": ("a\tb\nc\td\n", "a\tb\n", 200 / 3), "tatoeba": ("0\n1\n2\n3\n", "0\n1\n2\n2\n", 75)}
    for name, task in xtreme.tasks().items():
        for language in task.languages:
            write(tmp_path / "right" / task.references.format(language=language, split="test"), content[name][0])
            write(tmp_path / "found" / task.predictions.format(language=language, split="test"), content[name][1])
    result = printed(capsys, score_xtreme.main, tmp_path)
    assert result["complete"] == len(content) == 9
    assert result["average"] == pytest.approx(sum(figure for *_, figure in content.values()) / 9, abs=0.01)


@pytest.mark.parametrize("benchmark, name, variant", VARIANTS)
def test_variants(tmp_path, capsys, benchmark, name, variant):
    task = {"xglue": xglue, "xtreme": xtreme}[benchmark].tasks()[name]
    labeled, predicted, expected, official = VARIANTS[benchmark, name, variant]
    for language in task.languages:
        write(tmp_path / "right" / task.references.format(language=language, split="test"), labeled)
        write(tmp_path / "found" / task.predictions.format(language=language, split="test"), predicted)
    for chosen, figure in ((variant, expected), (task.official, official)):
        more = ["--variant", f"{name}={chosen}", "--table", tmp_path / "table.md"]
        entry = printed(capsys, MAINS[benchmark], tmp_path, *more)["tasks"][name]
        german, metrics = entry["languages"]["de"], task.variants[chosen].metrics
        assert sum(german[metric] for metric in metrics) / len(metrics) == pytest.approx(figure, abs=0.01)
        assert entry["variant"] == chosen and entry["signature"].startswith(task.variants[chosen].signature + "|bs:")
        row = (tmp_path / "table.md").read_text(encoding="utf-8").splitlines()[2]
        assert f"| {entry['metric']} |" in row and ("the benchmark has" in row) == (chosen == variant)
        assert ("VECO" in row or "Unicoder" in row) == ("paper" in entry) == (chosen == task.official)


def test_a_variant_is_in_no_average_over_tasks(xglue_files, capsys):
    more = ["--split", "dev", "--table", xglue_files / "table.md", "--variant"]
    result = printed(capsys, score_xglue.main, xglue_files, *more, "POS=accuracy,WPR=exponential")
    assert "understanding" not in result and result["generation"] == 50 and result["complete"] == 11
    assert [result["tasks"][name]["variant"] for name in ("NER", "POS", "WPR")] == ["f1", "accuracy", "exponential"]
    assert "| understanding |" not in (xglue_files / "table.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "text, message",
    [
        ("POS=recall", "--variant POS=recall: expected POS=VARIANT with one of precision, accuracy, f1"),
        ("NERD=f1", "--variant NERD=f1: 'NERD' is not one of the tasks NER, POS"),
        ("POS=f1,POS=accuracy", "POS is named twice"),
    ],
)
def test_variants_that_do_not_exist(xglue_files, capsys, text, message):
    with pytest.raises(UserError, match=message):
        printed(capsys, score_xglue.main, xglue_files, "--split", "dev", "--variant", text)
    with pytest.raises(UserError, match="'WPR' is not one of the tasks POS"):
        printed(capsys, score_xglue.main, xglue_files, "--tasks", "POS", "--variant", "WPR=linear")


def test_xnlis_own_file_is_read_as_references(xglue_files, capsys):
    """XGLUE's description lists xnli.dev.tsv, with all languages, in place of de.dev and the like."""
    expected = printed(capsys, score_xglue.main, xglue_files, "--split", "dev", "--tasks", "XNLI")["tasks"]["XNLI"]
    rows = ["language\tgold_label\tsentence1\tsentence2"]
    for path in sorted((xglue_files / "right/XNLI").glob("*.dev")):
        rows += [f"{path.stem}\t{line.split(TAB)[-1]}\ta\tb" for line in path.read_text().splitlines()]
        path.unlink()
    write(xglue_files / "right/XNLI/xnli.dev.tsv", "".join(f"{row}\n" for row in rows))
    assert (
        printed(capsys, score_xglue.main, xglue_files, "--split", "dev", "--tasks", "XNLI")["tasks"]["XNLI"] == expected
    )


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("NER/de.prediction", "O\n\n", "expected 2 sentences, as in the references, found 1"),
        ("NER/de.prediction", "O\nO\nO\n\nO\n\n", "sentence 1: expected 2 tags, one a word, found 3"),
        ("NC/de.prediction", "sports\n", "expected 2 predictions, one for each label, found 1"),
        ("WPR/de.prediction", "0\n4\n2\n0.1\nnan\n", "expected a rating or score on each line"),
        ("NC/de.prediction", "0\n1\n", "expected labels such as news, sports, found 0, 1"),
        ("WPR/de.prediction", "0\n", "expected 5 predictions, one for each line, found 1"),
        ("MLQA/de.prediction", "[]", "expected one JSON object of answers by id"),
        ("MLQA/de.prediction", '{"a": "Elbe", "b": "x", "a": "y"}', "de.prediction: the key 'a' occurs twice"),
        ("NTG/de.prediction", "a\nb\n", "2 hypotheses but 1 references"),
    ],
)
def test_predictions_that_do_not_fit(xglue_files, capsys, name, content, message):
    (xglue_files / "found" / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        printed(capsys, score_xglue.main, xglue_files, "--split", "dev", "--tasks", name.split("/")[0])


def test_answers_in_another_language_than_the_references(tmp_path):
    """The ids are the same; an answer is a part of its context."""
    files = {"de": ("Der Fluss heißt Elbe", "Fluss"), "en": ("The river is called Elbe", "river")}
    for language, (context, answer) in files.items():
        write(tmp_path / f"{language}.json", squad((context, *((str(number), "?", answer) for number in range(10)))))
    write(tmp_path / "answers", json.dumps(dict.fromkeys(map(str, range(10)), "Fluss")))
    assert answer_scores(tmp_path / "answers", tmp_path / "de.json", "de", "squad")["f1"] == 100
    with pytest.raises(UserError, match="answers: only 0 of 10 answers are in the contexts of .*en.json"):
        answer_scores(tmp_path / "answers", tmp_path / "en.json", "en", "squad")


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("XNLI/de.dev", "a\tb\n", "line 1: no label; expected 3 columns, found 2"),
        ("NER/de.dev", "New\n", "line 1: no tag; expected 2 columns, found 1"),
        ("NC/xglue.nc.de.dev", "a\tb\tnews\na\tb\t\n", "line 2: the label is empty"),
        ("NC/xglue.nc.de.dev", "a\tb\tnews\n\na\tb\tnews\n", "line 2: the line is empty"),
    ],
)
def test_references_without_labels(xglue_files, capsys, name, content, message):
    (xglue_files / "right" / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        printed(capsys, score_xglue.main, xglue_files, "--split", "dev", "--tasks", name.split("/")[0])


def test_a_terminal_gets_the_table(xglue_files, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    words = ["--predictions", xglue_files / "found", "--references", xglue_files / "right", "--split", "dev"]
    score_xglue.main([*map(str, words), "--tasks", "QAM", "--table", str(xglue_files / "table.md")])
    assert capsys.readouterr().out == (xglue_files / "table.md").read_text(encoding="utf-8")


def test_files_that_are_missing(xglue_files, capsys):
    (xglue_files / "found/NER/nl.prediction").unlink()
    more = ["--split", "dev", "--tasks", "NER,QAM"]
    result = printed(capsys, score_xglue.main, xglue_files, *more)
    assert result["tasks"]["NER"]["missing"] == ["nl"] and "average" not in result["tasks"]["NER"]
    assert "average" in result["tasks"]["QAM"] and "understanding" not in result and result["complete"] == 1
    for code in ("de", "es"):
        (xglue_files / f"right/NER/{code}.dev").unlink()
    with pytest.raises(UserError, match=r"no NER/de\.dev, NER/es\.dev, the references .*: --tasks QAM scores the rest"):
        printed(capsys, score_xglue.main, xglue_files, *more)
    with pytest.raises(UserError, match="NER/de.prediction, NER/es.prediction gives partial scores of NER too$"):
        printed(capsys, score_xglue.main, xglue_files, *more)
    for code in ("de", "es"):
        (xglue_files / f"found/NER/{code}.prediction").unlink()
    assert printed(capsys, score_xglue.main, xglue_files, *more)["tasks"]["NER"]["partial"]["languages"] == ["en"]
    with pytest.raises(
        UserError,
        match=r"right: no references of the split 'tset', XGLUE has dev and test; expected files such as NER/en\.tset$",
    ):
        printed(capsys, score_xglue.main, xglue_files, "--split", "tset")
    with pytest.raises(UserError, match="--references absent: there is no such folder"):
        score_xglue.main(["--predictions", f"{xglue_files}/found", "--references", "absent"])
    with pytest.raises(UserError, match="--predictions absent: there is no such folder"):
        score_xglue.main(["--predictions", "absent", "--references", f"{xglue_files}/right"])
    with pytest.raises(UserError, match="--tasks NERD: NERD is not one of NER, POS"):
        printed(capsys, score_xglue.main, xglue_files, "--tasks", "NERD")
    with pytest.raises(UserError, match=r"no predictions of NER; expected files such as NER/de\.prediction"):
        score_xglue.main(["--predictions", str(xglue_files), "--references", f"{xglue_files}/right", "--tasks", "NER"])


def test_averages_of_some_tasks_or_languages_are_partial(xglue_files, capsys):
    (xglue_files / "found/QAM/de.prediction").unlink()
    (xglue_files / "found/QAM/en.prediction").write_text("0\n")
    more = ["--split", "dev", "--tasks", "NER,NC,QAM", "--table", xglue_files / "table.md"]
    result = printed(capsys, score_xglue.main, xglue_files, *more)
    assert result["partial"] == {"understanding": {"average": 58.34, "tasks": ["NER", "NC"]}}  # 66.67 and 50
    expected = {"accuracy": 50, "average": 50, "languages": ["en", "fr"]}
    assert result["tasks"]["QAM"]["partial"] == expected and "partial" not in result["tasks"]["NC"]
    table = (xglue_files / "table.md").read_text(encoding="utf-8")
    assert "| partial: 50.0 (2 languages) |  |" in table
    assert "| partial understanding | mean of NER, NC | 58.3 |  |" in table
    result = printed(capsys, score_xglue.main, xglue_files, "--split", "dev", "--tasks", "QG,NTG")
    assert result["generation"] == 50 and result["partial"] == {}


PREDICTED = {  # what fairseq-validate writes -> what submissions have
    ("xglue", "NC", "tsv"): ("1\tsports\tnews\t0.9\n2\t_\tsports\t0.8\n", "NC/de.prediction", "news\nsports\n"),
    ("xglue", "NER", "tsv"): ("a b\tO\tB-X\nc\tO\tO\n\nd\tO\tO\n\n", "NER/de.prediction", "B-X\nO\n\nO\n\n"),
    ("xglue", "WPR", "tsv"): (
        "1\tq\t2\t0.5\n3\tq\t0\t0.25\n2\tr\t_\t-1\n10\tr\t1\t7\n"
        + "".join(f"{line}\ts\t0\t1\n" for line in range(4, 10)),
        *("WPR/de.prediction", "0.5\n-1\n0.25\n1\n1\n1\n1\n1\n1\n7\n"),
    ),
    ("xglue", "MLQA", "json"): ('{\n"a": "x\\ty"\n}\n', "MLQA/de.prediction", '{\n"a": "x\\ty"\n}\n'),
    ("xtreme", "panx", "tsv"): ("c\tO\tB-X\n\n", "panx/test-de.tsv", "B-X\n\n"),
    ("xtreme", "xquad", "json"): ('{\n"a": "x"\n}\n', "xquad/test-de.json", '{\n"a": "x"\n}\n'),
}


@pytest.mark.parametrize("benchmark, task, suffix", PREDICTED)
def test_submissions(tmp_path, benchmark, task, suffix):
    written, name, expected = PREDICTED[benchmark, task, suffix]
    write(tmp_path / f"in/test.de.{suffix}", written)
    score_submission.main([benchmark, task, str(tmp_path / "in"), str(tmp_path / "out")])
    assert [str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.*")] == [name]
    assert (tmp_path / "out" / name).read_text(encoding="utf-8") == expected


CLASSES = "1\tnews\tsports\t0.9\n2\t_\tnews\t0.8\n"
RATED = "1\t4\t3\t0.9\n2\t_\t0\t0.8\n"  # WPR trained as classification


@pytest.mark.parametrize(
    "benchmark, task, text, message",
    [
        ("xtreme", "panx", CLASSES, "line 1: expected word TAB tag TAB prediction"),
        ("xglue", "WPR", CLASSES, "line 1: expected line TAB query TAB relevance TAB score"),
        ("xglue", "NC", "1\tq\t2\t0.5\n2\tq\t1\t0.9\n", "expected classes, as the labels are, found numbers"),
        ("xglue", "NC", "1\tq\t2\t-0.5\n", "line 1: expected 1 TAB label TAB prediction TAB probability"),
        ("xglue", "NER", "a\tO\tO\n\nb\tO\tO\n\n" * 2, "the second half repeats the first, 2 sentences"),
        ("xglue", "WPR", "1\tq\t2\t0.5\n2\tr\t2\t0.5\n" * 2, "line 3: lines of other queries separate those of 'q'"),
        ("xglue", "WPR", "1\tq\t2\t0.5\n3\tr\t2\t0.5\n", "lines 1 to 2, found line 3"),
    ],
)
def test_predictions_of_another_task_doubled_or_cut(tmp_path, benchmark, task, text, message):
    write(tmp_path / "in/test.de.tsv", text)
    with pytest.raises(UserError, match=rf"test\.de\.tsv.*{message}"):
        score_submission.main([benchmark, task, str(tmp_path / "in"), str(tmp_path / "out")])


def test_wpr_takes_the_class_of_classification(tmp_path):
    """XGLUE's own submissions have ratings, 0 to 4."""
    write(tmp_path / "in/test.de.tsv", RATED)
    score_submission.main(["xglue", "WPR", str(tmp_path / "in"), str(tmp_path / "out")])
    assert (tmp_path / "out/WPR/de.prediction").read_text() == "3\n0\n"


def test_a_submission_is_of_one_model(tmp_path, capsys):
    """Each folder has a note; files of another model, and ones that were changed, are refused, also when scored."""
    for model, languages in (("a", ("de", "en")), ("b", ("fr",))):
        files = {f"test.{language}.tsv": CLASSES for language in languages}
        prediction_folders.write_predictions(tmp_path / model, Origin(model, None, "classification"), files)
    line = [str(tmp_path / "a"), str(tmp_path / "out")]
    score_submission.main(["xglue", "NC", *line])
    with pytest.raises(UserError, match="out/NC has predictions of a .*de.prediction among them"):
        score_submission.main(["xglue", "NC", str(tmp_path / "b"), line[1]])
    with pytest.raises(UserError, match=r"de\.tsv: expected predictions of tagging, found those of classification"):
        score_submission.main(["xglue", "NER", *line])
    write(tmp_path / "right/NC/xglue.nc.de.test", "a\tb\tnews\na\tb\tnews\n")
    write(tmp_path / "right/NC/xglue.nc.en.test", "a\tb\tnews\na\tb\tnews\n")
    score = ["--predictions", line[1], "--references", str(tmp_path / "right"), "--tasks", "NC"]
    score_xglue.main(score)
    write(tmp_path / "out/NC/fr.prediction", "news\nnews\n")
    with pytest.raises(UserError, match=r"fr\.prediction is not one of the files of a "):
        score_xglue.main(score)
    write(tmp_path / "a/test.en.tsv", CLASSES.splitlines()[0])
    with pytest.raises(UserError, match=r"test\.en\.tsv is not as a wrote it"):
        score_submission.main(["xglue", "NC", *line])


def test_generated_text_is_a_submission_of_one_model(tmp_path, capsys):
    """All lines in order; the scores are those of XGLUE's program, lower-cased and 13a."""
    for code, texts in {"de": ["Ein Haus mit rotem Dach .", ""], "en": ["a house with a red roof", "rain"]}.items():
        lines = [f"S-{number}\tx\nD-{number}\t-1\t{text}\n" for number, text in enumerate(texts)]
        write(tmp_path / f"in/{code}/generate-test.txt", "".join(reversed(lines)))
        prediction_folders.write_origin(tmp_path / f"in/{code}/generate-test.txt", Origin("a", "1", "xl_generation"))
        write(tmp_path / f"right/NTG/xglue.ntg.{code}.tgt.test", "".join(f"{text.upper()}\n" for text in texts))
    command = ["xglue", "NTG", str(tmp_path / "in"), str(tmp_path / "out")]
    score_submission.main(command)
    assert (tmp_path / "out/NTG/de.prediction").read_text() == "Ein Haus mit rotem Dach .\n\n"
    assert json.loads((tmp_path / "out/NTG/predictions.json").read_text())["model"] == "a"
    capsys.readouterr()
    score_xglue.main(["--predictions", command[3], "--references", str(tmp_path / "right"), "--tasks", "NTG"])
    scores = json.loads(capsys.readouterr().out)["tasks"]["NTG"]
    assert scores["partial"] == {"bleu": 100, "average": 100, "languages": ["de", "en"]}
    prediction_folders.write_origin(tmp_path / "in/de/generate-test.txt", Origin("b", "2", "xl_generation"))
    with pytest.raises(UserError, match="en/generate-test.txt is of a .*, but .*de/generate-test.txt of b"):
        score_submission.main(command)


def test_a_submission_names_the_languages_that_it_lacks(tmp_path, caplog):
    """WPR's Spanish, which is not averaged, is one of them."""
    for language in ("de", "en", "fr", "zh"):
        write(tmp_path / f"in/test.{language}.tsv", "1\tq\t2\t0.5\n")
    score_submission.main(["xglue", "WPR", str(tmp_path / "in"), str(tmp_path / "out")])
    assert f"{tmp_path}/in: no predictions of it, pt, es, which the submission lacks" in caplog.text
    caplog.clear()
    for language in ("it", "pt", "es"):
        write(tmp_path / f"in/test.{language}.tsv", "1\tq\t2\t0.5\n")
    score_submission.main(["xglue", "WPR", str(tmp_path / "in"), str(tmp_path / "out")])
    assert "lacks" not in caplog.text


def test_submissions_that_cannot_be_written(tmp_path):
    with pytest.raises(UserError, match="bucc2018: submission converts .*, tydiqa; write it with .fairseq-xl search "):
        score_submission.main(["xtreme", "bucc2018", str(tmp_path), str(tmp_path)])
    with pytest.raises(UserError, match="no file LANGUAGE/generate-test.txt of de, en, es, fr, ru"):
        score_submission.main(["xglue", "NTG", str(tmp_path), str(tmp_path)])
    with pytest.raises(UserError, match="NERD is not one of xglue's tasks NER, POS"):
        score_submission.main(["xglue", "NERD", str(tmp_path), str(tmp_path)])
    with pytest.raises(UserError, match="no file test.LANGUAGE of de, en, es, nl"):
        score_submission.main(["xglue", "NER", str(tmp_path), str(tmp_path)])


def test_predictions_that_are_no_labels_are_named(caplog, tmp_path):
    found = accuracy_scores(["news", "nws", "x"], ["news", "news", "sports"], tmp_path / "NC")
    assert found["accuracy"] == 33.33
    assert "NC: 2 predictions are no label of the references, the first is 'nws'" in caplog.text
    caplog.clear()
    with pytest.raises(UserError, match="expected the number of a line, found 'x'"):
        write(tmp_path / "numbers", "x\n")
        xtreme.retrieved(tmp_path / "numbers", tmp_path / "numbers", "de")
    with pytest.raises(UserError, match="numbers: expected lines of two ids"):
        xtreme.mined(tmp_path / "numbers", tmp_path / "numbers", "de")
    assert accuracy_scores(["3", "7"], ["3", "4"], tmp_path / "tatoeba", classes=False)["accuracy"] == 50
    assert not caplog.text  # numbers of lines are no classes
