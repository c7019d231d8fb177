"""The ladder of MonoTrans beside joint models: ``python -m recipes.monotrans.report OUTPUT … --models … …``.

Prints tables from the score files of run.sh and writes OUTPUT/report.md. OUTPUT may also be a JSON file of
``results/``, and several are the same models from several pre-trainings. What was not run is an empty cell.
"""

import argparse
import statistics
import sys

from recipes.lohelp.report import (
    TASKS,
    accuracies,
    baseline_row,
    existing,
    mean_share,
    over_what,
    scores_of,
    table,
    units,
)

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


def scores(folder, model, task, languages, seed):
    """Scores in all languages with one seed; of joint models the first language's accuracy is the mean over pairs.

    None where a file or a language is missing.
    """
    if model not in JOINT:
        return scores_of(folder, model, task, languages, seed)
    source, *targets = languages
    found = [scores_of(folder, f"{model}/{target}", task, [source, target], seed) for target in targets]
    if None in found:
        return None
    merged = {code: each["languages"][code] for each, code in zip(found, targets)}
    mean = statistics.mean(each["languages"][source]["accuracy"] for each in found)
    return {"languages": merged | {source: found[0]["languages"][source] | {"accuracy": mean}}}


def ladder(outputs, models, task, languages, seeds, baseline=None):
    """Accuracy in each language and, on average, in those but the first, over `units`.

    `baseline`: the name and the cells of a row of its own.
    """
    rows, majority = [], None
    columns = [*([code] for code in languages), languages[1:]]
    for model in models:
        groups = units(outputs, seeds, lambda output, seed: scores(output, model, task, languages, seed))
        cells = [""] * len(columns)
        if groups:
            cells = [mean_share(accuracies(groups, column)) for column in columns]
            majority = [groups[0][0]["languages"][code].get("majority") for code in languages]
        rows.append([NAMES[model], *cells])
    rows += filter(None, [baseline])
    if majority and None not in majority:
        rows.append(["majority", *(f"{share:.1f}" for share in (*majority, statistics.mean(majority[1:])))])
    return table([f"{task}: accuracy", *languages, f"average but {languages[0]}"], rows)


def main():
    parser = argparse.ArgumentParser("python -m recipes.monotrans.report", description=__doc__.split("\n")[0])
    parser.add_argument("output", type=existing, nargs="+", help="what run.sh wrote, from one pre-training each")
    for name in ("models", "langs", "seeds"):
        parser.add_argument(f"--{name}", type=lambda names: names.split(","), required=True)
    parser.add_argument("--corpus", type=existing, help="the corpus folder, for baselines without a model")
    options = parser.parse_args()
    outputs, languages, parts = options.output, options.langs, []
    for task, caption in TASKS.items():
        text = f"{caption}; trained on {languages[0]}, best epoch by its validation alone; "
        parts.append(
            [f"{text}{over_what(outputs, options.seeds)} (t, logit scale); one language module of each language."]
        )
        baseline = baseline_row(options.corpus, task, languages, averaged=languages[1:]) if options.corpus else None
        parts.append(ladder(outputs, options.models, task, languages, options.seeds, baseline))
    text = "\n\n".join("\n".join(part) for part in parts) + "\n"
    if outputs[0].is_dir():
        (outputs[0] / "report.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
