"""The experiment on the papers' claims: its steps, its configurations, and that each test finds its scores."""

import itertools
import json
import re
import shlex

import pytest

from recipes import report
from recipes.experiment_file import Experiment
from recipes.report import Report, main as report_main
from tests.recipes.configurations import RECIPES, VECO, XLM, build, configuration, listed, objectives_of

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


@pytest.mark.parametrize("name", ["claims.yaml", "smoke.yaml"])
def test_every_claim_has_steps_and_every_test_finds_its_scores(name, tmp_path, monkeypatch):
    """Rows that a test names are in the tables that it names: with a score in every cell each pair has a conclusion.

    English has 90, the others 50: averages of zero-shot leave out English.
    """
    monkeypatch.setattr(Report, "units", lambda self, row, values, column: [90.0 if column == "en" else 50.0])
    made = Experiment(EVIDENCE / name, output=tmp_path / "out")
    assert list(made.claims) == ["1", "2", "4", "5", "8", "6", "7", "3"]  # in order of priority
    assert {str(part["claim"]) for part in made.content["report"] if "tests" in part} == set(made.claims)
    assert all(made.select_by_claims([claim]) for claim in made.claims)
    report = Report(made, [tmp_path / "out"])
    lines = [line for part in report.parts() for line in part]
    small = name == "smoke.yaml"  # no ranking, and some of the models
    for part in made.content["report"]:
        if "tests" not in part:
            continue
        values = next(made.combinations(part.get("for", {})))
        rows = {row for title in part["columns"] for row in report.averages.get(made.expand(title, values), {})}
        for key, sign, found in (("greater", ">", report.tests), ("controls", "−", report.controls)):
            for pair in (list(map(made.expand, pair)) for pair in part.get(key, [])):
                tested = any(name.startswith(f"{f' {sign} '.join(pair)} | ") for name in found[str(part["claim"])])
                assert tested or (small and not {*pair} <= rows), pair
    measures = {found.split(" | ")[1] for found in report.tests["1"]}
    both = {"zero-shot nc: accuracy", "sentence retrieval: accuracy"}
    assert measures == (both if small else both | {"zero-shot wpr: ndcg"})
    assert all(report.tests[claim] and report.controls[claim] for claim in made.claims)
    if not small:
        titles = [before.split(" | ")[0] for before, line in itertools.pairwise(lines) if line.startswith("| ---")]
        assert len(titles) == len(set(titles)) > 20  # a test names the tables that it reads by title
        averages = {title: value for title, rows in report.averages.items() for (value,) in rows.values()}
        zero_shot = [title for title in averages if "zero-shot" in title or title.startswith("MonoTrans")]
        assert len(zero_shot) == 2 + 2 + 4 + 2 + 1 and {averages[title] for title in zero_shot} == {50.0}
        assert averages["titles, multi-language: ROUGE-L"] == 58.0


def test_fine_tuning_on_english_is_selected_by_english():
    steps = listed("evidence/claims.yaml", "seeds=1")
    of_claims = {"zero-shot", "languages", "titles", "unicoder", "veco"}
    found = {}
    for name, (words, *_) in steps.items():
        if "--valid-langs" in words:
            found[name] = words[words.index("--valid-langs") + 1]
    assert {name.split("/")[0] for name in found} == of_claims
    several = {name for name, languages in found.items() if languages != "en"}
    assert {found[name] for name in several} == {"en,de,fr,ru,zh"}
    assert several == {name for name in found if "/many/" in name or "/multi-language/" in name}


def test_every_seed_has_draws_of_its_own():
    """Each training of a model has another seed in each chain; of the mined negatives there is one set."""
    steps = listed("evidence/claims.yaml", "seeds=1,2")
    seeds = {}
    for name, (words, *_) in steps.items():
        if "--seed" in words:
            chain, found = re.subn("/[12](?=/|$)", "", name, count=1)
            assert found, name
            seeds.setdefault(chain, []).append(words[words.index("--seed") + 1])
    assert len(seeds) > 60 and all(len(set(drawn)) == 2 for drawn in seeds.values()), seeds
    assert seeds["titles/finetune/random/pivot/1"] == ["11", "21"]


