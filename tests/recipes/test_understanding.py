"""Fine-tuning of every type by finetune.sh, and the small synthetic releases of XGLUE and XTREME."""

import json
import random
import re
from dataclasses import replace

import pytest
import yaml

from fairseq_xl.evaluation import xtreme as xtreme_scores
from fairseq_xl.evaluation.benchmarks import score_benchmark
from preprocess.commands.prepare import main as preprocess
from preprocess.readers import xglue, xtreme
from recipes import experiment
from recipes.twelve_words import WORDS, questions
from recipes.xglue import small_release
from recipes.xtreme import small_release as small_xtreme
from tests.commands import MAX_POSITIONS
from tests.recipes.answers import RANKED, TAGGED, asked
from tests.recipes.configurations import RECIPES
from tests.recipes.scripts import run, succeeded
from tests.tasks.conftest import write_encoded

pytestmark = pytest.mark.usefixtures("warm")


@pytest.fixture(scope="module")
def data_bin(tmp_path_factory):
    """A data-bin with its SentencePiece model. Read only."""
    return write_encoded(tmp_path_factory.mktemp("encoded"))


LINEAR = ["--lr-scheduler", "xl_linear", "--max-epoch", 3, "--warmup-share", 0.5]


@pytest.mark.parametrize(
    "kind, suffix, content, measure, more, expected",
    [
        (
            "tagging",
            "tsv",
            TAGGED,
            "f1",
            ["--best-checkpoint-metric", "accuracy"],
            ["--best-checkpoint-metric accuracy"],
        ),
        ("ranking", "tsv", RANKED, "ndcg", LINEAR, ["--lr-scheduler xl_linear"]),
        (
            *("question-answering", "json", asked("1"), "exact_match"),
            ["--question-length", 8, "--best-checkpoint-metric", "exact_match"],
            ["-metric exact_match"],
        ),
    ],
    ids=["tagging", "ranking", "question-answering"],
)
def test_finetune_trains_predicts_and_scores(data_bin, tmp_path, kind, suffix, content, measure, more, expected):
    """The last flags win: of selection, of the schedule, and those of --predict."""
    for split in ("train", "valid", "test"):
        for code in ("en", "de"):
            (tmp_path / f"{split}.{code}.{suffix}").write_text(content, encoding="utf-8")
    (tmp_path / "own.yaml").write_text("normalization: mlqa\n" if suffix == "json" else "patience: null\n")
    configs = ["--config", RECIPES / "xlm/config/finetune-toy.yaml", "--config", tmp_path / "own.yaml"]
    arguments = [data_bin, tmp_path / "run", tmp_path, "en", "en,de", *configs]
    small = ["--length", 32, "--max-positions", MAX_POSITIONS, "--embed-dim", 16, "--ffn-dim", 32, "--heads", 2]
    limits = ["--layers", 1, "--cpu", *([] if more is LINEAR else ["--max-update", 2]), *more]
    command = ["bash", "recipes/finetune.sh", kind, *arguments, *small, *limits]
    shown, printed = succeeded(run(*command, "--predict", "--fp16 --batch-size 7"))
    (trained,) = re.findall(r"^\+ fairseq-train .*", shown, re.MULTILINE)
    assert all(words in trained for words in expected)
    log = (tmp_path / "run/test.log").read_text(encoding="utf-8")
    assert "xlm/config/predict.yaml" in log and "--fp16 --batch-size 7" in log
    scores = json.loads((tmp_path / "run/scores.json").read_text(encoding="utf-8"))
    assert 0 <= scores[measure] <= 100 and set(scores["languages"]) == {"en", "de"} and scores["missing"] == []
    assert scores.get("normalization") == ("mlqa" if suffix == "json" else None)
    assert re.search(rf"^{measure} +{scores[measure]:.6g}$", printed, re.MULTILINE) and "\nde " in printed
    if kind != "tagging":
        return
    for changed in (["--init-from", tmp_path / "run/checkpoint_last.pt"], ["--max-epoch", 2, "--max-update", 1]):
        done = run(*command, *changed)
        assert done.returncode == 1 and not done.stdout
        assert f"{tmp_path}/run was made with other settings or weights (then " in done.stderr
    for name in (f"test.de.{suffix}", f"valid.en.{suffix}"):
        (tmp_path / name).unlink()
    done = run(*command)
    missing = {f"{tmp_path}/valid.en.{suffix}", f"{tmp_path}/test.de.{suffix}"}
    assert done.returncode == 1 and not done.stdout
    assert {*done.stderr.removeprefix("fairseq_xl: error: TASK_FILES: there is no ").strip().split(", ")} == missing
    done = run("bash", "recipes/finetune.sh", "parsing", "a", "b", "c", "en", "en")
    told = "finetune.sh: TYPE parsing: choose classification, ranking, tagging or question-answering\n"
    assert (done.returncode, done.stderr) == (2, told)


