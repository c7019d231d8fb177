"""The comparison on real text, run at nano size on a corpus folder of synthetic text."""

import json
import math
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU

from fairseq_xl.errors import UserError
from preprocess.sample.__main__ import main as write_sample
from recipes import experiment
from recipes.lohelp import report

pytestmark = pytest.mark.usefixtures("warm")
ROOT = Path(__file__).resolve().parents[2]


def run(*command):
    environment = os.environ | {"XL_EXTRAS": "tests", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=ROOT, env=environment, text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=600
    )


def write_pairs(folder):
    """tasks/qam of a corpus folder from its tasks/nc: label, first words of the passage, passage."""
    for path in (folder / "tasks/nc").rglob("*.tsv"):
        rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
        target = folder / "tasks/qam" / path.relative_to(folder / "tasks/nc")
        target.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"{label}\t{' '.join(text.split()[:3])}\t{text}\n" for label, text in rows]
        target.write_text("".join(lines), encoding="utf-8")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The sample with the two tasks that it has not: retrieval, and pairs of a title and a passage."""
    folder = tmp_path_factory.mktemp("corpus")
    write_sample([str(folder), "--documents", "40"])
    for path in (*folder.glob("bitext/test.*"), *folder.glob("*/valid.*"), *folder.glob("tasks/*/[vt][ae][ls]*")):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:80]))
    (folder / "tasks/retrieval").mkdir()
    for language in ("en", "de"):
        sentences = (folder / f"bitext/test.en-de.{language}").read_text().splitlines()
        kept = "".join(f"{sentence}\n" for sentence in sentences if sentence)
        (folder / f"tasks/retrieval/en-de.{language}").write_text(kept)
    (folder / "tasks/qam").mkdir()
    for name in ("train.en", "valid.en", "valid.de", "test.en", "test.de"):
        bodies = (folder / f"tasks/ntg/{name}.src").read_text().splitlines()
        titles = (folder / f"tasks/ntg/{name}.tgt").read_text().splitlines()
        others = titles[1:] + titles[:1]
        pairs = [
            f"{label}\t{title}\t{body}\n"
            for body, *both in zip(bodies, titles, others)
            for label, title in zip("10", both)
        ]
        (folder / f"tasks/qam/{name}.tsv").write_text("".join(pairs))
    return folder


@pytest.fixture(scope="module")
def comparison(corpus, tmp_path_factory):
    """A finished run of a few updates: its arguments, its folder and what it printed."""
    output = tmp_path_factory.mktemp("lohelp")
    small = [f"corpus={corpus}", "others=de", "targets=de", "seeds=1", "vocabulary=300", "--updates", "3"]
    arguments = [str(ROOT / "recipes/lohelp/experiment.yaml"), "--output", str(output), *small]
    done = run("python", "-m", "recipes.experiment", *arguments, "models=random,mlm", "--only", "retrieve")
    assert done.returncode == 0, done.stdout + done.stderr
    done = run("python", "-m", "recipes.experiment", *arguments, "models=mlm", "--jobs", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    return arguments, output, done.stdout


def test_lohelp_tables_hold_the_scores_of_the_files(comparison, corpus):
    _, output, printed = comparison
    tables = (output / "report.md").read_text()
    assert printed == tables
    references = (corpus / "bitext/test.en-de.de").read_text().splitlines()
    hypotheses = (output / "mlm/en-de/hypotheses.de").read_text().splitlines()
    bleu = BLEU().corpus_score(hypotheses, [references]).score
    assert re.search(rf"^\| MLM \| {bleu:.2f} ± ", tables, re.MULTILINE)
    for task, baseline in (("nc", "tf-idf, logistic"), ("qam", "n-grams in common and lengths, logistic")):
        right = []
        for language in ("en", "de"):
            rows = (output / f"mlm/{task}-1/predictions/test.{language}.tsv").read_text().splitlines()
            answers = [row.split("\t")[1:3] for row in rows]
            right.append(100 * sum(label == predicted for label, predicted in answers) / len(answers))
        cells = " | ".join(f"{accuracy:.1f}" for accuracy in (*right, sum(right) / 2))
        assert f"| {task}: accuracy | en | de | average |\n| --- | --- | --- | --- |\n| MLM | {cells} |\n" in tables
        assert re.search(rf"^\| {baseline} regression \| \d+\.\d \| \d+\.\d \| \d+\.\d \|$", tables, re.MULTILINE)
        assert (output / f"{task}.png").stat().st_size > 5000
    retrieval = json.loads((output / "mlm/retrieval/scores.json").read_text())
    average, layer = retrieval["average"]["margin"], f"{retrieval['layer']}, {retrieval['pooling']}"
    cell = r"\d+\.\d \(\d+\.\d–\d+\.\d\)"
    assert re.search(rf"^\| MLM \| {cell} \| {average:.1f} \| {layer} \|$", tables, re.MULTILINE)
    assert re.search(rf"^\| tf-idf of character n-grams \| {cell} \| \d+\.\d \|  \|$", tables, re.MULTILINE)


def test_lohelp_starts_every_model_from_its_own_weights(comparison):
    _, output, _ = comparison
    log = (output / "mlm/en-de/out.log").read_text()
    assert f"--init-encoder-from {output}/mlm/checkpoint_last.pt --init-decoder-from" in log
    assert f"--init-from {output}/mlm/checkpoint_last.pt" in (output / "mlm/nc-1/out.log").read_text()


def test_lohelp_has_a_baseline_of_untrained_weights(comparison):
    _, output, _ = comparison
    assert json.loads((output / "random/retrieval/scores.json").read_text())["test"]["en-de"]["pairs"] > 50
    assert "--max-update 1 --lr 0" in (output / "random/untrained/out.log").read_text()


def test_lohelp_does_not_take_figures_of_other_settings_for_its_own(comparison, corpus):
    arguments, output, _ = comparison
    with pytest.raises(
        UserError, match=r"/mlm was made with other settings or weights \(then --max-update 3, now .* 4\)"
    ):
        experiment.main([*arguments, "models=mlm", "--only", "translate", "--updates", "4"])
    (output / "mlm/checkpoint_last.pt").rename(output / "mlm/kept.pt")
    shutil.copy(output / "random/untrained/checkpoint_last.pt", output / "mlm/checkpoint_last.pt")
    with pytest.raises(UserError, match=r"mlm/nc-1 was made with .* \(.*mlm/checkpoint_last.pt has changed\)"):
        experiment.main([*arguments, "models=mlm", "--only", "classify/mlm/nc"])
    (output / "mlm/kept.pt").rename(output / "mlm/checkpoint_last.pt")


@pytest.mark.parametrize("name", ["experiment", "smoke"])
def test_lohelp_writes_nothing_into_a_folder_that_is_no_corpus(tmp_path, name):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/corpus.yaml").write_text("languages: [en]\n")
    arguments = [f"recipes/lohelp/{name}.yaml", f"corpus={tmp_path}/mine", "--output", str(tmp_path / "out")]
    with pytest.raises(UserError, match=f"step text failed: {tmp_path}/mine is not a corpus of en,de"):
        experiment.main([str(ROOT / arguments[0]), *arguments[1:], "--only", "text"])
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["corpus.yaml"]


def test_lohelp_run_again_does_nothing_that_is_done(comparison, capsys):
    arguments, output, printed = comparison
    before = {path: path.stat().st_mtime_ns for path in (output / "mlm").rglob("*") if path.suffix in (".json", ".pt")}
    experiment.main([*arguments, "models=mlm"])
    shown = capsys.readouterr()
    assert shown.err == "" and shown.out == printed
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_lohelp_refuses_wrong_arguments_in_one_sentence():
    done = run("bash", "recipes/lohelp/smoke.sh", "corpse=x")
    assert done.returncode == 1 and done.stderr == (
        "fairseq_xl: error: corpse=x: expected name=value, with one of the names corpus, vocabulary, data, pretrained, "
        "models\n"
    )
    done = run("bash", "recipes/lohelp/smoke.sh", "--updates", "0")
    assert done.returncode == 2 and "--updates: 0: a whole number above 0 is needed" in done.stderr


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def nc(**accuracies):
    languages = {language: {"accuracy": value, "majority": 40.0} for language, value in accuracies.items()}
    return {"languages": languages, "missing": []}


def test_tables_from_files_written_by_hand(tmp_path, monkeypatch, capsys):
    """1, 2, 3 have the mean 2, whose interval is worked out below; equal scores have none."""
    for model, bleu in (("random", 3.5), ("copy", 4.25)):
        name = "copy.en-de.json" if model == "copy" else "random/en-de/bleu.json"
        write(tmp_path / name, {"sacrebleu": {"score": bleu, "interval": 0.5}})
    for seed, accuracy in enumerate((1.0, 2.0, 3.0), start=1):
        write(tmp_path / f"random/nc-{seed}/scores.json", nc(en=accuracy, de=10.0))
    write(tmp_path / "mlm/nc-1/scores.json", nc(en=90.0, de=90.0))  # two seeds are missing
    margin = {
        "forward": {"accuracy": 50.0, "interval": [45.0, 55.0]},
        "backward": {"accuracy": 60.0, "interval": [57.0, 63.0]},
    }
    write(
        tmp_path / "mlm/retrieval/scores.json", {"layer": 2, "pooling": "mean", "test": {"en-de": {"margin": margin}}}
    )
    given = [tmp_path, "--models", "random,mlm", "--langs", "en,de", "--seeds", "1,2,3", "--targets", "de"]
    monkeypatch.setattr("sys.argv", ["report.py", *map(str, given)])
    report.main()
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "report.md").read_text()
    for line in (
        "| random | 3.50 ± 0.50 |",
        "| MLM |  |",
        "| source copied | 4.25 ± 0.50 |",
        "| random | 2.0 (0.6–6.8) | 10.0 | 6.0 (4.9–7.4) |",
        "| MLM |  |  |  |",
        "| majority | 40.0 | 40.0 | 40.0 |",
        "| random |  |  |  |",
        "| MLM | 55.0 (51.0–59.0) | 55.0 | 2, mean |",
    ):
        assert f"{line}\n" in printed


def test_intervals_of_shares_stay_within_their_scale():
    """Of 1, 2, 3: Student's t is 4.303, the error 0.577, logit 2 % = -3.892, and 4.303 · 0.577 / (2 · 0.98) = 1.267.

    So the bounds are 100 / (1 + e^5.159) = 0.572 and 100 / (1 + e^2.625) = 6.756, where 2 ± 2.5 would reach below 0.
    """
    assert report.mean_share([1.0, 2.0, 3.0]) == "2.0 (0.6–6.8)"
    assert report.mean_share([97.0, 98.0, 99.0]) == "98.0 (93.2–99.4)"
    assert report.mean_share([100.0, 0.0, 0.0]) == "33.3 (0.1–99.7)"
    assert report.mean_share([0.0, 0.0]) == "0.0" and report.mean_share([50.0]) == "50.0"
    # where the error is small, 4.303 · 0.577 / 10 = 0.248, it is the interval of the mean
    assert report.mean_share([69.9, 70.0, 70.1]) == "70.0 (69.8–70.2)"


def test_translations_are_compared_pair_by_pair(tmp_path):
    lines = {"mlm": ["the cat sat on the mat ."] * 20, "clm": ["a cat sat on the mat ."] * 20}
    (tmp_path / "bitext").mkdir()
    (tmp_path / "bitext/test.en-de.de").write_text("".join(f"{line}\n" for line in lines["mlm"]))
    assert report.paired(tmp_path, ["random", "clm", "mlm"], ["de"], tmp_path) is None
    for model, written in lines.items():
        (tmp_path / model / "en-de").mkdir(parents=True)
        (tmp_path / model / "en-de/hypotheses.de").write_text("".join(f"{line}\n" for line in written))
    rows = report.paired(tmp_path, ["random", "clm", "mlm"], ["de"], tmp_path)
    bleu = 100 * math.exp(sum(math.log(right / count) for right, count in ((6, 7), (5, 6), (4, 5), (3, 4))) / 4)
    assert rows[2:] == [f"| MLM − CLM | {100 - bleu:+.2f} (p = 0.001) |"]


def test_fine_tuning_seeds_are_nested_in_pretrainings(tmp_path, monkeypatch, capsys):
    """Differences of 1, 2, 3 from one pre-training and 5, 6, 7 from another are two, 2 and 6: 4 ± 12.71 · 2.

    Six independent ones would have 4 ± 2.57 · 2.37 / sqrt 6 = 2.5. The model's own means are 52 and 66.
    """
    outputs = [tmp_path / "one", tmp_path / "two"]
    for output, base, difference in zip(outputs, (50.0, 60.0), (0, 4)):
        for seed in (1, 2, 3):
            write(output / f"unicoder/nc-multi-language-{seed}/scores.json", nc(en=base, de=base))
            own = nc(en=base + difference + seed, de=base + difference + seed)
            write(output / f"xlm/nc-multi-language-{seed}/scores.json", own)
    given = ["--models", "xlm,unicoder", "--langs", "en,de", "--seeds", "1,2,3", "--modes", "multi-language"]
    monkeypatch.setattr("sys.argv", ["report.py", *map(str, outputs), *given])
    report.main()
    printed = capsys.readouterr().out
    assert "| XLM (MLM + TLM) | +4.0 ± 25.4 |  |\n" in printed
    assert f"| XLM (MLM + TLM) | {report.mean_share([52.0, 66.0])} | " in printed
    assert printed.count("mean over 2 pre-trainings, of each the mean over 3 fine-tuning seeds, and 95 % interval") == 3
    (outputs[1] / "xlm/nc-multi-language-3/scores.json").unlink()
    report.main()
    assert "| XLM (MLM + TLM) |  |  |\n" in capsys.readouterr().out


def test_a_file_of_results_stands_for_a_folder(tmp_path, monkeypatch, capsys):
    bleu = {"sacrebleu": {"score": 9, "interval": 1}}
    write(tmp_path / "kept.json", {"mlm/nc-1": nc(en=70.0, de=50.0), "mlm/en-de": bleu})
    given = ["--models", "mlm", "--langs", "en,de", "--seeds", "1", "--targets", "de"]
    monkeypatch.setattr("sys.argv", ["report.py", str(tmp_path / "kept.json"), *given])
    report.main()
    printed = capsys.readouterr().out
    assert "| MLM | 70.0 | 50.0 | 60.0 |\n" in printed and "| MLM | 9.00 ± 1.00 |\n" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["kept.json"]


def test_differences_are_paired_by_seed(tmp_path, monkeypatch, capsys):
    """1, 2, 3 points: their mean, and with Student's t 4.303 / sqrt 3, though either model's seeds differ by 20."""
    for seed, base in enumerate((40.0, 60.0, 50.0), start=1):
        write(tmp_path / f"unicoder/nc-cross-lingual-{seed}/scores.json", nc(en=base, de=base))
        write(tmp_path / f"xlm/nc-cross-lingual-{seed}/scores.json", nc(en=base + 2 * seed, de=base))
        write(tmp_path / f"xlm/qam-cross-lingual-{seed}/scores.json", nc(en=base, de=base))
    for model, sizes in (("xlm", (5000.0, 5030.0)), ("unicoder", (5010.0,))):
        entries = [
            {"epoch": number, "train_wpb": str(size), "train_num_updates": str(100 * number)}
            for number, size in enumerate(sizes, start=1)
        ]
        lines = ["| INFO | begin", json.dumps({"epoch": 1, "wpb": "1.0"}), *map(json.dumps, [entries[0], *entries])]
        (tmp_path / model / "train.log").write_text("\n".join(lines) + "\n")
    given = ["--models", "random,xlm,unicoder", "--langs", "en,de", "--seeds", "1,2,3", "--modes", "cross-lingual"]

    def told(*more):
        monkeypatch.setattr("sys.argv", ["report.py", str(tmp_path), *given, *more])
        report.main()
        return capsys.readouterr().out

    printed = told()
    assert "| minus Unicoder | nc-cross-lingual | qam-cross-lingual |\n" in printed
    assert "| XLM (MLM + TLM) | +2.0 ± 2.5 |  |\n" in printed and "| random |  |  |\n" in printed
    assert "mean over 3 fine-tuning seeds, one pre-training run, and 95 % interval" in printed
    assert "| XLM (MLM + TLM) | 200 | 5,015 | 1.00 |\n| Unicoder | 100 | 5,010 | 0.50 |\n" in printed
    assert "| Unicoder | -2.0 ± 2.5 |  |\n" in told("--against", "xlm")
    assert "minus" not in told("--against", "start")


def test_every_language_of_a_corpus_folder_is_looked_for(tmp_path):
    for language in ("de", "fr"):
        write(tmp_path / f"mine/bitext/train.en-{language}.{language}", [])
    done = run(
        "bash",
        "-c",
        "corpus=$1 program=lohelp; . recipes/lohelp/stages.sh; fetch_corpus en,de,xx,fr",
        "any",
        str(tmp_path / "mine"),
    )
    assert done.returncode == 2 and "it has no bitext/train.en-xx.xx" in done.stderr


def test_tables_of_two_ways_to_fine_tune_beside_a_baseline(tmp_path, monkeypatch, capsys):
    """A passage is told by its word: English by itself, German by itself alone, so that zero-shot is half right."""
    write(tmp_path / "unicoder/nc-cross-lingual-1/scores.json", nc(en=70.0, de=50.0))
    write(tmp_path / "unicoder/nc-multi-language-1/scores.json", nc(en=72.0, de=70.0))
    tasks = tmp_path / "tasks"
    for code, words in (("en", ("cells", "pages")), ("de", ("zahlen", "bild"))):
        lines = [f"{label}\t{word}\t{word}\n" for label, word in zip("01", words)]
        for name in ("nc", "qam"):
            folder = tasks / name
            (folder / "translate_train").mkdir(parents=True, exist_ok=True)
            (folder / "translate_train" / f"train.{code}.tsv").write_text("".join(3 * lines))
            (folder / f"train.{code}.tsv").write_text("".join(3 * lines)) if code == "en" else None
            (folder / f"test.{code}.tsv").write_text("".join(lines))
    given = ["--models", "unicoder", "--langs", "en,de", "--seeds", "1", "--modes", "cross-lingual,multi-language"]
    monkeypatch.setattr("sys.argv", ["report.py", str(tmp_path), *given, "--corpus", str(tmp_path)])
    report.main()
    alone, together = re.findall(r"^\| nc-.*?\n\n", capsys.readouterr().out, re.MULTILINE | re.DOTALL)
    tfidf = "tf-idf, logistic regression"
    assert "| Unicoder | 70.0 | 50.0 | 60.0 |" in alone and f"| {tfidf} | 100.0 | 50.0 | 75.0 |" in alone
    assert "| Unicoder | 72.0 | 70.0 | 71.0 |" in together
    assert f"| {tfidf}, each language alone | 100.0 | 100.0 | 100.0 |" in together


@pytest.mark.slow
def test_lohelp_smoke_ends_with_its_scores(corpus, tmp_path):
    done = run(
        "bash",
        "recipes/lohelp/smoke.sh",
        f"corpus={corpus}",
        "vocabulary=300",
        "--output",
        str(tmp_path),
        "--updates",
        "3",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    number = r"\d+\.\d\d"
    last = done.stdout.splitlines()[-1]
    line = rf"lohelp BLEU pretrained={number} random={number} retrieval={number} nc={number} majority={number}"
    assert re.fullmatch(line, last)


@pytest.mark.parametrize(
    "status, ended, told", [(0, 0, ""), (75, 75, "stopped; run it again to go on"), (3, 1, "failed")]
)
def test_what_follows_a_training_needs_all_of_it(tmp_path, status, ended, told):
    """75 is a training that a signal stopped."""
    script = "set -e; . recipes/lohelp/stages.sh; doing=this logged $0/log bash -c 'exit $0' $1; touch $0/next"
    done = subprocess.run(["bash", "-c", script, str(tmp_path), str(status)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == ended and told in done.stderr
    assert re.fullmatch(rf"--- 0:\d\d this: {tmp_path}/log", done.stderr.splitlines()[0])
    assert (tmp_path / "next").exists() == (status == 0)
