"""Tables in ``results/`` are what the reports make of the scores that are kept there."""

import functools
import json
import re
from pathlib import Path

import pytest

from recipes.experiment_file import Experiment
from recipes.report import Report, main as report_main

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
ABLATIONS = "xlm,unicoder,without-word_recovery,without-paraphrase,without-cross_lingual_mlm"


@functools.cache
def tables(recipe, *names, **values):
    """Title -> lines of each table that an experiment's report makes of its kept scores."""
    made = Experiment(RECIPES / recipe / "experiment.yaml", [f"{name}={value}" for name, value in values.items()])
    parts = Report(made, [RECIPES / recipe / "results" / f"{name}.json" for name in names]).parts()
    return {part[2].strip("| ").split(" | ")[0]: part[2:] for part in parts}


def page(recipe):
    return (RECIPES / recipe / "results/README.md").read_text(encoding="utf-8")


def kept_scores(recipe, name):
    return json.loads((RECIPES / recipe / f"results/{name}.json").read_text(encoding="utf-8"))


def printed(capsys, recipe, experiment, *names, values=()):
    """What the report of an experiment prints of kept scores."""
    runs = [RECIPES / recipe / f"results/{name}.json" for name in names]
    report_main([str(RECIPES / recipe / f"{experiment}.yaml"), *map(str, runs), *values])
    return capsys.readouterr().out


def of_systems(lines):
    """Lines of a table without those of baselines, whose scores are not kept."""
    return [line for line in lines if not line.endswith("|  |")]


#: folder of a translation system -> its name in the tables of paired tests
SYSTEMS = {
    "unsupervised-mlm": "MLM",
    "unsupervised-clm": "CLM",
    "unsupervised-random": "random weights",
    "half-random": "half of the pages, random weights",
    "tenth-mlm": "a tenth of the pages, MLM",
    "back-translated": "a tenth of the pages, MLM, with back-translation",
    "copy": "source copied",
}
#: tests that the tables leave out
NOT_SHOWN = [{"unsupervised-clm", "copy"}, {"back-translated", "copy"}, {"back-translated", "half-random"}]


def test_figures_of_unicoder_are_those_of_the_kept_scores():
    """All cells of a row but its name, which the text may word otherwise; of qam the averages."""
    text, found = page("unicoder"), tables("unicoder", "comparison", models=ABLATIONS)
    for title in ("nc-cross-lingual: accuracy", "nc-multi-language: accuracy", "minus Unicoder"):
        rows = [row for row in of_systems(found[title])[2:] if not row.startswith(("| majority", "| references"))]
        assert rows and not [row for row in rows if row.split(" | ", 1)[1] not in text], title
    modes = [of_systems(found[f"qam-{mode}: accuracy"]) for mode in ("cross-lingual", "multi-language")]
    assert len(modes[0]) == len(modes[1]) == 2 + len(ABLATIONS.split(","))
    for rows in list(zip(*modes))[2:]:
        averages = " | ".join(row.strip("| ").split(" | ")[-1] for row in rows)
        assert f"| {averages} |" in text


def test_translation_without_parallel_text_has_the_kept_scores():
    """Each direction of a model is a cell "BLEU ± interval" of its row; paired tests are cells, in either order."""
    text, kept = page("xlm"), kept_scores("xlm", "translation")
    for pair, models in (("en-de", 14), ("en-fr", 8)):
        back = "-".join(reversed(pair.split("-")))
        found = {name.rpartition("/")[0] for name in kept if re.fullmatch(f"{pair}/[^/]+/{back}", name)}
        assert len(found) == models
        for model in found:
            scores = [kept[f"{model}/{direction}"]["sacrebleu"] for direction in (pair, back)]
            cells = " | ".join(f"{each['score']:.2f} ± {each['interval']:.2f}" for each in scores)
            assert f"| {cells} |" in text, model
    tests = {name: test for name, test in kept.items() if " against " in name}
    assert len(tests) == 2 * (3 + 6 + 1 + 6)  # unsupervised: seeds 2, without MLM, and 3; supervised: en-de, en-fr
    rows = {line.strip("| ").split(" | ")[0]: line for line in text.splitlines() if line.startswith("| ")}
    for name, test in tests.items():
        one, other = (next(system for system in SYSTEMS if system in side) for side in name.split(" against "))
        if {one, other} not in NOT_SHOWN:
            row, sign = rows.get(f"{SYSTEMS[one]} − {SYSTEMS[other]}"), 1
            if row is None:
                row, sign = rows[f"{SYSTEMS[other]} − {SYSTEMS[one]}"], -1
            assert f"| {sign * test['difference']:+.2f} (p = {test['p']:.3g}) |" in row, name


