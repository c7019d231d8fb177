"""Tables in ``results/`` are what the reports make of the scores that are kept there."""

from pathlib import Path

import pytest

from recipes.lohelp import report
from recipes.monotrans.report import ladder
from recipes.xglue.report import denoising, main as xglue_report, titles
from tests.command_line import cli

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
FIVE, SEEDS = ["en", "de", "fr", "ru", "zh"], ["1", "2", "3"]
LOHELP, VECO = RECIPES / "lohelp/results/five-languages.json", RECIPES / "veco/results/comparison.json"
UNICODER, MONOTRANS = RECIPES / "unicoder/results", RECIPES / "monotrans/results"
OBJECTIVES = ["random", "clm", "mlm", "mlm-tlm"]
ABLATIONS = ["xlm", "unicoder", "without-word_recovery", "without-paraphrase", "without-cross_lingual_mlm"]
XGLUE, WRITERS = RECIPES / "xglue/results", ["random", "xlm", "xdae", "xfnp"]
BANKS = ["tokens", "positions", "noise", "adapters"]

TABLES = {
    "lohelp nc": (LOHELP, lambda: report.classification([LOHELP], OBJECTIVES, "nc", FIVE, SEEDS)),
    "lohelp qam": (LOHELP, lambda: report.classification([LOHELP], OBJECTIVES, "qam", FIVE, SEEDS)),
    "lohelp retrieval": (LOHELP, lambda: report.retrieval(LOHELP, OBJECTIVES, FIVE)),
    "veco nc": (VECO, lambda: report.classification([VECO], ["random", "xlm", "veco"], "nc", FIVE, SEEDS)),
    "veco qam": (VECO, lambda: report.classification([VECO], ["random", "xlm", "veco"], "qam", FIVE, SEEDS)),
    "veco retrieval": (VECO, lambda: report.retrieval(VECO, ["random", "xlm", "veco"], FIVE)),
    **{
        f"unicoder nc {mode}": (
            UNICODER / "README.md",
            lambda mode=mode: report.classification(
                [UNICODER / "comparison.json"], ABLATIONS, f"nc-{mode}", FIVE, SEEDS
            ),
        )
        for mode in ("cross-lingual", "multi-language")
    },
    "unicoder differences": (
        UNICODER / "README.md",
        lambda: report.differences(
            [UNICODER / "comparison.json"],
            ABLATIONS,
            "unicoder",
            [f"{task}-{mode}" for task in ("nc", "qam") for mode in ("cross-lingual", "multi-language")],
            FIVE,
            SEEDS,
        ),
    ),
    **{
        f"xglue {name} {mode}": (
            XGLUE / "README.md",
            lambda name=name, mode=mode: titles(XGLUE / "comparison.json", WRITERS, mode, name, FIVE, SEEDS),
        )
        for name in ("rouge_l", "bleu", "wrong_language")
        for mode in ("pivot", "multi-language")
    },
    "xglue denoising": (XGLUE / "README.md", lambda: denoising(XGLUE / "comparison.json", ["xdae", "xfnp"], FIVE)),
    "xglue last checkpoint": (
        XGLUE / "README.md",
        lambda: titles(XGLUE / "last-checkpoint.json", WRITERS, "pivot", "rouge_l", FIVE, SEEDS),
    ),
    **{
        f"monotrans {task}": (
            MONOTRANS / "README.md",
            lambda task=task: ladder([MONOTRANS / "run-2.json"], BANKS, task, ["en", "de", "es", "ru"], SEEDS),
        )
        for task in ("nc", "qam")
    },
}


@pytest.mark.parametrize("name", TABLES)
def test_figures_are_those_of_the_kept_scores(name):
    """All cells of a row but its name, which the text may word otherwise."""
    near, make = TABLES[name]
    text = (near.parent / "README.md").read_text(encoding="utf-8")
    rows = [row for row in make()[2:] if not row.startswith(("| majority", "| references"))]
    assert rows and not [row for row in rows if row.split(" | ", 1)[1] not in text]


@pytest.mark.parametrize(
    "path, models", [(LOHELP, OBJECTIVES), (VECO, ["random", "xlm-last", "veco-first", "veco-last"])]
)
def test_bleu_is_that_of_the_kept_scores(path, models):
    """The text has other columns between."""
    lines = (path.parent / "README.md").read_text(encoding="utf-8").splitlines()
    for row in report.translation(path, models, ["de", "fr"])[2:]:
        cells = row.strip("| ").split(" | ")[1:]
        assert len(cells) == 2 and any(all(f"| {cell} |" in line for cell in cells) for line in lines)


def test_the_averages_of_qam_are_those_of_the_kept_scores():
    text = (UNICODER / "README.md").read_text(encoding="utf-8")
    modes = [
        report.classification([UNICODER / "comparison.json"], ABLATIONS, f"qam-{mode}", FIVE, SEEDS)
        for mode in ("cross-lingual", "multi-language")
    ]
    for model in range(2, 2 + len(ABLATIONS)):
        averages = " | ".join(rows[model].strip("| ").split(" | ")[-1] for rows in modes)
        assert f"| {averages} |" in text


@pytest.mark.parametrize("name", ["comparison", "last-checkpoint", "lower-rate"])
def test_titles_are_made_of_the_kept_scores_without_the_corpus(name, monkeypatch, capsys):
    monkeypatch.setattr(
        "sys.argv",
        [
            "report",
            str(XGLUE / f"{name}.json"),
            *cli(models="xlm,xdae,xfnp", langs=",".join(FIVE), seeds=",".join(SEEDS)),
        ],
    )
    xglue_report()
    text, expected = capsys.readouterr().out, titles(XGLUE / f"{name}.json", ["xdae"], "pivot", "rouge_l", FIVE, SEEDS)
    assert expected[2] in text and not expected[2].endswith("|  |") and "first words" not in text


def test_a_difference_over_pretrainings_is_that_of_the_text():
    outputs = [UNICODER / "comparison.json", UNICODER / "pretraining-seed-2.json"]
    models = ["unicoder", "without-paraphrase"]
    (row,) = report.differences(outputs, models, "unicoder", ["nc-multi-language"], FIVE, SEEDS)[2:]
    assert row == "| without paraphrase classification | +1.2 ± 3.9 |"
    assert f"{row.rstrip('|').split('| ')[-1].strip()} over two" in (UNICODER / "README.md").read_text(encoding="utf-8")