def test_the_small_release_is_read(tmp_path):
    """It has all files of the release, equal in each run, and more than one label for each task."""
    small_release.main([str(tmp_path / "release"), str(tmp_path / "corpus")])
    small_release.main([str(tmp_path / "again"), str(tmp_path / "corpus")])
    assert xglue.main([str(tmp_path / "release"), str(tmp_path / "tasks")]) == 0
    counts = json.loads((tmp_path / "tasks/manifest.json").read_text(encoding="utf-8"))["counts"]
    files = [path for path in (tmp_path / "release").rglob("*") if path.is_file()]
    assert len(counts) == len(files) == 2 * 66 + 9
    for path in files:
        assert path.read_bytes() == (tmp_path / "again" / path.relative_to(tmp_path / "release")).read_bytes()
    for task in ("NER", "POS", "NC", "XNLI", "PAWSX", "QADSM", "WPR", "QAM"):
        assert len(counts[f"{task}/train.en.tsv"]["labels"]) > 1, task
    assert {len(words.split()) for words in WORDS.values()} == {12}
    assert all(len(set(words.split())) == 12 for words in WORDS.values())


def test_the_small_xtreme_is_read(tmp_path):
    """It has the files of XTREME's download folder, test files without labels, and labels that score as right."""
    small_xtreme.main([str(tmp_path / name) for name in ("download", "labels", "corpus")])
    assert xtreme.main([str(tmp_path / "download"), str(tmp_path / "tasks")]) == 0
    counts = json.loads((tmp_path / "tasks/manifest.json").read_text(encoding="utf-8"))["counts"]
    for task, languages in xtreme.LANGUAGES.items():
        assert {name for name in counts if name.startswith(f"{task}/test.")} == {
            f"{task}/test.{code}.{'json' if task in ('xquad', 'mlqa', 'tydiqa') else 'tsv'}" for code in languages
        }
    assert set(counts["xnli/test.de.tsv"]["labels"]) == {"_"} and len(counts["xnli/train.en.tsv"]["labels"]) == 3
    languages = {code for codes in xtreme_scores.LANGUAGES.values() for code in codes.split()}
    assert set(WORDS) == languages | set(xglue.ALL)
    gold = (tmp_path / "download/bucc2018/de-en.dev.gold").read_text(encoding="utf-8").splitlines()
    german, english = (
        dict(line.split("\t") for line in (tmp_path / f"download/bucc2018/de-en.dev.{code}").open(encoding="utf-8"))
        for code in ("de", "en")
    )
    words = dict(zip(WORDS["de"].split(), WORDS["en"].split()))
    translated = {" ".join(words[word] for word in german[pair.split("\t")[0]].split()) for pair in gold}
    assert translated == {english[pair.split("\t")[1]].strip() for pair in gold} and len(translated) == 40
    benchmark, labels = xtreme_scores.BENCHMARK, tmp_path / "labels"
    chosen = [name for name, task in benchmark.tasks.items() if task.references.endswith("tsv")]
    benchmark = replace(benchmark, groups={"average": tuple(chosen)})
    found = score_benchmark(benchmark, chosen, labels, labels, "test")
    assert found["average"] == 100 and found["missing"] == ["xquad", "mlqa", "tydiqa"]


