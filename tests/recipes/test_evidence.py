"""The experiment on the papers' claims: its steps, its configurations, and that each test finds its scores."""

import itertools
import json
import re
import shlex

import pytest

from recipes import experiment
from recipes.experiment_file import Experiment
from recipes.report import Report, main as report_main
from tests.recipes.test_configurations import RECIPES, VECO, XLM, build, configuration, objectives_of

EVIDENCE = RECIPES / "evidence"
RESULTS = EVIDENCE / "results"
PRETRAINING = {
    "xlm": [XLM / "pretrain.yaml", EVIDENCE / "pretrain.yaml"],
    "veco": [VECO / "pretrain.yaml", EVIDENCE / "veco/pretrain.yaml"],
    "veco, first stage": [
        *(VECO / "pretrain.yaml", EVIDENCE / "veco/pretrain.yaml", EVIDENCE / "veco/cross-attention-pretrain.yaml")
    ],
}
TRANSLATION = [XLM / "translate.yaml", EVIDENCE / "translate.yaml"]


def listed(capsys, name, *arguments):
    """{step: its commands, lists of words} of an experiment."""
    experiment.main([str(EVIDENCE / name), "--list", *arguments])
    blocks = re.findall(r"^(\S+)\n((?:    .*\n)+)", capsys.readouterr().out, re.MULTILINE)
    return {name: [shlex.split(line) for line in lines.splitlines()] for name, lines in blocks}


@pytest.mark.parametrize("name", ["claims.yaml", "smoke.yaml"])
def test_every_claim_has_steps_and_tests(name, tmp_path):
    made = Experiment(EVIDENCE / name, output=tmp_path)
    assert list(made.claims) == ["1", "2", "4", "5", "8", "6", "7", "3"]  # in order of priority
    tested = {str(part["claim"]) for part in made.content["report"] if "tests" in part}
    assert tested == set(made.claims)
    for claim in made.claims:
        assert made.chosen_by_claims([claim])


@pytest.mark.parametrize("name", ["claims.yaml", "smoke.yaml"])
def test_every_test_finds_its_scores(name, tmp_path, monkeypatch):
    """Rows that a test names are in the tables that it names: with a score in every cell each pair has a conclusion."""
    monkeypatch.setattr(Report, "units", lambda self, row, values, column: [50.0])
    made = Experiment(EVIDENCE / name, output=tmp_path / "out")
    report = Report(made, [tmp_path / "out"])
    list(report.parts())
    small = name == "smoke.yaml"  # no ranking, and some of the models
    for part in made.content["report"]:
        if "tests" not in part:
            continue
        values = next(made.combinations(part.get("for", {})))
        rows = {row for title in part["columns"] for row in report.averages.get(made.expand(title, values), {})}
        for key, found in (("greater", report.tests), ("controls", report.controls)):
            for pair in (list(map(made.expand, pair)) for pair in part.get(key, [])):
                tested = any(name.startswith(f"{' > '.join(pair)} | ") for name in found[str(part["claim"])])
                assert tested or (small and not {*pair} <= rows), pair
    measures = {found.split(" | ")[1] for found in report.tests["1"]}
    both = {"zero-shot nc: accuracy", "sentence retrieval: accuracy"}
    assert measures == (both if small else both | {"zero-shot wpr: ndcg"})
    assert all(report.tests[claim] and report.controls[claim] for claim in made.claims)


def test_no_two_tables_have_one_title(tmp_path, monkeypatch):
    """A test names the tables that it reads by title."""
    monkeypatch.setattr(Report, "units", lambda self, row, values, column: [50.0])
    made = Experiment(EVIDENCE / "claims.yaml", output=tmp_path / "out")
    lines = [line for part in Report(made, [tmp_path / "out"]).parts() for line in part]
    titles = [before.split(" | ")[0] for before, line in itertools.pairwise(lines) if line.startswith("| ---")]
    assert len(titles) == len(set(titles)) > 20


def test_zero_shot_averages_leave_out_the_language_of_training(tmp_path, monkeypatch):
    """English has 90, the others 50."""
    monkeypatch.setattr(Report, "units", lambda self, row, values, column: [90.0 if column == "en" else 50.0])
    made = Experiment(EVIDENCE / "claims.yaml", output=tmp_path / "out")
    report = Report(made, [tmp_path / "out"])
    list(report.parts())
    averages = {title: value for title, rows in report.averages.items() for (value,) in rows.values()}
    zero_shot = [title for title in averages if "zero-shot" in title or title.startswith("MonoTrans")]
    assert len(zero_shot) == 2 + 2 + 3 + 2 + 1 and {averages[title] for title in zero_shot} == {50.0}
    assert averages["titles, multi-language: ROUGE-L"] == 58.0


def test_fine_tuning_on_english_is_selected_by_english(capsys):
    steps = listed(capsys, "claims.yaml", "seeds=1")
    of_claims = {"zero-shot", "languages", "titles", "unicoder", "veco"}
    found = {}
    for name, (words, *_) in steps.items():
        if "--valid-langs" in words:
            found[name] = words[words.index("--valid-langs") + 1]
    assert {name.split("/")[0] for name in found} == of_claims
    several = {name for name, languages in found.items() if languages != "en"}
    assert {found[name] for name in several} == {"en,de,fr,ru,zh"}
    assert several == {name for name in found if "/many/" in name or "/multi-language/" in name}


