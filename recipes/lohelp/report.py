"""Tables of a comparison from its score files: ``python recipes/lohelp/report.py OUTPUT --models … --langs … …``.

Prints them and writes OUTPUT/report.md. What was not run is an empty cell.
"""

import argparse
import itertools
import json
import statistics
import sys
from pathlib import Path

from scipy.stats import t as student

NAMES = {
    "random": "random",
    "clm": "CLM",
    "mlm": "MLM",
    "mlm-tlm": "MLM + TLM",
    "xlm": "XLM (MLM + TLM)",
    "xlm-last": "XLM, last layers",
    "veco": "VECO",
    "veco-first": "VECO, first layers",
    "veco-last": "VECO, last layers",
    "xdae": "xDAE",
    "xfnp": "xFNP",
    "start": "what all go on from",
    "unicoder": "Unicoder",
    "without-word_recovery": "without word recovery",
    "without-paraphrase": "without paraphrase classification",
    "without-cross_lingual_mlm": "without cross-lingual MLM",
}
TASKS = {
    "nc": "Which application a passage is about",
    "qam": "Whether a paragraph belongs to a heading",
}
#: the folders MODEL/TASK-SEED or MODEL/TASK-MODE-SEED, by MODE: languages that are trained on, baseline
MODES = {
    "": ("{source}", "zero_shot"),
    "cross-lingual": ("{source}", "zero_shot"),
    "multi-language": ("all languages together", "in_language"),
}


def existing(name):
    """The folder of that name; argparse tells of it if there is none."""
    if not (folder := Path(name)).is_dir():
        raise argparse.ArgumentTypeError(f"{name}: no such folder")
    return folder


def read(path):
    """A JSON file, or None if there is none."""
    return json.loads(path.read_text()) if path.is_file() else None


def over_seeds(values, sign=""):
    """Mean and half the width of its 95 % interval (Student's t) -> "m ± h"; one value has no interval."""
    mean = f"{statistics.mean(values):{sign}.1f}"
    if len(values) == 1:
        return mean
    error = statistics.stdev(values) / len(values) ** 0.5
    return f"{mean} ± {student.ppf(0.975, len(values) - 1) * error:.1f}"


def table(header, rows):
    """Cells -> lines of a Markdown table."""
    rows = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(map(str, row)) + " |" for row in rows]


def translation(folder, models, targets):
    """BLEU with the half width of its bootstrap interval, a row for each model and one for the copied source."""
    rows = []
    for model in [*models, "copy"]:
        row = [NAMES.get(model, "source copied")]
        for target in targets:
            name = f"copy.en-{target}.json" if model == "copy" else f"{model}/en-{target}/bleu.json"
            found = read(folder / name)
            row.append(f"{found['sacrebleu']['score']:.2f} ± {found['sacrebleu']['interval']:.2f}" if found else "")
        rows.append(row)
    return table(["BLEU", *(f"en→{target}" for target in targets)], rows)


def scores_of(folder, model, task, languages, seeds):
    """A model's scores with each seed; None if they are not there for all seeds and languages."""
    scores = [read(folder / model / f"{task}-{seed}" / "scores.json") for seed in seeds]
    return scores if all(found and found["languages"].keys() >= set(languages) for found in scores) else None


def averages_of(scores, languages):
    """The average accuracy of the languages with each seed."""
    return [statistics.mean(found["languages"][language]["accuracy"] for language in languages) for found in scores]


def classification(folder, models, task, languages, seeds, baseline=None):
    """Accuracy for each language and on average, over seeds; a model without all seeds and languages has no figures.

    `baseline`: accuracy of each language between 0 and 1, for a row of its own.
    """
    rows, majority = [], [""] * (len(languages) + 1)
    for model in models:
        scores = scores_of(folder, model, task, languages, seeds)
        if scores is None:
            rows.append([NAMES[model]] + [""] * (len(languages) + 1))
            continue
        by_language = [[found["languages"][language]["accuracy"] for found in scores] for language in languages]
        averages = averages_of(scores, languages)
        rows.append([NAMES[model], *map(over_seeds, by_language), over_seeds(averages)])
        shares = [scores[0]["languages"][language]["majority"] for language in languages]
        majority = [f"{share:.1f}" for share in (*shares, statistics.mean(shares))]
    if baseline:
        shares = [100 * baseline[language] for language in languages]
        rows.append(["tf-idf, logistic regression", *(f"{share:.1f}" for share in (*shares, statistics.mean(shares)))])
    return table([f"{task}: accuracy", *languages, "average"], [*rows, ["majority", *majority]])