def test_text_without_labels_is_only_predicted(data_bin, tmp_path):
    """The last epoch, since there is no validation."""
    (tmp_path / "train.en.tsv").write_text(TAGGED, encoding="utf-8")
    (tmp_path / "test.en.tsv").write_text(re.sub(r"\t.*", "\t_", TAGGED), encoding="utf-8")
    arguments = [data_bin, tmp_path / "run", tmp_path, "en", "en", "--config", RECIPES / "xlm/config/finetune-toy.yaml"]
    small = ["--length", 32, "--max-positions", MAX_POSITIONS, "--embed-dim", 16, "--ffn-dim", 32, "--heads", 2]
    limits = ["--layers", 1, "--max-update", 2, "--cpu", "--disable-validation"]
    _, printed = succeeded(run("bash", "recipes/finetune.sh", "tagging", *arguments, *small, "--no-scores", *limits))
    assert printed.endswith(f"not scored (--no-scores): {tmp_path}/run/predictions\n")
    messages, printed = succeeded(run("bash", "recipes/finetune.sh", "tagging", *arguments, *small, *limits))
    assert printed.endswith(f"not scored (no labels): {tmp_path}/run/predictions\n")
    assert f"{tmp_path}: no labels in test of en" in messages
    predicted = (tmp_path / "run/predictions/test.en.tsv").read_text(encoding="utf-8").splitlines()
    assert [line.split("\t")[:2] for line in predicted] == [
        ["the", "_"],
        ["river", "_"],
        ["stone", "_"],
        [""],
        ["water", "_"],
        [""],
    ]
    assert not (tmp_path / "run/scores.json").exists() and not (tmp_path / "run/checkpoint_best.pt").exists()


def test_questions_of_the_small_releases_need_more_than_the_beginning():
    """The film, named once, is at many places; every eighth context is longer than an input of the smoke tests."""
    words = WORDS["en"].split()
    paragraphs = [article["paragraphs"][0] for article in questions("q", words, random.Random(1), 24)]
    places = []
    for paragraph in paragraphs:
        (question,) = paragraph["qas"]
        ((text, place),) = [(answer["text"], answer["answer_start"]) for answer in question["answers"]]
        assert question["question"] == text == "film" and paragraph["context"][place : place + len(text)] == text
        assert paragraph["context"].split().count("film") == 1
        places.append(place)
    assert min(places) > 0 and len(set(places)) > 12
    longest = yaml.safe_load((RECIPES / "xglue/config/understanding-toy.yaml").read_text())["length"]
    assert [len(paragraph["context"].split()) > longest for paragraph in paragraphs] == [*[False] * 7, True] * 3


NANO = "--layers 1 --embed-dim 16 --ffn-dim 32 --heads 2 --cpu"


def run_experiment(tmp_path, file, *more):
    """Runs an experiment on a small release at nano size, with the vocabulary of the release's corpus."""
    preprocess([str(tmp_path / "corpus/corpus.yaml"), str(tmp_path / "data-bin")])
    settings = f"settings=--config recipes/xglue/config/understanding-toy.yaml {NANO}"
    values = [f"data={tmp_path}/data-bin", settings, "predict=--cpu"]
    options = ["--output", str(tmp_path / "out"), "--updates", "2", *more]
    experiment.main([str(RECIPES / file), *values, *options])


@pytest.mark.slow
def test_translate_train_all_becomes_a_submission(tmp_path):
    """V9's second setting on the small XTREME: nine tasks, the leaderboard's average; TyDiQA has XQuAD's weights."""
    small_xtreme.main([*(str(tmp_path / name) for name in ("download", "labels", "corpus")), "--translations"])
    files = f"download={tmp_path}/download", f"labels={tmp_path}/labels"
    run_experiment(tmp_path, "xtreme/translate-train-all.yaml", *files, "--only", "score")
    scores = json.loads((tmp_path / "out/scores/scores.json").read_text())
    assert scores["complete"] == 9 and not scores["missing"]
    averages = [entry["average"] for entry in scores["tasks"].values()]
    assert scores["average"] == pytest.approx(sum(averages) / 9, abs=0.01)
    logs = {
        name: (tmp_path / f"out/{name}/train.log").read_text(encoding="utf-8") for name in ("pawsx", "xquad", "tydiqa")
    }
    assert "'valid_langs': None" in logs["xquad"] and "'train_langs': 'de,en,es,fr,ja,ko,zh'" in logs["pawsx"]
    assert f"loading pretrained model from {tmp_path}/out/xquad/checkpoint_best.pt" in logs["tydiqa"]
    for code in xtreme.LANGUAGES["pawsx"]:
        assert (tmp_path / f"out/pawsx/submission/pawsx/test-{code}.tsv").read_text().count("\n") == 40
    translated = (tmp_path / "out/tasks/pawsx/translate_test/de/test.en.tsv").read_text(encoding="utf-8")
    assert translated.count("\n") == 40 and "_" not in translated


