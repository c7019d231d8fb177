"""The comparison on real text, run at nano size on a corpus folder of synthetic text."""

import json
import re

import pytest
from sacrebleu.metrics import BLEU

from preprocess.commands.sample import main as write_sample
from tests.recipes.scripts import ROOT, run, succeeded

pytestmark = pytest.mark.usefixtures("warm")


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


@pytest.mark.slow
def test_lohelp_tables_hold_the_scores_of_the_files(corpus, tmp_path):
    """Every model starts from its own weights, one from untrained ones."""
    output = tmp_path / "lohelp"
    small = [f"corpus={corpus}", "others=de", "targets=de", "seeds=1", "vocabulary=300", "--updates", "3"]
    command = [
        "python",
        "-m",
        "recipes.experiment",
        ROOT / "recipes/lohelp/experiment.yaml",
        "--output",
        output,
        *small,
    ]
    succeeded(run(*command, "models=random,mlm", "--only", "retrieve"))
    _, printed = succeeded(run(*command, "models=mlm", "--jobs", "2"))
    for name, option in (("en-de", "init-decoder-from"), ("nc-1", "init-from")):
        assert f"--{option} {output}/mlm/checkpoint_last.pt" in (output / f"mlm/{name}/out.log").read_text()
    assert json.loads((output / "random/retrieval/scores.json").read_text())["test"]["en-de"]["pairs"] > 50
    assert "--max-update 1 --lr 0" in (output / "random/untrained/out.log").read_text()
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


@pytest.mark.slow
def test_lohelp_smoke_ends_with_its_scores(corpus, tmp_path):
    small = [f"corpus={corpus}", "vocabulary=300", "--output", tmp_path, "--updates", 3]
    _, printed = succeeded(run("bash", "recipes/lohelp/smoke.sh", *small))
    number = r"\d+\.\d\d"
    last = printed.splitlines()[-1]
    line = rf"lohelp BLEU pretrained={number} random={number} retrieval={number} nc={number} majority={number}"
    assert re.fullmatch(line, last)
