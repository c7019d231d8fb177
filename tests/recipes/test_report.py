"""Tables of experiments, from score files written by hand."""

import contextlib
import json
import math
import re
import shutil
from pathlib import Path

import pytest
from matplotlib.image import imread

from fairseq_xl.errors import UserError
from recipes import report
from recipes.experiment_file import Experiment
from recipes.tables import mean_share
from tests.recipes.report_builders import DRAW, folder, nc, printed, write  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]


def test_scores_are_averaged_with_their_intervals(folder, capsys):
    """1, 2, 3 have the mean 2, whose interval is worked out below; equal scores have none."""
    for seed, accuracy in enumerate((1.0, 2.0, 3.0), start=1):
        write(folder / f"random/nc-{seed}/scores.json", nc(en=accuracy, de=10.0))
    write(folder / "xlm/nc-1/scores.json", nc(en=90.0, de=90.0))  # two seeds are missing
    text = printed(capsys, folder)
    assert text.removesuffix("nc=1.0 de=10.00\n") == (folder / "report.md").read_text()
    for line in (
        "| nc: accuracy | en | de | average |",
        "| random | 2.0 (0.6–6.8) | 10.0 | 6.0 (4.9–7.4) |",
        "| XLM |  |  |  |",
        "| majority | 40.0 | 40.0 | 40.0 |",
        "nc, mean over 3 fine-tuning seeds, one pre-training run, and 95 % interval over these seeds.",
    ):
        assert f"{line}\n" in text
    assert "| random | 1.0 | 10.0 | 5.5 |\n" in printed(capsys, folder, values=["seeds=1"])


def test_other_scores_have_the_interval_of_their_file(folder, capsys):
    for model, score in (("random", 3.5), ("copy", 4.25)):
        name = "copy.en-de/bleu.json" if model == "copy" else "random/en-de/bleu.json"
        write(folder / name, {"sacrebleu": {"score": score, "interval": 0.5}})
    ways = {
        "forward": {"accuracy": 50.0, "interval": [45.0, 55.0]},
        "backward": {"accuracy": 60.0, "interval": [57.0, 63.0]},
    }
    write(folder / "xlm/retrieval/scores.json", {"layer": 2, "pooling": "mean", "test": {"en-de": {"margin": ways}}})
    text = printed(capsys, folder)
    for line in (
        "| BLEU | en→de |",
        "| random | 3.50 ± 0.50 |",
        "| XLM |  |",
        "| source copied | 4.25 ± 0.50 |",
        "| random |  |  |  |",
        "| XLM | 55.0 (51.0–59.0) | 55.0 | 2, mean |",
    ):
        assert f"{line}\n" in text
    (folder / "copy.en-de/bleu.json").unlink()
    text = printed(capsys, folder)
    assert "source copied" not in text and "| baseline |" not in text  # optional rows, which need one cell
    write(folder / "baseline/nc/scores.json", nc(de=20.0))
    assert "| baseline |  | 20.0 |  |\n" in printed(capsys, folder)


@pytest.mark.parametrize(
    "experiment, name", [("lohelp/understanding", "understanding"), ("unicoder/experiment", "comparison")]
)
def test_kept_scores_make_no_empty_rows_of_baselines(experiment, name, capsys):
    path = ROOT / "recipes" / f"{experiment}.yaml"
    report.main([str(path), str(path.parent / f"results/{name}.json")])
    rows = [
        line
        for line in capsys.readouterr().out.splitlines()
        if re.match(r"\|[^|]*(tf-idf|n-grams|majority|copied)", line)
    ]
    assert not [row for row in rows if not any(cell.strip() for cell in row.split("|")[2:])]