@pytest.mark.parametrize("pair, seeds", [("en-de", "1,2,3"), ("en-fr", "1")])
def test_means_and_curves_of_unsupervised_translation_are_those_of_the_kept_scores(pair, seeds):
    """Means over several seeds; the validation table."""
    text, found = page("xlm"), tables("xlm", "translation", pairs=pair, seeds=seeds)
    means = [row for row in found[f"{pair}: BLEU"] if row.startswith("| unsupervised") and "," in seeds]
    curves = [row for row in found[f"{pair}: unsupervised, validation"] if row.startswith("| BLEU")]
    assert len(means) == 3 * ("," in seeds) and len(curves) == 6
    for row in means:
        assert f"| mean over three seeds, 95 % interval over them | {row.split(' | ', 1)[1]}" in text
    for row in curves:
        assert f"{pair}, {'three seeds' if ',' in seeds else 'one seed'}: {row.removeprefix('| ')}" in text


@pytest.mark.parametrize("recipe, name", [("xglue", "smoke-understanding"), ("xtreme", "smoke")])
def test_the_smoke_tests_learn_english(recipe, name):
    """Every task is above majority or chance; the last line has the kept averages."""
    text, kept = " ".join(page(recipe).split()), kept_scores(recipe, name)["tasks"]
    assert " ".join(f"{task}={kept[task]['average']}" for task in kept if kept[task]["average"] is not None) in text
    for task, entry in kept.items():
        if english := entry["languages"].get("en"):
            metric = next(name for name in ("ndcg", "f1", "precision", "accuracy") if name in english)
            assert english[metric] > max(english.get("majority", 0), english.get("chance", 0), 60), task


def test_unsupervised_translation_of_the_sample_has_the_kept_scores():
    """From embeddings both directions are above random weights and above the copied source."""
    text, kept = page("xlm"), kept_scores("xlm", "smoke-unmt")
    found = {name: scores["sacrebleu"] for name, scores in kept.items()}
    for model in ("embeddings", "random"):
        cells = [
            f"{found[f'{model}/{pair}'][name]:.2f}" for pair in ("en-de", "de-en") for name in ("score", "interval")
        ]
        assert "| {} ± {} | {} ± {} |".format(*cells) in text
    best = max(found[name]["score"] for name in ("random/en-de", "random/de-en", "copy/en-de"))
    assert min(found[f"embeddings/{pair}"]["score"] for pair in ("en-de", "de-en")) > best


def test_traces_of_failures_are_the_kept_ones():
    text, kept = page("xlm"), kept_scores("xlm", "failures")
    assert len(kept) == 4
    for found in kept.values():
        cells = []
        for name, form in (("bleu", "g"), ("round_trip_bleu", "g"), ("wrong_language", "g"), ("length_ratio", ".2f")):
            cells.append(", ".join(format(found[f"{name}_{direction}"], form) for direction in ("en-de", "de-en")))
        assert f"| {' | '.join(cells)} |" in text


def test_the_guard_has_the_kept_scores():
    """BLEU, chrF and wrong languages with all pieces and with those of the target language."""
    text, kept = page("xlm"), kept_scores("xlm", "target-pieces-only")
    for row in ("all pieces", "target pieces only"):
        entries = [kept[f"{row}/{direction}"] for direction in ("en-de", "de-en")]
        cells = [f"{each['sacrebleu']['score']:.2f} ± {each['sacrebleu']['interval']:.2f}" for each in entries]
        cells += [f"{each['chrf']['score']:.2f}" for each in entries]
        cells += [f"{each['wrong_language']['score']:.1f}" for each in entries]
        assert f"| {' | '.join(cells)} |" in text
    for direction in ("en-de", "de-en"):
        test = kept[f"target pieces only/{direction} against all pieces/{direction}"]
        assert f"{test['difference']:+.2f} (p = {test['p']:.3f})".replace("-", "−") in text