def test_every_seed_has_draws_of_its_own(capsys):
    """Each training of a model has another seed in each chain; of the mined negatives there is one set."""
    steps = listed(capsys, "claims.yaml", "seeds=1,2")
    seeds = {}
    for name, (words, *_) in steps.items():
        if "--seed" in words:
            chain, found = re.subn("/[12](?=/|$)", "", name, count=1)
            assert found, name
            seeds.setdefault(chain, []).append(words[words.index("--seed") + 1])
    assert len(seeds) > 60 and all(len(set(drawn)) == 2 for drawn in seeds.values()), seeds
    assert seeds["titles/finetune/random/pivot/1"] == ["11", "21"]


def test_random_weights_of_decoders_are_small(capsys):
    """0.06, the default of small architectures, does not learn (recipes/learning/README.md)."""
    steps = listed(capsys, "claims.yaml", "seeds=1")
    names = ["translate/random/de/1", "veco/translate/random/1", "unpaired/unsupervised/en-de/random/1"]
    for name in [*names, "titles/1/finetune/random/pivot/1", "titles/1/finetune/random/multi-language/1"]:
        assert "--init-std 0.02 --position-init normal" in shlex.join(steps[name][0]), name


def test_models_that_several_claims_need_are_trained_once(capsys):
    steps = listed(capsys, "claims.yaml", "seeds=1")
    start = "mlm-tlm-1/checkpoint_last.pt"
    for step in ("titles/1/pretrain/xdae", "titles/1/pretrain/xfnp", "titles/1/more", "unicoder/1/pretrain/unicoder"):
        assert any(word.endswith(start) for word in steps[step][0]), step
    assert sum("pretrain/mlm-tlm" in step for step in steps) == 1
    assert not any(step.startswith(("titles/1/xlm", "unicoder/1/start", "unicoder/1/text")) for step in steps)
    two = listed(capsys, "claims.yaml", "seeds=1,2", "--claims", "7")
    assert {step for step in two if "/text/" in step} == {f"monotrans/1/text/{code}" for code in ("en", "de", "ru")}


def test_budgets_are_equal(capsys, dictionary):
    """XLM has as many updates as both stages of VECO; xDAE, xFNP and the longer XLM as many, of as many tokens."""
    veco, first = (configuration(PRETRAINING[name]) for name in ("veco", "veco, first stage"))
    steps = listed(capsys, "claims.yaml", "seeds=1")
    updates = {
        step: int(words[words.index("--max-update") + 1])
        for step, (words, *_) in steps.items()
        if "--max-update" in words
    }
    both = veco.optimization.max_update + first.optimization.max_update
    assert updates["veco/xlm/xlm/1"] == both == 2500
    assert updates["veco/xlm/xlm-compute/1"] == 500 * 1.3 + 2000 * 3.15
    assert {count for step, count in updates.items() if step.startswith("unicoder/1/pretrain/")} == {1500}
    assert updates["titles/1/more"] == updates["titles/1/pretrain/xdae"] == updates["titles/1/pretrain/xfnp"]
    longer = steps["titles/1/more"][0]
    schedules = [configuration(PRETRAINING["xlm"], *longer[longer.index("--objectives") :]).lr_scheduler]
    for name in ("xdae", "xfnp"):
        files = [
            RECIPES / f"xglue/{path}"
            for path in (f"config/{name}.yaml", f"config/{name}-toy.yaml", f"lohelp/{name}.yaml")
        ]
        cfg = configuration(files)
        schedules.append(cfg.lr_scheduler)
        (objective,) = objectives_of(cfg, dictionary).values()
        assert objective.cfg.batch_tokens == 4096
    assert "mlm.batch_tokens=4096 tlm.batch_tokens=4096" in longer
    for each in schedules:
        assert each._name == "polynomial_decay" and (each.warmup_updates, each.total_num_update) == (200, 2000)
    of_xlm = objectives_of(configuration(PRETRAINING["xlm"], "--objectives", "mlm,tlm"), dictionary)
    of_veco = objectives_of(veco, dictionary)
    settings = {(each.cfg.batch_tokens, each.cfg.mask_prob) for each in (*of_xlm.values(), *of_veco.values())}
    assert settings == {(2048, 0.3)}


def test_veco_starts_translation_with_two_of_three_layers(dictionary):
    pretrained, started = (
        configuration(PRETRAINING["veco"]),
        configuration([*TRANSLATION, EVIDENCE / "veco/translate.yaml"], "-s", "en", "-t", "de"),
    )
    assert pretrained.model.layers == started.model.encoder_layers == 3 and started.model.decoder_layers == 2
    build(started, dictionary)
    plain = configuration(TRANSLATION, "-s", "en", "-t", "de")
    assert (plain.checkpoint.patience, plain.checkpoint.best_checkpoint_metric) == (4, "loss")
    # patience counts validations: there is none at the end of an epoch
    assert plain.checkpoint.save_interval_updates == 250 and plain.dataset.validate_interval > 10000