def test_figures_of_papers_stand_below_the_scores(tmp_path, capsys):
    """Table 12 averages fr and zh, table 9 five tasks; those of another split are named; a table needs scores."""
    languages = {code: {"rouge_l": {"score": 30.0, "interval": [29, 31]}} for code in ("en", "fr", "zh")}
    write(tmp_path / "pivots/en/scores.json", {"languages": languages})
    tasks = {"XNLI": 60.0, "PAWSX": 70.0, "NC": 80.0, "QAM": 50.0, "QADSM": 55.0}
    write(tmp_path / "scores/scores.json", {"tasks": {task: {"average": value} for task, value in tasks.items()}})
    shown = {}
    for name in ("summaries", "multitask", "sweep"):
        report.main([str(ROOT / f"recipes/xglue/{name}.yaml"), str(tmp_path)])
        shown[name] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert shown["summaries"][2:] == [
        "| en | 30.0 (29.0–31.0) | 30.0 (29.0–31.0) | 30.0 (29.0–31.0) | 30.0 |",
        "| Unicoder (Liang et al. 2020, table 12) |  | 37.89 | 42.23 | 40.06 |",
        "| XNLG (Liang et al. 2020, table 12) |  | 36.31 | 38.91 | 37.61 |",
    ]
    assert shown["multitask"][2:5:2] == [
        "| a run for each task | 60.0 | 70.0 | 80.0 | 50.0 | 55.0 | 63.0 |",
        "| one by one (Liang et al. 2020, table 9; test, not comparable) | 75.3 | 90.1 | 82.4 | 67.7 | 69.3 | 77.0 |",
    ]
    assert not any("BLEU" in line for line in shown["sweep"])
    score = {"bleu": {"score": 5.0, "interval": 1.0}}
    write(tmp_path / "sweep/each/de/scores.json", {"languages": {"de": score}})
    report.main([str(ROOT / "recipes/xglue/sweep.yaml"), str(tmp_path / "sweep"), "languages=de,fr"])
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")] == [
        "| each: BLEU-4, cased | de | fr | average |",
        "| --- | --- | --- | --- |",
        "| de | 5.0 ± 1.0 |  |  |",
    ]


def test_intervals_of_shares_stay_within_their_scale():
    """Of 1, 2, 3: Student's t is 4.303, the error 0.577, logit 2 % = -3.892, and 4.303 · 0.577 / (2 · 0.98) = 1.267.

    So the bounds are 100 / (1 + e^5.159) = 0.572 and 100 / (1 + e^2.625) = 6.756, where 2 ± 2.5 would reach below 0.
    """
    assert mean_share([1.0, 2.0, 3.0]) == "2.0 (0.6–6.8)"
    assert mean_share([97.0, 98.0, 99.0]) == "98.0 (93.2–99.4)"
    assert mean_share([100.0, 0.0, 0.0]) == "33.3 (0.1–99.7)"
    assert mean_share([0.0, 0.0]) == "0.0" and mean_share([50.0]) == "50.0"
    # where the error is small, 4.303 · 0.577 / 10 = 0.248, it is the interval of the mean
    assert mean_share([69.9, 70.0, 70.1]) == "70.0 (69.8–70.2)"


def test_translations_are_compared_pair_by_pair(folder, capsys):
    lines = {"unicoder": "the cat sat on the mat .\n", "xlm": "a cat sat on the mat .\n"}
    assert "difference" not in printed(capsys, folder)
    for model, line in lines.items():
        write(folder / f"{model}/en-de/hypotheses.de", 20 * line)
    write(folder / "reference.de", 20 * lines["unicoder"])
    bleu = 100 * math.exp(sum(math.log(right / count) for right, count in ((6, 7), (5, 6), (4, 5), (3, 4))) / 4)
    row = f"| Unicoder − XLM | {100 - bleu:+.2f} (p = 0.001) |\n"
    kept = folder.parent / "kept.json"
    assert row in printed(capsys, folder, values=["--save", str(kept)]) and row in printed(capsys, kept)
    entry = "unicoder/en-de/hypotheses.de against xlm/en-de/hypotheses.de"
    content = json.loads(kept.read_text())
    assert content[entry]["difference"] == round(100 - bleu, 2)
    write(kept, {name.replace("xlm", "other"): test for name, test in content.items()})  # of other hypotheses
    assert "difference" not in printed(capsys, kept)


