"""Tables of a comparison from its score files: ``python -m recipes.lohelp.report OUTPUT … --models … …``.

Prints them and, if OUTPUT is a folder of run.sh, writes OUTPUT/report.md. OUTPUT may also be a JSON file of
``results/``, which holds the score files of such a folder. Several OUTPUTs are the same models from several
pre-trainings. What was not run is an empty cell.
"""

import argparse
import itertools
import json
import math
import re
import statistics
import sys
from pathlib import Path

from scipy.stats import t as student

from fairseq_xl import error_reporting

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
#: the folders MODEL/TASK-SEED or MODEL/TASK-MODE-SEED, by MODE: the languages that are trained on
MODES = {"": "{source}", "cross-lingual": "{source}", "multi-language": "all languages together"}
#: by task: the baseline of `fairseq_xl.evaluation.baselines`, its row
BASELINES = {
    "nc": ("classification", "tf-idf, logistic regression"),
    "qam": ("pairs", "n-grams in common and lengths, logistic regression"),
}


def existing(name):
    """The folder or file of that name; argparse tells of it if there is none."""
    if not (output := Path(name)).exists():
        raise argparse.ArgumentTypeError(f"{name}: no such folder")
    return output


def read(path):
    """A JSON file, or None if there is none; of FILE.json/MODEL/TASK/scores.json what FILE.json has as MODEL/TASK."""
    for kept in path.parents:
        if kept.is_file():
            name = path.relative_to(kept).with_suffix("").as_posix()
            return json.loads(kept.read_text()).get(re.sub("/(scores|bleu)$", "", name))
    return json.loads(path.read_text()) if path.is_file() else None


def between(value, low, high):
    """A value and its interval -> "v (l–h)"."""
    return f"{value:.1f} ({low:.1f}–{high:.1f})"


def standard_error(values):
    """The mean's standard error, times Student's t for 95 %."""
    return student.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5


def mean_share(values):
    """Scores from 0 to 100 -> their mean and its 95 % interval, "m (l–h)"; of one or of equal ones the mean alone.

    The interval is Student's t on the logit scale by the delta method, logit m ± t s / (m (1 - m)), and back: it lies
    within 0 and 100, as that of the mean itself does not, and is the same where the error s is small.
    """
    mean = statistics.mean(values)
    if len(set(values)) == 1:
        return f"{mean:.1f}"
    share = mean / 100
    middle, width = math.log(share / (1 - share)), standard_error(values) / 100 / (share * (1 - share))
    return between(mean, *(50 * (1 + math.tanh((middle + side) / 2)) for side in (-width, width)))


def mean_difference(values):
    """Differences -> their mean and half its 95 % interval (Student's t), "+m ± h"; one has no interval."""
    mean = f"{statistics.mean(values):+.1f}"
    return mean if len(values) == 1 else f"{mean} ± {standard_error(values):.1f}"


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


def paired(output, models, targets, corpus):
    """How much better each model's BLEU is than each one's before it, and p of sacreBLEU's paired bootstrap.

    None where fewer than two models have translations. `corpus`: the corpus folder, which has the references.
    """
    from fairseq_xl.evaluation.bleu import paired, read_lines, tokenizer_of

    rows = {}
    for target in targets:
        files = {model: output / model / f"en-{target}/hypotheses.{target}" for model in models}
        written = {model: read_lines(path) for model, path in files.items() if path.is_file()}
        references = read_lines(corpus / f"bitext/test.en-{target}.{target}")
        for other, model in itertools.combinations(written, 2):
            found = paired(written[model], written[other], references, tokenizer_of(target))
            row = rows.setdefault((model, other), [f"{NAMES[model]} − {NAMES[other]}", *[""] * len(targets)])
            row[1 + targets.index(target)] = f"{found['difference']:+.2f} (p = {found['p']:.3f})"
    return table(["BLEU, difference", *(f"en→{target}" for target in targets)], rows.values()) if rows else None


def scores_of(output, model, task, languages, seed):
    """A model's scores with one seed; None if they are not there for all languages."""
    found = read(output / model / f"{task}-{seed}" / "scores.json")
    return found if found and found["languages"].keys() >= set(languages) else None