def test_back_translation_has_the_kept_scores_and_tests():
    text, kept = page("xlm"), kept_scores("xlm", "back-translation")
    systems = {name.rpartition("/")[0] for name in kept if name.endswith("/de-en") and " against " not in name}
    assert len(systems) == 4
    for system in systems:
        scores = [kept[f"{system}/{pair}"]["sacrebleu"] for pair in ("en-de", "de-en")]
        row = " | ".join(f"{each['score']:.2f} ± {each['interval']:.2f}" for each in scores)
        if system != "tenth":
            tests = [kept[f"{system}/{pair} against tenth/{pair}"] for pair in ("en-de", "de-en")]
            row += " | " + " | ".join(f"{each['difference']:+.2f} ({each['p']:.3f})" for each in tests)
        assert f"| {row} |".replace("-", "−") in text.replace("-", "−"), system
    for name in ("online", "with", "without"):
        bleu, chrf = (kept[f"synthetic/{name}"][metric] for metric in ("sacrebleu", "chrf"))
        cells = " | ".join(f"{each['score']:.2f} ± {each['interval']:.2f}" for each in (bleu, chrf))
        assert f"| {cells} |" in text


def test_understanding_has_the_kept_scores(capsys):
    """understanding.md has the tables of the report; a row of the page joins averages by seed and of baselines."""
    text = printed(capsys, "lohelp", "understanding", "understanding")
    shown = [line for line in text.splitlines() if line.startswith("| ")]
    pages = [
        (RECIPES / f"lohelp/results/{name}.md").read_text(encoding="utf-8") for name in ("understanding", "README")
    ]
    assert len(shown) == 52 + 6 * 14
    assert sorted(shown) == sorted(line for line in pages[0].splitlines() if line.startswith("| "))
    averages, metric = {}, ""
    for line in shown:
        name, *cells = line.strip("| ").split(" | ")
        if cells[0] == "en":
            metric = name
            averages[metric] = {}
        elif "---" not in name:
            averages[metric][name] = cells[-1]
    words = {
        "wpr: ndcg": "wpr: nDCG",
        "ui: f1": "ui: F1 of spans",
        "qa: f1": "qa: F1",
        "qa: exact_match": "qa: exact match",
    }
    for metric in list(averages)[:6]:
        by_seed = averages[f"{metric}, by seed"]
        models = list(dict.fromkeys(name.rpartition(", seed ")[0] for name in by_seed))
        cells = [", ".join(by_seed[f"{model}, seed {seed}"] for seed in (1, 2, 3)) for model in models]
        baselines = {name: average for name, average in averages[metric].items() if name not in models}
        shorter = {
            name.replace(", logistic regression", "").replace(" in common", ""): baselines[name] for name in baselines
        }
        cells.append("; ".join(f"{name} {average}" for name, average in shorter.items()))
        task, _, score = words.get(metric, metric).partition(": ")
        assert f"| `{task}`: {score} | {' | '.join(cells)} |\n" in pages[1], metric


def test_xlm_with_the_lower_rate_has_the_kept_scores():
    kept, found = kept_scores("lohelp", "understanding-lower-rate"), []
    for name, metric in (("xlm/nc-3", "accuracy"), ("xlm/ui-3", "f1")):
        languages = kept[name]["languages"]
        found.append(sum(languages[code][metric] for code in ("de", "es", "fr", "ru", "zh")) / 5)
    text = " ".join(page("lohelp").split())
    assert f"has {found[0]:.1f} % in `nc` and {found[1]:.1f} F1 in `ui`" in text


