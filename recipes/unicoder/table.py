"""Tables of accuracies: ``python recipes/unicoder/table.py FOLDER LANGUAGES TRAINED ...``.

A row of the Markdown table is a set of training languages, ``en,de``, whose scores are FOLDER/en-de/scores.json, as
recipes/xlm/classify.sh writes them; the columns are LANGUAGES and their average. In parentheses are the 95 % bootstrap
intervals over the test examples.
"""

import json
import sys
from pathlib import Path


def table(folder, languages, rows):
    """The table as lines of Markdown."""
    lines = ["| " + " | ".join(["trained on", *languages, "average"]) + " |", "|---" * (len(languages) + 2) + "|"]
    for trained in rows:
        scores = json.loads((Path(folder) / trained.replace(",", "-") / "scores.json").read_text(encoding="utf-8"))
        cells = [cell(scores["languages"][code]) for code in languages]
        lines.append("| " + " | ".join([trained.replace(",", " + "), *cells, f"{scores['accuracy']:.1f}"]) + " |")
    return lines


def cell(scores):
    """Accuracy and its interval."""
    low, high = scores["interval"]
    return f"{scores['accuracy']:.1f} ({low:.1f}–{high:.1f})"


def main():
    if len(sys.argv) < 4:
        sys.exit("usage: python recipes/unicoder/table.py FOLDER LANGUAGES TRAINED ...")
    sys.stdout.write("\n".join(table(sys.argv[1], sys.argv[2].split(","), sys.argv[3:])) + "\n")


if __name__ == "__main__":
    main()