def units(outputs, seeds, scores):
    """Scores in groups, one for each value that an interval is of; None if a seed of a pre-training is missing.

    From one pre-training they are the fine-tuning seeds, one by one. From several they are the pre-trainings: the seeds
    of one are nested in it, and only their mean counts. `scores`: function of an output and a seed.
    """
    runs = [[scores(output, seed) for seed in seeds] for output in outputs]
    if any(None in run for run in runs):
        return None
    return runs if len(runs) > 1 else [[found] for found in runs[0]]


def accuracies(groups, languages):
    """`units` -> of each of them the mean accuracy over languages and seeds."""
    return [
        statistics.mean(found["languages"][code]["accuracy"] for found in group for code in languages)
        for group in groups
    ]


def classification(outputs, models, task, languages, seeds, baseline=None):
    """Accuracy for each language and on average, over `units`; a model without all seeds and languages has no figures.

    `baseline`: the name and the cells of a row of its own.
    """
    rows, majority = [], [""] * (len(languages) + 1)
    columns = [*([code] for code in languages), languages]
    for model in models:
        groups = units(outputs, seeds, lambda output, seed: scores_of(output, model, task, languages, seed))
        if groups is None:
            rows.append([NAMES[model]] + [""] * len(columns))
            continue
        rows.append([NAMES[model], *(mean_share(accuracies(groups, column)) for column in columns)])
        shares = [groups[0][0]["languages"][language].get("majority") for language in languages]
        if None not in shares:
            majority = [f"{share:.1f}" for share in (*shares, statistics.mean(shares))]
    rows += [*filter(None, [baseline]), ["majority", *majority]]
    return table([f"{task}: accuracy", *languages, "average"], rows)


def differences(outputs, models, against, tasks, languages, seeds):
    """How much better than the model `against` each other one is, unit by unit, on average over the languages."""
    rows = []
    for model in (model for model in models if model != against):
        row = [NAMES[model]]
        for task in tasks:
            both = [
                units(outputs, seeds, lambda output, seed: scores_of(output, each, task, languages, seed))
                for each in (model, against)
            ]
            pairs = [] if None in both else zip(*(accuracies(groups, languages) for groups in both))
            found = [own - other for own, other in pairs]
            row.append(mean_difference(found) if found else "")
        rows.append(row)
    return table([f"minus {NAMES[against]}", *tasks], rows)


def tokens_read(folder, models):
    """Updates of pre-training, tokens of text in one, and their product, from each model's train.log."""
    rows = []
    for model in models:
        path, epochs = folder / model / "train.log", {}
        for line in path.read_text().splitlines() if path.is_file() else ():
            if '"train_wpb"' in line:  # the last entry of an epoch that was begun twice
                entry = json.loads(line[line.index("{") :])
                epochs[entry["epoch"]] = int(entry["train_num_updates"]), float(entry["train_wpb"])
        if not epochs:
            continue
        before, tokens = 0, 0.0
        for updates, size in epochs.values():
            before, tokens = updates, tokens + (updates - before) * size
        rows.append([NAMES[model], f"{before:,}", f"{tokens / before:,.0f}", f"{tokens / 1e6:.2f}"])
    return table(["pre-training", "updates", "tokens an update", "million tokens"], rows) if rows else []


def baseline_row(corpus, task, languages, each=False, averaged=None):
    """The row of a task's baseline, trained on the first language or, with `each`, on each language alone.

    `corpus`: the corpus folder; `averaged`: the languages of the average, all by default.
    """
    from fairseq_xl.evaluation.baselines import classify
    from fairseq_xl.evaluation.classification import score

    name, row = BASELINES[task]
    folders = [corpus / "tasks" / task, corpus / "tasks" / task / "translate_train"]
    found = classify(name, folders, languages, [] if each else languages[:1], "test")
    shares = {code: score(*found[code][:2])["accuracy"] for code in languages}
    mean = statistics.mean(shares[code] for code in averaged or languages)
    return [row + ", each language alone" * each, *(f"{share:.1f}" for share in (*shares.values(), mean))]


def over_directions(entry):
    """Scores of either direction -> the mean accuracy, and the means of the bounds of the bootstrap intervals."""
    return [statistics.mean(values) for values in zip(*([way["accuracy"], *way["interval"]] for way in entry.values()))]