def test_fine_tuning_seeds_are_nested_in_pretrainings(folder, capsys):
    """Differences of 1, 2, 3 from one pre-training and 5, 6, 7 from another are two, 2 and 6: 4 ± 12.71 · 2.

    Six independent ones would have 4 ± 2.57 · 2.37 / sqrt 6 = 2.5. The model's own means are 52 and 66.
    """
    runs = [folder, folder.parent / "two"]
    for run, base, difference in zip(runs, (50.0, 60.0), (0, 4)):
        for seed in (1, 2, 3):
            write(run / f"unicoder/nc-{seed}/scores.json", nc(en=base, de=base))
            own = base + difference + seed
            write(run / f"xlm/nc-{seed}/scores.json", nc(en=own, de=own))
    text = printed(capsys, *runs)
    assert "| XLM | +4.0 ± 25.4 |  |\n" in text
    assert f"| XLM | {mean_share([52.0, 66.0])} | " in text
    over = "mean over 2 pre-trainings of the mean over 3 fine-tuning seeds, and 95 % interval"
    assert text.count(over) == 2  # qam has no scores
    (runs[1] / "xlm/nc-3/scores.json").unlink()
    assert "minus" not in printed(capsys, *runs)


def test_what_has_one_pretraining_only_is_named(folder, capsys):
    """Rows without {seed}, numbers of tokens and outputs come from the first of several runs."""
    write(folder / "baseline/nc/scores.json", nc(en=20.0, de=20.0))
    write(folder / "random/en-de/bleu.json", {"sacrebleu": {"score": 3, "interval": 1}})
    write(folder / "xlm/train.log", json.dumps({"epoch": 1, "train_wpb": "5.0", "train_num_updates": "1"}) + "\n")
    for name in ("test.de.src", "test.de.tgt"):
        write(folder / name, 10 * "line\n")
    write(folder / "xlm/de-1/generate-test.txt", "".join(f"D-{number}\t-1.0\tx\n" for number in range(10)))
    write(folder.parent / "two/random/nc-1/scores.json", nc(en=1.0, de=10.0))
    assert "only" not in printed(capsys, folder)
    lines = printed(capsys, folder, folder.parent / "two").splitlines()
    over = "mean over 2 pre-trainings of the mean over 3 fine-tuning seeds, and 95 % interval over the pre-trainings."
    assert [line for line in lines if "Not over" in line] == [
        "One seed. Not over pre-trainings: random.",
        f"nc, {over} Not over pre-trainings: baseline.",
    ]
    assert [line for line in lines if line.endswith("pre-training 1 only.")] == [
        "pre-training: pre-training 1 only.",
        "Titles in de, seed 1. Outputs: pre-training 1 only.",
    ]


def test_differences_are_paired_by_seed(folder, capsys):
    """1, 2, 3 points: their mean, and with Student's t 4.303 / sqrt 3, though either model's seeds differ by 20."""
    for seed, base in enumerate((40.0, 60.0, 50.0), start=1):
        write(folder / f"unicoder/nc-{seed}/scores.json", nc(en=base, de=base))
        write(folder / f"xlm/nc-{seed}/scores.json", nc(en=base + 2 * seed, de=base))
        write(folder / f"xlm/qam-{seed}/scores.json", nc(en=base, de=base))
    text = printed(capsys, folder)
    assert "| minus Unicoder | nc | qam |\n" in text
    assert "| XLM | +2.0 ± 2.5 |  |\n" in text and "| random |  |  |\n" in text
    assert "minus" not in printed(capsys, folder, values=["models=random,xlm"])


def test_scores_are_kept_in_a_file(folder, capsys):
    """The file makes the same tables; scores of a second part of the runs are added."""
    kept = folder.parent / "kept.json"
    seeds = ["seeds=1"]
    first = printed(capsys, folder, values=[*seeds, "--save", str(kept)])
    assert list(json.loads(kept.read_text())) == ["random/nc-1"]
    assert printed(capsys, kept, values=seeds) == first
    assert sorted(path.name for path in folder.parent.iterdir()) == ["experiment.yaml", "kept.json", "run"]
    shutil.rmtree(folder)
    write(folder / "random/en-de/bleu.json", {"sacrebleu": {"score": 9, "interval": 1}})
    write(folder / "random/nc-1/scores.json", nc(en=2.0, de=10.0))
    second = printed(capsys, folder, values=[*seeds, "--save", str(kept)])
    assert "| random | 2.0 | 10.0 | 6.0 |\n" in second and "| random | 9.00 ± 1.00 |\n" in second
    assert printed(capsys, kept, values=seeds) == second
    shutil.rmtree(folder)
    write(folder / "random/nc-2/scores.json", nc(en=3.0, de=10.0))
    with pytest.raises(UserError, match="random/nc-1/scores.json has no languages.en.accuracy"):
        printed(capsys, folder, values=["seeds=2", "--save", str(kept)])
    assert list(json.loads(kept.read_text())) == ["random/en-de", "random/nc-1", "random/nc-2"]


