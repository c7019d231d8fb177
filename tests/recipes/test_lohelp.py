"""The comparison on real text, run at nano size on a corpus folder of synthetic text."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU

from preprocess.sample.__main__ import main as write_sample

ROOT = Path(__file__).resolve().parents[2]


def run(*command):
    environment = os.environ | {"XL_EXTRAS": "tests", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=ROOT, env=environment, text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=600
    )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The sample with the two tasks that it has not: retrieval, and pairs of a title and a passage."""
    folder = tmp_path_factory.mktemp("corpus")
    write_sample([str(folder), "--documents", "40"])
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
    """A finished run of a few updates: its command, its folder and what it printed."""
    output = tmp_path_factory.mktemp("lohelp")
    chosen = ["--langs", "en,de", "--targets", "de", "--models", "random,mlm", "--seeds", "1", "--updates", "3"]
    chosen += ["--vocabulary", "300"]
    command = ["bash", "recipes/lohelp/run.sh", "--corpus", str(corpus), "--output", str(output), *chosen]
    done = run(*command, "--stages", "data,pretrain")
    assert done.returncode == 0, done.stdout + done.stderr
    done = run(*command, "--stages", "retrieve,classify,translate,report", "--models", "mlm")
    assert done.returncode == 0, done.stdout + done.stderr
    return command, output, done.stdout


def test_lohelp_tables_hold_the_scores_of_the_files(comparison, corpus):
    _, output, printed = comparison
    tables = (output / "report.md").read_text()
    assert printed.endswith(tables)
    references = (corpus / "bitext/test.en-de.de").read_text().splitlines()
    hypotheses = (output / "mlm/en-de/hypotheses.de").read_text().splitlines()
    bleu = BLEU().corpus_score(hypotheses, [references]).score
    assert re.search(rf"^\| MLM \| {bleu:.2f} ± ", tables, re.MULTILINE)
    for task in ("nc", "qam"):
        right = []
        for language in ("en", "de"):
            rows = (output / f"mlm/{task}-1/predictions/test.{language}.tsv").read_text().splitlines()
            answers = [row.split("\t")[1:3] for row in rows]
            right.append(100 * sum(label == predicted for label, predicted in answers) / len(answers))
        cells = " | ".join(f"{accuracy:.1f}" for accuracy in (*right, sum(right) / 2))
        assert f"| {task}: accuracy | en | de | average |\n| --- | --- | --- | --- |\n| MLM | {cells} |\n" in tables
    retrieval = json.loads((output / "mlm/retrieval.json").read_text())
    assert f"| {retrieval['average']['margin']} | {retrieval['layer']}, {retrieval['pooling']} |\n" in tables


def test_lohelp_starts_every_model_from_its_own_weights(comparison):
    _, output, _ = comparison
    log = (output / "mlm/en-de/out.log").read_text()
    assert f"--init-encoder-from {output}/mlm/checkpoint_last.pt --init-decoder-from" in log
    assert f"--init-from {output}/mlm/checkpoint_last.pt" in (output / "mlm/nc-1/out.log").read_text()


def test_lohelp_run_again_does_nothing_that_is_done(comparison):
    command, output, _ = comparison
    before = {path: path.stat().st_mtime_ns for path in (output / "mlm").rglob("*") if path.suffix in (".json", ".pt")}
    done = run(*command, "--stages", "retrieve,classify,translate", "--models", "mlm")
    assert done.returncode == 0 and done.stderr == ""
    assert before == {path: path.stat().st_mtime_ns for path in before}


@pytest.mark.parametrize("script", ["run.sh", "smoke.sh"])
def test_lohelp_refuses_wrong_arguments_in_one_sentence(script):
    done = run("bash", f"recipes/lohelp/{script}", "--curpus", "x")
    assert done.returncode == 2 and done.stderr == f"lohelp: unknown argument --curpus ({script} --help)\n"


@pytest.mark.slow
def test_lohelp_smoke_ends_with_its_scores(corpus, tmp_path):
    tiny = ["--updates", "3", "--vocabulary", "300"]
    done = run("bash", "recipes/lohelp/smoke.sh", "--corpus", str(corpus), "--output", str(tmp_path), *tiny)
    assert done.returncode == 0, done.stdout + done.stderr
    number = r"\d+\.\d\d"
    last = done.stdout.splitlines()[-1]
    line = rf"lohelp BLEU pretrained={number} random={number} retrieval={number} nc={number} majority={number}"
    assert re.fullmatch(line, last)
