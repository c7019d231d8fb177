"""The ladder of MonoTrans beside joint models: ``python -m recipes.monotrans.report OUTPUT --models … --langs …``.

Prints tables from the score files of run.sh and writes OUTPUT/report.md. What was not run is an empty cell.
"""

import argparse
import statistics
import sys
from pathlib import Path

from recipes.lohelp.report import TASKS, accuracies, existing, over_seeds, read, table

NAMES = {
    "tokens": "tokens",
    "positions": "+ positions",
    "noise": "+ noise",
    "adapters": "+ adapters",
    "joint": "two languages jointly, one vocabulary",
    "disjoint": "two languages jointly, vocabularies apart",
    "multi": "all languages jointly, one vocabulary",
    "clwe": "mapped embeddings",
}
JOINT = ("joint", "disjoint")  # a model for each target: OUTPUT/MODEL/TARGET/TASK-SEED
#: the paper's averages over languages (M9, M10)
PAPER = {
    "tokens": ("67.8", "81.2", "86.0"),
    "positions": ("69.1", "80.0", "86.9"),
    "noise": ("70.0", "76.7", "82.7"),
    "adapters": ("69.5", "79.3", "82.0"),
    "joint": ("70.4", "", ""),
    "disjoint": ("71.1", "", ""),
    "multi": ("70.5", "", ""),
    "clwe": ("60.1", "", ""),
}


def scores(folder, model, task, languages, seed):
    """{language: its scores} with one seed; of joint models the first language's accuracy is the mean over pairs.

    None where a file or a language is missing.
    """
    source, *targets = languages
    parts = [f"{model}/{target}" for target in targets] if model in JOINT else [model]
    wanted = [[source, target] for target in targets] if model in JOINT else [languages]
    found = [read(folder / part / f"{task}-{seed}" / "scores.json") for part in parts]
    if not all(each and each["languages"].keys() >= set(codes) for each, codes in zip(found, wanted)):
        return None
    merged = {code: each["languages"][code] for each, codes in zip(found, wanted) for code in codes}
    mean = statistics.mean(each["languages"][source]["accuracy"] for each in found)
    return merged | {source: merged[source] | {"accuracy": mean}}


def ladder(folder, models, task, languages, seeds, baseline=None):
    """Accuracy in each language and, on average, in those but the first, over seeds; the paper's figures beside it."""
    rows, majority = [], None
    for model in models:
        found = [scores(folder, model, task, languages, seed) for seed in seeds]
        cells = [""] * (len(languages) + 1)
        if None not in found:
            values = [[each[code]["accuracy"] for each in found] for code in languages]
            averages = [statistics.mean(column) for column in zip(*values[1:])]
            cells = [*map(over_seeds, values), over_seeds(averages)]
            majority = [found[0][code]["majority"] for code in languages]
        rows.append([NAMES[model], *cells, *PAPER[model]])
    for name, shares in (("tf-idf, logistic regression", baseline), ("majority", majority)):
        if shares:
            rows.append([name, *(f"{share:.1f}" for share in (*shares, statistics.mean(shares[1:]))), "", "", ""])
    zero_shot = f"average but {languages[0]}"
    return table([f"{task}: accuracy", *languages, zero_shot, "XNLI", "MLDoc", "PAWS-X"], rows)


def main():
    parser = argparse.ArgumentParser("python -m recipes.monotrans.report", description=__doc__.split("\n")[0])
    parser.add_argument("output", type=existing)
    for name in ("models", "langs", "seeds"):
        parser.add_argument(f"--{name}", type=lambda names: names.split(","), required=True)
    parser.add_argument("--baseline", type=Path, help="baseline.json of the corpus")
    options = parser.parse_args()
    parts = []
    for task, caption in TASKS.items():
        shares = accuracies(options.baseline, task, "zero_shot", options.langs)
        baseline = shares and [100 * shares[code] for code in options.langs]
        text = f"{caption}; trained on {options.langs[0]}, best epoch by its validation alone; mean over "
        text += f"{len(options.seeds)} fine-tuning seed{'s' * (len(options.seeds) > 1)}, one pre-training run and one "
        text += "bank of each language, and 95 % interval (Student's t). The last three columns are the paper's, on "
        text += "other tasks and at another size."
        parts.append([text])
        parts.append(ladder(options.output, options.models, task, options.langs, options.seeds, baseline))
    text = "\n\n".join("\n".join(part) for part in parts) + "\n"
    (options.output / "report.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