#: recipe, experiment: files of kept scores, values, rows of the report, their number, other words of the page
REPORTED = {
    ("monotrans", "experiment"): (
        *([f"understanding-{number}" for number in (1, 2, 3)], ["models=tokens", "seeds=1"]),
        *(r"\| (?!---|.*average of)", 13, {"| tokens |": "| MonoTrans |", "spans of en": "English spans"}),
    ),
    ("veco", "ablation-lohelp"): (["ablation"], ["others=de,es,fr,ru,zh"], r"\| .* \| \d\d\.\d", 6, {}),
    ("xlm", "many-to-many"): (["many-to-many"], [], r"\| (temperature \d|source copied) \|", 3, {}),
    ("xlm", "low-resource-toy"): (["low-resource"], [], r"\| (.+) \| ([\d.]+) \| ([\d.]+) \|$", 5, {}),
}


@pytest.mark.parametrize("recipe, experiment", REPORTED)
def test_rows_of_the_page_are_those_of_the_report(recipe, experiment, capsys):
    """Where there are intervals over seeds or pre-trainings, the page leaves out those over examples."""
    names, values, row, number, words = REPORTED[recipe, experiment]
    shown = printed(capsys, recipe, experiment, *names, values=values)
    shown = re.sub(r"\((?:seeds|pre-trainings) ([\d.–]+)(; examples [\d.–]+)?\)", r"(\1)", shown)
    for old, new in {"(examples ": "(", **words}.items():
        shown = shown.replace(old, new)
    rows = [line for line in shown.splitlines() if re.match(row, line)]
    if experiment == "low-resource-toy":  # perplexities of words are rounded
        rows = [re.sub(r"([\d.]+) \|$", lambda match: f"{float(match[1]):,.0f} |", line) for line in rows]
    assert len(rows) == number and not [line for line in rows if line not in page(recipe)]


def test_word_embeddings_have_the_kept_scores(capsys):
    """A row of the text joins three of the report: all pairs, random pairs, pairs without a common piece."""
    found, text = {}, page("xlm")
    for line in printed(capsys, "xlm", "word-embeddings", "word-embeddings").splitlines():
        name, *cells = line.strip("| ").split(" | ")
        if len(cells) == 3 and cells[0][:1] == "0":
            found[name] = cells
    systems = [name for name in found if "," not in name]
    for name in systems:
        (cosine, l2, nearest), apart, random = (
            found[f"{name}{kind}"] for kind in ("", ", without common pieces", ", random pairs")
        )
        cells = [cosine, random[0], l2, random[1], percent(nearest), apart[0], percent(apart[2])]
        assert f"| {' | '.join(cells)} |" in text, name
    assert len(systems) == 5 and len(found) == 15


def percent(cell):
    """``0.128 (0.111–0.145)`` -> ``12.8 (11.1–14.5)``; without the interval if it has no width."""
    shown = re.sub(r"\d\.\d{3}", lambda match: f"{100 * float(match[0]):.1f}", cell)
    return shown.split(" ")[0] if len(set(re.findall(r"[\d.]+", shown))) == 1 else shown


@pytest.mark.parametrize(
    "name, threads", [("back-translation", "one thread"), ("back-translation-two-threads", "two threads")]
)
def test_the_share_of_generation_is_the_kept_one(name, threads):
    """At most half of a step of back-translation is generation."""
    share, text = kept_scores("benchmark", name)["share"], page("benchmark")
    median, low, high = (f"{100 * share[key]:.0f}" for key in ("median", "low", "high"))
    assert f"| CPU, {threads} | {median} % ({low}–{high}) |" in text and share["high"] < 0.5


def ratio_cell(ratio):
    return f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


@pytest.mark.parametrize("name", ["benchmark", "benchmark-6x512"])
def test_the_steps_on_a_gpu_are_the_kept_ones(name):
    """Speed, share of the peak, the output layer's speed and memory of the first case."""
    text, case = (
        page("benchmark").replace("**", ""),
        next(iter(kept_scores("benchmark", f"h100/{name}")["cases"].values())),
    )
    output_layer, memory = case["output_layer"]["times_fairseq"], case["peak_mib"]
    for system, speed in case["tokens_per_second"].items():
        cells = [f"{speed:,.0f}", "1" if system == "fairseq" else "", f"{case['share_of_peak'][system]:.2f}", ""]
        if system in memory:
            if system != "fairseq":
                cells[1] = ratio_cell(case["times_fairseq"][system])
            cells[3] = "1" if system == "fairseq" else ratio_cell(output_layer[system])
            cells.append(f"{memory[system]:,.0f}")
        assert " | ".join(cells).replace("|  |", "| |") in text, system