def differences(folder, models, against, tasks, languages, seeds):
    """How much better than the model `against` each other one is with the same seed, on average over the languages."""
    rows = []
    for model in (model for model in models if model != against):
        row = [NAMES[model]]
        for task in tasks:
            both = [scores_of(folder, each, task, languages, seeds) for each in (model, against)]
            pairs = [] if None in both else zip(*(averages_of(scores, languages) for scores in both))
            found = [own - other for own, other in pairs]
            row.append(over_seeds(found, sign="+") if found else "")
        rows.append(row)
    return table([f"minus {NAMES[against]}", *tasks], rows)


def tokens_read(folder, models):
    """Updates of pre-training, tokens of text in one, and their product, from each model's train.log."""
    rows = []
    for model in models:
        path, epochs = folder / model / "train.log", {}
        for line in path.read_text().splitlines() if path.is_file() else ():
            if line.startswith("{") and '"train_wpb"' in line:  # the last entry of an epoch that was begun twice
                entry = json.loads(line)
                epochs[entry["epoch"]] = int(entry["train_num_updates"]), float(entry["train_wpb"])
        if not epochs:
            continue
        before, tokens = 0, 0.0
        for updates, size in epochs.values():
            before, tokens = updates, tokens + (updates - before) * size
        rows.append([NAMES[model], f"{before:,}", f"{tokens / before:,.0f}", f"{tokens / 1e6:.2f}"])
    return table(["pre-training", "updates", "tokens an update", "million tokens"], rows) if rows else []


def accuracies(path, task, kind, languages):
    """What the corpus has as a baseline of a task, accuracy by language; None if it has none for all languages."""
    found = (read(path) or {}).get(task, {}) if path else {}
    return {code: found[code][kind]["accuracy"] for code in languages} if found.keys() >= set(languages) else None


def retrieval(folder, models, languages):
    """Accuracy over both directions with the margin score, and the layer that the validation pairs chose."""
    rows, names = [], [f"{languages[0]}-{language}" for language in languages[1:]]
    for model in models:
        found = read(folder / model / "retrieval/scores.json")
        if not found or not found["test"].keys() >= set(names):
            rows.append([NAMES[model]] + [""] * (len(names) + 2))
            continue
        both = [list(found["test"][name]["margin"].values()) for name in names]
        means = [statistics.mean(entry["accuracy"] for entry in directions) for directions in both]
        halves = [statistics.mean(half(entry["interval"]) for entry in directions) for directions in both]
        cells = [f"{mean:.1f} ± {width:.1f}" for mean, width in zip(means, halves)]
        layer = f"{found['layer']}, {found['pooling']}"
        rows.append([NAMES[model], *cells, f"{statistics.mean(means):.1f}", layer])
    return table(["retrieval", *names, "average", "layer, pooling"], rows)


def half(interval):
    """Half the width of an interval."""
    return (interval[1] - interval[0]) / 2


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=existing)
    for name in ("models", "langs", "seeds"):
        parser.add_argument(f"--{name}", type=lambda names: names.split(","), required=True)
    for name, default in (("targets", []), ("translations", []), ("modes", [""])):
        parser.add_argument(f"--{name}", type=lambda names: names.split(","), default=default)
    parser.add_argument("--against", default="unicoder", help="with --modes: the model whose accuracy is subtracted")
    parser.add_argument("--baseline", type=Path, help="baseline.json of the corpus")
    options = parser.parse_args()
    folder, languages = options.output, options.langs
    several = f"{len(options.seeds)} fine-tuning seed{'s' * (len(options.seeds) > 1)}"
    seeds = f"mean over {several}, one pre-training run, and 95 % interval (Student's t)"
    parts = []
    if options.targets:
        parts.append(["sacreBLEU; ± half the 95 % bootstrap interval over the test lines, one seed."])
        parts.append(translation(folder, options.translations or options.models, options.targets))
    for (task, caption), mode in itertools.product(TASKS.items(), options.modes):
        trained, kind = MODES[mode]
        trained, named = trained.format(source=languages[0]), f"{task}-{mode}" if mode else task
        parts.append([f"{caption}; trained on {trained}, best epoch by all languages' validation; {seeds}."])
        baseline = accuracies(options.baseline, task, kind, languages)
        parts.append(classification(folder, options.models, named, languages, options.seeds, baseline))
    if options.modes != [""] and options.against in options.models:
        tasks = [f"{task}-{mode}" for task, mode in itertools.product(TASKS, options.modes)]
        parts.append([f"Differences of the averages with one seed; {seeds}, of the differences."])
        parts.append(differences(folder, options.models, options.against, tasks, languages, options.seeds))
    if options.modes != [""] and (found := tokens_read(folder, options.models)):
        parts.append(["What was read in pre-training, padding left out."])
        parts.append(found)
    if options.targets:
        parts.append(["Retrieval, both directions; ± the mean of their half 95 % bootstrap intervals, an upper bound."])
        parts.append(retrieval(folder, options.models, languages))
    text = "\n\n".join("\n".join(part) for part in parts) + "\n"
    (folder / "report.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