def test_random_weights_of_decoders_are_small():
    """0.06, the default of small architectures, does not learn (recipes/learning/README.md)."""
    steps = listed("evidence/claims.yaml", "seeds=1")
    names = ["translate/random/de/1", "veco/translate/random/1", "unpaired/unsupervised/en-de/random/1"]
    for name in [*names, "titles/1/finetune/random/pivot/1", "titles/1/finetune/random/multi-language/1"]:
        assert "--init-std 0.02 --position-init normal" in shlex.join(steps[name][0]), name


def test_models_that_several_claims_need_are_trained_once():
    steps = listed("evidence/claims.yaml", "seeds=1")
    start = "mlm-tlm-1/checkpoint_last.pt"
    for step in ("titles/1/pretrain/xdae", "titles/1/pretrain/xfnp", "titles/1/more", "unicoder/1/pretrain/unicoder"):
        assert any(word.endswith(start) for word in steps[step][0]), step
    assert sum("pretrain/mlm-tlm" in step for step in steps) == 1
    assert not any(step.startswith(("titles/1/xlm", "unicoder/1/start", "unicoder/1/text")) for step in steps)
    two = listed("evidence/claims.yaml", "seeds=1,2", "--claims", "7")
    assert {step for step in two if "/text/" in step} == {f"monotrans/1/text/{code}" for code in ("en", "de", "ru")}


def test_budgets_are_equal(dictionary):
    """XLM has as many updates as both stages of VECO; xDAE, xFNP and the longer XLM as many, of as many tokens."""
    veco, first = (configuration(PRETRAINING[name]) for name in ("veco", "veco, first stage"))
    steps = listed("evidence/claims.yaml", "seeds=1")
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


def test_texts_have_the_updates_of_the_configurations():
    claims, veco = (Experiment(EVIDENCE / name) for name in ("claims.yaml", "veco.yaml"))
    plain, of_veco = (
        configuration([*TRANSLATION, *more], "-s", "en", "-t", "de").optimization.max_update
        for more in ([], [EVIDENCE / "veco/translate.yaml"])
    )
    captions = {
        part["table"]: part["caption"] for made in (claims, veco) for part in made.content["report"] if "table" in part
    }
    found = [
        claims.claims["2"]["says"],
        captions["translation, {source}→{target}: BLEU"],
        captions["VECO and XLM, {source}→{target}: BLEU"],
    ]
    assert [re.search(r"within ([\d,]+)\s+updates", text)[1] for text in found] == [f"{plain:,}"] * 2 + [f"{of_veco:,}"]


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


def test_the_kept_report_is_that_of_the_kept_scores(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "draw", lambda outcomes, path, *_: path.touch())
    report_main([str(EVIDENCE / "claims.yaml"), str(RESULTS / "evidence.json"), "--output", str(tmp_path)])
    for name in ("report.md", "claims.json"):
        assert (tmp_path / name).read_text() == (RESULTS / name).read_text(), name
    pictures = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.png")}
    assert pictures and pictures == {path.relative_to(RESULTS) for path in RESULTS.rglob("*.png")}


KEPT = json.loads((RESULTS / "evidence.json").read_text())


def page():
    return (RESULTS / "README.md").read_text().replace("−", "-")