def test_beam_search_on_a_gpu_is_the_kept_one():
    text = page("benchmark").replace("**", "")
    float32, bf16 = (kept_scores("benchmark", f"h100/beam-search{name}")["cases"] for name in ("", "-bf16"))
    for case, tokens in {"short": 25, "long": 250}.items():
        cells = [ratio_cell(each[case]["times_fairseq"]) for each in (float32, bf16)]
        assert f"| outputs of {tokens} tokens | {' | '.join(cells)} |" in text
        assert float32[case]["same_outputs"] == 1 and f"{bf16[case]['same_outputs']:.2f} of the" in text


XGLUE = {  # file of kept scores -> values, number of rows
    "comparison": ([], 2 * 4 * 4 + 2 * 4),
    "last-checkpoint": (["modes=pivot", "scores=rouge_l,wrong_language"], 2 * 4),
    "lower-rate": (["modes=pivot", "models=xdae", "scores=rouge_l"], 1),
}


@pytest.mark.parametrize("name", XGLUE)
def test_titles_are_made_of_the_kept_scores_without_the_corpus(name, capsys):
    """All cells of a row but its name, which the text may word otherwise."""
    values, number = XGLUE[name]
    shown, text = printed(capsys, "xglue", "experiment", name, values=values), page("xglue")
    rows = [line.split(" | ", 1) for line in shown.splitlines() if re.match(r"\| (random|XLM|xDAE|xFNP)", line)]
    assert len(rows) == number and "first words" not in shown and "   - source" not in shown
    if name != "lower-rate":
        assert not [cells for _, cells in rows if cells not in text]
    else:
        average = rows[0][1].strip("| ").split(" | ")[-1].split(" ")[0]
        assert f"on average it is {average} and 3.7" in text


@pytest.mark.parametrize("name, number", [("run-2", 2 * 4), ("run-3", 2 * 1)])
def test_the_ladder_is_that_of_the_kept_scores(name, number, capsys):
    """All cells of a row but its name, with intervals over seeds; of JointPair those of its languages."""
    shown, text = printed(capsys, "monotrans", "experiment", name, values=["tasks=nc,qam"]), page("monotrans")
    shown = re.sub("; examples [^)]*", "", shown).replace("(seeds ", "(")
    rows = [line.split(" | ", 1)[1] for line in shown.splitlines() if re.match(r"\| [\w+ ,]+ \| \d+\.\d", line)]
    assert len(rows) == number and not [row for row in rows if row not in text]
    pairs = [line.split(" | ", 1)[1].strip("| ") for line in shown.splitlines() if "separate vocabularies" in line]
    assert [bool(cells) and cells in text for cells in pairs] == [name == "run-2"] * 2


def test_a_difference_over_pretrainings_is_that_of_the_text():
    values = {"models": "unicoder,without-paraphrase", "tasks": "nc", "modes": "multi-language"}
    found = tables("unicoder", "comparison", "pretraining-seed-2", **values)
    (row,) = found["minus Unicoder"][2:]
    assert row == "| without paraphrase classification | +1.2 ± 3.9 |"
    text = page("unicoder")
    assert f"{row.rstrip('|').split('| ')[-1].strip()} over two" in text
    cells = [line.strip("| ").split(" | ") for line in of_systems(found["nc-multi-language: accuracy"])[2:]]
    for name, *_, average in cells:
        line = next(
            line
            for line in text[text.index("| nc, all | pre-training 1 |") :].splitlines()
            if line.startswith(f"| {name} |")
        )
        assert average.startswith(line.strip("| ").split(" | ")[-1])
