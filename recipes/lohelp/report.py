"""Tables of a comparison from its score files: ``python recipes/lohelp/report.py OUTPUT --models … --langs … …``.

Prints them and writes OUTPUT/report.md. What was not run is an empty cell.
"""

import argparse
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
}
TASKS = {"nc": "module of a passage, zero-shot from English", "qam": "heading and paragraph, zero-shot from English"}


def read(path):
    """A JSON file, or None if there is none."""
    return json.loads(path.read_text()) if path.is_file() else None


def over_seeds(values):
    """Mean and half the width of its 95 % interval (Student's t) -> "m ± h"; one value has no interval."""
    if not values:
        return ""
    mean = f"{statistics.mean(values):.1f}"
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


def classification(folder, models, task, languages, seeds):
    """Accuracy for each language and on average, mean over seeds; the last row is the majority's."""
    rows, majority = [], [""] * (len(languages) + 1)
    for model in models:
        scores = [read(folder / model / f"{task}-{seed}" / "scores.json") for seed in seeds]
        scores = [found for found in scores if found and not found["missing"]]
        row = [over_seeds([found["languages"][language]["accuracy"] for found in scores]) for language in languages]
        rows.append([NAMES[model], *row, over_seeds([found["accuracy"] for found in scores])])
        for found in scores[:1]:
            majority = [found["languages"][language]["majority"] for language in languages] + [found["majority"]]
    return table([f"{task}: accuracy", *languages, "average"], [*rows, ["majority", *majority]])


def retrieval(folder, models, languages):
    """Accuracy over both directions with the margin score, and the layer that the validation pairs chose."""
    rows = []
    for model in models:
        found = read(folder / model / "retrieval.json")
        if found is None:
            rows.append([NAMES[model]] + [""] * (len(languages) + 1))
            continue
        cells = []
        for language in languages[1:]:
            directions = found["test"][f"{languages[0]}-{language}"]["margin"].values()
            cells.append(f"{statistics.mean(entry['accuracy'] for entry in directions):.1f}")
        rows.append([NAMES[model], *cells, found["average"]["margin"], f"{found['layer']}, {found['pooling']}"])
    header = [f"{languages[0]}-{language}" for language in languages[1:]]
    return table(["retrieval", *header, "average", "layer, pooling"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    for name in ("models", "langs", "seeds", "targets", "translations"):
        required = name != "translations"
        parser.add_argument(f"--{name}", type=lambda names: names.split(","), required=required)
    options = parser.parse_args()
    folder, languages = options.output, options.langs
    parts = [
        translation(folder, options.translations or options.models, options.targets),
        *(classification(folder, options.models, task, languages, options.seeds) for task in TASKS),
        retrieval(folder, options.models, languages),
    ]
    text = "\n\n".join("\n".join(part) for part in parts) + "\n"
    (folder / "report.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