def retrieval(output, models, languages, corpus=None):
    """Accuracy over both directions with the margin score, and the layer that the validation pairs chose.

    `corpus`: the corpus folder, for a row of tf-idf.
    """
    rows, names = [], [f"{languages[0]}-{language}" for language in languages[1:]]
    found = {NAMES[model]: read(output / model / "retrieval/scores.json") for model in models}
    if corpus:
        from fairseq_xl.evaluation.baselines import similarity
        from fairseq_xl.evaluation.retrieval import evaluate_similarity, read_pairs

        sides = {name: read_pairs(corpus / "tasks/retrieval" / name, *name.split("-")) for name in names}
        test = {name: evaluate_similarity(similarity(*pair)) for name, pair in sides.items()}
        found["tf-idf of character n-grams"] = {"layer": "", "pooling": "", "test": test}
    for name, scores in found.items():
        if not scores or not scores["test"].keys() >= set(names):
            rows.append([name] + [""] * (len(names) + 2))
            continue
        cells = [over_directions(scores["test"][pair]["margin"]) for pair in names]
        layer = f"{scores['layer']}, {scores['pooling']}".strip(", ")
        average = statistics.mean(mean for mean, _, _ in cells)
        rows.append([name, *(between(*cell) for cell in cells), f"{average:.1f}", layer])
    return table(["retrieval", *names, "average", "layer, pooling"], rows)


def over_what(outputs, seeds):
    """What means and intervals are over, for captions."""
    several = f"{len(seeds)} fine-tuning seed{'s' * (len(seeds) > 1)}"
    if len(outputs) == 1:
        return f"mean over {several}, one pre-training run, and 95 % interval over these seeds"
    means = f"mean over {len(outputs)} pre-trainings, of each the mean over {several}"
    return f"{means}, and 95 % interval over the pre-trainings"


def main():
    parser = argparse.ArgumentParser("python -m recipes.lohelp.report", description=__doc__.split("\n")[0])
    parser.add_argument("output", type=existing, nargs="+", help="what run.sh wrote, from one pre-training each")
    for name in ("models", "langs", "seeds"):
        parser.add_argument(f"--{name}", type=lambda names: names.split(","), required=True)
    for name, default in (("targets", []), ("translations", []), ("modes", [""])):
        parser.add_argument(f"--{name}", type=lambda names: names.split(","), default=default)
    parser.add_argument("--against", default="unicoder", help="with --modes: the model whose accuracy is subtracted")
    parser.add_argument("--corpus", type=existing, help="the corpus folder, for baselines and paired tests")
    options = parser.parse_args()
    outputs, languages = options.output, options.langs
    seeds = over_what(outputs, options.seeds)
    parts = []
    if options.targets:
        parts.append(["sacreBLEU; ± half the 95 % bootstrap interval over the test lines, one seed."])
        translated = options.translations or options.models
        parts.append(translation(outputs[0], translated, options.targets))
        if options.corpus and (found := paired(outputs[0], translated, options.targets, options.corpus)):
            parts.append(["sacreBLEU's paired bootstrap over the test lines; one seed, whose share it does not test."])
            parts.append(found)
    for (task, caption), mode in itertools.product(TASKS.items(), options.modes):
        trained, named = MODES[mode].format(source=languages[0]), f"{task}-{mode}" if mode else task
        parts.append(
            [f"{caption}; trained on {trained}, best epoch by all languages' validation; {seeds} (t, logit scale)."]
        )
        each = mode == "multi-language"
        baseline = baseline_row(options.corpus, task, languages, each) if options.corpus else None
        parts.append(classification(outputs, options.models, named, languages, options.seeds, baseline))
    if options.modes != [""] and options.against in options.models:
        tasks = [f"{task}-{mode}" for task, mode in itertools.product(TASKS, options.modes)]
        parts.append([f"Differences of the averages; {seeds}, of the differences (Student's t)."])
        parts.append(differences(outputs, options.models, options.against, tasks, languages, options.seeds))
    if options.modes != [""] and (found := tokens_read(outputs[0], options.models)):
        parts.append(["What was read in pre-training, padding left out."])
        parts.append(found)
    if options.targets:
        bounds = "the means of the bounds of their 95 % bootstrap intervals"
        parts.append([f"Retrieval: the mean of both directions, and {bounds}."])
        parts.append(retrieval(outputs[0], options.models, languages, options.corpus))
    text = "\n\n".join("\n".join(part) for part in parts) + "\n"
    if outputs[0].is_dir():
        (outputs[0] / "report.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    error_reporting.install()
    main()