def test_a_cell_may_be_the_mean_of_several_files(folder, capsys):
    """English is in the model of each pair: 10 and 30 are 20."""
    for target, accuracy in (("de", 10.0), ("fr", 30.0)):
        write(folder / f"joint/{target}/nc-1/scores.json", nc(en=accuracy, de=5.0, fr=6.0))
    assert "| pairs | 20.0 | 5.0 |\n" in printed(capsys, folder, values=["seeds=1"])


def test_tokens_are_summed_over_epochs(folder, capsys):
    for model, sizes in (("xlm", (5000.0, 5030.0)), ("unicoder", (5010.0,))):
        entries = [
            {"epoch": number, "train_wpb": str(size), "train_num_updates": str(100 * number)}
            for number, size in enumerate(sizes, start=1)
        ]
        lines = ["| INFO | begin", json.dumps({"epoch": 1, "wpb": "1.0"}), *map(json.dumps, [entries[0], *entries])]
        write(folder / model / "train.log", "\n".join(lines) + "\n")
    assert "| XLM | 200 | 5,015 | 1.00 |\n| Unicoder | 100 | 5,010 | 0.50 |\n" in printed(capsys, folder)
    write(folder / "xlm/step.json", {"finished": False})
    write(folder / "step.json", {"finished": True})
    assert "XLM | 200" not in (text := printed(capsys, folder)) and "| Unicoder | 100 |" in text


def test_outputs_stand_beside_source_and_reference(folder, capsys):
    write(folder / "test.de.src", "".join(f"source {number}\n" for number in range(20)))
    write(folder / "test.de.tgt", "".join(f"reference {number}\n" for number in range(20)))
    generated = "".join(
        f"S-{number}\tx\nH-{number}\t-1.0\ttitle {number}\nD-{number}\t-1.0\ttitle {number}\n" for number in range(20)
    )
    write(folder / "xlm/de-1/generate-test.txt", generated)
    lines = printed(capsys, folder).splitlines()
    start = lines.index("Titles in de, seed 1.")
    shown = ["", "1.", "   - source: source 0", "   - reference: reference 0", "   - XLM: title 0"]
    assert lines[start + 1 : start + 6] == shown
    assert lines[-5:-1] == ["19.", "   - source: source 18", "   - reference: reference 18", "   - XLM: title 18"]


@pytest.mark.filterwarnings("error")
def test_pictures_show_the_outcome(folder, capsys, monkeypatch):
    """Long names leave room in them."""
    monkeypatch.setattr(report, "draw", DRAW)
    for seed in (1, 2, 3):
        write(folder / f"random/nc-{seed}/scores.json", nc(en=10.0 * seed, de=10.0))
    printed(capsys, folder)
    assert imread(folder / "nc.png").shape[0] > 200 and not (folder / "qam.png").exists()
    made = report.Report(Experiment(folder.parent / "experiment.yaml", (), folder), [folder], folder=folder)
    name = "n-grams in common and lengths, logistic regression, each language alone"
    made.picture({name: [60.0], "xlm": [50.0, 51.0]}, "long.png", f"Outcome of {name}", "accuracy")
    assert imread(folder / "nc.png").std() > 0.05 and imread(folder / "long.png").std() > 0.05


def test_what_is_wrong_is_one_sentence(folder, capsys):
    """Of margins too: German has 10, English 1."""
    saved = folder.parent / "kept.json"
    saved.write_text("[1]")
    with pytest.raises(UserError, match="kept.json: this file is not a JSON object of scores"):
        printed(capsys, folder, values=["--save", str(saved)])
    assert saved.read_text() == "[1]"
    with pytest.raises(UserError, match="the scores of 2 pre-trainings do not fit into one file"):
        printed(capsys, folder, folder, values=["--save", str(folder.parent / "new.json")])
    with pytest.raises(UserError, match="absent: no such file or folder"):
        printed(capsys, folder, folder / "absent")
    path, scores = folder.parent / "experiment.yaml", "random/nc-1/scores.json languages"
    line = f"margins: ['[{scores}.de.accuracy] > [{scores}.en.accuracy]"
    for difference, error in ((" + 8.9", None), (" + 9", r"is not kept: 10.0 > 1.0 \+ 9$"), ("", "expected .* NUMBER")):
        path.write_text(f"steps: {{}}\n{line}{difference}']")
        with pytest.raises(UserError, match=error) if error else contextlib.nullcontext():
            printed(capsys, folder)
    path.write_text("steps: {}\nreport: [{tabel: x}]")
    with pytest.raises(UserError, match="no part of a report called 'tabel'"):
        printed(capsys, folder)