def test_the_kept_report_is_that_of_the_kept_scores(tmp_path, capsys):
    report_main([str(EVIDENCE / "claims.yaml"), str(RESULTS / "evidence.json"), "--output", str(tmp_path)])
    for name in ("report.md", "claims.json"):
        assert (tmp_path / name).read_text() == (RESULTS / name).read_text(), name
    pictures = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.png")}
    assert pictures and pictures == {path.relative_to(RESULTS) for path in RESULTS.rglob("*.png")}


def page():
    return (RESULTS / "README.md").read_text().replace("−", "-")


def rows_of(text):
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]


def test_the_page_has_the_averages_of_the_kept_scores():
    """Averages over languages of each system with seeds."""
    rows = rows_of((RESULTS / "report.md").read_text())
    averages = {
        cell.replace("seeds ", "") for row in rows for cell in row if re.fullmatch(r"\S+ \(seeds [^;]+\)", cell)
    }
    retrieval = [row for row in rows if len(row) == 7 and row[0].startswith(("random", "MLM"))]
    averages |= {row[5] for row in retrieval if "(" in row[5] and "seeds" not in row[5]}
    assert len(averages) > 10 and not [cell for cell in averages if cell not in page()]


def test_the_page_has_no_other_differences_than_the_kept_ones():
    """Each "(low to high)" of the page is the interval of a test, and its mean stands before it."""
    found = [
        re.fullmatch(r"\+?(\S+) \(\+?(\S+) to \+?(\S+)\)", row[2])
        for row in rows_of((RESULTS / "report.md").read_text())
        if len(row) == 5
    ]
    means = {}
    for test in filter(None, found):
        means.setdefault((test[2], test[3]), set()).add(test[1].lstrip("-"))
    text = " ".join(page().split())
    reported = list(re.finditer(r"\((-?[\d.]+) to (-?[\d.]+)\)", text))
    assert len(reported) > 15
    for interval in reported:
        before = set(re.findall(r"[\d.]+\d", text[interval.start() - 90 : interval.start()]))
        assert before & means.get(interval.groups(), set()), interval


def test_the_page_has_the_kept_bleu_of_each_seed():
    kept = json.loads((RESULTS / "evidence.json").read_text())
    for name, model in (("random weights", "random"), ("CLM", "clm"), ("MLM", "mlm")):
        scores = [kept[f"{model}-{seed}/en-de"]["sacrebleu"]["score"] for seed in (1, 2, 3)]
        (row,) = [row for row in rows_of(page()) if row[0] == name and len(row) == 5]
        assert [cell.strip("*") for cell in row[1:]] == [f"{score:.2f}" for score in (*scores, sum(scores) / 3)]


def test_the_page_has_the_reported_bleu_and_accuracy_of_veco():
    """Of each system in translation the BLEU, and of each variant the average of nc, as the report has them."""
    rows = rows_of((RESULTS / "report.md").read_text())
    of_page = {row[0]: row for row in rows_of(page())}
    bleu = [row for row in rows if len(row) == 2 and row[0].startswith(("VECO, decoder", "XLM"))]
    assert len(bleu) == 5 and all(of_page[name][1].strip("*") == cell for name, cell in bleu)
    variants = {"VECO, more TLM": "more TLM", "VECO, gradients clipped at 25": "gradients clipped at 25 in place of 5"}
    variants |= {
        f"VECO, {name}": name
        for name in ("fine-tuned with half the learning rate", "fine-tuned with twice the learning rate")
    }
    averages = {row[0]: row[6].replace("seeds ", "") for row in rows if len(row) == 7 and row[0] in variants}
    assert averages == {name: of_page[variants[name]][1] for name in variants}


def test_the_page_has_the_kept_bits():
    """Means over the seeds; every model of every seed is below the n-gram model of both neighbors."""
    kept = json.loads((RESULTS / "bits.json").read_text())
    grams = kept.pop("n-gram models")
    expected = {
        f"n-gram model of {name}" if "both" in name else f"{name} model": [bits] for name, bits in grams.items()
    }
    expected |= {f"{name}, 10,000 updates, mean of three seeds": list(of.values()) for name, of in kept.items()}
    table = {row[0]: [float(cell.strip("*")) for cell in row[1:]] for row in rows_of(page()) if row[0] in expected}
    assert table.keys() == expected.keys() and len(table) == 5
    for name, seeds in expected.items():
        means = [sum(bits[code] for bits in seeds) / len(seeds) for code in ("en", "de", "fr", "ru", "zh")]
        assert table[name] == pytest.approx([*means, sum(means) / 5], abs=0.0051), name
    for seeds in kept.values():
        assert all(bits[code] < grams["both neighbors"][code] for bits in seeds.values() for code in bits)


def test_the_study_of_ranking_is_that_of_the_kept_scores(capsys):
    report_main([str(EVIDENCE / "ranking.yaml"), str(RESULTS / "ranking.json")])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert len(lines) == 5 and all(line in (RESULTS / "README.md").read_text() for line in lines[2:])