def rows_of(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "]


def report_rows():
    """{name of a table: {row: its cells}} of report.md."""
    tables, name, before = {}, None, None
    for line in (RESULTS / "report.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ---"):
            name = before[0]
            tables[name] = {}
        elif line.startswith("| ") and name:
            tables[name][cells[0]] = [cell.replace("−", "-") for cell in cells[1:]]
        elif not line:
            name = None
        before = cells
    return tables


def average(cells):
    """The last cell of a row, as the page has it: "m (low–high)", the interval over seeds."""
    found = re.fullmatch(r"([\d.]+)(?: \((?:seeds )?([\d.]+–[\d.]+)\))?", cells[-1])
    return f"{found[1]} ({found[2]})" if found[2] else found[1]


def page_rows(heading):
    """{row: its cells without bold} of the first table after a heading of the page."""
    section = page()[page().index(f"\n## {heading}") :]
    rows = [line.strip("|").split("|") for line in re.search(r"(\|.*\n)+", section)[0].splitlines()[2:]]
    return {row[0].strip(): [cell.strip().strip("*") for cell in row[1:]] for row in rows}


def test_the_page_has_the_averages_of_the_report():
    """Each cell of the tables of claims 1 and 4, baselines too, is that of the row and table of report.md."""
    tables, compared = report_rows(), 0
    others = {
        "majority class": "majority",
        "tf-idf ranking": "tf-idf",
        "tf-idf + logistic regression": "tf-idf, logistic regression",
        "MLM + TLM, 15,000 updates": "MLM + TLM, 15000 updates",
        "MLM + TLM, fine-tuned on English only": "fine-tuned on en only",
        "MLM + TLM, fine-tuned on all languages": "fine-tuned on all languages",
        "tf-idf + logistic regression, English only": "tf-idf, logistic regression, trained on en only",
        "tf-idf + logistic regression, all languages": "tf-idf, logistic regression, trained on all languages",
    }
    for heading, of in (
        ("Claim 1", ["zero-shot nc: accuracy", "zero-shot wpr: ndcg", "sentence retrieval: accuracy"]),
        ("Claim 4", ["nc by languages of fine-tuning: accuracy", "wpr by languages of fine-tuning: ndcg"]),
    ):
        rows = page_rows(heading)
        names = {others.get(name, name): cells for name, cells in rows.items()}
        assert set().union(*(tables[title] for title in of)) == set(names)
        for place, title in enumerate(of):
            for name, cells in names.items():
                row = tables[title].get(name)
                cell = "" if row is None else average(row[:-1] if "retrieval" in title else row)
                assert cells[place] == cell, (title, name)
                compared += bool(cell)
    assert compared == 26


def test_the_summary_of_the_page_has_the_conclusions_of_the_tests():
    claims = json.loads((RESULTS / "claims.json").read_text())
    rows = [row for row in rows_of(page()[: page().index("\n## ")]) if row[0].startswith("[")]
    run = [name for name in claims if isinstance(claims[name], dict) and claims[name]["tests"]]
    assert [re.match(r"\[(\d)\]", row[0])[1] for row in rows] == run and len(run) >= 4
    for name, row in zip(run, rows):
        assert set(re.findall(r"\*\*(.+?)\*\*", row[1])) == set(claims[name]["tests"].values()), name


def test_the_page_has_the_losses_and_bleu_of_the_kept_trainings():
    """The ranges over seeds; the loss of each translation is lowest at its last validation."""
    losses = {name: entry["losses"] for name, entry in KEPT.items() if name.endswith("/en-de/train")}
    of_veco = {name for name in losses if name.startswith("veco/")}
    assert (len(of_veco), len(losses)) == (18, 27)
    assert all(each["loss"] == each["best"] for each in losses.values())
    text = " ".join(page().split())
    for name, model in (("random weights", "random"), ("CLM", "clm"), ("MLM", "mlm")):
        seeds = [losses[f"{model}-{seed}/en-de/train"]["loss"] for seed in (1, 2, 3)]
        assert f"{min(seeds):.2f} to {max(seeds):.2f} from {name}" in text
        scores = [KEPT[f"{model}-{seed}/en-de"]["sacrebleu"]["score"] for seed in (1, 2, 3)]
        (row,) = [row for row in rows_of(page()) if row[0] == name and len(row) == 5]
        assert [cell.strip("*") for cell in row[1:]] == [f"{score:.2f}" for score in (*scores, sum(scores) / 3)]
    assert all(KEPT[name]["updates"] == (1000 if name in of_veco else 3000) for name in losses)


def test_the_page_has_the_cost_of_veco_and_xlm():
    tables, pages = report_rows(), {row[0]: row[1:] for row in rows_of(page()) if len(row) == 4}
    loss = tables["VECO and XLM, validation loss of TLM: bits per masked token"]
    cost = tables["cost of VECO and XLM"]
    assert set(loss) | set(cost) <= set(pages) and len(set(loss) | set(cost)) == 7
    for name in set(loss) | set(cost):
        expected = [loss[name][-1] if name in loss else "", *cost.get(name, ["", ""])]
        assert [cell.strip("*") for cell in pages[name]] == expected, name


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


def test_the_page_has_the_reported_bleu_and_accuracy_of_veco():
    """Of each system in translation the BLEU, of each in nc and of each variant the average, as the report has them."""
    tables, of_page = report_rows(), page_rows("Claim 5")
    bleu, nc = tables["VECO and XLM, en→de: BLEU"], tables["VECO and XLM, zero-shot nc: accuracy"]
    assert {name: cells[0] for name, cells in of_page.items() if cells[0]} == {
        name: cells[0] for name, cells in bleu.items()
    }
    named = {
        "XLM (last layers)": "XLM",
        "XLM (equal CPU time, last layers)": "XLM (equal CPU time)",
        "VECO (last layers)": "VECO",
        "tf-idf + logistic regression": "tf-idf, logistic regression",
        "majority class": "majority",
    }
    assert {named[name]: cells[1] for name, cells in of_page.items() if cells[1]} == {
        name: average(cells) for name, cells in nc.items()
    }
    variants = {
        "VECO (more TLM)": "more TLM",
        "VECO (clipped at 25)": "gradients clipped at 25 in place of 5",
        "VECO (half the learning rate)": "fine-tuned with half the learning rate",
        "VECO (twice the learning rate)": "fine-tuned with twice the learning rate",
    }
    of_variants = {row[0]: row[1] for row in rows_of(page())}
    averages = tables["variants of VECO, zero-shot nc: accuracy"]
    assert {name: averages[name][-1] for name in variants} == {name: of_variants[of] for name, of in variants.items()}


def test_the_page_has_the_kept_bits():
    """Means over the seeds; every model of every seed is below the n-gram model of both neighbors."""
    codes, grams = ("en", "de", "fr", "ru", "zh"), KEPT["n-grams"]
    names = {"n-gram model of both neighbors": "both neighbors", "bigram model": "bigram", "unigram model": "unigram"}
    expected = {name: [[grams[code][model] for code in codes]] for name, model in names.items()}
    for name, model in (("MLM", "mlm"), ("MLM + TLM", "mlm-tlm")):
        losses = [KEPT[f"{model}-{seed}/train"]["losses"] for seed in (1, 2, 3)]
        expected[f"{name}, 10,000 updates, mean of three seeds"] = bits = [
            [of[f"mlm_{code}"] for code in codes] for of in losses
        ]
        assert all(bit < grams[code]["both neighbors"] for seed in bits for code, bit in zip(codes, seed))
    table = {row[0]: [float(cell.strip("*")) for cell in row[1:]] for row in rows_of(page()) if row[0] in expected}
    assert table.keys() == expected.keys() and len(table) == 5
    for name, seeds in expected.items():
        means = [sum(each) / len(seeds) for each in zip(*seeds)]
        assert table[name] == pytest.approx([*means, sum(means) / 5], abs=0.0051), name
    clm = [KEPT[f"clm-{seed}/train"]["losses"] for seed in (1, 2, 3)]
    assert all(of[f"clm_{code}"] < grams[code]["bigram"] for of in clm for code in codes)
    mean, bigram = (
        sum(of[f"clm_{code}"] for of in clm for code in codes) / 15,
        sum(grams[c]["bigram"] for c in codes) / 5,
    )
    assert f"({mean:.2f} on average, bigram {bigram:.2f})" in " ".join(page().split())


def test_the_study_of_ranking_is_that_of_the_kept_scores(capsys):
    report_main([str(EVIDENCE / "ranking.yaml"), str(RESULTS / "ranking.json")])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert len(lines) == 5 and all(line in (RESULTS / "README.md").read_text() for line in lines[2:])
