"""The comparison on real text, run at nano size on a corpus folder of synthetic text."""

import json
import re

import pytest
from sacrebleu.metrics import BLEU

from tests.recipes.scripts import ROOT, run, succeeded

pytestmark = pytest.mark.usefixtures("warm")


@pytest.mark.slow
def test_lohelp_tables_hold_the_scores_of_the_files(lohelp_corpus, tmp_path):
    """Every model starts from its own weights, one from untrained ones."""
    output = tmp_path / "lohelp"
    small = [f"corpus={lohelp_corpus}", "others=de", "targets=de", "seeds=1", "vocabulary=300", "--updates", "3"]
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
    references = (lohelp_corpus / "bitext/test.en-de.de").read_text().splitlines()
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
def test_lohelp_smoke_ends_with_its_scores(lohelp_corpus, tmp_path):
    small = [f"corpus={lohelp_corpus}", "vocabulary=300", "--output", tmp_path, "--updates", 3]
    _, printed = succeeded(run("bash", "recipes/lohelp/smoke.sh", *small))
    number = r"\d+\.\d\d"
    last = printed.splitlines()[-1]
    line = rf"lohelp BLEU pretrained={number} random={number} retrieval={number} nc={number} majority={number}"
    assert re.fullmatch(line, last)