@pytest.mark.slow
def test_multitask_fine_tuning_beside_each_task(tmp_path):
    """G13, on the small XGLUE: five tasks alone and in one run, and a page of both."""
    small_release.main([str(tmp_path / "release"), str(tmp_path / "corpus")])
    run_experiment(tmp_path, "xglue/multitask.yaml", f"release={tmp_path}/release")
    for scores in ("scores", "scores-multitask"):
        found = json.loads((tmp_path / "out" / scores / "scores.json").read_text())
        assert found["complete"] == 5 and set(found["tasks"]) == {"XNLI", "PAWSX", "NC", "QAM", "QADSM"}
    page = (tmp_path / "out/page/page.html").read_text(encoding="utf-8")
    assert "five tasks in one run" in page and "a run for each task" in page


def test_several_tasks_in_one_run(data_bin, tmp_path):
    """multitask.sh counts updates, predicts the languages that a task has, and scores every task."""
    contents = {
        "ner": ("tagging", "tsv", TAGGED),
        "rank": ("ranking", "tsv", RANKED),
        "qa": ("question-answering", "json", asked("1")),
        "nc": ("classification", "tsv", "a\tthe\nb\triver\n"),
    }
    for name, (_, suffix, content) in contents.items():
        (tmp_path / name).mkdir()
        for split in ("train", "valid", "test"):
            for code in ("en", "de") if name != "qa" else ("en",):
                (tmp_path / name / f"{split}.{code}.{suffix}").write_text(content, encoding="utf-8")
    for code in ("en", "de"):
        (tmp_path / f"nc/test.{code}.tsv").write_text("_\tthe\n", encoding="utf-8")
    subtasks = "\n".join(f"{name}={kind}:{tmp_path / name}" for name, (kind, *_) in contents.items())
    config = RECIPES / "xlm/config/finetune-toy.yaml"
    arguments = [data_bin, tmp_path / "run", subtasks, "en", "en,de qa=en"]
    arguments += ["--config", config, "--config", tmp_path / "own.yaml"]
    (tmp_path / "own.yaml").write_text("normalization: mlqa\n")
    (tmp_path / "run/predictions/qa").mkdir(parents=True)
    (tmp_path / "run/predictions/qa/test.de.json").write_text("{}")  # of an earlier run
    small = ["--length", 32, "--max-positions", MAX_POSITIONS, "--embed-dim", 16, "--ffn-dim", 32, "--heads", 2]
    limits = ["--layers", 1, "--cpu", "--question-length", 8, *LINEAR]
    shown, printed = succeeded(run("bash", "recipes/multitask.sh", *arguments, *small, *limits))
    assert f"{tmp_path}/nc: no labels in test of en, de" in shown
    assert "@ 12 updates" in (tmp_path / "run/train.log").read_text()  # a batch of each task in three epochs
    scores = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (tmp_path / "run/scores").iterdir()}
    assert {name: list(found["languages"]) for name, found in scores.items()} == {
        "ner": ["en", "de"],
        "rank": ["en", "de"],
        "qa": ["en"],
    }
    assert scores["qa"]["normalization"] == "mlqa"
    for name, measure in (("rank", "ndcg"), ("qa", "f1")):
        shown = printed.split(f"\n{name}\n", 1)[1]
        assert re.search(rf"^{measure} +{scores[name][measure]:.6g}$", shown, re.MULTILINE), shown
    assert f"not scored (no labels): {tmp_path}/run/predictions/nc\n" in printed
    _, printed = succeeded(run("bash", "recipes/multitask.sh", *arguments, *small, *limits, "--no-scores"))
    assert printed.endswith(f"not scored (--no-scores): {tmp_path}/run/predictions\n")
    done = run("bash", "recipes/multitask.sh", *arguments, *small, *limits, "--seed", 2)
    assert done.returncode == 1 and f"{tmp_path}/run was made with other settings" in done.stderr
    wrong = run("bash", "recipes/multitask.sh", data_bin, tmp_path / "run", "ner", "en", "en")
    assert wrong.returncode == 2 and "expected NAME=TYPE:TASK_FILES, found ner" in wrong.stderr