def test_bits_have_a_margin_and_seeds_of_their_own(tmp_path, capsys):
    """Of 5.5, 5.6 and 5.7: mean 5.6, standard error 0.1 / √3, Student's t with two degrees of freedom 4.303."""
    (tmp_path / "bits.yaml").write_text(
        """
values: {seeds: [1, 2, 3], few: [1, 2], checkpoints: [500, 1000]}
steps: {}
report:
  - table: bits
    columns: checkpoints
    rows:
      - {name: mlm, scores: "mlm-{seed}/bits.json", key: "loss.{column}", percent: false, decimals: 2, seeds: few}
      - {name: all, scores: "mlm-{seed}/bits.json", key: "loss.{column}", percent: false, decimals: 2}
"""
    )
    for seed, value in ((1, 5.5), (2, 5.7), (3, 5.6)):
        (tmp_path / f"mlm-{seed}").mkdir()
        write(tmp_path / f"mlm-{seed}/bits.json", {"loss": {"500": value}})
    report.main([str(tmp_path / "bits.yaml"), str(tmp_path)])
    assert "| mlm | 5.60 (5.50–5.70) |  |\n| all | 5.60 ± 0.25 |  |\n" in capsys.readouterr().out


BOTH = """
values: {languages: [en, de], seeds: [1, 2, 3]}
steps: {}
report:
  - table: nc
    columns: languages
    average: languages
    intervals: both
    rows:
      - &row {name: XLM, scores: "xlm-{seed}/scores.json", key: "languages.{column}.accuracy",
              interval: "languages.{column}.interval"}
      - {<<: *row, name: tf-idf, scores: tf-idf/scores.json}
      - {<<: *row, name: no interval, interval: "languages.{column}.none"}
"""


def test_a_cell_may_have_the_intervals_over_seeds_and_over_test_examples(tmp_path, capsys):
    """Seeds 1, 2, 3: `share_interval`; examples: the bounds 0, 1, 2 and 4, 5, 9 have the means 1 and 6."""
    (tmp_path / "both.yaml").write_text(BOTH)

    def written(name, en, interval):
        languages = {"en": {"accuracy": en, "interval": interval}, "de": {"accuracy": 50.0, "interval": [40.0, 60.0]}}
        write(tmp_path / f"run/{name}/scores.json", {"languages": languages})

    for seed, high in ((1, 4.0), (2, 5.0), (3, 9.0)):
        written(f"xlm-{seed}", float(seed), [seed - 1.0, high])
    written("tf-idf", 7.0, [6.0, 8.0])
    report.main([str(tmp_path / "both.yaml"), str(tmp_path / "run")])
    shown = capsys.readouterr().out
    for line in (
        "| XLM | 2.0 (seeds 0.6–6.8; examples 1.0–6.0) | 50.0 (examples 40.0–60.0) | 26.0 (seeds 24.8–27.3) |",
        "| tf-idf | 7.0 (examples 6.0–8.0) | 50.0 (examples 40.0–60.0) | 28.5 |",
        "| no interval | 2.0 (seeds 0.6–6.8) | 50.0 | 26.0 (seeds 24.8–27.3) |",
    ):
        assert f"{line}\n" in shown
    report.main([str(tmp_path / "both.yaml"), str(tmp_path / "run"), str(tmp_path / "run")])
    assert "| XLM | 2.0 (examples 1.0–6.0) | " in capsys.readouterr().out  # two equal pre-trainings
    (tmp_path / "both.yaml").write_text(BOTH.replace("both", "all"))
    with pytest.raises(UserError, match="both.yaml: nc: intervals: all: choose one or both"):
        report.main([str(tmp_path / "both.yaml"), str(tmp_path / "run")])
